from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable

import lmdb
import pytest
from msgspec.structs import replace

from blockfs.blocks.hashing import leaf_key
from blockfs.blocks.ids import ZERO_BLOCK
from blockfs.errors import CorruptionError, FormatTooNewError, NoSpaceError, NotFoundError
from blockfs.tree.schema import (
    FORMAT,
    META_FORMAT,
    ROOT_INO,
    SNAPSHOTS_INO,
    Generation,
    Inode,
    Kind,
    Table,
    encode_format,
)
from blockfs.tree.store import Tree
from tests.kit.committed import journal_rows

MakeInode = Callable[..., Inode]


def ids(*numbers: int) -> bytes:
    """Block ids by number, 0 being a hole."""
    return b"".join(hashlib.sha256(b"%d" % n).digest() if n else bytes(ZERO_BLOCK) for n in numbers)


class Hold:
    def __init__(self) -> None:
        self.released = 0

    def release(self) -> None:
        self.released += 1


def test_a_new_tree_has_only_a_root_directory(tree: Tree) -> None:
    root = tree.inode(ROOT_INO)
    assert root == Inode(
        ino=1, kind=Kind.DIRECTORY, mode=0o755, uid=1, gid=2, nlink=2, atime_ns=5, mtime_ns=5, ctime_ns=5, btime_ns=5,
        version=1, content_version=1,
    )  # fmt: skip
    assert list(tree.entries(ROOT_INO)) == []
    assert tree.is_clean


def test_a_tree_is_not_made_over_something(path: bytes) -> None:
    os.mkdir(path)
    with pytest.raises(FileExistsError):
        Tree.create(path)


def test_opening_a_missing_tree_says_so(path: bytes) -> None:
    with pytest.raises(NotFoundError):
        Tree.open(path)


def test_opening_garbage_is_corruption(path: bytes) -> None:
    os.mkdir(path)
    with open(path + b"/data.mdb", "wb") as file:
        file.write(b"no database" * 1000)
    with pytest.raises(CorruptionError):
        Tree.open(path)


def test_opening_a_database_that_is_no_tree_is_corruption(path: bytes) -> None:
    os.mkdir(path)
    with lmdb.open(os.fsdecode(path), map_size=1 << 20) as environment, environment.begin(write=True) as transaction:
        transaction.put(b"k", b"v")
    with pytest.raises(CorruptionError, match="sub-database"):
        Tree.open(path)


def test_a_cut_off_tree_is_corruption_and_no_crash(tree: Tree, make: MakeInode, path: bytes) -> None:
    for number in range(2000):
        tree.link(ROOT_INO, b"%d" % number, make().ino)
    tree.commit()
    tree.close()
    os.truncate(path + b"/data.mdb", 40960)
    with pytest.raises(CorruptionError):
        Tree.open(path)


def test_a_newer_format_is_refused(tree: Tree, path: bytes) -> None:
    tree._store.put(Table.META, META_FORMAT, encode_format(FORMAT + 1))
    tree.commit()
    tree.close()
    with pytest.raises(FormatTooNewError, match=f"format {FORMAT + 1}"):
        Tree.open(path)


def test_one_process_may_open_a_tree_twice(tree: Tree, path: bytes) -> None:
    second = Tree.open(path, read_only=True)
    with second.committed() as view:
        assert view.inode(ROOT_INO) == tree.inode(ROOT_INO)
    second.close()
    assert tree.inode(ROOT_INO) is not None


def test_an_all_hole_leaf_is_not_stored(tree: Tree, make: MakeInode) -> None:
    file = make()
    tree.set_leaf(file.ino, 7, ids(0, 0, 0))
    assert tree.leaf(file.ino, 7) is None
    tree.set_leaf(file.ino, 7, ids(1))
    tree.set_leaf(file.ino, 7, ids(0) * 256)
    assert list(tree.leaf_keys(file.ino)) == []
    tree.set_leaf(file.ino, 7, ids(1))
    tree.set_leaf(file.ino, 7, None)
    assert tree.leaf(file.ino, 7) is None


