"""The random comparison with ext4 at full count: see tests/system/posix_machine.py."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Final

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests import effort
from tests.conftest import mounted_below
from tests.soak.report import Report
from tests.system.posix_machine import PosixMachine

MINUTES = 10
_STEPS: Final = 60


def run(scale: float, report: Report) -> None:
    """Run random sequences of calls on a mount and on the temporary folder's filesystem, which should be ext4.

    Raises:
        AssertionError: They differed; Hypothesis prints the shortest sequence it found.
    """
    home = Path(tempfile.mkdtemp(prefix="blocksync-posix-"))
    sequences = effort.soak("calls beside ext4", scale)
    try:
        PosixMachine.ext4 = home
        for mounted in mounted_below(home):
            PosixMachine.mounted = mounted
            run_state_machine_as_test(
                PosixMachine,
                settings=settings(
                    max_examples=sequences,
                    stateful_step_count=_STEPS,
                    deadline=None,
                    database=None,
                    suppress_health_check=list(HealthCheck),
                ),
            )
    finally:
        shutil.rmtree(home, ignore_errors=True)  # a mount that is left behind has failed the run already
    report.record("sequences", sequences=sequences, steps=_STEPS, calls=PosixMachine.steps)
