"""Several programs share one file of a mount, of each kind, with seals and collections at full speed."""

from __future__ import annotations

import shutil
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests import effort
from tests.kit.hostfs import reflinking
from tests.race.shared import ROUND, WAYS, Race
from tests.soak.report import Report

MINUTES = 40
_VOLUME: Final = 10 * ROUND  # steps of each program on one volume


def run(scale: float, report: Report) -> None:
    """Volume after volume.

    Raises:
        AssertionError: A byte was not what its owner had written, or a call failed.
    """
    seed = time.time_ns() % (1 << 32)
    for way in WAYS:
        done = 0
        for number in range(max(1, effort.soak("programs on one file", scale) // _VOLUME)):
            home = Path(tempfile.mkdtemp(prefix="blocksync-shared-"))
            with ExitStack() as stack:
                place = home
                if way == "native":
                    place = stack.enter_context(reflinking(home, "btrfs" if number % 2 else "xfs")) / "home"
                    place.mkdir()
                race = Race(place, way, seed + number)
                race.run(_VOLUME)
            done += race.steps
            report.progress(f"{way}: {done} steps")
            assert not race.failures, f"seed {seed + number}, in {home}: {race.failures}"
            shutil.rmtree(home)
        report.record("programs on one file", way=way, seed=seed, steps=done, failures=0)