def test_equal_leaves_are_stored_once_and_go_with_the_last_reference(tree: Tree, make: MakeInode) -> None:
    first, second = make(), make()
    tree.set_leaf(first.ino, 0, ids(1, 2))
    tree.set_leaf(first.ino, 5, ids(1, 2, 0))
    tree.set_leaf(second.ino, 9, ids(1, 2))
    tree.commit()
    key = leaf_key(ids(1, 2))
    with tree.committed() as view:
        assert list(view.leaf_references()) == [(key, 3, 2)]
        assert list(view.live_ids()) == [ids(1, 2)]
    tree.remember_leaf_roots({key: b"r" * 32})
    tree.remove_inode(second.ino)
    tree.set_leaf(first.ino, 0, None)
    assert tree.leaf_root(key) == b"r" * 32
    tree.truncate_leaves(first.ino, 0)
    assert tree.leaf_root(key) is None
    tree.commit()
    with tree.committed() as view:
        assert not [*view.leaf_references(), *view.leaves()]


def test_a_leaf_that_moves_within_one_change_set_survives(tree: Tree, make: MakeInode) -> None:
    file = make()
    tree.set_leaf(file.ino, 0, ids(1))
    tree.commit()
    tree.set_leaf(file.ino, 0, None)
    tree.set_leaf(file.ino, 1, ids(1))
    tree.commit()
    assert tree.leaf(file.ino, 1) == ids(1)


def test_roots_of_leaves_that_are_gone_are_not_remembered(tree: Tree) -> None:
    tree.remember_leaf_roots({leaf_key(ids(1)): b"r" * 32})
    assert tree.leaf_root(leaf_key(ids(1))) is None
    assert tree.is_clean


def test_block_ids_are_padded_with_holes(tree: Tree, make: MakeInode) -> None:
    file = make()
    tree.set_leaf(file.ino, 0, ids(*range(1, 257)))
    tree.set_leaf(file.ino, 2, ids(0, 5))
    assert tree.block_ids(file.ino, 255, 2) == ids(256, 0)
    assert tree.block_ids(file.ino, 511, 4) == ids(0, 0, 5, 0)
    assert tree.block_ids(file.ino, 10**12, 1) == ids(0)
    assert tree.block_ids(file.ino, 3, 0) == b""


def test_truncating_cuts_the_leaf_at_the_border(tree: Tree, make: MakeInode) -> None:
    file = make()
    tree.set_leaf(file.ino, 0, ids(1, 0, 3))
    tree.set_leaf(file.ino, 1, ids(4))
    tree.truncate_leaves(file.ino, 257)
    assert tree.leaf(file.ino, 1) == ids(4)
    tree.truncate_leaves(file.ino, 256)
    assert tree.leaf(file.ino, 1) is None
    tree.truncate_leaves(file.ino, 2)
    assert tree.leaf(file.ino, 0) == ids(1), "the hole before the cut must not be stored as the last id"
    assert tree.allocated_blocks(file.ino) == 1


def test_a_clone_shares_leaves_and_replaces_those_of_its_target(tree: Tree, make: MakeInode) -> None:
    source, target = make(), make()
    tree.set_leaf(source.ino, 0, ids(1))
    tree.set_leaf(source.ino, 60_000_000, ids(2, 3))
    tree.set_leaf(target.ino, 1, ids(9))
    tree.clone_leaves(source.ino, target.ino)
    assert list(tree.leaf_keys(target.ino)) == list(tree.leaf_keys(source.ino))
    assert tree.allocated_blocks(target.ino) == 3
    tree.commit()
    with tree.committed() as view:
        assert leaf_key(ids(9)) not in dict(view.leaves())


def test_using_an_uncounted_leaf_is_corruption(tree: Tree, make: MakeInode) -> None:
    file = make()
    tree.set_leaf(file.ino, 0, ids(1))
    tree._store.delete(Table.LEAF_REFS, leaf_key(ids(1)))
    with pytest.raises(CorruptionError, match="not counted"):
        tree.set_leaf(file.ino, 0, None)
    tree._store.delete(Table.LEAVES, leaf_key(ids(1)))
    with pytest.raises(CorruptionError, match="missing"):
        tree.leaf(file.ino, 0)


