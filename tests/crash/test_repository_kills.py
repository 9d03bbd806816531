"""kill -9 of pushes, collections and repackings of a repository: see repository_kills.py."""

from __future__ import annotations

from pathlib import Path

from tests import effort
from tests.crash.repository_kills import kill_often


def test_what_was_committed_survives_kill_nine_of_a_push_a_collection_and_a_repacking(tmp_path: Path) -> None:
    kills = effort.count("repository kills")
    tally = kill_often(tmp_path, 1, kills)
    assert set(tally.kills.values()) == {kills}
