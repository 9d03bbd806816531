"""What fsck repairs in a snapshot stays in it and read-only; what is live stays live."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from blockfs.tree.fsck.findings import Problem
from blockfs.tree.schema import (
    ROOT_INO,
    SNAPSHOTS_INO,
    SNAPSHOTS_NAME,
    Generation,
    Inode,
    Table,
    copy_key,
    decode_inode,
    encode_generation,
    encode_inode,
    ino_key,
    parent_key,
    u64,
)
from tests.unit.blockfs.tree.damaged import (
    FIRST,
    STAGED,
    File,
    all_rows,
    apply,
    build,
    contents,
    copied,
    repair,
)

KEPT = SNAPSHOTS_NAME + b"/first"
LATER = SNAPSHOTS_NAME + b"/second"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tree") / "sound"
    build(path)
    return path


def journalled(path: bytes) -> set[int]:
    return {int.from_bytes(value, "big") for table, _, value in all_rows(path) if table is Table.JOURNAL}


def copies(path: bytes) -> dict[int, tuple[int, int]]:
    """Copy → top, original."""
    rows = [(key, value) for table, key, value in all_rows(path) if table is Table.COPIES]
    return {
        int.from_bytes(value, "big"): (int.from_bytes(key[:8], "big"), int.from_bytes(key[8:], "big"))
        for key, value in rows
    }


def assert_apart(path: bytes) -> tuple[dict[bytes, int], dict[int, File]]:
    """All in snapshots is read-only, recorded and not journalled; nothing else is."""
    names, files = contents(path)
    recorded = copies(path)
    journal = journalled(path)
    places = {(names[b"/".join(name.split(b"/")[:2])], ino) for name, ino in names.items()}
    for name, ino in names.items():
        inode = files[ino].inode
        assert inode.is_frozen == name.startswith(SNAPSHOTS_NAME), name
        assert inode.is_frozen == (ino not in journal), name
        if inode.is_frozen and ino != SNAPSHOTS_INO:
            top, original = recorded[ino]
            assert original == inode.origin, name
            assert (top, ino) in places, name
    return names, files


@pytest.mark.parametrize("name", [b"/one", b"/a", b"/a/two", b"/a/b/symlink", b""])
def test_a_lost_inode_of_a_snapshot_comes_back_read_only_where_it_was(sound: Path, name: bytes) -> None:
    with copied(sound) as path:
        names, before = contents(path)
        ino = names[KEPT + name]
        apply(path, [(Table.INODES, u64(ino), None)])
        done = repair(path).draft
        assert [loss.ino for loss in done.losses] == [ino]
        assert Problem.LOST_INODE in {found.problem for found in done.findings}
        assert repair(path).draft.losses == []
        names_after, after = assert_apart(path)
        assert names_after == names
        assert after[ino].leaves == before[ino].leaves
        assert after[ino].inode.origin == before[ino].inode.origin
        assert after[ino].inode.content_version not in {file.inode.content_version for file in before.values()}


def test_the_whole_of_a_snapshot_comes_back_read_only(sound: Path) -> None:
    with copied(sound) as path:
        names, _ = contents(path)
        lost = {ino for name, ino in names.items() if name.startswith(KEPT)}
        apply(path, [(Table.INODES, u64(ino), None) for ino in lost])
        repair(path)
        names_after, _ = assert_apart(path)
        kinds_of_nothing = {name for name in names if name.endswith((b"empty", b"fifo")) and name.startswith(KEPT)}
        assert names_after.keys() == names.keys() - kinds_of_nothing, "of these there was only the inode"


def test_what_it_is_a_copy_of_may_be_lost_too(sound: Path) -> None:
    with copied(sound) as path:
        names, before = contents(path)
        ino = names[KEPT + b"/one"]
        apply(path, [(Table.INODES, u64(ino), None), (Table.COPIES, copy_key(names[KEPT], FIRST), None)])
        repair(path)
        names_after, after = assert_apart(path)
        assert names_after == names
        assert after[ino].leaves == before[ino].leaves
        assert after[ino].inode.origin not in before, "of something that never was"


def live_again(before: dict[int, File], ino: int) -> Inode:
    """As earlier versions of fsck left it, and perhaps somebody wrote to it since."""
    return replace(before[ino].inode, origin=0, version=2**20, content_version=2**20)


@pytest.mark.parametrize("name", [b"/one", b"/a", b""])
def test_what_an_earlier_repair_left_writable_is_frozen_again(sound: Path, name: bytes) -> None:
    with copied(sound) as path:
        names, before = contents(path)
        ino = names[KEPT + name]
        original = before[ino].inode.origin
        row = encode_inode(live_again(before, ino))
        apply(path, [(Table.INODES, u64(ino), row), (Table.JOURNAL, u64(2**20), u64(ino))])
        apply(path, [(Table.COPIES, copy_key(names[KEPT], original), None)])
        done = repair(path).draft
        assert (Problem.SNAPSHOT, ino) in {(found.problem, found.ino) for found in done.findings}
        assert done.losses == []
        assert assert_apart(path)[0] == names


def test_what_was_staged_for_it_is_kept_among_the_live_files(sound: Path) -> None:
    with copied(sound) as path:
        names, before = contents(path)
        ino = names[KEPT + b"/two"]
        generation = Generation(ino=ino, range_index=0, generation=77)
        apply(path, [(Table.INODES, u64(ino), encode_inode(live_again(before, ino)))])
        apply(path, [(Table.GENERATIONS, *encode_generation(generation))])
        staged = {**STAGED, (ino, 0, 77): replace(STAGED[6, 0, 1], identity=99)}
        repair(path, staged)
        names_after, _ = assert_apart(path)
        assert names_after.keys() - names.keys() == {b"lost+found", b"lost+found/staged-%d.0.77" % ino}
        assert names_after.keys() >= names.keys()


def test_what_is_live_does_not_become_read_only_by_a_damaged_row(sound: Path) -> None:
    for name in (b"two", b"a"):
        with copied(sound) as path:
            names, before = contents(path)
            ino = names[name]
            row = encode_inode(replace(before[ino].inode, origin=77))
            apply(path, [(Table.INODES, u64(ino), row)])
            repair(path)
            names_after, after = assert_apart(path)
            assert names_after == names
            assert after[ino].leaves == before[ino].leaves


def test_a_file_is_not_on_both_sides(sound: Path) -> None:
    """Neither is taken from where it belongs."""
    with copied(sound) as path:
        names, before = contents(path)
        live, kept = names[b"two"], names[KEPT + b"/two"]
        top = names[KEPT]
        for parent, child in ((top, live), (ROOT_INO, kept)):
            apply(path, [(Table.DENTRIES, ino_key(parent, b"both"), u64(child))])
            apply(path, [(Table.PARENTS, parent_key(child, parent, b"both"), b"")])
        repair(path)
        names_after, after = assert_apart(path)
        assert names_after == names
        assert (after[live].leaves, after[kept].leaves) == (before[live].leaves, before[kept].leaves)


def test_a_lost_directory_of_a_snapshot_without_a_name_stays_read_only(sound: Path) -> None:
    with copied(sound) as path:
        names, _ = contents(path)
        ino, top = names[KEPT + b"/a"], names[KEPT]
        apply(path, [(Table.INODES, u64(ino), None), (Table.DENTRIES, ino_key(top, b"a"), None)])
        apply(path, [(Table.PARENTS, parent_key(ino, top, b"a"), None)])
        repair(path)
        names_after, _ = assert_apart(path)
        assert names_after[SNAPSHOTS_NAME + b"/#%d" % ino] == ino
        below = {name.removeprefix(KEPT + b"/a") for name in names if name.startswith(KEPT + b"/a/")}
        assert {name.removeprefix(SNAPSHOTS_NAME + b"/#%d" % ino) for name in names_after} >= below


@pytest.mark.parametrize("damage", [None, u64(FIRST)])
def test_a_copy_that_is_not_recorded_is(sound: Path, damage: bytes | None) -> None:
    """A syncer that reads the snapshot would take the original for deleted."""
    with copied(sound) as path:
        before = copies(path)
        names, _ = contents(path)
        apply(path, [(Table.COPIES, copy_key(names[LATER], FIRST), damage)])
        repair(path)
        assert copies(path) == before
        assert assert_apart(path)[0] == names


def test_two_copies_of_one_original_are_told_apart(sound: Path) -> None:
    with copied(sound) as path:
        names, _ = contents(path)
        ino = names[KEPT + b"/two"]
        with_origin = {table: value for table, key, value in all_rows(path) if key == u64(ino)}
        inode = decode_inode(ino, with_origin[Table.INODES])
        apply(path, [(Table.INODES, u64(ino), encode_inode(replace(inode, origin=FIRST)))])
        repair(path)
        assert assert_apart(path)[0] == names


def test_what_is_being_restored_stays_live(sound: Path) -> None:
    with copied(sound) as path:
        names, before = contents(path)
        ino = names[b"a"]
        apply(path, [(Table.DENTRIES, ino_key(ROOT_INO, b"a"), None)])
        apply(path, [(Table.PARENTS, parent_key(ino, ROOT_INO, b"a"), None)])
        apply(path, [(Table.DENTRIES, ino_key(SNAPSHOTS_INO, b"/%d" % ino), u64(ino))])
        apply(path, [(Table.PARENTS, parent_key(ino, SNAPSHOTS_INO, b"/%d" % ino), b"")])
        done = repair(path).draft
        assert {found.problem for found in done.findings} == {Problem.LINK_COUNT}
        after = contents(path)[1]
        assert not after[ino].inode.is_frozen
        assert after[names[b"a/two"]] == before[names[b"a/two"]]
