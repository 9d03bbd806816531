"""Six devices on one share; for how long, tests/effort.py says. See share.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import effort

SECONDS = {"served": effort.count("six devices"), "swift": effort.count("six devices of a repository")}
SEED = 7


@pytest.mark.timeout(1800)  # a minute of trouble, then as many cycles as it takes to come to rest
@pytest.mark.parametrize("place", SECONDS)
def test_six_devices_converge_and_no_version_that_was_ever_closed_is_lost(tmp_path: Path, place: str) -> None:
    """In a process of its own, without threads: it forks one for each cycle."""
    result = subprocess.run(
        [sys.executable, "-m", "tests.devices", place, str(SECONDS[place]), str(SEED)],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "TMPDIR": str(tmp_path), "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    counts = json.loads(result.stdout)
    assert counts["written"]
    assert counts["kills"]
