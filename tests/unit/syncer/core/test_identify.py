from __future__ import annotations

from msgspec.structs import replace

from syncer.core.base import BaseIndex
from syncer.core.model import (
    PARK,
    ROOT,
    BaseRow,
    FileStat,
    Identified,
    Kind,
    LocalTag,
    Meta,
    Nid,
    Node,
    NoteKind,
    RelPath,
    RemoteStat,
)
from syncer.core.paths import path_in
from syncer.core.planner.identify import Blind, evidence, identify_local, identify_remote, synced_meta
from syncer.remote.serials import SERIALS
from tests.unit.syncer.core.trees import (
    Nodes,
    base_of,
    content,
    file,
    file_stat,
    folder,
    folder_stat,
    fresh,
    link,
    local_tag,
    remote_file,
    remote_folder,
    remote_tag,
)

BASE: Nodes = {1: file("a", 1), 2: folder("d"), 3: file("f", 2, parent=2)}


def local(base: Nodes, *stats: FileStat) -> dict[str, int]:
    return by_path(identify_local(stats, set(), base_of(base), fresh()))


def remote(base: Nodes, *stats: RemoteStat) -> dict[str, int]:
    return by_path(identify_remote(stats, base_of(base), fresh(), SERIALS))


def by_path(state: Identified) -> dict[str, int]:
    return {(path_in(state.tree, nid) or b"?").decode(): int(nid) for nid in state.tree}


def test_a_new_inode_at_the_same_path_is_an_edit() -> None:
    assert local(BASE, file_stat("a", 9, ino=500)) == {"a": 1}


def test_the_same_inode_elsewhere_is_a_move() -> None:
    assert local(BASE, file_stat("b", 9, ino=1)) == {"b": 1}


def test_the_path_counts_before_the_inode() -> None:
    """`mv a b; create a`, as editors do that keep a backup: the edit stays with the name."""
    assert local(BASE, file_stat("a", 9, ino=500), file_stat("b", 1, ino=1)) == {"a": 1, "b": 1000}


def moved_over(at: int, local_ctime: int, version: int) -> BaseRow:
    """The row of node `at`, whose object is that of node 1 since somebody moved it there."""
    return BaseRow(
        nid=Nid(at),
        node=file("b", 1),
        local=local_tag(1, ctime=local_ctime),
        remote=remote_tag(1, version=version),
    )


def test_what_is_moved_back_to_where_a_crash_left_a_row_is_the_node_of_the_later_row() -> None:
    """`a` was moved over `b`: `b` was edited, `a` removed, and a crash lost the record of that. Then it is moved back.

    As node 1, unchanged, it would be deleted on the other side's behalf; and node 2 as well.
    """
    row = base_of({1: file("a", 1)}).rows[Nid(1)]
    base = BaseIndex([row, moved_over(2, local_ctime=5, version=7)])
    assert by_path(identify_local([file_stat("a", 1, ino=1)], set(), base, fresh())) == {"a": 2}
    assert by_path(identify_remote([remote_file("a", 1, uuid=1, version=8)], base, fresh(), SERIALS)) == {"a": 2}


def test_what_is_moved_over_an_equal_file_keeps_its_identity() -> None:
    """By its path it would be that file, unchanged, and the moved one deleted: if the other side deleted that, both."""
    twins: Nodes = {1: file("a", 1), 2: file("b", 1)}
    assert local(twins, file_stat("b", 1, ino=1)) == {"b": 1}
    assert remote(twins, remote_file("b", 1, uuid=1)) == {"b": 1}
    others: Nodes = {1: file("a", 1), 2: file("b", 2)}
    assert local(others, file_stat("b", 1, ino=1)) == {"b": 2}  # an edit


def test_where_both_names_of_an_inode_are_there_their_paths_count() -> None:
    """Hard links."""
    base = BaseIndex([base_of({1: file("a", 1)}).rows[Nid(1)], moved_over(2, local_ctime=5, version=7)])
    stats = [file_stat("a", 1, ino=1), file_stat("b", 1, ino=1)]
    assert by_path(identify_local(stats, set(), base, fresh())) == {"a": 1, "b": 2}


def test_another_kind_at_the_same_path_is_another_node() -> None:
    assert local(BASE, folder_stat("a", ino=1)) == {"a": 1000}


