"""Ring R2 with one device: whatever is lost on the way, its own side is never written to. See alone.py."""

from __future__ import annotations

import pytest

from syncer.core.planner import bookings
from syncer.core.planner.outcome import Outcome
from tests import effort
from tests.simulation.alone import AloneScenario, failure_of
from tests.simulation.engine_scenario import run_seed

SCENARIOS = effort.count("ring R2, one device")
FOUND = (83, 262, 420, 450, 721, 1151)


def test_a_device_alone_never_meets_itself() -> None:
    """Breaks when what this device wrote, and was not told of, looks like somebody's."""
    failures = [f"{seed}: {found}" for seed in range(SCENARIOS) if (found := failure_of(seed)) is not None]
    assert not failures, "\n".join(failures)


def test_seeds_that_failed_once_violate_nothing() -> None:
    """Directories that were half moved or half parked, and what was made anew where one had been parked."""
    assert not [found for seed in FOUND if (found := failure_of(seed)) is not None]


def test_without_bookings_it_would(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ring that finds nothing would prove nothing."""
    monkeypatch.setattr(Outcome, "booking", lambda *_: None)
    assert [seed for seed in range(60) if failure_of(seed) is not None]


def test_without_the_end_of_moves_it_would(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncer.engine.halfway.halfway", lambda *_: [])
    assert [seed for seed in FOUND if failure_of(seed) is not None]
    assert bookings.halfway is not None


def test_replies_are_lost_and_processes_killed() -> None:
    stories = ["\n".join(run_seed(seed, scenario=AloneScenario(seed)).actions) for seed in range(60)]
    for event in ("the reply to store", "the reply to move", "the reply to delete", "killed", "is not done"):
        assert any(event in story for story in stories), event
