"""The suites whose counts no other part of the soak has: `pytest` itself, with the counts of a soak."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests import effort
from tests.soak.report import Report

MINUTES: Final = 45
_TIMEOUT_S: Final = 3600  # per test: the suite's own limit is for the counts of `make test`


def run(scale: float, report: Report) -> None:
    """Run them.

    Raises:
        AssertionError: A test failed; pytest has said which.
    """
    tests = sorted({f"tests/{each.test}" for each in effort.KNOB.values() if each.part == "suites"})
    command = [sys.executable, "-m", "pytest", "-q", f"--timeout={_TIMEOUT_S}", *tests]
    environment = {**os.environ, effort.VARIABLE: effort.Effort.SOAK, effort.SCALE: str(scale)}
    ended = subprocess.run(command, cwd=Path(__file__).parents[2], env=environment, check=False)
    report.record("suites", tests=tests, exit_code=ended.returncode)
    assert ended.returncode == 0, f"pytest ended with {ended.returncode}"
