from __future__ import annotations

import pytest

from syncer.core.model import FileStat, Nid, Note, NoteKind, Plan, RelPath, RemoteStat
from syncer.core.planner.identify import identify_local, identify_remote
from syncer.core.planner.merge import Policy
from syncer.core.planner.plan import make_plan
from syncer.remote.serials import SERIALS
from tests.unit.syncer.core.trees import (
    POLICY,
    Nodes,
    base_of,
    file,
    file_stat,
    folder,
    folder_stat,
    fresh,
    link,
    plan,
    remote_file,
    remote_folder,
    steps,
)

BASE: Nodes = {1: folder("d"), 2: folder("u", parent=1), 3: file("f", 1, parent=2), 4: file("g", 2, parent=1)}
VISIBLE = [folder_stat("d", ino=1), folder_stat("d/u", ino=2), file_stat("d/g", 2, ino=4)]


def seen(local: list[FileStat], unknown: set[bytes], remote: list[RemoteStat], base: Nodes = BASE) -> Plan:
    numbers = fresh()
    index = base_of(base)
    here = identify_local(local, {RelPath(path) for path in unknown}, index, numbers)
    return make_plan(index, here, identify_remote(remote, index, numbers, SERIALS), POLICY, numbers)


def kinds(notes: tuple[Note, ...]) -> set[NoteKind]:
    return {note.kind for note in notes}


def test_an_unreadable_directory_deletes_nothing() -> None:
    remote = [
        remote_folder("d", uuid=1),
        remote_folder("d/u", uuid=2),
        remote_file("d/u/f", 1, uuid=3),
        remote_file("d/g", 2, uuid=4),
    ]
    made = seen(VISIBLE, {b"d/u"}, remote)
    assert made.is_empty
    assert NoteKind.UNKNOWN in kinds(made.notes)


def test_nothing_above_an_unreadable_directory_is_removed_or_moved() -> None:
    made = seen(VISIBLE, {b"d/u"}, [])
    assert steps(made.local) == ["Trash d/g"]
    moved = [
        remote_folder("e", uuid=1),
        remote_folder("e/u", uuid=2),
        remote_file("e/u/f", 1, uuid=3),
        remote_file("e/g", 2, uuid=4),
    ]
    assert steps(seen(VISIBLE, {b"d/u"}, moved).local) == []


def test_siblings_of_an_unreadable_directory_go_on() -> None:
    remote = [
        remote_folder("d", uuid=1),
        remote_folder("d/u", uuid=2),
        remote_file("d/u/f", 9, uuid=3),
        remote_file("d/g", 8, uuid=4),
    ]
    made = seen(VISIBLE, {b"d/u"}, remote)
    assert steps(made.local) == ["Update d/g"]


def test_nothing_is_put_into_an_unreadable_directory() -> None:
    remote = [
        remote_folder("d", uuid=1), remote_folder("d/u", uuid=2), remote_file("d/u/f", 1, uuid=3),
        remote_file("d/g", 2, uuid=4), remote_file("d/u/new", 7, uuid=70), remote_file("d/new", 6, uuid=60),
    ]  # fmt: skip
    assert steps(seen(VISIBLE, {b"d/u"}, remote).local) == ["Create d/new"]


def test_an_entry_that_can_not_even_be_looked_at_keeps_its_place() -> None:
    made = seen([], {b"x"}, [remote_file("x", 1, uuid=9), remote_file("y", 2, uuid=8)], base={})
    assert steps(made.local) == ["Create y"]
    assert made.remote == ()


def test_an_unreadable_root_freezes_everything() -> None:
    made = seen([], {b""}, [remote_file("new", 1, uuid=9)])
    assert made.local == ()
    assert not [step for step in steps(made.remote) if step.startswith("Trash")]


def test_a_file_that_changes_while_it_is_read_waits() -> None:
    base: Nodes = {1: file("a", 1)}
    made = seen([file_stat("a", None, ino=1)], set(), [remote_file("a", 2, uuid=1)], base)
    assert made.is_empty
    assert kinds(made.notes) == {NoteKind.UNKNOWN}


