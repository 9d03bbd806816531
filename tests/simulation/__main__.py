"""Run the simulation by hand, or as a worker of the tests.

python -m tests.simulation seeds FIRST COUNT    prints one line per violated seed, then `done COUNT`
python -m tests.simulation replay SEED          prints what happened in one scenario, step by step
python -m tests.simulation shrink SEED          looks for a smaller scenario that violates the same invariant
python -m tests.simulation mutants FIRST COUNT  kills these mutants of the planner, one line each
"""

from __future__ import annotations

import gc
import sys

from tests.simulation import mutants
from tests.simulation.scenario import FAILURES, Limits, Scenario, failure_of, shrink

_REPORTED = 5  # failures per worker: the first seeds tell enough


def seeds(first: int, count: int) -> None:
    """Run a range."""
    failures = 0
    gc.disable()  # scenarios make next to no cycles: a tenth of the time, for nothing
    for seed in range(first, first + count):
        failure = failure_of(seed)
        if seed % 5000 == 0:
            gc.collect()
        if failure is not None:
            failures += 1
            print(f"failed {seed} {failure[:300]}")
        if failures == _REPORTED:
            break
    print(f"done {count if not failures else 0}")


def replay(seed: int, limits: Limits | None = None) -> None:
    """Show one scenario."""
    scenario = Scenario(seed, limits or Limits())
    verdict = "nothing violated"
    try:
        scenario.run()
    except FAILURES as error:
        verdict = f"{type(error).__name__}: {error}"
    for line in scenario.story():
        print(line)
    print(verdict)


def main() -> None:
    """Dispatch."""
    verb, *numbers = sys.argv[1], *map(int, sys.argv[2:])
    if verb == "seeds":
        seeds(*numbers)
    elif verb == "replay":
        replay(*numbers)
    elif verb == "shrink":
        seed, limits, failure = shrink(*numbers)
        print(f"{failure}\nseed {seed} with {limits}")
        replay(seed, limits)
    else:
        mutants.main(*numbers)


if __name__ == "__main__":
    main()
