"""The parts of `python -m benchmarks repository`, and where their results go."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from benchmarks import harness, rows
from benchmarks.promises import draw
from benchmarks.repository import corpus, edits, far, many

PARTS: Final[dict[str, Callable[[Path, int], list[rows.Row]]]] = {
    "corpus": corpus.corpus,
    "days": corpus.days,
    "generations": edits.generations,
    "behind": edits.behind,
    "edits": edits.edits,
    "swift": far.swift,
    "million": many.million,
}
PAGE: Final = Path(__file__).parents[2] / "docs/reference/benchmarks.md"
RESULTS: Final = harness.RESULTS / "repository.jsonl"
COMMAND: Final = "python -m benchmarks repository"


def main(arguments: Sequence[str]) -> None:
    """Run the named parts, or all, each in a directory that goes with it."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("part", nargs="*", choices=[*PARTS, []], help="all of them, if none is named")
    parser.add_argument("--repetitions", type=int, default=3, help="of each part")
    parser.add_argument("--more", action="store_true", help="add to the repetitions that are saved")
    parser.add_argument("--table", action="store_true", help="measure nothing; table and plot of what is saved")
    asked = parser.parse_args(arguments)
    if os.geteuid():
        sys.exit("run it as root: it mounts volumes")
    for name in () if asked.table else asked.part or PARTS:
        began_s = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="blocksync-repository-") as home:
            found = PARTS[name](Path(home), asked.repetitions)
        took_s = round(time.monotonic() - began_s)
        if asked.more:
            found = rows.save_more(RESULTS, name, found, seconds=took_s)
        else:
            rows.save(RESULTS, name, found, seconds=took_s)
        print(f"## {name} ({took_s} s) {harness.busy()}\n\n{rows.table(found)}", flush=True)
    every, picture = rows.read(RESULTS, list(PARTS)), "plots/repository.svg"
    draw(every, PAGE.parent / picture)
    text = f"{rows.circumstances(RESULTS)}\n{rows.table(every)}\n![each figure as a part of its target]({picture})\n"
    rows.put_into_page(PAGE, COMMAND, text)
