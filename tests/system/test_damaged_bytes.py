"""Whatever bytes of a volume are damaged: every command ends with a code and a word, never by a signal."""

from __future__ import annotations

import pytest

from tests import effort
from tests.system.damage import run_damaged
from tests.system.machines import Machines

SEEDS = {2: "checked first", 3: "a page of leaves, met by a reader"}
CHOSEN = list(SEEDS)[: effort.count("damaged volumes")]


@pytest.mark.parametrize("seed", CHOSEN, ids=SEEDS.get)
def test_damaged_bytes_never_end_a_command_by_surprise(machines: Machines, seed: int) -> None:
    assert list(run_damaged(machines, seed))  # more of them: tests/soak/repair.py
