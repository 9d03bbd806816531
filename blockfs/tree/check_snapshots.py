"""fsck of snapshots: what is recorded of them beside their names and inodes."""

from __future__ import annotations

from blockfs.tree.draft import Draft
from blockfs.tree.findings import Problem
from blockfs.tree.schema import (
    SNAPSHOTS_INO,
    UNFINISHED_PREFIX,
    SnapshotRow,
    Table,
    decode_u64,
    encode_snapshot,
    split_ino_key,
    u64,
)


def check_snapshots(draft: Draft) -> None:
    """A row for each snapshot and no other; each copy exists and is one of the original that the row says."""
    for key, _ in draft.rows.scan(Table.SNAPSHOTS):
        top = split_ino_key(key)[0]
        if not any(parent == SNAPSHOTS_INO for parent, _ in draft.places(top)):
            draft.found(Problem.STRAY_ROW, top, "a snapshot's row, but no snapshot", "row removed")
            draft.rows.delete(Table.SNAPSHOTS, key)
    for name, top in draft.entries(SNAPSHOTS_INO):
        if not name.startswith(UNFINISHED_PREFIX) and draft.snapshot(top) is None:
            draft.found(Problem.STRAY_ROW, top, f"snapshot {name!r} has no row", "made anew, without its figures")
            row = SnapshotRow(created_ns=0, mount_generation=0, sequence=0, files=0, logical_bytes=0, source=b"")
            draft.rows.put(Table.SNAPSHOTS, u64(top), encode_snapshot(row))
    for key, value in draft.rows.scan(Table.COPIES):
        copy = draft.inode(decode_u64(value))
        if copy is None or copy.origin != decode_u64(key[8:]):
            draft.found(
                Problem.STRAY_ROW, decode_u64(value), "recorded as a copy of what it is no copy of", "row removed"
            )
            draft.rows.delete(Table.COPIES, key)