def test_removing_an_inode_removes_all_its_rows(tree: Tree, make: MakeInode) -> None:
    file, link = make(), make(Kind.SYMLINK)
    tree.set_leaf(file.ino, 0, ids(1))
    tree.set_xattr(file.ino, b"user.a", b"1")
    tree.put_generation(Generation(ino=file.ino, range_index=0, generation=1))
    tree.add_orphan(file.ino)
    tree.set_symlink_target(link.ino, b"there")
    tree.commit()
    tree.remove_inode(file.ino)
    tree.remove_inode(link.ino)
    tree.commit()
    store = tree._store
    left = {Table.INODES: 2, Table.JOURNAL: 3, Table.META: 4}
    assert {table: store.row_count(table) for table in Table if store.row_count(table)} == left


def test_holds_and_callbacks_wait_until_their_set_is_durable(tree: Tree, make: MakeInode) -> None:
    early, late = Hold(), Hold()
    called: list[str] = []
    make()
    tree.keep(early)
    tree.on_durable(lambda: called.append("early"))
    frozen = tree.freeze()
    assert frozen is not None
    tree.keep(late)
    tree.on_durable(lambda: called.append("late"))
    tree.write(frozen)
    assert (early.released, called) == (0, [])
    tree.retire(frozen)
    assert (early.released, late.released, called) == (1, 0, ["early"])
    tree.commit()
    assert (early.released, late.released, called) == (1, 1, ["early", "late"])


def test_a_callback_or_a_hold_that_fails_keeps_no_other_from_its_end(tree: Tree, make: MakeInode) -> None:
    """A hold that is never released keeps every later collection waiting; a staging file that is not told stays."""

    class FailingHold(Hold):
        def release(self) -> None:
            raise NoSpaceError("first")

    def fails() -> None:
        raise CorruptionError("second")

    called: list[str] = []
    held = Hold()
    make()
    tree.keep(FailingHold())
    tree.keep(held)
    for callback in (lambda: called.append("before"), fails, lambda: called.append("after")):
        tree.on_durable(callback)
    with pytest.raises(CorruptionError, match="second"):
        tree.commit()
    assert (held.released, called) == (1, ["before", "after"])
    assert tree.is_clean
    tree.commit()
    assert held.released == 1


