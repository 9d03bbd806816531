"""fsck of snapshots: what is recorded beside their inodes agrees with them, and is repaired if not."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from blockfs.tree.fsck.findings import Problem
from blockfs.tree.schema import (
    ROOT_INO,
    SNAPSHOTS_INO,
    Kind,
    SnapshotRow,
    Table,
    copy_key,
    u64,
)
from blockfs.tree.store import Tree
from tests.kit.committed import check

ROW = SnapshotRow(created_ns=1, mount_generation=1, sequence=1, files=0, logical_bytes=0, source=b"")


@pytest.fixture
def kept(tree: Tree) -> int:
    """A tree with an empty snapshot of its empty root; returns the snapshot's top."""
    root, folder = tree.inode(ROOT_INO), tree.inode(SNAPSHOTS_INO)
    assert root is not None
    assert folder is not None
    top = tree.new_ino()
    tree.put_inode(replace(root, ino=top, origin=ROOT_INO))
    tree.put_inode(replace(folder, nlink=3))
    tree.link(SNAPSHOTS_INO, b"s", top)
    tree.put_copy(top, ROOT_INO, top)
    tree.put_snapshot(top, ROW)
    return top


def problems(tree: Tree) -> list[Problem]:
    tree.commit()
    with tree.committed() as view:
        return [finding.problem for finding in check(view, 4096)]


def test_a_sound_snapshot_is_clean(tree: Tree, kept: int) -> None:
    assert tree.inode(kept) is not None
    assert problems(tree) == []


def test_what_is_being_made_is_clean(tree: Tree, kept: int) -> None:
    tree.unlink(SNAPSHOTS_INO, b"s")
    tree.link(SNAPSHOTS_INO, b"/%d" % kept, kept)
    assert problems(tree) == []


def test_a_snapshot_without_its_row_is_found(tree: Tree, kept: int) -> None:
    tree.drop_snapshot(kept)
    assert problems(tree) == [Problem.STRAY_ROW]


def test_a_row_without_its_snapshot_is_found(tree: Tree, kept: int) -> None:
    tree.put_snapshot(kept + 100, ROW)
    assert problems(tree) == [Problem.STRAY_ROW]


def test_a_copy_of_something_else_is_found(tree: Tree, kept: int) -> None:
    tree._store.put(Table.COPIES, copy_key(kept, 77), u64(kept))
    assert problems(tree) == [Problem.STRAY_ROW]


def test_a_lost_directory_of_snapshots_is_found(tree: Tree, kept: int) -> None:
    tree._store.delete(Table.INODES, u64(SNAPSHOTS_INO))
    assert kept
    assert Problem.UNREACHABLE in problems(tree)


def test_a_lost_part_of_a_snapshot_becomes_a_snapshot_of_its_own(tree: Tree, kept: int) -> None:
    """Among the live files it could never be removed."""
    lost = tree.inode(kept)
    assert lost is not None
    ino = tree.new_ino()
    tree.put_inode(replace(lost, ino=ino, kind=Kind.FILE, nlink=1, origin=5))
    tree.commit()
    with tree.committed() as view:
        (finding,) = [one for one in check(view, 4096) if one.problem is Problem.UNREACHABLE]
    assert finding.remedy == f"reconnected as .snapshots/#{ino}"
