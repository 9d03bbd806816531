from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncer.core.model import Create, Kind, Nid, Node, NoteKind, Trash, meta_of
from syncer.core.paths import PARK_FOLDER, paths_of
from syncer.core.planner.merge import merge
from tests import effort
from tests.unit.syncer.core.trees import POLICY, Nodes, base_of, file, folder, fresh, link, names, plan, steps, tree


def test_new_on_one_side_is_created_on_the_other() -> None:
    made = plan({}, {5: file("x", 1)}, {6: folder("d"), 7: link("l", "t", parent=6)})
    assert names(dict(made.target)) == {"x": 1, "d": None, "d/l": b"t"}
    assert steps(made.local) == ["Mkdir d", "Create d/l"]
    assert steps(made.remote) == ["Create x"]


def test_equal_new_files_in_one_slot_become_one_without_transfer() -> None:
    made = plan({}, {5: file("x", 1)}, {6: file("x", 1)})
    assert names(dict(made.target)) == {"x": 1}
    assert made.is_empty
    assert [adopt.nid for adopt in made.adopt] == [6]


def test_different_new_files_in_one_slot_leave_the_name_to_the_server() -> None:
    made = plan({}, {5: file("x.img", 2)}, {6: file("x.img", 3)})
    assert names(dict(made.target)) == {"x.img": 3, "x (conflict pc T 020202).img": 2}
    assert steps(made.local) == ["Move x (conflict pc T 020202).img", "Create x.img"]
    assert [note.kind for note in made.notes] == [NoteKind.CONFLICT]


def test_of_directories_that_become_one_what_was_in_them_keeps_its_name_before_what_moves_in() -> None:
    """`e` was renamed to `d` here, and the server has a `d`. Both then have an `x`: one that the server has in `e`, and
    one that was moved into it here, though it is the older node."""
    base: Nodes = {1: folder("e"), 2: file("q", 1)}
    local: Nodes = {1: folder("d"), 2: file("x", 1, parent=1)}
    remote: Nodes = {**base, 8: folder("d"), 9: file("x", 5, parent=1)}
    made = plan(base, local, remote)
    assert made.target[Nid(9)].slot == (Nid(8), b"x")
    assert names(dict(made.target)) == {"d": None, "d/x": 5, "d/x (conflict pc T 010101)": 1}


def test_new_directories_in_one_slot_merge_all_the_way_down() -> None:
    local = {5: folder("d"), 6: folder("e", parent=5), 7: file("f", 1, parent=6), 8: file("l", 2, parent=6)}
    remote = {15: folder("d"), 16: folder("e", parent=15), 17: file("f", 1, parent=16), 18: file("r", 3, parent=16)}
    made = plan({}, local, remote)
    assert names(dict(made.target)) == {"d": None, "d/e": None, "d/e/f": 1, "d/e/l": 2, "d/e/r": 3}
    assert steps(made.local) == ["Create d/e/r"]
    assert steps(made.remote) == ["Create d/e/l"]


def test_a_lost_base_merges_and_deletes_nothing() -> None:
    local = {5: file("same", 1), 6: file("only-here", 2), 7: file("other", 3)}
    remote = {15: file("same", 1), 16: file("only-there", 4), 17: file("other", 5)}
    made = plan({}, local, remote)
    assert set(names(dict(made.target)).values()) == {1, 2, 3, 4, 5}
    assert not [step for step in steps((*made.local, *made.remote)) if step.startswith("Trash")]


def test_a_symlink_changed_on_both_sides_keeps_both_targets() -> None:
    made = plan({1: link("l", "a")}, {1: link("l", "b")}, {1: link("l", "c")})
    assert sorted(str(each) for each in names(dict(made.target)).values()) == ["b'b'", "b'c'"]


def test_a_kind_change_is_a_deletion_and_a_new_node() -> None:
    made = plan({1: file("x", 1)}, {5: folder("x"), 6: file("y", 2, parent=5)}, {1: file("x", 1)})
    assert names(dict(made.target)) == {"x": None, "x/y": 2}
    assert steps(made.remote) == [f"Park {PARK_FOLDER.decode()}/1-x", "Mkdir x", "Create x/y", "Trash x"]


def test_a_kind_change_against_an_edit_keeps_both() -> None:
    made = plan({1: file("x", 1)}, {5: folder("x")}, {1: file("x", 2)})
    assert {2, None} == set(names(dict(made.target)).values())
    assert names(dict(made.target))["x"] == 2


def test_a_directory_survives_if_anything_below_it_survives() -> None:
    base: Nodes = {1: folder("d"), 2: file("f", 1, parent=1), 3: file("g", 2, parent=1)}
    made = plan(base, {}, {1: folder("d"), 2: file("f", 9, parent=1), 3: file("g", 2, parent=1)})
    assert names(dict(made.target)) == {"d": None, "d/f": 9}
    assert NoteKind.KEPT in {note.kind for note in made.notes}


