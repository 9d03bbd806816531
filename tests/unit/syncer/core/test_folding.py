"""Roots that take names for one which the server tells apart: case, and forms of Unicode."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncer.core.folding import Folding
from syncer.core.model import PARK, Identified, Nid, NoteKind, Park, Side
from syncer.core.planner.diff import DiffContext, diff
from syncer.core.planner.identify import identify_local
from syncer.core.planner.merge import Policy
from syncer.local.folder.probe import decide
from tests.unit.syncer.core.trees import base_of, file, file_stat, folder, fresh, names, plan, steps

CASE = Folding(case=True)
EXT4 = Folding(case=True, full_case=True, forms=True)
POLICY = Policy(host="pc", utc="T", fold_local=EXT4.key)
NFC, NFD = "\N{LATIN SMALL LETTER E WITH ACUTE}", "e\N{COMBINING ACUTE ACCENT}"


def key(folding: Folding, name: str) -> bytes:
    found = folding.key
    assert found is not None
    return found(name.encode())


@given(st.text())
def test_a_key_is_its_own_key(name: str) -> None:
    """Else two names of one group could get into two groups."""
    for folding in (CASE, EXT4, Folding(forms=True)):
        if name.encode("utf-8", "ignore").decode() == name:
            once = key(folding, name)
            assert key(folding, once.decode()) == once


def test_what_each_folding_takes_for_one() -> None:
    assert key(CASE, "Makefile") == key(CASE, "makefile")
    assert key(CASE, NFC) == key(CASE, NFC.upper()) != key(CASE, NFD)
    assert key(CASE, "ß") != key(CASE, "ss")
    assert key(EXT4, "Straße" + NFC) == key(EXT4, "STRASSE" + NFD)
    assert key(Folding(forms=True), NFC) == key(Folding(forms=True), NFD)
    assert Folding().key is None


def test_names_that_are_not_utf8_are_what_they_are() -> None:
    found = EXT4.key
    assert found is not None
    assert found(b"A\xff") == b"A\xff"


@pytest.mark.parametrize("folding", [Folding(), CASE, EXT4, Folding(forms=True), Folding(case=True, forms=True)])
def test_the_probe_finds_what_the_filesystem_does(folding: Folding) -> None:
    """The filesystem here is the key function itself."""
    fold = folding.key or (lambda name: name)
    assert decide(lambda made, asked: fold(made.encode()) == fold(asked.encode())) == folding


def test_a_rename_of_case_only_is_a_rename_on_both_sides() -> None:
    """Taken for a deletion and a new file, it deletes the file on filesystems that fold."""
    base = {1: file("a", 1)}
    made = plan(base, {1: file("A", 1)}, {1: file("a", 1)}, POLICY)
    assert (steps(made.local), steps(made.remote)) == ([], ["Move A"])
    made = plan(base, {1: file("a", 1)}, {1: file("A", 1)}, POLICY)
    assert steps(made.local) == ["Park .blocksync/park/1-a", "Move A"], "by way of the park: A is taken, by a itself"
    assert steps(made.remote) == []


def test_a_file_made_anew_under_a_folded_name_is_an_edit_and_a_rename() -> None:
    base = base_of({1: file("Name", 1)})
    assert list(identify_local([file_stat("name", 2, ino=77)], set(), base, fresh(), EXT4.key).tree) == [1]
    assert list(identify_local([file_stat("name", 2, ino=77)], set(), base, fresh()).tree) == [1000]


@pytest.mark.parametrize(("one", "other"), [("a", "A"), (NFC, NFD)], ids=["case", "form"])
def test_of_two_names_on_the_server_one_is_had_here_and_the_other_reported(one: str, other: str) -> None:
    """Never dropped without a word, and neither is ever a deletion."""
    there = {1: file(one, 1), 2: file(other, 2)}
    made = plan({}, {}, there, POLICY)
    assert steps(made.local) == [f"Create {one}"]
    assert steps(made.remote) == []
    assert [(note.kind, note.path) for note in made.notes] == [(NoteKind.UNHOLDABLE, other.encode())]
    again = plan({1: file(one, 1)}, {1: file(one, 1)}, there, POLICY)
    assert again.is_empty
    swapped = plan({2: file(other, 2)}, {2: file(other, 2)}, there, POLICY)
    assert swapped.is_empty, "who is here stays"
    gone = plan({1: file(one, 1)}, {1: file(one, 1)}, {2: file(other, 2)}, POLICY)
    assert names(dict(gone.target)) == {other: 2}, "the one here was deleted there: now the other one can come"
    assert steps(gone.remote) == []


def test_a_name_that_can_not_be_held_keeps_no_neighbour_from_being_synced() -> None:
    there = {1: folder("d"), 2: file("a", 1, parent=1), 3: file("A", 2, parent=1), 4: file("b", 3, parent=1)}
    made = plan({}, {}, there, POLICY)
    assert sorted(steps(made.local)) == ["Create d/a", "Create d/b", "Mkdir d"]
    assert [note.path for note in made.notes] == [b"d/A"]


def test_what_lies_in_a_directory_that_can_not_be_held_waits_with_it() -> None:
    there = {1: folder("d"), 2: file("x", 1, parent=1), 3: folder("D"), 4: file("y", 2, parent=3)}
    made = plan({}, {}, there, POLICY)
    assert sorted(steps(made.local)) == ["Create d/x", "Mkdir d"]
    assert steps(made.remote) == []


def test_a_new_file_here_gives_way_to_one_on_the_server_and_equal_ones_become_one() -> None:
    made = plan({}, {1: file("A", 1)}, {2: file("a", 2)}, POLICY)
    assert names(dict(made.target)) == {"a": 2, "A (conflict pc T 010101)": 1}
    made = plan({}, {1: file("A", 1)}, {2: file("a", 1)}, POLICY)
    assert names(dict(made.target)) == {"a": 1}
    assert steps((*made.local, *made.remote)) == ["Park .blocksync/park/2-A", "Move a"]
    made = plan({}, {1: folder("D"), 3: file("x", 3, parent=1)}, {2: folder("d"), 4: file("y", 4, parent=2)}, POLICY)
    assert names(dict(made.target)) == {"d": None, "d/x": 3, "d/y": 4}


def test_names_that_are_both_here_are_two_whatever_the_key_says() -> None:
    """Our key may be coarser than the filesystem: then nothing is renamed or reported for it."""
    both = {1: file("ss", 1), 2: file("ß", 2)}
    assert plan(both, both, both, POLICY).is_empty
    made = plan({}, both, {3: file("ss", 1)}, POLICY)
    assert names(dict(made.target)) == {"ss": 1, "ß": 2}
    assert not made.notes


def test_parked_names_do_not_fold_into_one() -> None:
    """A crash may leave a node's old name in the park while a user takes its name in another case."""
    state = {2: file("a", 1), 9: file("2-A", 2, parent=PARK), 5: file("x", 3)}
    target = {9: file("z", 2), 5: file("a", 3), 2: file("y", 1)}
    sides = Identified(tree={Nid(nid): node for nid, node in state.items()}, tags={})
    wanted = {Nid(nid): node for nid, node in target.items()}
    context = DiffContext(base={}, copies={}, absorbed={}, fold=EXT4.key)
    actions = diff(sides, wanted, Side.LOCAL, context)
    parked = [action.path for action in actions if isinstance(action, Park)]
    assert parked == [b".blocksync/park/2-~a"]
