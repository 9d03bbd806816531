"""SIGKILL of the mount at 1,000 moments under a mixed load, on two volumes side by side. See tests/crash/kills.py.

Every second volume is on XFS, and its mount native.
"""

from __future__ import annotations

import multiprocessing
import shutil
import tempfile
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Final

from tests import effort
from tests.crash.kills import Tally, kill_often
from tests.kit.hostfs import mounted_file
from tests.soak.report import Report

MINUTES: Final = 25
VOLUMES: Final = 2
HOST_BYTES: Final = 4 << 30
"""Of a native mount's XFS, in a sparse file."""
PER_VOLUME: Final = 25  # then a new volume: bounded time for the checks, and volumes of every age


def one_volume(seed: int, kills: int) -> Tally:
    """Kill one volume so often; it is kept if something was found."""
    home = Path(tempfile.mkdtemp(prefix="blocksync-kills-"))
    is_native = seed % 2 == 1
    with mounted_file(home, HOST_BYTES, "mkfs.xfs", "-q") if is_native else nullcontext(home) as host:
        (host / "home").mkdir()
        tally = kill_often(host / "home", seed, kills, is_native=is_native)
    if tally.failures:
        tally.failures.append(f"the volume of seed {seed} is kept: {home}")
    else:
        shutil.rmtree(home)
    return tally


def run(scale: float, report: Report) -> None:
    """See the module."""
    kills = max(VOLUMES, effort.soak("kills of a mount", scale))
    batches = [min(PER_VOLUME, kills - first) for first in range(0, kills, PER_VOLUME)]
    total = Tally()
    with ProcessPoolExecutor(VOLUMES, mp_context=multiprocessing.get_context("spawn")) as pool:
        for tally in pool.map(one_volume, range(len(batches)), batches):
            total.add(tally)
            report.progress(f"{total.kills} of {kills} kills, {len(total.failures)} failures")
    report.record(
        "kills",
        kills=total.kills,
        failures=total.failures,
        recorded_operations=total.steps,
        undying=total.undying,
        moments=dict(total.moments.most_common()),
        operations_hit=dict(total.hit.most_common()),
    )
    assert not total.failures, total.failures
