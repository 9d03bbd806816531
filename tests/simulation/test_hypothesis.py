"""Ring R1: ring R0's model, driven by Hypothesis: it looks where others failed, and shrinks what it finds by itself."""

from __future__ import annotations

import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.simulation.scenario import Limits, Scenario

EXAMPLES = 20_000


@settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(choices=st.randoms(use_true_random=False, note_method_calls=False))
def test_no_history_violates_an_invariant(choices: random.Random) -> None:
    """Every random choice of a scenario is one of Hypothesis's: a failing history gets smaller, choice by choice."""
    scenario = Scenario(0, Limits(base_steps=3, side_steps=2), choices)
    try:
        scenario.run()
    except AssertionError as error:
        raise AssertionError("\n".join((*scenario.story(), str(error)))) from error
