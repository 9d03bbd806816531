"""Ring R1: ring R0's model, driven by Hypothesis: it looks where others failed, and shrinks what it finds by itself."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture import engine

from tests import effort
from tests.simulation.invariants import ViolationError
from tests.simulation.scenario import Limits, Scenario
from tests.simulation.world import trees

EXAMPLES = effort.count("ring R1")


@pytest.mark.timeout(1800)  # 20,000 examples, beside other workers
@settings(
    max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck), print_blob=True
)  # the blob is this ring's seed: with it, the failing example runs again exactly
@given(choices=st.randoms(use_true_random=False, note_method_calls=False))
def test_no_history_violates_an_invariant(choices: random.Random) -> None:
    """Every random choice of a scenario is one of Hypothesis's: a failing history gets smaller, choice by choice."""
    scenario = Scenario(0, Limits(base_steps=3, side_steps=2), choices)
    try:
        scenario.run()
    except AssertionError as error:
        told = (*scenario.story(), *trees(scenario.local, scenario.remote), str(error))
        raise AssertionError("\n".join(told)) from error


def test_a_failing_history_is_shrunk_and_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """With its blob, its steps and both trees: all of what is needed to run it again and to understand it."""
    real, failing = Scenario.run, []

    def fails_with_a_move(self: Scenario) -> None:
        real(self)
        if any(" Move " in line for line in self.actions):
            failing.append(len(self.story()))
            raise ViolationError("I0 no moves")

    monkeypatch.setattr(Scenario, "run", fails_with_a_move)
    monkeypatch.setattr(engine, "MAX_SHRINKS", 30)  # of 500: that it goes on is Hypothesis's to prove
    with pytest.raises(AssertionError, match="I0 no moves") as caught:
        test_no_history_violates_an_invariant()
    told = str(caught.value).splitlines()
    trees_shown = [line for line in told if " mode " in line]
    assert {line.partition(":")[0] for line in trees_shown} == {"local", "remote"}
    assert len(told) - len(trees_shown) - 1 == failing[-1]  # without the verdict: the last that was tried
    assert len(failing) > 20  # smaller ones were looked for; fewer choices need not be fewer lines
    assert any("@reproduce_failure" in note for note in caught.value.__notes__)
