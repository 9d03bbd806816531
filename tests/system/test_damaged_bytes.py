"""Whatever bytes of a volume are damaged: every command ends with a code and a word, never by a signal."""

from __future__ import annotations

from tests.system.damage import run_damaged
from tests.system.machines import Machines


def test_damaged_bytes_never_end_a_command_by_surprise(machines: Machines) -> None:
    assert list(run_damaged(machines, seed=2))  # more of them: tests/soak/repair.py
