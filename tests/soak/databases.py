"""SQLite in three journal modes and git, all at work on one mount that is killed again and again."""

from __future__ import annotations

import random
import shutil
import tempfile
from pathlib import Path

from tests import effort
from tests.conftest import Mounted
from tests.real.databases import all_workloads, kill_under
from tests.soak.report import Report
from tests.system.machines import Machines

MINUTES = 15
_TRANSACTIONS = 150
_COMMITS = 25


def run(scale: float, report: Report) -> None:
    """Forty kills of the mount.

    Raises:
        AssertionError: A database or the repository was damaged, or an acknowledged commit is missing.
    """
    noise = random.Random(0)
    home = Path(tempfile.mkdtemp(prefix="blocksync-databases-"))
    machines = Machines(home)
    try:
        mounted = Mounted(machines, "m", home / "volume-m", machines.volume("m"))
        workloads = all_workloads(mounted.path)
        rounds = effort.soak("databases", scale)
        for _ in range(rounds):
            enough = {name: noise.randint(1, _COMMITS if name == "git" else _TRANSACTIONS) for name in workloads}
            kill_under(mounted, workloads, enough)
        mounted.umount("--seal")
        for verb in ("fsck", "scrub"):
            machines.run(verb, mounted.volume)
        committed = {name: workload.acknowledged for name, workload in workloads.items()}
        report.record("sqlite and git", kills=rounds, **committed)
    finally:
        machines.close()
        shutil.rmtree(home)
