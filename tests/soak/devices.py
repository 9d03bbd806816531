"""Six devices on one container for ten minutes: see tests/devices/share.py."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from tests import effort
from tests.soak.report import Report

MINUTES = 12


def run(scale: float, report: Report) -> None:
    """Run with a fresh seed.

    Raises:
        AssertionError: The devices differ, or a version is nowhere.
    """
    seed = int(time.time())
    result = subprocess.run(
        [sys.executable, "-m", "tests.devices", str(max(10, effort.soak("six devices", scale))), str(seed)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    report.record("six devices", seed=seed, **json.loads(result.stdout))
