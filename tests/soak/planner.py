"""Rings R0 and R2, four devices at once, on containers and repositories, with fresh seeds: docs/design/planner.md."""

from __future__ import annotations

import time
from typing import Final

from tests import effort
from tests.simulation import workers
from tests.soak.report import Report

MINUTES = 30
RINGS: Final = (
    ("seeds", "ring R0"),
    ("engine", "ring R2"),
    ("crowd", "four devices"),
    ("repository", "ring R2 on a repository"),
    ("repository-crowd", "four devices of a repository"),
)
_BATCH: Final = 20_000


def run(scale: float, report: Report) -> None:
    """Run scenarios that no run before had: seeds begin at the present second.

    Raises:
        AssertionError: A seed violates an invariant; it is named, and replays exactly.
    """
    first = int(time.time()) * 1_000_000
    for verb, ring in RINGS:
        wanted, done = effort.soak(ring, scale), 0
        while done < wanted:
            batch = min(_BATCH, wanted - done)
            lines = workers.by_core(verb, first + done, batch)
            failed = [line for line in lines if line.startswith("failed")]
            report.record(f"ring {verb}", first=first + done, scenarios=batch, failures=len(failed))
            assert not failed, "\n".join(failed)
            done += batch
