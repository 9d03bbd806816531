"""Folders in memory: each step of a store commits durably, and on a busy disk that is nine tenths of the time.

Durability itself is tested with kills, in tests/integration/test_server_process.py.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.syncer.server.stores import MEMORY


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """In place of pytest's, for the tests of this folder."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as path:
        yield Path(path)
