"""The parts of `python -m benchmarks targets [native]`, and where their results go."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from benchmarks import harness, rows
from benchmarks.promises import draw
from benchmarks.targets import company, copies, handlers, names, pages, streams
from benchmarks.targets.places import Places, opened, opened_native
from benchmarks.targets.sizes import FULL, QUICK, Sizes

PARTS: Final[dict[str, Callable[[Places, Sizes], list[rows.Row]]]] = {
    "streams": streams.run,
    "sealed": streams.sealed,
    "pages": pages.run,
    "names": names.run,
    "copies": copies.run,
    "memory": copies.memory,
    "company": company.run,
    "applying": company.run_applying,
    "handlers": handlers.run,
}
NATIVE: Final = "native"
PROJECT: Final = Path(__file__).parents[2]
PAGE: Final = PROJECT / "docs/reference/benchmarks.md"


def main(arguments: Sequence[str]) -> None:
    """Run the named parts, or all, beside each other on the same mounts."""
    is_native = arguments[:1] == [NATIVE]
    # Handlers are measured without a mount.
    parts = {name: part for name, part in PARTS.items() if not (is_native and name == "handlers")}
    asked = _parser(parts).parse_args(arguments[is_native:])
    sizes = QUICK if asked.quick else FULL
    if asked.large_gib is not None:
        sizes = replace(sizes, sealed_bytes=int(asked.large_gib * (1 << 30)))
    if asked.repetitions is not None:
        sizes = replace(sizes, repetitions=asked.repetitions, sealed_repetitions=asked.repetitions)
    if os.geteuid():
        sys.exit("run it as root: it drops caches, and mounts by mount(2)")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # unmount after `kill`, too
    # A quick look is no result: it goes elsewhere.
    name = "targets-native.jsonl" if is_native else "targets.jsonl"
    results = (PROJECT / "build/benchmarks" if asked.quick else harness.RESULTS) / name
    with opened_native() if is_native else opened() as places:
        for name in asked.part or parts:
            began_s = time.monotonic()
            found = parts[name](places, sizes)
            took_s = round(time.monotonic() - began_s)
            rows.save(results, name, found, seconds=took_s)
            print(f"## {name} ({took_s} s) {harness.busy()}\n\n{rows.table(found)}", flush=True)
            if not asked.quick:
                tell(results, list(parts), is_native=is_native)
    print(results.relative_to(PROJECT))


def tell(results: Path, parts: list[str], *, is_native: bool) -> None:
    """Put all that was measured into the page, and draw it."""
    every, picture = rows.read(results, parts), f"plots/{results.stem}.svg"
    draw(every, PAGE.parent / picture)
    text = f"{rows.circumstances(results)}\n{rows.table(every)}\n![each figure as a part of its target]({picture})\n"
    rows.put_into_page(PAGE, f"python -m benchmarks targets{f' {NATIVE}' * is_native}", text)


def _parser(parts: Iterable[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks targets [{NATIVE}]", description=__doc__)
    parser.add_argument("part", nargs="*", choices=[*parts, []], help="all of them, if none is named")
    parser.add_argument("--quick", action="store_true", help="a little of everything; writes to build/benchmarks")
    parser.add_argument("--large-gib", type=float, help="of what is written and sealed, in the part of that name (10)")
    parser.add_argument("--repetitions", type=int, help="of each measurement")
    return parser