def test_a_new_file_of_unknown_content_keeps_its_name_and_is_not_sent() -> None:
    made = seen([file_stat("a", None, ino=5)], set(), [remote_file("a", 2, uuid=1)], {})
    assert made.is_empty
    assert {NoteKind.UNKNOWN, NoteKind.WAITS} == kinds(made.notes)


def test_a_row_without_a_path_is_not_deleted_while_something_is_unreadable() -> None:
    """It may be in there: after a crash its parent's row may be missing."""
    base: Nodes = {1: folder("u"), 9: file("x", 3, parent=77)}
    remote = [remote_folder("u", uuid=1), remote_file("x", 3, uuid=9)]
    assert seen([folder_stat("u", ino=1)], {b"u"}, remote, base).is_empty


def test_what_depends_on_an_absent_frozen_directory_stays() -> None:
    """The server can't hold the directory's name, so what was moved into it is not moved there either."""
    base: Nodes = {1: file("f", 1)}
    local: Nodes = {
        1: file("f", 1, parent=5),
        5: folder("bad\udcff".encode("utf-8", "surrogateescape").decode("latin-1")),
    }
    policy = Policy(host="pc", utc="T", remote_objection=lambda name: "no" if name.startswith(b"bad") else None)
    made = plan(base, local, base, policy)
    assert made.is_empty
    assert NoteKind.UNHOLDABLE in kinds(made.notes)


@pytest.mark.parametrize("name", [b"\xff", b"a\nb", b"x\x7f"])
def test_a_name_that_the_server_can_not_hold_is_reported_and_left_alone(name: bytes) -> None:
    local = [
        FileStat(path=RelPath(name), kind=s.kind, meta=s.meta, content=s.content, tag=s.tag)
        for s in [file_stat("a", 1, ino=5)]
    ]
    made = seen(local, set(), [], {})
    assert made.is_empty
    assert [(note.kind, note.path) for note in made.notes] == [(NoteKind.UNHOLDABLE, name)]


def test_a_rename_to_a_name_that_the_server_can_not_hold_deletes_nothing() -> None:
    stat = file_stat("a", 1, ino=1)
    local = [FileStat(path=RelPath(b"\xff"), kind=stat.kind, meta=stat.meta, content=stat.content, tag=stat.tag)]
    assert seen(local, set(), [remote_file("a", 1, uuid=1)], {1: file("a", 1)}).is_empty


def test_a_segment_that_is_too_long_for_the_local_side_is_left_alone() -> None:
    made = seen([], set(), [remote_file("n" * 256, 1, uuid=1)], {})
    assert made.is_empty
    assert kinds(made.notes) == {NoteKind.UNHOLDABLE}


def test_names_that_fold_to_one_on_the_local_side_are_not_both_made() -> None:
    policy = Policy(host="pc", utc="T", fold_local=bytes.lower)
    made = plan({}, {}, {1: file("A", 1), 2: file("a", 2)}, policy)
    assert steps(made.local) == ["Create A"]
    assert kinds(made.notes) == {NoteKind.UNHOLDABLE}


def test_a_rename_that_changes_only_case_is_a_move() -> None:
    policy = Policy(host="pc", utc="T", fold_local=bytes.lower)
    made = plan({1: file("a", 1)}, {1: file("a", 1)}, {1: file("A", 1)}, policy)
    assert steps(made.local) == ["Park .blocksync/park/1-a", "Move A"]


def test_a_conflict_copy_waits_with_its_node() -> None:
    """Else a frozen conflict would make another copy in each cycle."""
    policy = Policy(host="pc", utc="T", remote_objection=lambda name: "no" if b"conflict" in name else None)
    made = plan({1: file("a", 1)}, {1: file("a", 2)}, {1: file("a", 3)}, policy)
    assert made.is_empty


def test_a_symlink_whose_target_was_not_fetched_waits() -> None:
    base: Nodes = {1: link("l", "old")}
    row = remote_file("l", 1, uuid=1, version=2)
    stat = RemoteStat(path=row.path, kind=base[1].kind, meta=None, content=None, target=None, tag=row.tag)
    numbers, index = fresh(), base_of(base)
    there = identify_remote([stat], index, numbers, SERIALS)
    assert there.frozen.keys() == {Nid(1)}
