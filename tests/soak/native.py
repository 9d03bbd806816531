"""Random histories of native mounts on each host with reflinks, each compared with a model byte by byte."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from pathlib import Path

from tests import effort
from tests.kit.hostfs import REFLINKS, reflinking
from tests.race.native import lived
from tests.soak.report import Report

MINUTES = 60


def run(scale: float, report: Report) -> None:
    """History after history.

    Raises:
        AssertionError: A byte was wrong, or a call failed; it names the seed.
    """
    first = time.time_ns() % (1 << 32)
    for kind in sorted(REFLINKS):
        histories, done = effort.soak("histories of native mounts", scale), Counter[str]()
        with tempfile.TemporaryDirectory(prefix="blocksync-native-") as home, reflinking(Path(home), kind) as host:
            for number in range(histories):
                done += lived(host, first + number)
                if number % 100 == 99:
                    report.progress(f"{kind}: {number + 1} histories")
        report.record(
            "histories of native mounts", host=kind, seed=first, histories=histories, steps=done.total(), failures=0
        )
