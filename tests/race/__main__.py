"""python -m tests.race DISPLACEMENTS [MUTANT]: race in a temporary folder and tell."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from tests.race.hostile import MUTANTS, exchange_then_verify, race

with tempfile.TemporaryDirectory(prefix="blocksync-race-") as folder:
    started = time.monotonic()
    outcome = race(Path(folder), int(sys.argv[1]), MUTANTS[sys.argv[2]] if len(sys.argv) > 2 else exchange_then_verify)
    print(f"{outcome}\n{time.monotonic() - started:.1f} s")
