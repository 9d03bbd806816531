"""Ring R0: the planner against random histories. `python -m tests.simulation replay SEED` shows a failing one."""

from __future__ import annotations

from zlib import crc32

import pytest

from syncer.core.model import Action, SetMeta, Side
from syncer.core.planner import plan as plan_module
from syncer.core.planner.outcome import BaseChange, Outcome
from tests import effort
from tests.simulation import workers
from tests.simulation.__main__ import engine_replay, replay
from tests.simulation.invariants import ViolationError
from tests.simulation.scenario import HISTORIES, MARKING, Limits, Scenario, failure_of, failures, run_seed, shrink

SCENARIOS = effort.count("ring R0")
SHORT_WAYS = effort.count("ring R0, fast paths")
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


def test_a_seed_of_a_family_is_the_seed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ring begins the trees and first plan of a family once; a seed it names replays from the start."""
    real, together = Scenario.go_on, []

    def note(self: Scenario) -> None:
        real(self)
        together.append(self.actions)

    monkeypatch.setattr(Scenario, "go_on", note)
    assert [failure for _, failure in failures(range(200 * HISTORIES)) if failure] == []
    told = list(together)
    assert told == [run_seed(seed).actions for seed in range(200 * HISTORIES)]


def test_seeds_are_different_histories() -> None:
    """What repeats proves nothing: of a family's histories few are the same, and its trees are of no other family."""
    told = {"\n".join(run_seed(seed).story()) for seed in range(3000)}
    assert len(told) > 0.7 * 3000


def test_what_is_at_rest_is_planned_as_the_long_way_would(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most cycles find nothing to decide, and `make_plan` sees it at once: the same plan as by merge and diff."""
    short, quick = plan_module.make_plan, 0

    def both_ways(*args: object, **more: object) -> object:
        nonlocal quick
        plan = short(*args, **more)  # type: ignore[arg-type] # passed on
        if plan_module._at_rest(*args[:3]):  # type: ignore[arg-type] # passed on
            quick += 1
            with monkeypatch.context() as patch:
                patch.setattr(plan_module, "_at_rest", lambda *_: False)
                assert plan == short(*args, **more)  # type: ignore[arg-type] # passed on
        return plan

    monkeypatch.setattr(plan_module, "make_plan", both_ways)
    assert [seed for seed in range(SHORT_WAYS) if failure_of(seed) is not None] == []
    assert quick > SHORT_WAYS // 2


def test_metadata_that_cannot_be_had_here_for_a_while_harms_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What only it keeps from being equal has a row all the same: no version is lost, and all are equal in the end."""
    real, rows = Scenario._step, 0

    def refuse(self: Scenario, outcome: Outcome, action: Action, pending: list[BaseChange], *, tear: bool) -> bool:
        nonlocal rows
        cycles = sum(line.startswith("cycle ") for line in self.actions)
        ours = isinstance(action, SetMeta) and action.side is Side.LOCAL and crc32(action.path) % 2
        if not ours or cycles > 10 or outcome.obstacle(action) is not None:
            return real(self, outcome, action, pending, tear=tear)
        outcome.failed(action)
        made = outcome.partly(action.nid)
        rows += len(made)
        pending += made
        self.clean = self.smooth = False
        return True

    monkeypatch.setattr(Scenario, "_step", refuse)
    assert [seed for seed in range(2000) if failure_of(seed) is not None] == []
    assert rows > 100


def test_scenarios_reach_every_kind_of_trouble() -> None:
    """A simulation that never parks, conflicts, crashes or freezes would prove nothing."""
    marking = range(5 * HISTORIES, 12_000, MARKING * HISTORIES)
    story = "\n".join(line for seed in (*range(1500), *marking) for line in run_seed(seed).story())
    for event in (
        "Mkdir", "Create", "Update", "SetMeta", "Move", "Park", "Trash", "conflict h", "crash", "unreadable",
        "the base is lost", "failed: refused", "drop the marker", "replace",
        " gives ", " takes ", "drops the attributes",
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
    seed = next(seed for seed in range(4000) if failure_of(seed) is not None)
    small, limits, failure = shrink(seed, search=300)
    assert "I0 no parking" in failure
    assert failure_of(small, limits) == failure
    assert not limits.crashes
    assert limits.side_steps < Limits().side_steps


def test_what_is_replayed_is_shown_with_both_trees(capsys: pytest.CaptureFixture[str]) -> None:
    """What a failing run prints is all that is left of it."""
    replay(7)
    engine_replay(7)
    told = capsys.readouterr().out.splitlines()
    assert told.count("nothing violated") == 2
    assert {line.partition(":")[0] for line in told if " mode " in line} == {"local", "remote"}
