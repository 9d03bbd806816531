"""The 25 cells of the action table for a directory `d` with a file `d/f`: it moves or goes, the file is edited."""

from __future__ import annotations

import pytest

from syncer.core.model import Node
from tests.unit.syncer.core.trees import Nodes, file, folder, names, plan, steps

BASE = {1: folder("d"), 2: file("f", 1, parent=1)}
COPY = "f (conflict pc T 020202)"


def _side(name: str, content: int) -> Nodes:
    return {1: folder(name), 2: file("f", content, parent=1)}


def _sides(edit: int, moved: str) -> dict[str, Nodes]:
    return {
        "unchanged": _side("d", 1),
        "edited": _side("d", edit),
        "moved": _side(moved, 1),
        "moved and edited": _side(moved, edit),
        "deleted": {},
    }


LOCAL, REMOTE = _sides(2, "l"), _sides(3, "r")


def _tree(name: str, content: int, copy: int | None = None) -> dict[str, int | None]:
    found: dict[str, int | None] = {name: None, f"{name}/f": content}
    return found if copy is None else {**found, f"{name}/{COPY}": copy}


CELLS: dict[tuple[str, str], dict[str, int | None]] = {
    ("unchanged", "unchanged"): _tree("d", 1),
    ("unchanged", "edited"): _tree("d", 3),
    ("unchanged", "moved"): _tree("r", 1),
    ("unchanged", "moved and edited"): _tree("r", 3),
    ("unchanged", "deleted"): {},
    ("edited", "unchanged"): _tree("d", 2),
    ("edited", "edited"): _tree("d", 3, 2),
    ("edited", "moved"): _tree("r", 2),
    ("edited", "moved and edited"): _tree("r", 3, 2),
    ("edited", "deleted"): _tree("d", 2),
    ("moved", "unchanged"): _tree("l", 1),
    ("moved", "edited"): _tree("l", 3),
    ("moved", "moved"): _tree("r", 1),
    ("moved", "moved and edited"): _tree("r", 3),
    ("moved", "deleted"): _tree("l", 1),
    ("moved and edited", "unchanged"): _tree("l", 2),
    ("moved and edited", "edited"): _tree("l", 3, 2),
    ("moved and edited", "moved"): _tree("r", 2),
    ("moved and edited", "moved and edited"): _tree("r", 3, 2),
    ("moved and edited", "deleted"): _tree("l", 2),
    ("deleted", "unchanged"): {},
    ("deleted", "edited"): _tree("d", 3),
    ("deleted", "moved"): _tree("r", 1),
    ("deleted", "moved and edited"): _tree("r", 3),
    ("deleted", "deleted"): {},
}


@pytest.mark.parametrize(("local", "remote"), CELLS, ids=[f"local-{cell[0]}-remote-{cell[1]}" for cell in CELLS])
def test_cell(local: str, remote: str) -> None:
    """The directory's place and its content follow the table, and a move alone sends no content."""
    made = plan(BASE, LOCAL[local], REMOTE[remote])
    assert names(dict(made.target)) == CELLS[local, remote]
    if "deleted" not in (local, remote):
        edits = {"unchanged": 0, "moved": 0, "edited": 1, "moved and edited": 1}
        contents = [step for step in steps((*made.local, *made.remote)) if step.startswith(("Create", "Update"))]
        assert bool(contents) == bool(edits[local] + edits[remote])


def test_the_table_is_complete() -> None:
    assert set(CELLS) == {(local, remote) for local in LOCAL for remote in REMOTE}


def _deep(name: str) -> dict[int, Node]:
    return {**_side(name, 1), 3: folder("e", parent=1), 4: file("g", 4, parent=3)}


@pytest.mark.parametrize("swapped", [False, True], ids=["moved-here", "moved-there"])
def test_a_moved_directory_that_was_deleted_elsewhere_comes_back_with_all_its_content(swapped: bool) -> None:
    """It would come back empty, and its files go to the trash where the user had just put them in order."""
    here, there = ({}, _deep("l")) if swapped else (_deep("l"), {})
    made = plan(_deep("d"), here, there)
    assert names(dict(made.target)) == {"l": None, "l/f": 1, "l/e": None, "l/e/g": 4}
    assert steps(made.local if not swapped else made.remote) == []
    assert sorted(steps(made.remote if not swapped else made.local)) == [
        "Create l/e/g", "Create l/f", "Mkdir l", "Mkdir l/e",
    ]  # fmt: skip
    assert made.untrack == (2, 3, 4), "a crash after Mkdir must not make the rest look deleted"


def test_what_was_deleted_in_it_by_the_one_who_moved_it_stays_deleted() -> None:
    here = _deep("l")
    del here[2]
    made = plan(_deep("d"), here, {})
    assert "l/f" not in names(dict(made.target))


def test_what_was_moved_out_of_it_before_it_was_deleted_stays_where_it_was_put() -> None:
    made = plan(_deep("d"), _deep("l"), {2: file("f", 1)})
    assert names(dict(made.target)) == {"l": None, "l/e": None, "l/e/g": 4, "f": 1}


def test_a_directory_kept_only_for_an_edited_file_does_not_bring_the_others_back() -> None:
    """Deleting a folder is an intent; an edit below it saves the edited file, no more."""
    base = {**BASE, 3: file("g", 4, parent=1)}
    made = plan(base, {1: folder("d"), 2: file("f", 2, parent=1), 3: file("g", 4, parent=1)}, {})
    assert names(dict(made.target)) == {"d": None, "d/f": 2}
