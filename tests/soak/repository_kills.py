"""SIGKILL of pushes to a repository, collections and repackings, 300 times each: see tests/crash."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

from tests import effort
from tests.crash.repository_kills import VERBS, kill_often
from tests.soak.report import Report

MINUTES: Final = 60
PER_REPOSITORY: Final = 20  # then a new one: of every age


def run(scale: float, report: Report) -> None:
    """See the module.

    Raises:
        AssertionError: Something was lost.
    """
    kills = max(1, effort.soak("repository kills", scale))
    done = 0
    for seed, first in enumerate(range(0, kills, PER_REPOSITORY)):
        with tempfile.TemporaryDirectory(prefix="blocksync-kills-") as home:
            tally = kill_often(Path(home), seed, min(PER_REPOSITORY, kills - first))
        done += tally.kills[VERBS[0]]
        report.progress(f"{done} of {kills} kills of each")
    report.record("repository_kills", kills_of_each=done, verbs=VERBS)
