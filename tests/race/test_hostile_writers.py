"""Hostile writers against the code that replaces files; 50,000 displacements in `make soak`."""

from __future__ import annotations

from pathlib import Path

from tests.race.hostile import MUTANTS, Outcome, race


def test_no_version_of_a_hostile_writer_is_lost(tmp_path: Path) -> None:
    outcome = race(tmp_path, 1000)
    assert not outcome.lost, outcome
    assert outcome.displaced >= 1000
    assert outcome.unseen, "no writer was ever faster: this has shown nothing"


def test_the_race_catches_a_look_before_a_plain_rename(tmp_path: Path) -> None:
    """Or the test above would prove nothing: the named mutant `stat-then-rename`."""
    found: list[Outcome] = []
    for seed in range(1, 11):
        folder = tmp_path / str(seed)
        folder.mkdir()
        found.append(race(folder, 1000, MUTANTS["stat-then-rename"], seed))
        if found[-1].lost:
            return
    raise AssertionError(f"the mutant survived: {found}")