def test_a_reused_inode_of_another_birth_is_another_file() -> None:
    stat = file_stat("b", 9, ino=1)
    tag = LocalTag(device=1, ino=1, btime_ns=77, size_bytes=0, mtime_ns=0, ctime_ns=0)
    other = FileStat(path=stat.path, kind=stat.kind, meta=stat.meta, content=stat.content, tag=tag)
    assert local(BASE, other) == {"b": 1000}


def test_a_moved_directory_takes_its_children_along() -> None:
    assert local(BASE, folder_stat("e", ino=2), file_stat("e/f", 2, ino=3)) == {"e": 2, "e/f": 3}


def test_children_of_a_moved_directory_are_known_by_name_even_with_new_inodes() -> None:
    assert local(BASE, folder_stat("e", ino=2), file_stat("e/f", 7, ino=500)) == {"e": 2, "e/f": 3}


def test_a_unique_equal_content_of_a_vanished_node_is_a_move() -> None:
    assert local(BASE, file_stat("copied", 1, ino=500)) == {"copied": 1}


def test_an_equal_content_that_is_not_unique_is_new() -> None:
    assert local(BASE, file_stat("x", 1, ino=500), file_stat("y", 1, ino=501)) == {"x": 1000, "y": 1001}


def test_an_empty_file_is_no_evidence_of_a_move() -> None:
    base: Nodes = {1: Node(parent=Nid(0), name=b"a", kind=Kind.FILE, content=content(1, size_bytes=0))}
    stat = file_stat("b", 1, ino=500)
    empty = FileStat(path=stat.path, kind=stat.kind, meta=stat.meta, content=content(1, size_bytes=0), tag=stat.tag)
    assert local(base, empty) == {"b": 1000}


def test_hard_links_are_nodes_of_their_own() -> None:
    one = BaseRow(nid=Nid(1), node=file("a", 1), local=local_tag(7), remote=None)
    two = BaseRow(nid=Nid(2), node=file("b", 1), local=local_tag(7), remote=None)
    stats = [file_stat("b", 1, ino=7), file_stat("c", 1, ino=7), file_stat("z", 1, ino=7)]
    assert by_path(identify_local(stats, set(), BaseIndex([one, two]), fresh())) == {"b": 2, "c": 1, "z": 1000}


def test_a_parked_node_is_known_by_its_number() -> None:
    state = identify_local([file_stat(".blocksync/park/1-a", 1, ino=500)], set(), base_of(BASE), fresh())
    assert state.tree[Nid(1)].parent == PARK


def test_nothing_else_of_the_private_folder_is_a_node() -> None:
    assert local({}, file_stat(".blocksync/trash/x", 1, ino=5), folder_stat(".blocksync", ino=6)) == {}


def test_two_rows_in_one_slot_are_told_apart_by_identity() -> None:
    """A crash in the middle of a swap leaves such a base."""
    assert local({1: file("a", 1), 2: file("a", 2)}, file_stat("a", 2, ino=2)) == {"a": 2}


def test_rows_in_a_cycle_are_found_by_identity() -> None:
    base: Nodes = {1: folder("x", parent=2), 2: folder("y", parent=1)}
    assert local(base, folder_stat("x", ino=1), folder_stat("x/y", ino=2)) == {"x": 1, "x/y": 2}


def test_the_remote_uuid_finds_a_moved_object() -> None:
    assert remote(BASE, remote_file("b", 9, uuid=1)) == {"b": 1}


def test_of_two_rows_with_the_identity_of_what_was_moved_over_the_later_one_counts() -> None:
    """A crash left the row of an earlier move: what the object was last is what it is."""
    rows = base_of({1: file("a", 1), 2: file("b", 1), 3: file("o", 1)}).rows
    moved = [replace(rows[Nid(nid)], remote=remote_tag(50, version=version)) for nid, version in ((1, 5), (2, 9))]
    for order in (moved, moved[::-1]):
        state = identify_remote(
            [remote_file("o", 1, uuid=50, version=12)], BaseIndex([*order, rows[Nid(3)]]), fresh(), SERIALS
        )
        assert by_path(state) == {"o": 2}


def test_a_directory_without_a_marker_is_added() -> None:
    state = identify_remote([remote_file("x/y/f", 1, uuid=9)], BaseIndex(), fresh(), SERIALS)
    assert by_path(state) == {"x": 1000, "x/y": 1001, "x/y/f": 1002}
    assert state.implicit == {1000, 1001}


def test_a_directory_that_lost_its_marker_is_still_itself() -> None:
    assert remote(BASE, remote_file("d/f", 2, uuid=3)) == {"d": 2, "d/f": 3}