def test_what_comes_back_has_the_mode_that_was_known_where_the_server_says_none() -> None:
    """A directory's marker may be gone there, and a client that knows no modes may have written the file anew."""
    base: Nodes = {1: folder("d", mode=0o711), 2: file("f", 1, mode=0o755)}
    remote: Nodes = {1: folder("d", mode=None), 2: file("f", 9, mode=None, mtime=None), 3: file("g", 1, parent=1)}
    made = plan(base, {}, remote)
    assert {made.target[Nid(1)].meta, made.target[Nid(2)].meta} == {meta_of(0o711), meta_of(0o755)}


def test_directories_moved_into_each_other_take_the_servers_places() -> None:
    base: Nodes = {1: folder("a"), 2: folder("b"), 3: file("f", 1, parent=1)}
    local: Nodes = {1: folder("a", parent=2), 2: folder("b"), 3: file("f", 1, parent=1)}
    remote: Nodes = {1: folder("a"), 2: folder("b", parent=1), 3: file("f", 1, parent=1)}
    made = plan(base, local, remote)
    assert names(dict(made.target)) == {"a": None, "a/b": None, "a/f": 1}
    assert NoteKind.CYCLE in {note.kind for note in made.notes}


def test_metadata_merges_field_by_field_and_the_server_wins() -> None:
    base: Nodes = {1: file("f", 1, mode=0o644, mtime=1)}
    one = plan(base, {1: file("f", 1, mode=0o600, mtime=1)}, {1: file("f", 1, mode=0o644, mtime=2)})
    assert one.target[Nid(1)].meta == meta_of(0o600, mtime_ns=2)
    assert steps(one.local) == steps(one.remote) == ["SetMeta f"]
    two = plan(base, {1: file("f", 1, mode=0o600)}, {1: file("f", 1, mode=0o755)})
    assert two.target[Nid(1)].meta.mode == 0o755
    assert not two.notes


def test_a_touch_transfers_no_content() -> None:
    made = plan({1: file("f", 1)}, {1: file("f", 1, mtime=99)}, {1: file("f", 1)})
    assert steps(made.remote) == ["SetMeta f"]
    assert made.local == ()


def test_a_touch_does_not_stop_a_deletion() -> None:
    assert names(dict(plan({1: file("f", 1)}, {1: file("f", 1, mtime=99)}, {}).target)) == {}


def test_a_server_that_knows_no_metadata_is_not_told_any_for_its_own_objects() -> None:
    foreign: Nodes = {1: file("f", 1, mode=None, mtime=None)}
    made = plan(foreign, {1: file("f", 1, mode=0o644, mtime=7)}, foreign)
    assert made.remote == ()
    assert [adopt.nid for adopt in made.adopt] == [1]


def test_a_change_of_mode_reaches_a_server_that_had_none() -> None:
    base: Nodes = {1: file("f", 1, mode=0o644)}
    made = plan(base, {1: file("f", 1, mode=0o600)}, {1: file("f", 1, mode=None)})
    assert steps(made.remote) == ["SetMeta f"]


def test_a_resumed_run_finds_the_conflict_copy_it_made_before_the_crash() -> None:
    base: Nodes = {1: file("a.img", 1)}
    copy = file("a (conflict pc EARLIER 020202).img", 2)
    made = plan(base, {1: file("a.img", 2)}, {1: file("a.img", 3), 9: copy})
    assert names(dict(made.target)) == {"a.img": 3, "a (conflict pc EARLIER 020202).img": 2}
    assert steps(made.remote) == []


def test_a_parked_node_has_no_opinion_on_its_place() -> None:
    base: Nodes = {1: file("a", 1)}
    parked = Node(parent=Nid(-1), name=b"1-a", kind=Kind.FILE, content=base[1].content, meta=base[1].meta)
    made = plan(base, {1: parked}, {1: file("moved", 1)})
    assert names(dict(made.target)) == {"moved": 1}
    assert steps(made.local) == ["Move moved"]


def test_a_parked_node_without_a_row_comes_back_under_its_name() -> None:
    parked = Node(parent=Nid(-1), name=b"7-x.img", kind=Kind.FILE, content=file("x", 4).content)
    made = plan({}, {9: parked}, {})
    assert names(dict(made.target)) == {"x.img": 4}
    assert steps(made.local) == ["Move x.img"]


def test_children_of_a_directory_that_nobody_knows_come_to_the_top() -> None:
    """A row whose parent's row was lost in a crash, deleted here and edited there."""
    made = plan({2: file("f", 1, parent=77)}, {}, {2: file("f", 2, parent=77), 77: folder("d")})
    assert names(dict(made.target)) == {"d": None, "d/f": 2}


