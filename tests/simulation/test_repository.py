"""Rings R1 and R2, and four devices, on a repository in memory: see repository_scenario.py.

`python -m tests.simulation repository-replay SEED` shows a scenario, `repository-crowd-replay SEED` a history.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import effort
from tests.simulation import repository_mutants, workers
from tests.simulation.engine_scenario import Trouble
from tests.simulation.repository_scenario import RepositoryScenario, run_crowd, run_seed
from tests.simulation.world import trees

SCENARIOS = effort.count("ring R2 on a repository")
HISTORIES = effort.count("four devices of a repository")
FOUND, FOUND_BY_FOUR = (138, 257), (38, 44, 54, 73)
EXAMPLES = effort.count("ring R1 on a repository")


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("verb", "count"), [("repository", SCENARIOS), ("repository-crowd", HISTORIES)])
def test_no_seed_violates_an_invariant(verb: str, count: int) -> None:
    """Each line names a seed; replay it."""
    lines = workers.by_core(verb, 0, count)
    failures = [line for line in lines if line.startswith("failed")]
    assert not failures, "\n".join(failures)
    assert sum(int(line.split()[1]) for line in lines if line.startswith("done")) == count


@pytest.mark.timeout(1800)
@settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck), print_blob=True)
@given(choices=st.randoms(use_true_random=False, note_method_calls=False), seed=st.integers(0, 1000))
def test_no_history_violates_an_invariant(choices: random.Random, seed: int) -> None:
    """R1: every random choice of a scenario is one of Hypothesis's, so a failing history gets smaller."""
    scenario = RepositoryScenario(seed, Trouble(steps=2), choices)
    try:
        run_seed(seed, scenario=scenario)
    except AssertionError as error:
        told = (*scenario.actions, *trees(scenario.local), str(error))
        raise AssertionError("\n".join(told)) from error


def test_seeds_that_failed_once_violate_nothing() -> None:
    """138: what we made after a look and somebody removed was told to nobody. 257: an empty implied directory.

    Four devices: nodes of a merged view were forgotten while versions of it were still to be read.
    """
    for seed in FOUND:
        run_seed(seed)
    for seed in FOUND_BY_FOUR:
        run_crowd(seed)


@pytest.mark.timeout(600)
def test_every_mutant_of_the_repository_is_killed() -> None:
    """A client that forgets what others wrote, a collection that deletes too much: R2 or four devices object."""
    lines = workers.run(*(("repository-mutants", core, workers.CORES) for core in range(workers.CORES)))
    killed = {line.removeprefix("killed ").partition(":")[0] for line in lines if line.startswith("killed ")}
    assert killed == {*repository_mutants.MUTANTS}, "\n".join(lines)


def test_a_seed_replays_exactly() -> None:
    for seed in range(4):
        assert run_seed(seed).actions == run_seed(seed).actions
        assert run_crowd(seed).log == run_crowd(seed).log


def test_scenarios_have_all_that_they_are_for() -> None:
    """What never comes proves nothing."""
    missing = {
        "get is not done", "put is not done", "the reply to put", "the reply to get", "the reply to list",
        "it will be done later", "killed", "power cut", "EIO in", "unreadable", "older one", "remote user: move",
        "remote user: delete", "remote user: edit", "local Trash", "remote Create", "remote Update", "remote Move",
        "ended by OverQuotaError", "runs a Collector", "runs a Repacker", "(conflict host255", "(conflict host1",
    }  # fmt: skip
    seed = 0
    while missing:
        assert seed < 150, f"no scenario has one of {missing}"
        story = "\n".join(run_seed(seed).actions)
        missing = {event for event in missing if event not in story}
        seed += 1
