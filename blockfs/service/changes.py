"""What the syncer reads over the control socket: changes, object hashes, block lists. Durable state only."""

from __future__ import annotations

import bisect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Generic, TypeVar

import msgspec

from blockfs.blocks.extents import block_count
from blockfs.blocks.ids import LeafKey
from blockfs.control.protocol import ChangesReply, CursorMsg, NodeRow
from blockfs.engine.content.pagemap import PAGE
from blockfs.tree.committed import CommittedView
from blockfs.tree.merkle import hash_file
from blockfs.tree.schema import ROOT_INO, SNAPSHOTS_INO, Cursor, HotState, Inode, Kind
from blockfs.xattrs import carried

Found = TypeVar("Found")

Writers = Callable[[int], int]
"""Inode → handles that are open for writing now."""

FileFinder = Callable[[CommittedView, int, int], Inode | None]
"""(view, ino, content version) → the inode whose leaves are this content."""


class Listing(ABC, Generic[Found]):
    """Pages of one listing, all from one committed state."""

    def __init__(self, view: CommittedView, cursor: CursorMsg | None, xattr_bytes: int | None = None) -> None:
        """Begin. The view belongs to the listing from now on, unless this fails."""
        self._xattr_bytes = xattr_bytes
        self._view = view
        self._cursor = view.cursor
        self._changed: list[int] | None = None  # ascending; None: a complete listing
        if cursor is not None:
            since = Cursor(mount_generation=cursor.mount_generation, sequence=cursor.sequence)
            changes = view.changes(since)
            if changes is not None:
                self._changed, self._cursor = sorted(changes[0]), changes[1]

    def close(self) -> None:
        """Let the state go."""
        self._view.close()

    def page(self, after: int, limit: int, writers: Writers) -> ChangesReply:
        """Up to `limit` inodes with an ino greater than `after`."""
        rows: list[NodeRow] = []
        gone: list[int] = []
        last = after
        candidates = list(islice(self._candidates(after), limit + 1))
        for ino, found in candidates[:limit]:
            last = ino
            row = None if found is None else self._row(ino, found, writers)
            if row is not None:
                rows.append(row)
            elif self._changed is not None:
                gone.append(ino)
        cursor = CursorMsg(mount_generation=self._cursor.mount_generation, sequence=self._cursor.sequence)
        return ChangesReply(
            full=self._changed is None,
            rows=rows,
            gone=gone,
            cursor=cursor,
            after=last,
            more=len(candidates) > limit,
        )

    def _candidates(self, after: int) -> Iterator[tuple[int, Found | None]]:
        if self._changed is None:
            return self._all(after)
        first = bisect.bisect_right(self._changed, after)
        return ((ino, self._find(ino)) for ino in self._changed[first:])

    @abstractmethod
    def _all(self, after: int) -> Iterator[tuple[int, Found]]:
        """What there is behind an inode."""

    @abstractmethod
    def _find(self, ino: int) -> Found | None:
        """What there is of an inode."""

    @abstractmethod
    def _row(self, ino: int, found: Found, writers: Writers) -> NodeRow | None:
        """How it is told; None: not at all."""


class ChangeListing(Listing[Inode]):
    """Of the present state."""

    def __init__(self, view: CommittedView, cursor: CursorMsg | None, xattr_bytes: int | None = None) -> None:
        super().__init__(view, cursor, xattr_bytes)
        self._rooted = {ROOT_INO: True, SNAPSHOTS_INO: False}  # directory → whether the root leads to it

    def _all(self, after: int) -> Iterator[tuple[int, Inode]]:
        return ((inode.ino, inode) for inode in self._view.inodes(after))

    def _find(self, ino: int) -> Inode | None:
        return self._view.inode(ino)

    def _row(self, _ino: int, found: Inode, writers: Writers) -> NodeRow | None:
        return node_row(self._view, found, writers, self._xattr_bytes) if self._is_live(found) else None

    def _is_live(self, inode: Inode) -> bool:
        """Whether the root leads to it: not so for snapshots, and for what is half restored from one."""
        if inode.is_frozen or inode.ino == ROOT_INO:
            return not inode.is_frozen
        return any(self._leads_from_root(parent) for parent, _ in self._view.places(inode.ino))

    def _leads_from_root(self, directory: int) -> bool:
        way = []
        while directory not in self._rooted:
            way.append(directory)
            directory = next((parent for parent, _ in self._view.places(directory)), SNAPSHOTS_INO)
        self._rooted.update(dict.fromkeys(way, self._rooted[directory]))
        return self._rooted[directory]


def node_row(view: CommittedView, inode: Inode, writers: Writers, xattr_bytes: int | None = None) -> NodeRow | None:
    """An inode with its places; None if it has no name any more."""
    places = list(view.places(inode.ino))
    if not places and inode.ino != ROOT_INO:
        return None
    return NodeRow(
        ino=inode.ino,
        places=places,
        kind=inode.kind.name.lower(),
        mode=inode.mode,
        uid=inode.uid,
        gid=inode.gid,
        size_bytes=inode.size_bytes,
        mtime_ns=inode.mtime_ns,
        ctime_ns=inode.ctime_ns,
        btime_ns=inode.btime_ns,
        version=inode.version,
        content_version=inode.content_version,
        nlink=inode.nlink,
        target=view.symlink_target(inode.ino),
        writers=writers(inode.ino) if inode.kind is Kind.FILE else 0,
        xattrs=None if xattr_bytes is None else carried(view.xattrs(inode.ino), xattr_bytes),
        lost_bytes=_lost_bytes(view, inode),
    )


def _lost_bytes(view: CommittedView, inode: Inode) -> int:
    failed = view.failed_flush(inode.ino) if inode.kind is Kind.FILE else None
    return 0 if failed is None else sum(pages for _, pages in failed.runs) * PAGE


def sealed_file(view: CommittedView, ino: int, content_version: int) -> Inode | None:
    """A file whose leaves are, durably, the content of this version.

    None if it changed, or has staged data, or some that were lost.
    """
    inode = view.inode(ino)
    if inode is None or inode.kind is not Kind.FILE or inode.content_version != content_version:
        return None
    failed = view.failed_flush(ino)
    is_behind = any(row.state is HotState.BEHIND for row in view.hot_rows(ino))
    if is_behind or next(view.generations(ino), None) is not None or (failed is not None and failed.runs):
        return None
    return inode


class Hashed(msgspec.Struct, frozen=True, kw_only=True):
    """Object hashes in the order asked for, and roots of leaves that were worked out for them."""

    hashes: list[bytes | None]
    computed: dict[LeafKey, bytes]


def hash_contents(
    view: CommittedView, items: list[tuple[int, int]], block_size: int, find: FileFinder = sealed_file
) -> Hashed:
    """Object hashes of (inode, content version); None where `find` knows no such content."""
    hashes: list[bytes | None] = []
    computed: dict[LeafKey, bytes] = {}
    for ino, content_version in items:
        inode = find(view, ino, content_version)
        if inode is None:
            hashes.append(None)
            continue
        done = hash_file(view, inode.ino, inode.size_bytes, block_size)
        computed.update(done.computed)
        hashes.append(done.object_hash)
    return Hashed(hashes=hashes, computed=computed)


def block_ids(view: CommittedView, inode: Inode, first: int, count: int, block_size: int) -> bytes:
    """Ids of a run of a file's blocks, cut at its end."""
    count = max(0, min(count, block_count(inode.size_bytes, block_size) - first))
    return view.block_ids(inode.ino, first, count)
