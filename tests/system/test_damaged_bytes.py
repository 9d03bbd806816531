"""Whatever bytes of a volume are damaged: every command ends with a code and a word, never by a signal."""

from __future__ import annotations

import pytest

from tests.system.damage import run_damaged
from tests.system.machines import Machines


@pytest.mark.parametrize("seed", [2, 3], ids=["checked-first", "a-page-of-leaves-met-by-a-reader"])
def test_damaged_bytes_never_end_a_command_by_surprise(machines: Machines, seed: int) -> None:
    assert list(run_damaged(machines, seed))  # more of them: tests/soak/repair.py
