"""What a new tree has: the root, the directory of snapshots, and the rows about the tree itself."""

from __future__ import annotations

import lmdb

from blockfs.tree.schema import (
    META_FORMAT,
    META_MOUNT,
    META_RESERVED,
    PLAIN_FORMAT,
    ROOT_INO,
    SNAPSHOTS_INO,
    Inode,
    Kind,
    MountRow,
    Reserved,
    Table,
    encode_format,
    encode_inode,
    encode_mount,
    encode_reserved,
    u64,
)
from blockfs.tree.upgrade import snapshots_directory


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
