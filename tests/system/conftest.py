"""System tests leave nothing behind."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def checked(nothing_left: None) -> None:
    """Every system test is checked for leftovers; this fixture ends after all others of the test."""
