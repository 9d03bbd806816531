"""Programs that replace, rewrite and map files as fast as they can, against the code that installs remote versions."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests import effort
from tests.race import hostile, mounted
from tests.race.outcome import Outcome
from tests.soak.report import Report

MINUTES = 35


def run(scale: float, report: Report) -> None:
    """No version is lost, in a folder and on a mount; the same races catch the mutant."""
    count = max(1000, effort.soak("hostile writers", scale))
    mounted_count = max(1000, effort.soak("hostile writers, mounted", scale))
    seed = time.time_ns() % (1 << 32)
    _hold(report, "race", seed, lambda folder: hostile.race(folder, count, seed=seed))
    _catch(report, "stat-then-rename", lambda folder: hostile.race(folder, 10_000, hostile.stat_then_rename, seed))
    _hold(report, "race on a mount", seed, lambda folder: mounted.race(folder, mounted_count, seed=seed))
    _catch(
        report,
        "stat-then-rename on a mount",
        lambda folder: mounted.race(folder, 10_000, mounted.stat_then_rename, seed),
    )


def _hold(report: Report, name: str, seed: int, race: Callable[[Path], Outcome]) -> None:
    outcome = _in_a_folder(race)
    report.record(
        name,
        seed=seed,
        displaced=outcome.displaced,
        unseen=outcome.unseen,
        refused=outcome.refused,
        written=outcome.written,
        lost=len(outcome.lost),
    )
    assert not outcome.lost, outcome


def _catch(report: Report, name: str, race: Callable[[Path], Outcome]) -> None:
    caught = _in_a_folder(race)
    report.record(name, displaced=caught.displaced, lost=len(caught.lost))
    assert caught.lost, "the mutant survived"


def _in_a_folder(race: Callable[[Path], Outcome]) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="blocksync-race-") as folder:
        return race(Path(folder))
