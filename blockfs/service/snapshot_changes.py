"""What the syncer reads of a snapshot: the originals as they were at its instant, by their own inode numbers."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from blockfs.control.protocol import CursorMsg, NodeRow
from blockfs.engine.copies.topmode import own_mode
from blockfs.errors import NotFoundError
from blockfs.runtime.output import shown
from blockfs.service.changes import Listing, Writers, node_row
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
        raise NotFoundError(f"there is no snapshot {shown(name)}; `blocksync snapshot list` shows which there are")
    return top, row


def frozen_file(view: CommittedView, snapshot: bytes, ino: int, content_version: int) -> Inode | None:
    """The copy of a file, if the original had this content version at the instant."""
    top, _ = snapshot_named(view, snapshot)
    copy = view.copy_of(top, ino)
    inode = None if copy is None else view.inode(copy)
    if inode is None or inode.kind is not Kind.FILE or inode.content_version != content_version:
        return None
    return inode


class SnapshotListing(Listing[int]):
    """Of the state at a snapshot's instant: originals, and their copies.

    An original that changed after the instant may be listed too, as it was; one that was made after it is "gone".
    """

    def __init__(
        self, view: CommittedView, cursor: CursorMsg | None, snapshot: bytes, xattr_bytes: int | None = None
    ) -> None:
        super().__init__(view, cursor, xattr_bytes)
        self._top, row = snapshot_named(view, snapshot)
        self._cursor = Cursor(mount_generation=row.mount_generation, sequence=row.sequence)

    def _all(self, after: int) -> Iterator[tuple[int, int]]:
        return self._view.copies(self._top, after)

    def _find(self, ino: int) -> int | None:
        return self._view.copy_of(self._top, ino)

    def _row(self, ino: int, found: int, _writers: Writers) -> NodeRow:
        inode = self._view.inode(found)
        assert inode is not None
        if found == self._top:
            inode = msgspec.structs.replace(inode, mode=own_mode(self._view, inode))
        row = node_row(self._view, inode, lambda _: 0, self._xattr_bytes)  # nobody writes to a snapshot
        assert row is not None
        places = [(self._original(parent), name) for parent, name in row.places if parent != SNAPSHOTS_INO]
        return msgspec.structs.replace(row, ino=ino, places=places)

    def _original(self, copy: int) -> int:
        inode = self._view.inode(copy)
        assert inode is not None
        return inode.origin
