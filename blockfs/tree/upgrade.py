"""Bringing trees of earlier formats up to the present one, in place, in one transaction; what a new one has.

Format 1 → 2: the sub-databases and the directory of snapshots are added. Inode rows stay as they are. Format 2 reserves
the name `.snapshots` in the root; what a user has there is renamed, never hidden: to `.snapshots.user`, or if that is
taken to `.snapshots.user.2` and so on.

Format 3 is format 2 with failed flushes, format 4 has hot files: `Tree` goes from one to the other and back.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from typing import Final

import lmdb
from msgspec.structs import replace

from blockfs.blocks.environment import lmdb_errors, open_databases
from blockfs.errors import CorruptionError, FormatTooNewError
from blockfs.tree.environment import ADVICE, create_tables
from blockfs.tree.schema import (
    FORMAT,
    META_FORMAT,
    META_MOUNT,
    META_RESERVED,
    PLAIN_FORMAT,
    ROOT_INO,
    SNAPSHOTS_INO,
    SNAPSHOTS_NAME,
    Inode,
    Kind,
    MountRow,
    Reserved,
    Table,
    decode_format,
    decode_inode,
    decode_mount,
    decode_u64,
    encode_format,
    encode_inode,
    encode_mount,
    encode_reserved,
    ino_key,
    parent_key,
    u64,
)

_UNKNOWN: Final = 0
_NEW_NAME: Final = SNAPSHOTS_NAME + b".user"


def upgrade(environment: lmdb.Environment, path: bytes, *, repairing: bool = False) -> bytes | None:
    """Make a tree of an earlier format one of the present format, durably; nothing happens to a present one.

    Args:
        environment: The tree's.
        path: For messages.
        repairing: A tree whose format number can't be read gets what it lacks, and keeps that damage for fsck.

    Returns:
        The new name of what had a name in the root that is reserved now; None if nothing was renamed.

    Raises:
        CorruptionError: No readable tree.
        FormatTooNewError: Made by a newer blocksync.
    """
    with lmdb_errors(os.fsdecode(path), ADVICE):
        try:
            (meta,) = open_databases(environment, [Table.META.name.lower().encode()])
        except lmdb.NotFoundError as error:
            raise CorruptionError(f"the tree lacks a sub-database ({error}); this is no blocksync tree") from error
        with environment.begin() as transaction:
            found = _format(transaction.get(META_FORMAT, db=meta), repairing=repairing)
        if found > FORMAT:
            raise FormatTooNewError(os.fsdecode(path), found, FORMAT)
        if found >= PLAIN_FORMAT:
            return None
        with environment.begin(write=True) as transaction:
            databases = create_tables(environment, transaction)
            renamed = _free_reserved_name(transaction, databases)
            root = _root(transaction, databases)
            directory = encode_inode(snapshots_directory(root))
            transaction.put(u64(SNAPSHOTS_INO), directory, db=databases[Table.INODES], overwrite=False)
            if found != _UNKNOWN:
                transaction.put(META_FORMAT, encode_format(PLAIN_FORMAT), db=databases[Table.META])
        return renamed


def _format(row: bytes | None, *, repairing: bool) -> int:
    try:
        return decode_format(row)
    except CorruptionError:
        if not repairing:
            raise
        return _UNKNOWN


def snapshots_directory(root: Inode) -> Inode:
    """The row of an empty directory of snapshots, in the likeness of the root."""
    return replace(root, ino=SNAPSHOTS_INO, mode=0o755, nlink=2, version=0, content_version=0, origin=SNAPSHOTS_INO)


def _root(transaction: lmdb.Transaction[bytes], databases: list[lmdb._Database]) -> Inode:
    """The root; if it is damaged, which fsck will find, one that belongs to the superuser."""
    row = transaction.get(u64(ROOT_INO), db=databases[Table.INODES])
    with contextlib.suppress(CorruptionError):
        if row is not None:
            return replace(decode_inode(ROOT_INO, row), kind=Kind.DIRECTORY, size_bytes=0, rdev=0)
    return Inode(
        ino=ROOT_INO,
        kind=Kind.DIRECTORY,
        mode=0o755,
        uid=0,
        gid=0,
        nlink=2,
        atime_ns=0,
        mtime_ns=0,
        ctime_ns=0,
        btime_ns=0,
    )


def _free_reserved_name(transaction: lmdb.Transaction[bytes], databases: list[lmdb._Database]) -> bytes | None:
    entries, places = databases[Table.DENTRIES], databases[Table.PARENTS]
    row = transaction.get(ino_key(ROOT_INO, SNAPSHOTS_NAME), db=entries)
    if row is None:
        return None
    new = next(name for name in _new_names() if transaction.get(ino_key(ROOT_INO, name), db=entries) is None)
    ino = decode_u64(row)
    transaction.delete(ino_key(ROOT_INO, SNAPSHOTS_NAME), db=entries)
    transaction.put(ino_key(ROOT_INO, new), row, db=entries)
    transaction.delete(parent_key(ino, ROOT_INO, SNAPSHOTS_NAME), db=places)
    transaction.put(parent_key(ino, ROOT_INO, new), b"", db=places)
    # No journal row tells of the new name: cursors become void instead, and their holders compare everything.
    mount_row = transaction.get(META_MOUNT, db=databases[Table.META])
    if mount_row is not None:  # if it is missing, fsck makes a new one with a new generation
        mount = decode_mount(mount_row)
        mount = replace(mount, generation=mount.generation + 1)
        transaction.put(META_MOUNT, encode_mount(mount), db=databases[Table.META])
    return new


def _new_names() -> Iterator[bytes]:
    yield _NEW_NAME
    for number in itertools.count(2):
        yield b"%s.%d" % (_NEW_NAME, number)


def write_first_rows(
    transaction: lmdb.Transaction[bytes], databases: list[lmdb._Database], now_ns: int, uid: int, gid: int
) -> None:
    """Put what an empty tree has into its sub-databases.

    Args:
        transaction: Of the new environment.
        databases: Handles indexed by `Table`.
        now_ns: All times of the root.
        uid: Owner of the root.
        gid: Group of the root.
    """
    root = Inode(
        ino=ROOT_INO,
        kind=Kind.DIRECTORY,
        mode=0o755,
        uid=uid,
        gid=gid,
        nlink=2,
        atime_ns=now_ns,
        mtime_ns=now_ns,
        ctime_ns=now_ns,
        btime_ns=now_ns,
        version=1,
        content_version=1,
    )
    mount = MountRow(generation=1, clean=True, sequence=1, next_ino=ROOT_INO + 1)
    reserved = Reserved(sequence=mount.sequence, ino=mount.next_ino)
    for table, key, row in (
        (Table.META, META_FORMAT, encode_format(PLAIN_FORMAT)),
        (Table.META, META_MOUNT, encode_mount(mount)),
        (Table.META, META_RESERVED, encode_reserved(reserved)),
        (Table.INODES, u64(ROOT_INO), encode_inode(root)),
        (Table.INODES, u64(SNAPSHOTS_INO), encode_inode(snapshots_directory(root))),
        (Table.JOURNAL, u64(root.version), u64(ROOT_INO)),
    ):
        transaction.put(key, row, db=databases[table])
