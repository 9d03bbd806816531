"""Guests whose disks lie on the mount, in every way qemu opens them, with qemu and the mount killed in turn."""

from __future__ import annotations

import random
import shutil
import tempfile
from pathlib import Path

from tests import effort
from tests.conftest import Mounted
from tests.real.guest import Mode
from tests.real.trial import Trial
from tests.soak.report import Report
from tests.system.machines import Machines

MINUTES = 15
MODES = [
    Mode(format=disk_format, cache=cache, aio=aio)
    for disk_format in ("raw", "qcow2")
    for cache, aio in (
        ("none", "threads"),
        ("none", "native"),
        ("none", "io_uring"),
        ("writeback", "threads"),
        ("writeback", "io_uring"),
    )
]
_SYNCS = 300


def run(scale: float, report: Report) -> None:
    """Ten ways to open a disk, eight hard ends each, then an orderly one.

    Raises:
        AssertionError: A guest's file system was damaged, or it lost what it had synced.
    """
    for number, mode in enumerate(MODES):
        home = Path(tempfile.mkdtemp(prefix="blocksync-guest-"))
        machines = Machines(home)
        try:
            mounted = Mounted(machines, "m", home / "volume-m", machines.volume("m"))
            trial = Trial(mounted, home, mode)
            victims = ["qemu", "mount"] * max(1, effort.soak("guest", scale) // 2)
            trial.run_rounds(victims, random.Random(number), _SYNCS)
            trial.power_off(versions=50)
            trial.check_volume()
            report.record(mode.name, hard_ends=len(victims), versions=trial.promises.newest)
        finally:
            machines.close()
            shutil.rmtree(home)
