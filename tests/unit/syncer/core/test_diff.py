from __future__ import annotations

import pytest

from syncer.core.model import Create, Mkdir, Nid, SetMeta, Trash, Update, meta_of
from tests.unit.syncer.core.trees import Nodes, file, folder, plan, steps


def test_a_swap_of_two_names_needs_one_park() -> None:
    base: Nodes = {1: file("a", 1), 2: file("b", 2)}
    made = plan(base, base, {1: file("b", 1), 2: file("a", 2)})
    assert steps(made.local) == ["Park .blocksync/park/1-a", "Move a", "Move b"]


def test_parents_come_before_children_and_the_trash_last_from_the_bottom() -> None:
    base: Nodes = {1: folder("old"), 2: folder("sub", parent=1), 3: file("f", 1, parent=2), 4: file("g", 2, parent=2)}
    remote: Nodes = {8: folder("new"), 9: folder("in", parent=8), 3: file("f", 1, parent=9)}
    made = plan(base, base, remote)
    assert steps(made.local) == [
        "Mkdir new", "Mkdir new/in", "Move new/in/f", "Trash old/sub/g", "Trash old/sub", "Trash old",
    ]  # fmt: skip


def test_a_renamed_directory_is_one_local_move() -> None:
    base: Nodes = {1: folder("d"), **{n: file(f"f{n}", n, parent=1) for n in range(2, 50)}}
    made = plan(base, base, {**base, 1: folder("e")})
    assert steps(made.local) == ["Move e"]


def test_a_conflict_copy_exists_before_its_version_is_replaced() -> None:
    base: Nodes = {1: file("a", 1)}
    made = plan(base, {1: file("a", 2)}, {1: file("a", 3)})
    copy, update = made.local
    assert isinstance(copy, Create)
    assert copy.copy_of == 1
    assert isinstance(update, Update)
    assert update.after == copy.nid


@pytest.mark.parametrize(("mode", "at_first"), [(0o555, 0o755), (0o333, 0o733), (0, 0o700)])
def test_a_directory_that_its_owner_may_not_fill_or_open_is_closed_after_it_is_filled(mode: int, at_first: int) -> None:
    made = plan({}, {}, {1: folder("d", mode=mode), 2: file("f", 1, parent=1)})
    mkdir, create, close = made.local
    assert isinstance(mkdir, Mkdir)
    assert mkdir.meta == meta_of(at_first)
    assert isinstance(create, Create)
    assert isinstance(close, SetMeta)
    assert close.meta == meta_of(mode)


def test_every_action_carries_the_evidence_it_was_planned_with() -> None:
    base: Nodes = {1: file("a", 1), 2: file("b", 2)}
    made = plan(base, base, {1: file("a", 5)})
    assert {action.expected for action in made.local} == {made.local_state.tags[Nid(1)], made.local_state.tags[Nid(2)]}


def test_unifying_equal_nodes_is_no_deletion() -> None:
    """`a` was moved here over a slot in which the server has an equal file."""
    base: Nodes = {1: file("a", 1)}
    made = plan(base, {1: file("b", 1)}, {1: file("a", 1), 5: file("b", 1)})
    trash = [action for action in (*made.local, *made.remote) if isinstance(action, Trash)]
    assert [(action.nid, action.absorbed_by) for action in trash] == [(1, 5)]
    assert sum(each.deleted for each in made.deletions) == 0
