"""Run the simulation by hand, or as a worker of the tests.

python -m tests.simulation seeds FIRST COUNT    prints one line per violated seed, then `done COUNT`
python -m tests.simulation replay SEED          prints what happened in one scenario, step by step
python -m tests.simulation shrink SEED          looks for a smaller scenario that violates the same invariant
python -m tests.simulation engine FIRST COUNT    the real engine (R2); also engine-replay, engine-shrink
python -m tests.simulation crowd FIRST COUNT    four devices on one container; also crowd-replay
python -m tests.simulation repository FIRST COUNT    R2 on a repository; also repository-replay
python -m tests.simulation repository-crowd FIRST COUNT    four devices of one; also repository-crowd-replay
python -m tests.simulation repository-mutants FIRST STEP    kills every STEPth mutant of the repository
python -m tests.simulation table                docs/design/mutants.md
python -m tests.simulation mutants FIRST COUNT  kills these mutants of the planner, one line each
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterable, Iterator
from functools import partial

from tests.simulation import crowd, engine_scenario, mutants, repository_mutants, repository_scenario
from tests.simulation.engine_scenario import violation
from tests.simulation.scenario import FAILURES, Limits, Scenario, failures, shrink
from tests.simulation.world import forget_observations, trees

_REPORTED = 5  # failures per worker: the first seeds tell enough


def seeds(first: int, count: int) -> None:
    """Run a range of R0."""
    gc.disable()  # scenarios make next to no cycles: a tenth of the time, for nothing
    _report(_tidily(failures(range(first, first + count))), count)


def engine(first: int, count: int) -> None:
    """Run a range of R2."""
    _report(engine_scenario.failures(range(first, first + count)), count)


def _tidily(found: Iterable[tuple[int, str | None]]) -> Iterator[tuple[int, str | None]]:
    for seed, failure in found:
        if seed % 5000 == 0:
            gc.collect()
            forget_observations()
        yield seed, failure


def _report(found: Iterable[tuple[int, str | None]], count: int) -> None:
    wrong = 0
    for seed, failure in found:
        if failure is not None:
            wrong += 1
            print(f"failed {seed} {failure[:300]}")
        if wrong == _REPORTED:
            break
    print(f"done {count if not wrong else 0}")


def replay(seed: int, limits: Limits | None = None) -> None:
    """Show one scenario."""
    scenario = Scenario(seed, limits or Limits())
    verdict = "nothing violated"
    try:
        scenario.run()
    except FAILURES as error:
        verdict = f"{type(error).__name__}: {error}"
    print("\n".join((*scenario.story(), *trees(scenario.local, scenario.remote), verdict)))


def engine_replay(seed: int, trouble: engine_scenario.Trouble | None = None) -> None:
    """Show one scenario of ring R2."""
    scenario = engine_scenario.EngineScenario(seed, trouble)
    verdict = engine_scenario.failure_of(seed, trouble, scenario) or "nothing violated"
    print("\n".join((*scenario.actions, *trees(scenario.local, scenario.server.view()), verdict)))


def crowd_replay(seed: int) -> None:
    """Show one history of four devices."""
    found = crowd.Crowd(seed)
    verdict = crowd.failure_of(seed, crowd=found) or "nothing violated"
    print("\n".join((*found.log, *trees(*(member.local for member in found.members)), verdict)))


def repository_replay(seed: int) -> None:
    """Show one scenario of ring R2 on a repository."""
    scenario = repository_scenario.RepositoryScenario(seed)
    verdict = violation(partial(repository_scenario.run_seed, seed, None, scenario)) or "nothing violated"
    print("\n".join((*scenario.actions, *trees(scenario.local), verdict)))


def repository_crowd_replay(seed: int) -> None:
    """Show one history of four devices of a repository."""
    found = repository_scenario.RepositoryCrowd(seed)
    verdict = violation(partial(repository_scenario.run_crowd, seed, crowd=found)) or "nothing violated"
    print("\n".join((*found.log, *trees(*(member.local for member in found.members)), verdict)))


REPOSITORIES = {
    "repository": lambda first, count: _report(repository_scenario.failures(range(first, first + count)), count),
    "repository-crowd": lambda first, count: _report(
        repository_scenario.crowd_failures(range(first, first + count)), count
    ),
    "repository-mutants": repository_mutants.report,
    "repository-replay": repository_replay,
    "repository-crowd-replay": repository_crowd_replay,
}


def main() -> None:
    """Dispatch."""
    verb, *numbers = sys.argv[1], *map(int, sys.argv[2:])
    if verb in REPOSITORIES and os.environ.get("PYTHONHASHSEED") != "0":
        # A client of a repository goes through sets, so else a seed would be another history in each process.
        command = [sys.executable, "-m", "tests.simulation", *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, "PYTHONHASHSEED": "0"})
    if verb == "seeds":
        seeds(*numbers)
    elif verb == "replay":
        replay(*numbers)
    elif verb == "engine":
        engine(*numbers)
    elif verb == "crowd":
        _report(crowd.failures(range(numbers[0], sum(numbers))), numbers[1])
    elif verb == "crowd-replay":
        crowd_replay(*numbers)
    elif verb in REPOSITORIES:
        REPOSITORIES[verb](*numbers)
    elif verb == "engine-replay":
        engine_replay(*numbers)
    elif verb == "engine-shrink":
        small, trouble, failure = engine_scenario.shrink(*numbers)
        print(f"{failure}\nseed {small} with {trouble}")
        engine_replay(small, trouble)
    elif verb == "shrink":
        seed, limits, failure = shrink(*numbers)
        print(f"{failure}\nseed {seed} with {limits}")
        replay(seed, limits)
    elif verb == "table":
        print(mutants.table(), end="")
    else:
        mutants.main(*numbers)


if __name__ == "__main__":
    main()
