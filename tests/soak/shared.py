"""Several programs share one file of a mount, on each front-end, with seals and collections at full speed."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Final

from tests import effort
from tests.race.shared import ROUND, Race
from tests.soak.report import Report

MINUTES = 25
_VOLUME: Final = 10 * ROUND  # steps of each program on one volume


def run(scale: float, report: Report) -> None:
    """Volume after volume.

    Raises:
        AssertionError: A byte was not what its owner had written, or a call failed.
    """
    seed = time.time_ns() % (1 << 32)
    for frontend in ("kernel", "pyfuse3"):
        done = 0
        for number in range(max(1, effort.soak("programs on one file", scale) // _VOLUME)):
            home = Path(tempfile.mkdtemp(prefix="blocksync-shared-"))
            race = Race(home, frontend, seed + number)
            race.run(_VOLUME)
            done += race.steps
            report.progress(f"{frontend}: {done} steps")
            assert not race.failures, f"seed {seed + number}, in {home}: {race.failures}"
            shutil.rmtree(home)
        report.record("programs on one file", frontend=frontend, seed=seed, steps=done, failures=0)