def test_a_name_may_be_that_of_an_object_and_of_a_directory_without_a_marker() -> None:
    state = identify_remote(
        [remote_file("d", 5, uuid=50), remote_file("d/f", 2, uuid=3)], base_of(BASE), fresh(), SERIALS
    )
    assert state.tree[Nid(2)].slot == state.tree[Nid(1000)].slot == (ROOT, b"d")
    assert state.tree[Nid(3)].slot == (Nid(2), b"f")
    assert state.implicit == {Nid(2)}
    assert not state.frozen
    assert not state.notes


def test_objects_below_objects_are_directories_all_the_way_down() -> None:
    names = ("z", "z/f", "z/f/g", "z!", "z/f/g/h/i")
    state = identify_remote(
        [remote_file(name, 5, uuid=50 + at) for at, name in enumerate(names)], BaseIndex(), fresh(), SERIALS
    )
    files = [path_in(state.tree, nid) for nid, node in state.tree.items() if node.kind is Kind.FILE]
    folders = [path_in(state.tree, nid) for nid in state.implicit]
    assert sorted(files) == sorted(name.encode() for name in names)
    assert sorted(folders) == [b"z", b"z/f", b"z/f/g", b"z/f/g/h"]


def test_what_lies_below_no_directory_here_is_left_alone_and_not_taken_for_deleted() -> None:
    """No file system has that: the two were seen at different times."""
    seen = [file_stat("d", 5, ino=50), file_stat("d/f", 2, ino=3)]
    state = identify_local(seen, set(), base_of(BASE), fresh())
    assert by_path(state) == {"d": 1000}
    assert state.frozen.keys() == {Nid(3)}
    (note,) = state.notes
    assert (note.kind, note.text) == (
        NoteKind.UNHOLDABLE,
        "it lies below d, which is no directory: it is left alone",
    )


def test_metadata_that_a_listing_lacks_is_the_bases_while_the_version_is() -> None:
    known = identify_remote([remote_file("a", 1, uuid=1)], base_of(BASE), fresh(), SERIALS)
    assert known.tree[Nid(1)].meta == BASE[1].meta
    newer = identify_remote([remote_file("a", 1, uuid=1, version=2)], base_of(BASE), fresh(), SERIALS)
    assert newer.tree[Nid(1)].meta == Meta()


def test_a_link_text_that_a_listing_lacks_is_the_bases_while_the_version_is() -> None:
    stat = RemoteStat(path=RelPath(b"l"), kind=Kind.SYMLINK, meta=None, tag=remote_tag(1))
    assert identify_remote([stat], base_of({1: link("l", "t")}), fresh(), SERIALS).tree[Nid(1)].target == b"t"


def test_the_order_of_observations_does_not_matter() -> None:
    stats = [
        remote_file("b", 9, uuid=1),
        remote_folder("d", uuid=2),
        remote_file("d/f", 2, uuid=3),
        remote_file("n", 4, uuid=8),
    ]
    assert identify_remote(stats, base_of(BASE), fresh(), SERIALS) == identify_remote(
        stats[::-1], base_of(BASE), fresh(), SERIALS
    )


def test_a_directorys_times_are_neither_metadata_nor_evidence() -> None:
    assert synced_meta(Kind.DIRECTORY, Meta(mode=0o700, mtime_ns=5)) == Meta(mode=0o700)
    assert synced_meta(Kind.SYMLINK, Meta(mode=0o777, mtime_ns=5)) == Meta()
    early, late = (LocalTag(device=1, ino=2, btime_ns=3, size_bytes=n, mtime_ns=n, ctime_ns=n) for n in (1, 2))
    assert evidence(Kind.DIRECTORY, early) == evidence(Kind.DIRECTORY, late)
    assert evidence(Kind.FILE, early) != evidence(Kind.FILE, late)


def test_what_vanished_while_a_directory_can_not_be_read_is_not_deleted() -> None:
    """Somebody may have moved it in there: only a complete look is evidence of a deletion."""
    base = base_of({1: file("a", 1), 2: folder("d")})
    seen = [folder_stat("d", ino=2)]
    found = identify_local(seen, {RelPath(b"d")}, base, fresh())
    assert 1 in found.frozen
    blind = Blind(unknown={RelPath(b"d")}, sealed={RelPath(b"d")})
    elsewhere = identify_local(seen, blind, base, fresh())
    assert 1 not in elsewhere.frozen, "nothing can be moved to another filesystem by a rename"
