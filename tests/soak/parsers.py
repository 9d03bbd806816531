"""Hostile bytes for everything that reads the LAN or a repository, guided by the code they reach: see tests/fuzz."""

from __future__ import annotations

import time

from tests import effort
from tests.fuzz import peer, repository
from tests.fuzz.search import search, share
from tests.soak.report import Report

MINUTES = 10


def run(scale: float, report: Report) -> None:
    """Search with seeds that no run before had: they begin at the present second.

    Raises:
        AssertionError: An input was not borne; it is named in hexadecimal.
    """
    for name, targets in (("peer parsers", peer.TARGETS), ("repository parsers", repository.TARGETS)):
        for seed, target in enumerate(targets, int(time.time())):
            inputs = share(target, targets, effort.soak(name, scale))
            found = search(target, inputs, seed, guided=True)
            report.record(target.name, seed=seed, inputs=inputs, steps=len(found.steps), corpus=len(found.corpus))
