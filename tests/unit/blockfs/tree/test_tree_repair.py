"""Any rows of a tree may be deleted, altered or made up: after a repair it is sound, and what is lost was named."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from blockfs.blocks.ids import LOST_BLOCK
from blockfs.errors import CorruptionError, FormatTooNewError
from blockfs.tree.fsck.draft import LOST_FOUND
from blockfs.tree.fsck.findings import Problem
from blockfs.tree.schema import (
    META_FORMAT,
    META_MOUNT,
    ROOT_INO,
    SNAPSHOTS_INO,
    MountRow,
    Table,
    decode_inode,
    encode_format,
    encode_inode,
    leaf_map_key,
    u64,
)
from blockfs.tree.store import Tree
from tests import effort
from tests.unit.blockfs.tree.damaged import (
    BLOCK_SIZE,
    FIRST,
    STAGED,
    Edit,
    all_rows,
    apply,
    build,
    contents,
    copied,
    damage_and_repair,
    edits,
    ids,
    repair,
)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tree") / "sound"
    build(path)
    return path


@settings(
    max_examples=effort.count("damaged trees"),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_any_damaged_rows_are_repaired_and_nothing_else_is_touched(sound: Path, data: st.DataObject) -> None:
    with copied(sound) as path:
        rows = all_rows(path)
    damage_and_repair(sound, data.draw(edits(rows)))


def row_of(sound: Path, table: Table, key: bytes) -> bytes:
    with copied(sound) as path:
        return next(value for found, place, value in all_rows(path) if (found, place) == (table, key))


@pytest.mark.parametrize(("ino", "origin"), [(ROOT_INO, 1), (SNAPSHOTS_INO, 0)])
def test_the_root_stays_live_and_the_directory_of_snapshots_read_only(sound: Path, ino: int, origin: int) -> None:
    """The other way round all files of a volume became a snapshot's, or all of its snapshots live."""
    key = u64(ino)
    wrong = encode_inode(replace(decode_inode(ino, row_of(sound, Table.INODES, key)), origin=origin))
    damage_and_repair(sound, [(Table.INODES, key, wrong)])
    with copied(sound) as path:
        apply(path, [(Table.INODES, key, wrong)])
        assert [(found.problem, found.ino) for found in repair(path, dict(STAGED)).draft.findings] == [
            (Problem.SNAPSHOT, ino)
        ]


def test_a_lost_leaf_is_lost_as_a_range_that_fails_to_be_read(sound: Path) -> None:
    key = row_of(sound, Table.LEAF_MAP, leaf_map_key(FIRST, 1))
    with copied(sound) as path:
        apply(path, [(Table.LEAVES, key, None)])
        lost = repair(path).draft.losses
        first, second = lost  # in the snapshot that shares it, too
        assert first.ino == FIRST
        for loss in lost:
            assert (loss.start, loss.end) == (256 * BLOCK_SIZE, 300 * BLOCK_SIZE)
        assert contents(path)[0][b".snapshots/second/one"] == second.ino
        assert contents(path)[1][FIRST].leaves[1] == (1, LOST_BLOCK * 44)


def test_a_damaged_leaf_is_kept_in_lost_and_found(sound: Path) -> None:
    key = row_of(sound, Table.LEAF_MAP, leaf_map_key(FIRST, 1))
    with copied(sound) as path:
        apply(path, [(Table.LEAVES, key, ids(300, 0, 311))])
        repair(path)
        names, files = contents(path)
        (kept,) = [ino for name, ino in names.items() if name.startswith(LOST_FOUND + b"/leaf-")]
        assert files[kept].leaves == ((0, ids(300, 0, 311)),)


def test_a_lost_inode_comes_back_with_its_content_and_names(sound: Path) -> None:
    with copied(sound) as path:
        _, before = contents(path)
        apply(path, [(Table.INODES, u64(FIRST), None)])
        done = repair(path).draft
        assert Problem.LOST_INODE in {found.problem for found in done.findings}
        assert [loss.ino for loss in done.losses] == [FIRST]
        names, files = contents(path)
        assert files[FIRST].leaves == before[FIRST].leaves
        assert names[b"one"] == names[b"link-0"] == FIRST


def test_a_lost_directory_comes_back_with_what_was_in_it(sound: Path) -> None:
    with copied(sound) as path:
        names, _ = contents(path)
        apply(path, [(Table.INODES, u64(names[b"a"]), None)])
        repair(path)
        assert contents(path)[0] == names


def test_an_entry_comes_back_from_its_reverse_row(sound: Path) -> None:
    with copied(sound) as path:
        names, _ = contents(path)
        key = u64(names[b"a/b"]) + b"symlink"
        for damage in (None, u64(FIRST), u64(10**6)):
            apply(path, [(Table.DENTRIES, key, damage)])
            assert repair(path).draft.losses == []
            assert contents(path)[0] == names


def test_a_repair_voids_all_cursors_and_keeps_an_unclean_end_unclean(sound: Path) -> None:
    damage: Edit = (Table.ALLOCATIONS, u64(FIRST), u64(1))
    with copied(sound) as path:
        before = mount_row(path)
        apply(path, [damage])
        repair(path)
        after = mount_row(path)
        assert (after.generation, after.clean) == (before.generation + 1, True)
        tree = Tree.open(path)
        assert tree.begin_mount()
        begun = tree.mount_row().generation  # of a line of its own, as this is a copy
        tree.close()
        apply(path, [damage])
        repair(path)
        assert (mount_row(path).generation, mount_row(path).clean) == (begun + 1, False)


def mount_row(path: bytes) -> MountRow:
    tree = Tree.open(path)
    try:
        return tree.mount_row()
    finally:
        tree.close()


def test_a_damaged_leaf_stops_a_collection(sound: Path) -> None:
    """What a damaged leaf referred to is not known: a collection that went on would delete it."""
    key = row_of(sound, Table.LEAF_MAP, leaf_map_key(FIRST, 1))
    with copied(sound) as path:
        apply(path, [(Table.LEAVES, key, ids(300, 0, 311))])
        tree = Tree.open(path)
        try:
            with tree.committed() as view, pytest.raises(CorruptionError, match=key.hex()):
                list(view.marked_ids())
        finally:
            tree.close()


def test_a_newer_tree_is_not_repaired(sound: Path) -> None:
    with copied(sound) as path:
        apply(path, [(Table.META, META_FORMAT, encode_format(10**6)), (Table.META, META_MOUNT, None)])
        before = all_rows(path)
        with pytest.raises(FormatTooNewError):
            repair(path)
        assert all_rows(path) == before


def test_a_sound_tree_is_left_as_it_is(sound: Path) -> None:
    with copied(sound) as path:
        before = all_rows(path)
        assert repair(path).draft.findings == []
        assert all_rows(path) == before
