"""fsck of snapshots: what is recorded of them beside their names and inodes."""

from __future__ import annotations

from blockfs.runtime.output import shown
from blockfs.tree.fsck.draft import Draft
from blockfs.tree.fsck.findings import Problem
from blockfs.tree.schema import (
    SNAPSHOTS_INO,
    TOP_INOS,
    UNFINISHED_PREFIX,
    Inode,
    SnapshotRow,
    Table,
    copy_key,
    decode_inode,
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
            draft.found(Problem.STRAY_ROW, top, f"snapshot {shown(name)} has no row", "made anew, without its figures")
            row = SnapshotRow(created_ns=0, mount_generation=0, sequence=0, files=0, logical_bytes=0, source=b"")
            draft.rows.put(Table.SNAPSHOTS, u64(top), encode_snapshot(row))
    tops = _Tops(draft)
    for key, value in draft.rows.scan(Table.COPIES):
        top, original, ino = split_ino_key(key)[0], decode_u64(key[8:]), decode_u64(value)
        copy = draft.inode(ino)
        if copy is None or copy.origin != original or tops.of(ino) != top:
            draft.found(Problem.STRAY_ROW, ino, "recorded as a copy of what it is no copy of", "row removed")
            draft.rows.delete(Table.COPIES, key)
    for key, value in draft.rows.scan(Table.INODES):
        inode = decode_inode(split_ino_key(key)[0], value)
        if inode.is_frozen and inode.ino != SNAPSHOTS_INO:
            _check_copy(draft, inode, tops.of(inode.ino))


def _check_copy(draft: Draft, inode: Inode, top: int | None) -> None:
    """Whoever reads a snapshot's changes finds its files by the originals: without the row, one seems deleted."""
    if top is None:
        return  # deleted while it was open
    recorded = draft.copy_of(top, inode.origin)
    if recorded == inode.ino:
        return
    origin = inode.origin
    if recorded is not None:
        origin = draft.new_ino()  # two copies of one original: it can't be said which one is wrong
        draft.freeze(inode, origin)
    draft.found(Problem.SNAPSHOT, inode.ino, "in a snapshot, but not recorded", f"recorded as the copy of {origin}")
    draft.rows.put(Table.COPIES, copy_key(top, origin), u64(inode.ino))


class _Tops:
    """Which snapshots inodes are in. Remembers the last directory: copies were made directory by directory."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._last: tuple[int, int | None] = (SNAPSHOTS_INO, None)

    def of(self, ino: int) -> int | None:
        """The ino of the snapshot's top; None if this is in no snapshot."""
        place = next(self._draft.places(ino), None)
        if place is None or place[0] == SNAPSHOTS_INO:
            return None if place is None else ino
        if place[0] != self._last[0]:
            self._last = (place[0], self._climb(place[0]))
        return self._last[1]

    def _climb(self, ino: int) -> int | None:
        while ino not in TOP_INOS:
            place = next(self._draft.places(ino), None)
            if place is None:
                return None
            if place[0] == SNAPSHOTS_INO:
                return ino
            ino = place[0]
        return None
