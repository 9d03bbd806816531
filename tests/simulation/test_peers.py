"""Sessions of LAN peers on simulated wires that lose, double, delay and damage, among the wicked and the dying."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests import effort
from tests.simulation.hub import Weather
from tests.simulation.peer_mutants import MUTANTS
from tests.simulation.swarm import Plan, Swarm, plan_of
from tests.simulation.swarm_invariants import violations

SEEDS = effort.count("peer scenarios")
MUTANT_SEEDS = 40


def ran(seed: int, plan: Plan | None = None) -> Swarm:
    """A run, to its end."""
    swarm = Swarm(seed, plan or plan_of(seed))
    swarm.run()
    return swarm


@pytest.mark.timeout(1800)
def test_the_invariants_hold_whatever_happens() -> None:
    """Each line names a seed: `violations(ran(seed))` shows it again."""
    broken = {seed: found for seed in range(SEEDS) if (found := violations(ran(seed)))}
    assert not broken, "\n".join(f"seed {seed}: {found[0]}" for seed, found in broken.items())


def test_a_scenario_replays_exactly() -> None:
    for seed in range(4):
        assert ran(seed).captured == ran(seed).captured


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_session_is_caught(name: str) -> None:
    """What no invariant notices is not proven by them."""
    broken, plan = MUTANTS[name]
    assert not any(violations(ran(seed, plan)) for seed in range(2))
    with broken():
        assert any(violations(ran(seed, plan)) for seed in range(MUTANT_SEEDS))


def test_scenarios_have_all_that_they_are_for() -> None:
    """What never comes proves nothing."""
    swarms = [ran(seed) for seed in range(60)]
    drops = {
        reason for swarm in swarms for each in swarm.machines if each.lives for reason in each.session.counters.drops
    }
    assert {"replay", "tag", "own", "hint", "epoch", "magic", "question", "body"} <= drops
    assert any(swarm.asked_connected for swarm in swarms)
    assert any(machine.banned for swarm in swarms for machine in swarm.machines)
    assert any(machine.lives > 1 for swarm in swarms for machine in swarm.machines)
    by_peers = [swarm for swarm in swarms if not swarm.plan.server and swarm.is_done()]
    assert sum(len(machine.done) for swarm in by_peers for machine in swarm.machines) > 50


def test_peers_alone_do_when_the_server_is_away() -> None:
    for seed in range(10):
        swarm = ran(seed, Plan(server=False, machines=5, blocks=30, weather=Weather(loss=0.2), second_share=0.0))
        assert swarm.is_done()
        assert not violations(swarm)


def test_a_lost_question_costs_a_third_of_a_second() -> None:
    """Twenty percent loss must not slow a pull down: the wires of a run are calm but for that."""
    lossy = Plan(server=False, machines=2, blocks=1, weather=Weather(loss=0.2), second_share=0.0)
    times = sorted(ran(seed, lossy).rest_s - 1.0 for seed in range(100))
    assert times[50] < 0.01
    assert times[90] < 1.5


def test_an_empty_network_sees_the_questions_and_nothing_else() -> None:
    """One question at once, then after 0.3, 1, 5 and each 30 seconds; one HELLO."""
    plan = Plan(server=False, machines=2, blocks=1)
    swarm = Swarm(0, replace(plan, skew_s=0.0))
    alone = swarm.machines[1]
    alone.held, alone.missing = {"a": {}}, {"a": set(swarm.content["a"])}
    alone.start()
    swarm.events.run(100.0)
    times = [round(each.at, 1) for each in swarm.captured]
    assert times == [0.0, 0.0, 0.3, 1.3, 6.3, 36.3, 66.3, 96.3]
