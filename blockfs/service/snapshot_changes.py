"""What the syncer reads of a snapshot: the originals as they were at its instant, by their own inode numbers."""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from itertools import islice

import msgspec

from blockfs.control.protocol import ChangesReply, CursorMsg, NodeRow
from blockfs.errors import NotFoundError
from blockfs.runtime.output import shown
from blockfs.service.changes import Writers, node_row
from blockfs.tree.committed import CommittedView
from blockfs.tree.schema import SNAPSHOTS_INO, Cursor, Inode, Kind, SnapshotRow


def snapshot_named(view: CommittedView, name: bytes) -> tuple[int, SnapshotRow]:
    """The top of a snapshot, and its row.

    Raises:
        NotFoundError: There is none of that name.
    """
    top = view.lookup(SNAPSHOTS_INO, name)
    row = None if top is None else view.snapshot(top)
    if top is None or row is None:
        raise NotFoundError(f"there is no snapshot {shown(name)}")
    return top, row


def frozen_file(view: CommittedView, snapshot: bytes, ino: int, content_version: int) -> Inode | None:
    """The copy of a file, if the original had this content version at the instant."""
    top, _ = snapshot_named(view, snapshot)
    copy = view.copy_of(top, ino)
    inode = None if copy is None else view.inode(copy)
    if inode is None or inode.kind is not Kind.FILE or inode.content_version != content_version:
        return None
    return inode


class SnapshotListing:
    """Like `ChangeListing`, of the state at a snapshot's instant.

    An original that changed after the instant may be listed too, as it was; one that was made after it is "gone".
    """

    def __init__(
        self, view: CommittedView, cursor: CursorMsg | None, snapshot: bytes, xattr_bytes: int | None = None
    ) -> None:
        """Begin. The view belongs to the listing from now on, unless this fails."""
        self._view = view
        self._xattr_bytes = xattr_bytes
        self._top, row = snapshot_named(view, snapshot)
        self._cursor = CursorMsg(mount_generation=row.mount_generation, sequence=row.sequence)
        self._changed: list[int] | None = None  # originals, ascending; None: a complete listing
        if cursor is not None:
            since = Cursor(mount_generation=cursor.mount_generation, sequence=cursor.sequence)
            changes = view.changes(since)
            if changes is not None:
                self._changed = sorted(changes[0])

    def close(self) -> None:
        """Let the state go."""
        self._view.close()

    def page(self, after: int, limit: int, _writers: Writers) -> ChangesReply:
        """Up to `limit` originals with an ino greater than `after`. Nobody writes to a snapshot."""
        candidates = list(islice(self._candidates(after), limit + 1))
        rows: list[NodeRow] = []
        gone: list[int] = []
        for origin, copy in candidates[:limit]:
            if copy is None:
                gone.append(origin)
            else:
                rows.append(self._row(origin, copy))
        return ChangesReply(
            full=self._changed is None,
            rows=rows,
            gone=gone,
            cursor=self._cursor,
            after=candidates[:limit][-1][0] if candidates else after,
            more=len(candidates) > limit,
        )

    def _candidates(self, after: int) -> Iterator[tuple[int, int | None]]:
        if self._changed is None:
            return self._view.copies(self._top, after)
        first = bisect.bisect_right(self._changed, after)
        return ((origin, self._view.copy_of(self._top, origin)) for origin in self._changed[first:])

    def _row(self, origin: int, copy: int) -> NodeRow:
        inode = self._view.inode(copy)
        assert inode is not None
        row = node_row(self._view, inode, lambda _: 0, self._xattr_bytes)
        assert row is not None
        places = [(self._original(parent), name) for parent, name in row.places if parent != SNAPSHOTS_INO]
        return msgspec.structs.replace(row, ino=origin, places=places)

    def _original(self, copy: int) -> int:
        inode = self._view.inode(copy)
        assert inode is not None
        return inode.origin
