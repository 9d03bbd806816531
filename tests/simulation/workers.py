"""Run the simulation in one process per core, as a plain loop in each."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

CORES = len(os.sched_getaffinity(0))
_ROOT = Path(__file__).parents[2]


def run(*verbs: Sequence[str | int]) -> list[str]:
    """Start `python -m tests.simulation ARGUMENTS` for each, wait for all, and return their lines."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.simulation", *map(str, arguments)],
            cwd=_ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for arguments in verbs
    ]
    lines: list[str] = []
    for process in processes:
        output, _ = process.communicate()
        lines += output.splitlines()
        if process.returncode:
            lines.append(f"failed: a worker ended with {process.returncode}")
    return lines


def by_core(verb: str, first: int, count: int) -> list[str]:
    """Share `count` seeds from `first` on between the cores."""
    share = -(-count // CORES)
    starts = range(first, first + count, share)
    return run(*((verb, start, min(share, first + count - start)) for start in starts))
