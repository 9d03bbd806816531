"""python -m tests.race DISPLACEMENTS [--mount] [--mutant NAME] [--seed N]: race in a temporary folder and tell."""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from tests.race import hostile, mounted

parser = argparse.ArgumentParser(prog="python -m tests.race")
parser.add_argument("displacements", type=int)
parser.add_argument("--mount", action="store_true", help="on a mounted volume instead of an ordinary folder")
parser.add_argument("--mutant", choices=sorted(hostile.MUTANTS))
parser.add_argument("--seed", type=int, default=1)
arguments = parser.parse_args()

with tempfile.TemporaryDirectory(prefix="blocksync-race-") as name:
    folder, count, started = Path(name), arguments.displacements, time.monotonic()
    if arguments.mount:
        way = mounted.MUTANTS[arguments.mutant] if arguments.mutant else mounted.conditional_install
        outcome = mounted.race(folder, count, way, arguments.seed)
    else:
        replace = hostile.MUTANTS[arguments.mutant] if arguments.mutant else hostile.exchange_then_verify
        outcome = hostile.race(folder, count, replace, arguments.seed)
    print(f"{outcome}\n{time.monotonic() - started:.1f} s")
