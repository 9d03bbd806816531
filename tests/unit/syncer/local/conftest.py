"""An ordinary root for the tests of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.syncer.local.folders import Place, new_place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A folder with a marker, and nothing else in it."""
    return new_place(tmp_path)
