"""A tree with one of everything, damage to any of its rows, and what must hold after a repair."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import lmdb
import msgspec
from hypothesis import strategies as st
from msgspec.structs import replace

from blockfs.blocks.environment import close_environment
from blockfs.blocks.ids import ZERO_BLOCK, BlockId
from blockfs.engine.context import Stores
from blockfs.engine.copies.subtree_copy import SubtreeCopy, unfinished_name
from blockfs.tree.environment import open_tables, open_tree_environment
from blockfs.tree.fsck.check import Examination
from blockfs.tree.fsck.draft import StagedFile, StagingKey, World
from blockfs.tree.fsck.findings import Problem
from blockfs.tree.fsck.repair import TreeRepair
from blockfs.tree.reader import TreeReader
from blockfs.tree.schema import (
    META_FORMAT,
    ROOT_INO,
    SNAPSHOTS_INO,
    SNAPSHOTS_NAME,
    Generation,
    Inode,
    Kind,
    SnapshotRow,
    Table,
    split_ino_key,
    split_parent_key,
)
from blockfs.tree.store import Tree

BLOCK_SIZE = 4096
FIRST = 5  # the file "one" in the root; its other name is "link-0"
NAMES = {b"a": b"", b"b": b"a", b"c": b"a/b"}  # directory → its parent's path


def ids(*numbers: int) -> bytes:
    return b"".join(hashlib.sha256(b"%d" % number).digest() if number else ZERO_BLOCK for number in numbers)


class File(msgspec.Struct, frozen=True):
    """What a file is: enough to see whether anything of it changed."""

    inode: Inode
    leaves: tuple[tuple[int, bytes], ...]


def missing(wanted: object) -> list[BlockId]:
    """Every block is stored but those that stand for what is lost, or that damage has made up."""
    known = {ids(number) for number in range(1, 400)} | {ZERO_BLOCK}
    return [block_id for block_id in wanted if block_id not in known]  # type: ignore[attr-defined]


STAGED = {
    (3 * number + 6, 0, number + 1): StagedFile(size_bytes=3 * BLOCK_SIZE, identity=number) for number in range(4)
}
WORLD = World(block_size=BLOCK_SIZE, now_ns=10**18, missing=missing)


def build(path: Path) -> None:
    """One of everything: nested directories, hard links, shared leaves, staged data, an orphan, two snapshots."""
    tree = Tree.create(os.fsencode(path), now_ns=1)
    tree.begin_mount()

    def make(kind: Kind = Kind.FILE, **values: int) -> int:
        ino = tree.new_ino()
        made = Inode(
            ino=ino, kind=kind, mode=0o640, uid=7, gid=8, nlink=1, atime_ns=1, mtime_ns=2, ctime_ns=3, btime_ns=4
        )
        tree.put_inode(replace(made, **values))  # type: ignore[arg-type]
        return ino

    root = tree.inode(ROOT_INO)
    assert root is not None
    tree.put_inode(replace(root, nlink=3))
    directories = [ROOT_INO]
    for name in NAMES:
        ino = make(Kind.DIRECTORY, nlink=3 if name != b"c" else 2)
        tree.link(directories[-1], name, ino)
        directories.append(ino)
    for number, parent in enumerate(directories):
        one = make(size_bytes=300 * BLOCK_SIZE, nlink=2)
        tree.link(parent, b"one", one)
        tree.link(ROOT_INO, b"link-%d" % number, one)
        tree.set_leaf(one, 0, ids(*range(1, 257)))  # shared by all
        tree.set_leaf(one, 1, ids(300 + number, 0, 310 + number))
        two = make(size_bytes=BLOCK_SIZE)
        tree.link(parent, b"two", two)
        tree.set_leaf(two, 0, ids(320 + number))
        tree.put_generation(Generation(ino=two, range_index=0, generation=number + 1))
        tree.set_xattr(two, b"user.x", b"value")
        tree.link(parent, b"empty", make())
    symlink = make(Kind.SYMLINK, size_bytes=5)
    tree.set_symlink_target(symlink, b"there")
    tree.link(directories[2], b"symlink", symlink)
    tree.link(directories[1], b"fifo", make(Kind.FIFO))
    tree.add_orphan(make(nlink=0))
    keep(tree, b"first")
    tree.set_leaf(FIRST, 1, ids(330, 331))
    keep(tree, b"second")
    tree.end_mount()
    tree.close()


def keep(tree: Tree, name: bytes) -> None:
    """A snapshot of all files, by the copying that a mount does."""
    tree.commit()
    view = tree.open_view()
    copy = SubtreeCopy(cast("Stores", SimpleNamespace(tree=tree)), view, ROOT_INO, lambda _: None, now_ns=None)
    for _ in copy.steps():
        pass
    view.close()
    tree.unlink(SNAPSHOTS_INO, unfinished_name(copy.top))
    tree.link(SNAPSHOTS_INO, name, copy.top)
    row = SnapshotRow(created_ns=1, mount_generation=1, sequence=1, files=12, logical_bytes=1, source=b"")
    tree.put_snapshot(copy.top, row)
    tree.commit()


@contextmanager
def copied(sound: Path) -> Iterator[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "tree")
        copy.mkdir()
        shutil.copy(sound / "data.mdb", copy)
        yield os.fsencode(copy)


def paths(reader: TreeReader, directory: int = ROOT_INO, above: bytes = b"") -> Iterator[tuple[bytes, int]]:
    for name, ino in reader.entries(directory):
        yield above + name, ino
        inode = reader.inode(ino)
        if inode is not None and inode.kind is Kind.DIRECTORY:
            yield from paths(reader, ino, above + name + b"/")


def contents(path: bytes) -> tuple[dict[bytes, int], dict[int, File]]:
    """Paths, and all files by inode."""
    tree = Tree.open(path)
    try:
        with tree.committed() as view:
            files = {
                inode.ino: File(inode, tuple((index, view.leaf_ids(key)) for index, key in view.leaf_keys(inode.ino)))
                for inode in view.inodes()
            }
            kept = {SNAPSHOTS_NAME: SNAPSHOTS_INO, **dict(paths(view, SNAPSHOTS_INO, SNAPSHOTS_NAME + b"/"))}
            return dict(paths(view)) | kept, files
    finally:
        tree.close()


def all_rows(path: bytes) -> list[tuple[Table, bytes, bytes]]:
    with editing(path) as (transaction, databases):
        return [(table, key, value) for table in Table for key, value in transaction.cursor(databases[table])]


@contextmanager
def editing(path: bytes) -> Iterator[tuple[lmdb.Transaction[bytes], list[lmdb._Database]]]:
    environment = open_tree_environment(path)
    try:
        databases = open_tables(environment, path)
        with environment.begin(write=True) as transaction:
            yield transaction, databases
    finally:
        close_environment(environment)


Edit = tuple[Table, bytes, bytes | None]


@st.composite
def edits(draw: st.DrawFn, rows: list[tuple[Table, bytes, bytes]]) -> list[Edit]:
    """Rows deleted, altered, or made up of pieces of other rows, so that they look likely."""
    by_table = {table: [row for row in rows if row[0] is table] for table in Table}
    made: list[Edit] = []
    for _ in range(draw(st.integers(1, 6))):
        table = draw(st.sampled_from([table for table in Table if by_table[table]]))
        _, key, value = draw(st.sampled_from(by_table[table]))
        match draw(st.sampled_from(["delete", "flip", "other", "cut", "move", "noise"])):
            case "delete":
                made.append((table, key, None))
            case "flip" if value:
                at = draw(st.integers(0, len(value) * 8 - 1))
                number = int.from_bytes(value, "big") ^ 1 << at
                made.append((table, key, number.to_bytes(len(value), "big")))
            case "other":
                made.append((table, key, draw(st.sampled_from(by_table[table]))[2]))
            case "cut":
                made.append((table, key, value[: draw(st.integers(0, len(value)))]))
            case "move":
                changed = bytearray(key)
                changed[draw(st.integers(0, len(key) - 1))] ^= 1 << draw(st.integers(0, 7))
                made.append((table, bytes(changed), value))
            case _:
                made.append((table, draw(st.binary(min_size=1, max_size=40)), draw(st.binary(max_size=100))))
    return [edit for edit in made if edit[:2] != (Table.META, META_FORMAT)]


def apply(path: bytes, changes: list[Edit]) -> None:
    with editing(path) as (transaction, databases):
        for table, key, value in changes:
            if value is None:
                transaction.delete(key, db=databases[table])
            else:
                transaction.put(key, value, db=databases[table])


def repair(path: bytes, staged: dict[StagingKey, StagedFile] | None = None, *, write: bool = True) -> Examination:
    staged = dict(STAGED) if staged is None else staged
    with TreeRepair.opened(path, replace(WORLD, staged=staged)) as work:
        if write:
            work.write()
            for old, new in work.examination.draft.adopted:
                staged[new] = staged.pop(old)
        return work.examination


def touched_inos(changes: list[Edit], before: dict[int, File], leaves: dict[bytes, set[int]]) -> set[int]:
    """Inodes that any of the damaged rows belongs to."""
    found: set[int] = set()
    for table, key, value in changes:
        if table in {Table.LEAVES, Table.LEAF_REFS, Table.LEAF_ROOTS}:
            found |= leaves.get(key, set())
        elif table is Table.PARENTS:
            found |= set(split_parent_key(key)[:2])
        elif table is Table.JOURNAL:
            found |= {ino for ino, file in before.items() if file.inode.version == int.from_bytes(key, "big")}
        elif table is not Table.META:
            found.add(split_ino_key(key)[0])
        if table in {Table.DENTRIES, Table.JOURNAL} and value is not None:
            found.add(int.from_bytes(value[:8], "big"))
    return found


def damage_and_repair(sound: Path, changes: list[Edit]) -> None:
    """Apply damage to a copy, repair it, and compare it with the original, row by row and name by name."""
    with copied(sound) as path:
        names, before = contents(path)
        leaves: dict[bytes, set[int]] = {}
        parents: dict[int, set[int]] = {ino: set() for ino in before}
        for table, key, value in all_rows(path):
            if table is Table.LEAF_MAP:
                leaves.setdefault(value, set()).add(split_ino_key(key)[0])
            elif table is Table.DENTRIES:
                parents.setdefault(int.from_bytes(value, "big"), set()).add(split_ino_key(key)[0])
                for edited, place, _ in changes:
                    if (edited, place) == (table, key):
                        leaves.setdefault(b"", set()).add(int.from_bytes(value, "big"))
        touched = touched_inos(changes, before, leaves) | leaves.get(b"", set())

        apply(path, changes)
        staged = dict(STAGED)
        first = repair(path, staged, write=False).draft
        done = repair(path, staged).draft
        assert (first.findings, first.losses) == (done.findings, done.losses), "a check says what a repair does"
        again = repair(path, staged).draft
        assert [found for found in again.findings if found.problem is not Problem.MISSING_BLOCK] == []
        assert {found.detail for found in again.findings} <= {found.detail for found in done.findings}

        names_after, after = contents(path)
        for name, ino in names_after.items():
            assert after[ino].inode.is_frozen == (name.split(b"/")[0] == SNAPSHOTS_NAME), name
        told = {loss.ino for loss in done.losses} | {found.ino for found in done.findings}
        counted = any(found.problem is Problem.LEAF_COUNT for found in done.findings)
        for ino, file in before.items():
            if ino in touched:
                assert ino in after or ino in told
                if ino in after and after[ino].leaves != file.leaves:
                    assert ino in told or counted
            elif file.inode.kind is Kind.DIRECTORY or parents[ino] & touched:
                assert after[ino].leaves == file.leaves
                assert replace(after[ino].inode, nlink=0, version=0) == replace(file.inode, nlink=0, version=0)
            else:
                assert after[ino] == file, "what was not damaged is as it was"
        for name, ino in names.items():
            ancestors = {names[name[:at]] for at in range(len(name)) if name[at : at + 1] == b"/"}
            if ino not in touched and not ancestors & touched and ROOT_INO not in touched:
                assert names_after.get(name) == ino
            elif names_after.get(name) != ino:
                assert done.findings
