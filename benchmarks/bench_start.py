"""What a command costs before it does anything, in processor time: as a multiple of the bare interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.harness import Result, interleaved
from tests.system.machines import BLOCKSYNC, Machines

REPETITIONS: Final = 15
BARE: Final = "python -c pass"
VERBS: Final = ("--help", "status", "reconcile")


def run() -> list[Result]:
    """Each with byte code at hand. What else the machine does can only add: so the least of each is compared."""
    with tempfile.TemporaryDirectory() as folder:
        machines = Machines(Path(folder))
        try:
            machines.serve()
            root = machines.folder("a")
            machines.link(root)
            machines.reconcile(root)
            commands: dict[str, list[str | Path]] = {BARE: [sys.executable, "-c", "pass"]}
            commands |= {verb: [BLOCKSYNC, verb] for verb in VERBS}
            subjects = {name: partial(_processor_ms, command, machines) for name, command in commands.items()}
            found = interleaved("start, processor time", "ms", subjects, REPETITIONS)
        finally:
            machines.close()
    bare = min(found[0].values)
    return found + [
        Result(work="the least of them", subject=row.subject, unit="times", values=[min(row.values) / bare])
        for row in found
    ]


def _processor_ms(command: list[str | Path], machines: Machines) -> float:
    """Milliseconds of one process, which must succeed."""
    environment = {name: value for name, value in machines.environment.items() if name != "PYTHONDONTWRITEBYTECODE"}
    child = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0, command
    return (used.ru_utime + used.ru_stime) * 1000
