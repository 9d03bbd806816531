"""Ring R0: the planner against random histories. `python -m tests.simulation replay SEED` shows a failing one."""

from __future__ import annotations

import pytest

from tests.simulation import workers
from tests.simulation.invariants import ViolationError
from tests.simulation.scenario import Limits, Scenario, failure_of, run_seed, shrink

SCENARIOS = 200_000
FIRST_SEED = 0  # fixed: a run that fails here fails everywhere


@pytest.mark.timeout(1800)  # a minute on two quiet cores, many on busy ones
def test_no_seed_violates_an_invariant() -> None:
    """Each line names a seed; replay it, or shrink it: `python -m tests.simulation shrink SEED`."""
    lines = workers.by_core("seeds", FIRST_SEED, SCENARIOS)
    failures = [line for line in lines if line.startswith("failed")]
    if failures and failures[0].split()[1].isdigit():
        failures += workers.run(("shrink", failures[0].split()[1]))
    assert not failures, "\n".join(failures)
    assert sum(int(line.split()[1]) for line in lines if line.startswith("done")) == SCENARIOS


def test_a_seed_replays_exactly() -> None:
    """I9: the log of actions is the same in each run, or a failing seed could not be debugged."""
    for seed in range(300):
        assert run_seed(seed).actions == run_seed(seed).actions


def test_scenarios_reach_every_kind_of_trouble() -> None:
    """A simulation that never parks, conflicts, crashes or freezes would prove nothing."""
    story = "\n".join(line for seed in range(1500) for line in run_seed(seed).story())
    for event in (
        "Mkdir", "Create", "Update", "SetMeta", "Move", "Park", "Trash", "conflict h", "crash", "unreadable",
        "the base is lost", "failed: refused", "drop the marker", "replace",
    ):  # fmt: skip
        assert event in story, f"no scenario has {event!r}"


def test_a_failing_seed_is_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shrunk scenario violates the same invariant with fewer kinds of trouble."""
    real = Scenario.run

    def fails_with_a_park(self: Scenario) -> None:
        real(self)
        if any("Park" in line for line in self.actions):
            raise ViolationError("I0 no parking")

    monkeypatch.setattr(Scenario, "run", fails_with_a_park)
    seed = next(seed for seed in range(1000) if failure_of(seed) is not None)
    small, limits, failure = shrink(seed, search=300)
    assert "I0 no parking" in failure
    assert failure_of(small, limits) == failure
    assert not limits.crashes
    assert limits.side_steps < Limits().side_steps
