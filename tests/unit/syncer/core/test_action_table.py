"""The 25 cells of the action table (`planner/explain.py`), one by one: what became of a file here, and on the server.

`a` with content 1 is the base.
"""

from __future__ import annotations

import pytest

from syncer.core.model import NoteKind
from syncer.core.planner.explain import RULES, Change, change
from tests.unit.syncer.core.trees import file, names, plan, steps

BASE = {1: file("a", 1)}
COPY = "a (conflict pc T 020202)"

LOCAL = {
    "unchanged": file("a", 1),
    "edited": file("a", 2),
    "moved": file("l", 1),
    "moved and edited": file("l", 2),
    "deleted": None,
}
REMOTE = {
    "unchanged": file("a", 1),
    "edited": file("a", 3),
    "moved": file("r", 1),
    "moved and edited": file("r", 3),
    "deleted": None,
}

CELLS = [
    # local, remote, target, local steps, remote steps, notes
    ("unchanged", "unchanged", {"a": 1}, [], [], []),
    ("unchanged", "edited", {"a": 3}, ["Update a"], [], []),
    ("unchanged", "moved", {"r": 1}, ["Move r"], [], []),
    ("unchanged", "moved and edited", {"r": 3}, ["Move r", "Update r"], [], []),
    ("unchanged", "deleted", {}, ["Trash a"], [], []),
    ("edited", "unchanged", {"a": 2}, [], ["Update a"], []),
    ("edited", "edited", {"a": 3, COPY: 2}, [f"Create {COPY}", "Update a"], [f"Create {COPY}"], [NoteKind.CONFLICT]),
    ("edited", "moved", {"r": 2}, ["Move r"], ["Update r"], []),
    (
        "edited",
        "moved and edited",
        {"r": 3, COPY.replace("a ", "r "): 2},
        ["Move r", f"Create {COPY.replace('a ', 'r ')}", "Update r"],
        [f"Create {COPY.replace('a ', 'r ')}"],
        [NoteKind.CONFLICT],
    ),
    ("edited", "deleted", {"a": 2}, [], ["Create a"], [NoteKind.EDIT_WINS]),
    ("moved", "unchanged", {"l": 1}, [], ["Move l"], []),
    ("moved", "edited", {"l": 3}, ["Update l"], ["Move l"], []),
    ("moved", "moved", {"r": 1}, ["Move r"], [], [NoteKind.REMOTE_PLACE]),
    ("moved", "moved and edited", {"r": 3}, ["Move r", "Update r"], [], [NoteKind.REMOTE_PLACE]),
    ("moved", "deleted", {"l": 1}, [], ["Create l"], [NoteKind.EDIT_WINS]),
    ("moved and edited", "unchanged", {"l": 2}, [], ["Move l", "Update l"], []),
    (
        "moved and edited",
        "edited",
        {"l": 3, COPY.replace("a ", "l "): 2},
        [f"Create {COPY.replace('a ', 'l ')}", "Update l"],
        ["Move l", f"Create {COPY.replace('a ', 'l ')}"],
        [NoteKind.CONFLICT],
    ),
    ("moved and edited", "moved", {"r": 2}, ["Move r"], ["Update r"], [NoteKind.REMOTE_PLACE]),
    (
        "moved and edited",
        "moved and edited",
        {"r": 3, COPY.replace("a ", "r "): 2},
        ["Move r", f"Create {COPY.replace('a ', 'r ')}", "Update r"],
        [f"Create {COPY.replace('a ', 'r ')}"],
        [NoteKind.CONFLICT, NoteKind.REMOTE_PLACE],
    ),
    ("moved and edited", "deleted", {"l": 2}, [], ["Create l"], [NoteKind.EDIT_WINS]),
    ("deleted", "unchanged", {}, [], ["Trash a"], []),
    ("deleted", "edited", {"a": 3}, ["Create a"], [], [NoteKind.EDIT_WINS]),
    ("deleted", "moved", {"r": 1}, ["Create r"], [], [NoteKind.EDIT_WINS]),
    ("deleted", "moved and edited", {"r": 3}, ["Create r"], [], [NoteKind.EDIT_WINS]),
    ("deleted", "deleted", {}, [], [], []),
]


@pytest.mark.parametrize(
    ("local", "remote", "target", "local_steps", "remote_steps", "notes"),
    CELLS,
    ids=[f"local-{cell[0]}-remote-{cell[1]}" for cell in CELLS],
)
def test_cell(
    local: str,
    remote: str,
    target: dict[str, int],
    local_steps: list[str],
    remote_steps: list[str],
    notes: list[NoteKind],
) -> None:
    here, there = LOCAL[local], REMOTE[remote]
    assert (change(BASE[1], here).value, change(BASE[1], there).value) == (local, remote)
    made = plan(BASE, {1: here} if here else {}, {1: there} if there else {})
    assert names(dict(made.target)) == target
    assert sorted(steps(made.local)) == sorted(local_steps)
    assert sorted(steps(made.remote)) == sorted(remote_steps)
    assert sorted(note.kind.value for note in made.notes) == sorted(kind.value for kind in notes)


def test_the_table_is_that_of_explain() -> None:
    known = {pair for pair in RULES if not {Change.NEW, Change.ABSENT} & {*pair}}
    assert {(Change(cell[0]), Change(cell[1])) for cell in CELLS} == known


@pytest.mark.parametrize("local", ["edited", "moved and edited"])
@pytest.mark.parametrize("remote", ["edited", "moved and edited"])
def test_equal_edits_are_adopted_without_transfer(local: str, remote: str) -> None:
    here, there = LOCAL[local], REMOTE[remote]
    assert here is not None
    assert there is not None
    same = file(there.name.decode(), 2)
    made = plan(BASE, {1: here}, {1: same})
    assert not any(step.startswith(("Create", "Update")) for step in steps((*made.local, *made.remote)))
    assert NoteKind.CONFLICT not in {note.kind for note in made.notes}


def test_equal_moves_are_adopted() -> None:
    made = plan(BASE, {1: file("n", 1)}, {1: file("n", 1)})
    assert made.is_empty
    assert [adopt.nid for adopt in made.adopt] == [1]


def test_a_node_deleted_on_both_sides_is_forgotten() -> None:
    assert plan(BASE, {}, {}).forget == (1,)
