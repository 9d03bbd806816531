"""Snapshots against a model: many more sequences, and longer ones, than the suite tries."""

from __future__ import annotations

from typing import Final

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests import effort
from tests.soak.report import Report
from tests.unit.blockfs.engine.snapshots_machine import SnapshotMachine

MINUTES: Final = 6
STEPS: Final = 50


def run(scale: float, report: Report) -> None:
    """Random sequences of writes, cuts, snapshots, deletions, restores, collections, remounts, kills and power cuts."""
    sequences = effort.soak("snapshots", scale)
    run_state_machine_as_test(
        SnapshotMachine,
        settings=settings(
            max_examples=sequences,
            stateful_step_count=STEPS,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    report.record("sequences", sequences=sequences, steps_at_most=STEPS, failures=0)
