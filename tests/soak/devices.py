"""Six devices on one container, and of one repository, for ten minutes each: see tests/devices/share.py."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from tests import effort
from tests.soak.report import Report

MINUTES = 24


def run(scale: float, report: Report) -> None:
    """Run with a fresh seed.

    Raises:
        AssertionError: The devices differ, or a version is nowhere.
    """
    for what, place in (("six devices", "served"), ("six devices of a repository", "swift")):
        seed = int(time.time())
        seconds = max(10, effort.soak(what, scale))
        result = subprocess.run(
            [sys.executable, "-m", "tests.devices", place, str(seconds), str(seed)],
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, result.stdout + result.stderr
        report.record(what, seed=seed, **json.loads(result.stdout))