def test_a_commit_whose_state_can_not_be_read_is_made_again(
    tree: Tree, make: MakeInode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its holds and callbacks go along; until then readers see what they saw."""
    held, called = Hold(), []
    file = make()
    tree.link(ROOT_INO, b"file", file.ino)
    tree.keep(held)
    tree.on_durable(lambda: called.append(1))

    def no_reader() -> None:
        raise NoSpaceError("no place for a reader")

    with monkeypatch.context() as patched:
        patched.setattr(tree._store, "refresh", no_reader)
        with pytest.raises(NoSpaceError):
            tree.commit()
    assert (held.released, called) == (0, [])
    assert tree.lookup(ROOT_INO, b"file") == file.ino
    tree.commit()
    assert (held.released, called) == (1, [1])
    assert tree.lookup(ROOT_INO, b"file") == file.ino
    assert tree.is_clean


def test_a_callback_sees_the_committed_state_and_may_change_the_tree(tree: Tree, make: MakeInode) -> None:
    file = make()
    tree.on_durable(lambda: tree.set_xattr(file.ino, b"user.later", b""))
    tree.commit()
    assert not tree.is_clean
    assert tree.xattr(file.ino, b"user.later") == b""


def test_nothing_to_commit_is_no_change_set(tree: Tree) -> None:
    assert tree.freeze() is None
    tree.commit()


def test_only_one_commit_is_under_way(tree: Tree, make: MakeInode) -> None:
    make()
    assert tree.freeze() is not None
    make()
    with pytest.raises(AssertionError, match="one commit"):
        tree.freeze()


def shrink_map(tree: Tree, size_bytes: int) -> None:
    """Change the map size; LMDB allows it only without a transaction in this process."""
    tree._store._snapshot.abort()
    tree._store.environment.set_mapsize(size_bytes)
    tree._store.refresh()


def test_a_full_disk_loses_nothing_and_a_later_commit_succeeds(tree: Tree, make: MakeInode, path: bytes) -> None:
    shrink_map(tree, 256 << 10)
    held, called = Hold(), []
    file = make()
    tree.link(ROOT_INO, b"file", file.ino)
    for number in range(20):
        tree.set_xattr(file.ino, b"user.%d" % number, bytes([number]) * 60_000)
    tree.keep(held)
    tree.on_durable(lambda: called.append(1))
    frozen = tree.freeze()
    assert frozen is not None
    changed = tree.put_inode(replace(file, mode=0o600))
    tree.set_xattr(file.ino, b"user.3", b"newer")
    with pytest.raises(NoSpaceError):
        tree.write(frozen)
    tree.thaw(frozen)
    assert (held.released, called) == (0, [])
    assert tree.inode(file.ino) == changed
    assert tree.xattr(file.ino, b"user.3") == b"newer"
    assert tree.xattr(file.ino, b"user.4") == bytes([4]) * 60_000
    with tree.committed() as view:
        assert view.lookup(ROOT_INO, b"file") is None
    with pytest.raises(NoSpaceError):
        tree.commit()
    shrink_map(tree, 1 << 30)
    tree.commit()
    assert (held.released, called) == (1, [1])
    tree.close()
    with Tree.open(path).committed() as view:
        assert view.inode(file.ino) == changed
        assert dict(view.xattrs(file.ino))[b"user.3"] == b"newer"
        assert len(dict(view.xattrs(file.ino))) == 20


def test_a_failed_commit_that_was_durable_after_all_leaves_no_stale_journal_row(tree: Tree, make: MakeInode) -> None:
    file = make()
    frozen = tree.freeze()
    assert frozen is not None
    tree.write(frozen)
    tree.thaw(frozen)
    tree.put_inode(file)
    tree.commit()
    with tree.committed() as view:
        assert [ino for _, ino in journal_rows(view)].count(file.ino) == 1


def test_orphans_and_links_are_counted_as_inodes(tree: Tree, make: MakeInode) -> None:
    file = make(size_bytes=100, nlink=2)
    make(size_bytes=1000, nlink=0)
    make(Kind.DIRECTORY)
    make(Kind.FIFO)
    tree.set_leaf(file.ino, 0, ids(1, 0, 1))
    tree.commit()
    assert tree.inode_count() == 6  # also the directory of snapshots
    with tree.committed() as view:
        assert view.unique_ids() == {ids(1)}


def test_a_view_stays_at_its_state_while_commits_go_on_in_other_threads(tree: Tree, make: MakeInode) -> None:
    """The control server reads pages of changes from one snapshot; if it moved, the syncer would miss some."""
    seen: list[int] = []

    def read() -> None:
        with tree.committed() as view:
            barrier.wait()
            barrier.wait()
            seen.extend(inode.ino for inode in view.inodes())

    barrier = threading.Barrier(2)
    thread = threading.Thread(target=read)
    thread.start()
    barrier.wait()
    make()
    tree.commit()
    barrier.wait()
    thread.join()
    assert seen == [ROOT_INO, SNAPSHOTS_INO]


def test_many_inodes_do_not_confuse_the_cache(tree: Tree, make: MakeInode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blockfs.tree.store._CACHED_INODES", 3)
    made = [make(size_bytes=n) for n in range(10)]
    tree.commit()
    assert [tree.inode(inode.ino) for inode in made] == made
    assert len(tree._cache) <= 3


def test_a_long_scan_sees_changes_made_between_its_steps(tree: Tree, make: MakeInode) -> None:
    file = make()
    for number in range(0, 2000, 2):
        tree.link(ROOT_INO, b"%04d" % number, file.ino)
        if number == 1000:
            tree.commit()
    seen = []
    for name, _ in tree.entries(ROOT_INO):
        seen.append(name)
        if name == b"0500":
            tree.link(ROOT_INO, b"0499", file.ino)
            tree.link(ROOT_INO, b"0501", file.ino)
            tree.unlink(ROOT_INO, b"0502")
        if name == b"1500":
            tree.commit()
    expected = {b"%04d" % number for number in range(0, 2000, 2)} - {b"0502"} | {b"0501"}
    assert seen == sorted(expected)
