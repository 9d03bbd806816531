"""python -m tests.soak [NAME…] [--scale 0.1]: the test suite's harnesses at full count. See docs/dev/soak.md.

Every part runs in a process of its own, three at a time, so that one that fails or dies stops no other.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from benchmarks.harness import machine
from tests.soak.part import Part, parts
from tests.soak.report import RESULTS, Report

SIDE_BY_SIDE = 3  # on two cores: each waits for disks, or for its own clock, much of the time


class Runner:
    """Runs parts in child processes."""

    def __init__(self, scale: float, results: Path) -> None:
        self.scale = scale
        self.results = results
        self.failed: list[str] = []

    def run(self, part: Part) -> None:
        command = [sys.executable, "-m", "tests.soak.part", part.name, str(self.scale), str(self.results)]
        if subprocess.run(command, cwd=Path(__file__).parents[2], check=False).returncode != 0:
            self.failed.append(part.name)

    def run_in_turn(self, waiting: list[Part]) -> None:
        """Run parts until none is left. Several threads take from one list."""
        while True:
            try:
                part = waiting.pop(0)
            except IndexError:
                return
            self.run(part)

    def run_all(self, chosen: list[Part]) -> None:
        """Run the parts that bear company side by side, the longest first; then the others, one by one."""
        longest_first = sorted(chosen, key=lambda part: -part.minutes)
        shared = [part for part in longest_first if not part.alone]
        threads = [threading.Thread(target=self.run_in_turn, args=(shared,)) for _ in range(SIDE_BY_SIDE)]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except KeyboardInterrupt:
            shared.clear()  # the children have had their own SIGINT: wait until they have cleaned up
            for thread in threads:
                thread.join()
            raise
        self.run_in_turn([part for part in longest_first if part.alone])


def main() -> None:
    """Run the named parts, or all."""
    os.environ["BLOCKSYNC_PEERS"] = "off"  # nothing is sent on this machine's network
    every = parts()
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description="Run the harnesses at full count.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(every)}; default: all")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full counts and times, default 1")
    parser.add_argument("--results", type=Path, default=RESULTS, help=f"JSON lines, default {RESULTS}")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(every)
    if unknown:
        parser.error(f"unknown part {', '.join(sorted(unknown))}; there are: {', '.join(every)}")
    if not arguments.names:
        arguments.results.unlink(missing_ok=True)  # a whole run is a log of its own, named parts are added to it
    report = Report("soak", arguments.results)
    report.append({**machine(), "scale": arguments.scale})
    runner = Runner(arguments.scale, arguments.results)
    started = time.monotonic()
    chosen = [part for name, part in every.items() if not arguments.names or name in arguments.names]
    runner.run_all(chosen)
    report.record("summary", parts=len(chosen), failed=runner.failed, seconds=round(time.monotonic() - started))
    sys.exit(1 if runner.failed else 0)


main()
