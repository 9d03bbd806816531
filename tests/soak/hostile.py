"""Programs that replace, rewrite and map files as fast as they can, against the code that installs remote versions."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from tests.race.hostile import MUTANTS, race
from tests.soak.report import Report

MINUTES = 12
DISPLACEMENTS = 50_000


def run(scale: float, report: Report) -> None:
    """No version is lost; the same race catches the mutant."""
    with tempfile.TemporaryDirectory(prefix="blocksync-race-") as folder:
        seed = time.time_ns() % (1 << 32)
        outcome = race(Path(folder), max(1000, round(DISPLACEMENTS * scale)), seed=seed)
        report.record(
            "race",
            seed=seed,
            displaced=outcome.displaced,
            unseen=outcome.unseen,
            refused=outcome.refused,
            written=outcome.written,
            lost=len(outcome.lost),
        )
        assert not outcome.lost, outcome
        caught = race(Path(folder), 10_000, MUTANTS["stat-then-rename"], seed)
        report.record("stat-then-rename", displaced=caught.displaced, lost=len(caught.lost))
        assert caught.lost, "the mutant survived"