@st.composite
def _trees(draw: st.DrawFn) -> tuple[Nodes, Nodes, Nodes]:
    """Three valid trees over a few common numbers."""
    common = draw(st.integers(0, 6))
    kinds = [draw(st.sampled_from("fdl")) for _ in range(common + 4)]

    def one(members: list[int]) -> Nodes:
        nodes: Nodes = {}
        taken: set[object] = set()
        for nid in members:
            parents = [0, *(other for other in nodes if kinds[other % len(kinds)] == "d")]
            parent = draw(st.sampled_from(parents))
            name = draw(st.sampled_from("abc"))
            if (parent, name) in taken:
                continue
            taken.add((parent, name))
            kind = kinds[nid % len(kinds)]
            number = draw(st.integers(1, 5))
            nodes[nid] = (
                folder(name, parent=parent)
                if kind == "d"
                else link(name, str(number), parent=parent)
                if kind == "l"
                else file(name, number, parent=parent)
            )
        return nodes

    order = list(range(1, common + 1))
    sides = [one([n for n in draw(st.permutations(order)) if draw(st.integers(0, 4))]) for _ in range(3)]
    return sides[0], sides[1], sides[2]


@settings(max_examples=effort.count("merge"), deadline=None)
@given(_trees())
def test_the_target_is_a_valid_tree(trees: tuple[Nodes, Nodes, Nodes]) -> None:
    base, local, remote = trees
    target = merge(base_of(base).tree, tree(local), tree(remote), POLICY, fresh()).target
    assert len(paths_of(target)) == len(target)
    assert len({node.slot for node in target.values()}) == len(target)


@settings(max_examples=effort.count("merge"), deadline=None)
@given(_trees())
def test_merge_is_pure_and_deterministic(trees: tuple[Nodes, Nodes, Nodes]) -> None:
    base, local, remote = (tree(each) for each in trees)
    copies = dict(base), dict(local), dict(remote)
    assert merge(base, local, remote, POLICY, fresh()) == merge(base, local, remote, POLICY, fresh())
    assert copies == (base, local, remote)


@settings(max_examples=effort.count("merge"), deadline=None)
@given(_trees())
def test_merge_is_symmetric_in_what_survives(trees: tuple[Nodes, Nodes, Nodes]) -> None:
    """I13: swapping the sides changes names and priority, not which versions exist afterwards."""
    base, local, remote = (tree(each) for each in trees)

    def versions(target: dict[Nid, Node]) -> set[object]:
        return {(n.kind, n.content, n.target) for n in target.values() if n.kind is not Kind.DIRECTORY}

    one = merge(base, local, remote, POLICY, fresh()).target
    two = merge(base, remote, local, POLICY, fresh()).target
    assert versions(one) == versions(two)


@settings(max_examples=effort.count("merge"), deadline=None)
@given(_trees())
def test_a_version_that_loses_its_name_is_copied_from_where_it_is_and_goes_after_its_copy(
    trees: tuple[Nodes, Nodes, Nodes],
) -> None:
    """Also if its node is one with another one that has other bytes here."""
    made = plan(*trees)
    here, known = made.local_state.tree, tree(trees[0])
    for action in made.local:
        if isinstance(action, Create) and action.copy_of is not None:
            assert here[action.copy_of].same_payload(made.target[action.nid])
        if isinstance(action, Trash) and action.kind is not Kind.DIRECTORY and action.absorbed_by is not None:
            was, stays = known.get(action.nid), made.target[action.absorbed_by]
            if not here[action.nid].same_payload(stays) and not (was and here[action.nid].same_payload(was)):
                assert action.after is not None
                assert made.target[action.after].same_payload(here[action.nid])


def test_two_nodes_that_become_one_and_have_both_lost_a_version_keep_both() -> None:
    base: Nodes = {1: folder("d"), 2: folder("e"), 3: file("x", 1, parent=1), 4: file("x", 2, parent=2)}
    local: Nodes = {1: folder("d"), 3: file("x", 3, parent=1), 2: folder("e"), 4: file("y", 4, parent=1)}
    remote: Nodes = {1: folder("d"), 2: folder("e"), 3: file("y", 9, parent=1), 4: file("x", 9, parent=2)}
    made = plan(base, local, remote)
    assert set(names(dict(made.target)).values()) == {None, 3, 4, 9}
    copies = {action.copy_of: action.content for action in made.local if isinstance(action, Create)}
    assert copies == {Nid(3): local[3].content, Nid(4): local[4].content}


@pytest.mark.parametrize("depth", [20_000])
def test_deep_trees_need_no_recursion(depth: int) -> None:
    deep: Nodes = {nid: folder("d", parent=nid - 1) for nid in range(1, depth)}
    made = merge(tree(deep), tree(deep), tree(deep), POLICY, fresh())
    assert len(made.target) == depth - 1
