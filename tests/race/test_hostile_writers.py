"""Hostile writers against the code that replaces files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests import effort
from tests.race import hostile, mounted
from tests.race.outcome import Outcome

DISPLACED = effort.count("hostile writers")
DISPLACED_MOUNTED = effort.count("hostile writers, mounted")


def test_no_version_of_a_hostile_writer_is_lost(tmp_path: Path) -> None:
    outcome = hostile.race(tmp_path, DISPLACED)
    assert not outcome.lost, outcome
    assert outcome.displaced >= DISPLACED
    assert outcome.unseen, "no writer was ever faster: this has shown nothing"


def test_no_version_of_a_hostile_writer_is_lost_on_a_mount(tmp_path: Path) -> None:
    outcome = mounted.race(tmp_path, DISPLACED_MOUNTED)
    assert not outcome.lost, outcome
    assert outcome.displaced >= DISPLACED_MOUNTED
    assert outcome.refused, "no writer was ever faster: this has shown nothing"


def test_the_race_catches_a_look_before_a_plain_rename(tmp_path: Path) -> None:
    """Or the tests above would prove nothing: the named mutant `stat-then-rename`."""
    _assert_caught(tmp_path, lambda folder, seed: hostile.race(folder, 1000, hostile.stat_then_rename, seed))


def test_the_race_on_a_mount_catches_a_look_before_a_plain_rename(tmp_path: Path) -> None:
    _assert_caught(tmp_path, lambda folder, seed: mounted.race(folder, 300, mounted.stat_then_rename, seed))


def _assert_caught(folder: Path, race: Callable[[Path, int], Outcome]) -> None:
    found: list[Outcome] = []
    for seed in range(1, 11):
        (folder / str(seed)).mkdir()
        found.append(race(folder / str(seed), seed))
        if found[-1].lost:
            return
    raise AssertionError(f"the mutant survived: {found}")
