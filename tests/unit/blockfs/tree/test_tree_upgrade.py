"""Trees of earlier formats: upgraded whole or not at all, and no name of a user is hidden."""

from __future__ import annotations

import os
from collections.abc import Iterator

import lmdb
import pytest
from msgspec.structs import replace

from blockfs.errors import CorruptionError
from blockfs.tree.fsck.draft import World
from blockfs.tree.fsck.findings import Problem
from blockfs.tree.fsck.repair import TreeRepair
from blockfs.tree.schema import (
    META_FORMAT,
    ROOT_INO,
    SNAPSHOTS_INO,
    Cursor,
    Inode,
    Kind,
    Table,
    decode_format,
    encode_format,
    u64,
)
from blockfs.tree.store import Tree
from tests.kit.committed import check


def downgrade(path: bytes) -> None:
    """Make a closed tree of format 2 one of format 1, as format 1 wrote it."""
    environment = lmdb.open(path, max_dbs=len(Table), map_size=1 << 30)
    with environment.begin(write=True) as transaction:
        for table in (Table.SNAPSHOTS, Table.COPIES):
            transaction.drop(environment.open_db(table.name.lower().encode(), txn=transaction))
        inodes = environment.open_db(b"inodes", txn=transaction)
        transaction.delete(u64(SNAPSHOTS_INO), db=inodes)
        transaction.put(META_FORMAT, encode_format(1), db=environment.open_db(b"meta", txn=transaction))
    environment.close()


@pytest.fixture
def old(path: bytes) -> Iterator[bytes]:
    """The path of a format-1 tree with a file `f` in the root, and `.snapshots/mine`, a user's own."""
    tree = Tree.create(path, now_ns=5, uid=1, gid=2)
    tree.begin_mount()
    root = tree.inode(ROOT_INO)
    assert root is not None
    file = replace(root, ino=tree.new_ino(), kind=Kind.FILE, nlink=1)
    tree.put_inode(file)
    tree.link(ROOT_INO, b"f", file.ino)
    tree.commit()
    tree.end_mount()
    tree.close()
    downgrade(path)
    return path


def add_own_snapshots(path: bytes, *others: bytes) -> int:
    """Put a user's `.snapshots` into a format-1 tree, and directories of other names."""
    tree = Tree.open(path)
    tree.begin_mount()
    made = [_mkdir(tree, name) for name in (b".snapshots", *others)]
    tree.commit()
    tree.end_mount()
    tree.close()
    downgrade(path)
    return made[0].ino


def _mkdir(tree: Tree, name: bytes) -> Inode:
    root = tree.inode(ROOT_INO)
    assert root is not None
    inode = tree.put_inode(replace(root, ino=tree.new_ino(), nlink=2))
    tree.link(ROOT_INO, name, inode.ino)
    tree.put_inode(replace(root, nlink=root.nlink + 1))
    return inode


def findings_of(tree: Tree) -> list[object]:
    with tree.committed() as view:
        return [*check(view, 4096)]


def test_a_tree_of_format_1_gets_a_place_for_snapshots_and_keeps_the_rest(old: bytes) -> None:
    tree = Tree.open(old)
    assert tree.renamed_by_upgrade is None
    assert findings_of(tree) == []
    directory = tree.inode(SNAPSHOTS_INO)
    assert directory is not None
    assert (directory.kind, directory.uid, directory.gid, directory.nlink) == (Kind.DIRECTORY, 1, 2, 2)
    assert [name for name, _ in tree.entries(ROOT_INO)] == [b"f"]
    with tree.committed() as view:
        assert view.changes(Cursor(mount_generation=1, sequence=1)) is not None
    tree.close()
    tree = Tree.open(old)
    assert tree.renamed_by_upgrade is None
    tree.close()


@pytest.mark.parametrize(
    ("taken", "new"),
    [
        ([], b".snapshots.user"),
        ([b".snapshots.user"], b".snapshots.user.2"),
        ([b".snapshots.user", b".snapshots.user.2"], b".snapshots.user.3"),
    ],
)
def test_a_users_own_entry_of_the_reserved_name_is_renamed_and_told(old: bytes, taken: list[bytes], new: bytes) -> None:
    """Hidden behind the directory of snapshots, the user's data would be as good as lost."""
    ino = add_own_snapshots(old, *taken)
    tree = Tree.open(old)
    assert tree.renamed_by_upgrade == new
    assert tree.lookup(ROOT_INO, new) == ino
    assert tree.lookup(ROOT_INO, b".snapshots") is None
    assert findings_of(tree) == []
    with tree.committed() as view:
        assert view.changes(Cursor(mount_generation=1, sequence=1)) is None  # the syncer compares everything
    tree.close()


def test_an_upgrade_that_does_not_come_to_its_end_changes_nothing(old: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(_root: Inode) -> Inode:
        raise KeyboardInterrupt

    monkeypatch.setattr("blockfs.tree.upgrade.snapshots_directory", killed)
    with pytest.raises(KeyboardInterrupt):
        Tree.open(old)
    with lmdb.open(os.fsdecode(old), max_dbs=len(Table), map_size=1 << 30) as environment:
        meta = environment.open_db(b"meta", create=False)
        with environment.begin() as transaction:
            assert decode_format(transaction.get(META_FORMAT, db=meta)) == 1
        with pytest.raises(lmdb.NotFoundError):
            environment.open_db(b"copies", create=False)
    monkeypatch.undo()
    tree = Tree.open(old)
    assert findings_of(tree) == []
    tree.close()


def test_a_repair_opens_a_tree_of_format_1_also_when_its_number_is_lost(old: bytes) -> None:
    """fsck must be able to help where a mount can't."""
    environment = lmdb.open(old, max_dbs=len(Table), map_size=1 << 30)
    with environment.begin(write=True) as transaction:
        transaction.delete(META_FORMAT, db=environment.open_db(b"meta", txn=transaction))
    environment.close()
    with pytest.raises(CorruptionError):
        Tree.open(old)
    with TreeRepair.opened(old, World(block_size=4096)) as repair:
        assert [finding.problem for finding in repair.examination.draft.findings] == [Problem.META]
        repair.write()
    tree = Tree.open(old)
    assert findings_of(tree) == []
    assert [name for name, _ in tree.entries(ROOT_INO)] == [b"f"]
    tree.close()
