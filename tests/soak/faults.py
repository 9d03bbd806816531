"""The host fails at each of its calls, in each way: see tests/unit/blockfs/engine/hostfaults.py."""

from __future__ import annotations

import random
from typing import Final

from tests import effort
from tests.soak.report import Report
from tests.unit.blockfs.engine.hostfaults import all_faults, failure_of

MINUTES: Final = 5


def run(scale: float, report: Report) -> None:
    """Every call of the script fails with ENOSPC, EDQUOT and EIO, once and for good.

    Raises:
        AssertionError: Under some fault, something was lost, told wrongly, or could not be done again.
    """
    faults = all_faults()
    chosen = random.Random(1).sample(faults, min(len(faults), effort.soak("host faults", scale)))
    failures = [failure for fault in chosen if (failure := failure_of(fault))]
    report.record("faults", possible=len(faults), tried=len(chosen), failures=len(failures))
    assert not failures, "\n".join(failures)
