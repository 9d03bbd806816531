"""The parts of `python -m benchmarks targets`, and where their results go."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from benchmarks import harness, rows
from benchmarks.targets import company, copies, handlers, names, pages, streams
from benchmarks.targets.places import Places, opened
from benchmarks.targets.sizes import FULL, QUICK, Sizes

PARTS: Final[dict[str, Callable[[Places, Sizes], list[rows.Row]]]] = {
    "streams": streams.run,
    "pages": pages.run,
    "names": names.run,
    "copies": copies.run,
    "company": company.run,
    "handlers": handlers.run,
}
PROJECT: Final = Path(__file__).parents[2]
PAGE: Final = PROJECT / "docs/reference/benchmarks.md"


def main(arguments: Sequence[str]) -> None:
    """Run the named parts, or all, beside each other on the same mounts."""
    asked = _parser().parse_args(arguments)
    sizes = QUICK if asked.quick else FULL
    if asked.large_gib is not None:
        sizes = replace(sizes, large_bytes=int(asked.large_gib * (1 << 30)))
    if asked.repetitions is not None:
        sizes = replace(sizes, repetitions=asked.repetitions)
    if os.geteuid():
        sys.exit("run it as root: it drops caches, and mounts by mount(2)")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # unmount after `kill`, too
    # A quick look is no result: it goes elsewhere.
    results = (PROJECT / "build/benchmarks" if asked.quick else harness.RESULTS) / "targets.jsonl"
    with opened() as places:
        for name in asked.part or PARTS:
            began_s = time.monotonic()
            found = PARTS[name](places, sizes)
            took_s = round(time.monotonic() - began_s)
            rows.save(results, name, found, seconds=took_s)
            print(f"## {name} ({took_s} s) {harness.busy()}\n\n{rows.table(found)}", flush=True)
            if not asked.quick:
                text = f"{rows.circumstances(results)}\n{rows.table(rows.read(results, list(PARTS)))}"
                rows.put_into_page(PAGE, "python -m benchmarks targets", text)
    print(results.relative_to(PROJECT))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks targets", description=__doc__)
    parser.add_argument("part", nargs="*", choices=[*PARTS, []], help="all of them, if none is named")
    parser.add_argument("--quick", action="store_true", help="a little of everything; writes to build/benchmarks")
    parser.add_argument("--large-gib", type=float, help="of what is written and sealed (0.5; 10 in the targets)")
    parser.add_argument("--repetitions", type=int, help="of each measurement")
    return parser
