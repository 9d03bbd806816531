"""kill -9 of `init`, changes of keys, and `devices forget`: see upkeep_kills.py."""

from __future__ import annotations

from pathlib import Path

from tests import effort
from tests.crash.upkeep_kills import kill_often


def test_kill_nine_of_init_changes_of_keys_and_a_forgetting_locks_nobody_out(tmp_path: Path) -> None:
    kills = effort.count("upkeep kills")
    tally = kill_often(tmp_path, 1, kills)
    assert set(tally.kills.values()) == {kills}
