"""The parts of `python -m benchmarks lan`, and where their results go."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NoReturn

from benchmarks import harness, rows
from benchmarks.lan import flood, index, questions, rates, syncs, together
from benchmarks.lan.sizes import FULL, QUICK, Sizes
from benchmarks.promises import draw
from tests.kit.netns import why_not

PARTS: Final[dict[str, Callable[[Sizes], list[rows.Row]]]] = {
    "questions": questions.run,
    "nobody": syncs.nobody,
    "alone": syncs.alone,
    "gigabit": rates.gigabit,
    "unshaped": rates.unshaped,
    "four": rates.four,
    "crowd": rates.crowd,
    "hostile": rates.hostile,
    "lossy": rates.lossy,
    "folder": syncs.folder,
    "flood": flood.run,
    "index": index.run,
    "family": together.family,
    "small": together.small,
    "slow": syncs.slow_peer,
}
PROJECT: Final = Path(__file__).parents[2]
PAGE: Final = PROJECT / "docs/reference/benchmarks.md"
PICTURE: Final = "![each figure as a part of its target](plots/lan.svg)\n"
PLOT: Final = PROJECT / "docs/reference/plots/lan.svg"


def _end(*_signal: object) -> NoReturn:
    """Clean up after `kill`, too. That takes a while on a busy machine: who asks again must not break it off."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def main(arguments: Sequence[str]) -> None:
    """Run the named parts, or all; what was measured of the others before stays."""
    is_quick = "--quick" in arguments
    names = [each for each in arguments if each != "--quick"] or list(PARTS)
    unknown = set(names) - set(PARTS)
    if unknown:
        sys.exit(f"unknown part {', '.join(sorted(unknown))}; there are: {', '.join(PARTS)}")
    reason = why_not()
    if reason is not None:
        sys.exit(reason)
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, _end)
    # A quick look is no result: it goes elsewhere.
    results = (PROJECT / "build/benchmarks" if is_quick else harness.RESULTS) / "lan.jsonl"
    for name in names:
        began_s = time.monotonic()
        found = PARTS[name](QUICK if is_quick else FULL)
        took_s = round(time.monotonic() - began_s)
        rows.save(results, name, found, seconds=took_s)
        print(f"## {name} ({took_s} s) {harness.busy()}\n\n{rows.table(found)}", flush=True)
    every = rows.read(results, list(PARTS))
    plot = results.with_suffix(".svg") if is_quick else PLOT
    draw(every, plot)
    if not is_quick:
        text = f"{rows.circumstances(results)}\n{rows.table(every)}\n{PICTURE}"
        rows.put_into_page(PAGE, "python -m benchmarks lan", text)
    print(f"{results.relative_to(PROJECT)}, {plot.relative_to(PROJECT)}")
