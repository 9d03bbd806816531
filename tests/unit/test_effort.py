"""The knob: its table is the documented one, and nothing that is counted passes it by."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import effort
from tests.effort import KNOB, Counts, Effort

PROJECT = Path(__file__).parents[2]
TESTS = PROJECT / "tests"
SOURCES = {path: path.read_text() for path in TESTS.rglob("*.py") if path != Path(__file__)}


def test_the_page_has_the_table_of_the_knob() -> None:
    """`python -m tests.effort` writes it anew."""
    text = effort.PAGE.read_text()
    assert effort.page(text) == text


@pytest.mark.parametrize("name", KNOB)
def test_every_row_counts_something_and_grows_with_the_effort(name: str) -> None:
    row = KNOB[name]
    assert 1 <= row.everyday <= row.full <= row.soak
    assert (TESTS / row.test).exists()
    assert (TESTS / "soak" / f"{row.part}.py").exists()


@pytest.mark.parametrize("name", KNOB)
def test_every_row_is_asked_for(name: str) -> None:
    """A row that no test reads would promise what nobody does."""
    asked = {f'effort.count("{name}")', f"effort.count('{name}')", f'effort.first("{name}", '}
    family = 'effort.count(f"planner mutants, {ring}")'
    readers = [path for path, text in SOURCES.items() if any(each in text for each in asked)]
    assert readers or (name.startswith("planner mutants") and family in SOURCES[TESTS / "simulation/mutants.py"])


def test_no_example_is_counted_beside_the_knob() -> None:
    """A literal count of examples would be the same in each run, and in no table."""
    beside = [str(path) for path, text in SOURCES.items() if re.search(r"max_examples=\d", text)]
    assert not beside


def test_a_full_run_never_has_fewer_than_these() -> None:
    """Of the rings the designs promise more, which the soak has: a slow machine is to end a full run, too."""
    promised = {"ring R0": 300_000, "ring R1": 6000, "ring R2": 4000, "ring R3": 26, "kills of a mount": 16,
                "power cuts": 8, "six devices": 60, "host faults": 24, "hostile writers": 1000, "files": 100,
                "namespace": 80, "server's store": 150, "parts of a tree": 4000, "parts of a volume": 3000}  # fmt: skip
    assert not {name for name, least in promised.items() if KNOB[name].full < least}


def test_a_part_of_the_soak_that_runs_a_row_is_named_by_it() -> None:
    for name, row in KNOB.items():
        text = SOURCES[TESTS / "soak" / f"{row.part}.py"]
        assert row.part == "suites" or f'"{name}"' in text, name


def test_the_environment_turns_the_knob(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = {}
    for each in Effort:
        monkeypatch.setenv(effort.VARIABLE, each)
        counted[each] = effort.count("ring R0")
    row = KNOB["ring R0"]
    assert counted == {Effort.EVERYDAY: row.everyday, Effort.FULL: row.full, Effort.SOAK: row.soak}
    monkeypatch.delenv(effort.VARIABLE)
    assert effort.count("ring R0") == row.everyday
    assert effort.soak("ring R0", 0.5) == row.soak // 2
    assert effort.soak("ring R0", 0.0) == 1


def test_a_soak_is_scaled_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(effort.SCALE, "0.5")
    assert effort.count("tree") == KNOB["tree"].of(effort.chosen())
    monkeypatch.setenv(effort.VARIABLE, Effort.SOAK)
    assert effort.count("tree") == KNOB["tree"].soak // 2


def test_an_unknown_effort_ends_the_run_and_says_which_there_are() -> None:
    """A typing mistake that ran the everyday counts would be believed to be a full run."""
    program = "from tests import effort; effort.count('tree')"
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=PROJECT, env={effort.VARIABLE: "ful"}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert ended.returncode == 1
    assert ended.stderr == "EFFORT=ful: there are everyday, full, soak\n"


def test_counts_are_of_three_efforts() -> None:
    assert [Counts("x", 1, 2, 3, "t").of(each) for each in Effort] == [1, 2, 3]
