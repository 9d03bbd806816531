"""The host fails at any of its calls: few of them here, drawn by a seed; `make soak` takes all."""

from __future__ import annotations

import random

from tests import effort
from tests.unit.blockfs.engine.hostfaults import all_faults, failure_of

SAMPLE = effort.count("host faults")


def test_a_host_that_fails_at_any_call_is_an_error_that_can_be_repaired() -> None:
    faults = all_faults()
    failures = [failure_of(fault) for fault in random.Random(1).sample(faults, min(SAMPLE, len(faults)))]
    assert [failure for failure in failures if failure] == []
