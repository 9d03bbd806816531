"""Guests whose disks lie on the mount, in every way qemu opens them, with qemu and the mount killed in turn."""

from __future__ import annotations

import json
import os
import random
import select
import shutil
import tempfile
from contextlib import nullcontext
from pathlib import Path

from tests import effort
from tests.conftest import Mounted
from tests.kit.hostfs import mounted_file
from tests.real.guest import Mode
from tests.real.trial import Trial
from tests.soak.report import Report
from tests.system.machines import Machines

MINUTES = 20
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
NATIVE = [
    Mode(format="raw", cache="none", aio="io_uring"),
    Mode(format="raw", cache="writeback", aio="threads"),
    Mode(format="qcow2", cache="writeback", aio="threads"),
]
"""Once more, on a native mount."""
_HOST_BYTES = 8 << 30
_SYNCS = 300


def run(scale: float, report: Report) -> None:
    """Thirteen ways to open a disk, eight hard ends each, then an orderly one.

    Raises:
        AssertionError: A guest's file system was damaged, or it lost what it had synced.
    """
    for number, (mode, is_native) in enumerate([(mode, False) for mode in MODES] + [(mode, True) for mode in NATIVE]):
        home = Path(tempfile.mkdtemp(prefix="blocksync-guest-"))
        try:
            with mounted_file(home, _HOST_BYTES, "mkfs.xfs", "-q") if is_native else nullcontext(home) as host:
                _try(mode, is_native, host / "home", random.Random(number), scale, report)
        finally:
            shutil.rmtree(home)


def _try(mode: Mode, is_native: bool, home: Path, noise: random.Random, scale: float, report: Report) -> None:
    home.mkdir()
    machines = Machines(home)
    machines.environment["BLOCKSYNC_NATIVE"] = "1" if is_native else "0"
    process = -1
    try:
        mounted = Mounted(machines, "m", home / "volume-m", machines.volume("m"))
        trial = Trial(mounted, home, mode)
        victims = ["qemu", "mount"] * max(1, effort.soak("guest", scale) // 2)
        trial.run_rounds(victims, noise, _SYNCS)
        trial.power_off(versions=50)
        trial.check_volume()
        told = json.loads(machines.run("stats", mounted.path, "--json").stdout)
        name = mode.name + ", native" * (told["mode"] == "native")
        assert is_native == (told["mode"] == "native"), told
        report.record(name, hard_ends=len(victims), versions=trial.promises.newest)
        process = os.pidfd_open(mounted.pid)
    finally:
        machines.close()
    select.select([process], [], [])  # until it ends the host's filesystem is busy
    os.close(process)
