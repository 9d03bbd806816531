"""Every named mutant of the planner is noticed by the simulation."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation import mutants, named, workers
from tests.simulation.killers import KILLERS


@pytest.mark.timeout(1800)
def test_every_mutant_is_killed() -> None:
    """A surviving mutant means that a rule of the planner is not tested by any invariant."""
    lines = workers.run(*(("mutants", core, workers.CORES) for core in range(workers.CORES)))
    killed = {line.split()[1] for line in lines if line.startswith("killed ")}
    wrong = [line for line in lines if not line.startswith("killed ")]
    assert not wrong, "\n".join(wrong)
    assert killed == {mutant.name for mutant in mutants.MUTANTS}
    assert len(killed) >= 30


@pytest.mark.timeout(600)
def test_every_named_mutant_is_killed_by_its_test() -> None:
    """Rules that a ring would find broken only by luck. Without them the tests pass: the suite runs them, too."""
    assert not named.survivors()


def test_the_page_names_every_mutant_and_who_kills_it() -> None:
    """`python -m tests.simulation table > docs/design/mutants.md` writes it anew."""
    assert (Path(__file__).parents[2] / "docs/design/mutants.md").read_text() == mutants.table()


def test_known_killers_are_of_mutants_that_there_are() -> None:
    assert {*KILLERS} <= {mutant.name for mutant in mutants.MUTANTS}
