"""Snapshots: read-only copies of a subtree as it was at one instant, sharing all blocks.

Order of a creation: fix the instant (`freeze`) → copy the rows of that state in portions, under a name nobody can look
up → the snapshot's name and its row, in one change set → commit. Of a deletion: take the name away → commit → remove
the inodes in portions. A crash before the first commit that names it leaves no snapshot, one after it a whole one; what
was half made or half removed goes at the next mount.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import msgspec

from blockfs.engine.context import Stores
from blockfs.engine.copies.freeze import Freeze
from blockfs.engine.copies.subtree_copy import SubtreeCopy, unfinished_name
from blockfs.engine.copies.subtree_delete import SubtreeRemoval
from blockfs.engine.durable.committer import Committer
from blockfs.engine.names.namespace import Namespace
from blockfs.engine.portions import Stop, StoppedError, never, pause_of, work_through
from blockfs.errors import BlockfsError, FsError
from blockfs.runtime.output import shown
from blockfs.tree.reader import TreeReader
from blockfs.tree.schema import SNAPSHOTS_INO, UNFINISHED_PREFIX, Kind, SnapshotRow
from blockfs.tree.waiting import held


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One snapshot.

    Attributes:
        name: Its name in `.snapshots`.
        ino: The copy of its source: a directory, or whatever the source was.
        row: What is recorded of it.
    """

    name: bytes
    ino: int
    row: SnapshotRow


class Snapshots:
    """The snapshots of one mount. Thread-safe; what changes something waits for disks."""

    def __init__(self, stores: Stores, committer: Committer, freeze: Freeze, namespace: Namespace) -> None:
        self._stores = stores
        self._committer = committer
        self._freeze = freeze
        self._inodes = namespace.inodes
        self._new_names = namespace.new_names
        self._left_over = self._unfinished()

    # --- looking ---

    def all(self) -> list[Snapshot]:
        """All complete snapshots, in byte order of their names."""
        with self._stores.lock:
            return list(snapshots_of(self._stores.tree))

    def find(self, name: bytes) -> Snapshot:
        """A snapshot.

        Raises:
            FsError: ENOENT; ENAMETOOLONG or EINVAL for what can't be a name.
        """
        with self._stores.lock:
            ino = self._inodes.child(SNAPSHOTS_INO, name).ino
            row = self._stores.tree.snapshot(ino)
            assert row is not None
            return Snapshot(name=name, ino=ino, row=row)

    # --- making ---

    def create(self, source: int, name: bytes, *, stop: Stop = never) -> Snapshot:
        """Keep a subtree as it is at one instant between call and return. Durable on return.

        Writes wait while the instant is fixed; nothing else does. Takes time for each inode and leaf, not for bytes.

        Args:
            source: A directory, or anything else that has a name.
            name: 1 to 255 bytes without "/" and NUL, not "." or "..".
            stop: See `Stop`.

        Raises:
            StoppedError: `stop` said so; there is no such snapshot.
            FsError: ENOENT: no such source; EROFS: it lies in a snapshot; EEXIST; ENAMETOOLONG or EINVAL: the name.
            NoSpaceError: The host is full; there is no such snapshot.
            BlockfsError: A file of the subtree can't be sealed, or the host failed; likewise.
        """
        with self._stores.lock:
            self._check_source(source)
            self._new_names.check_snapshot(name)
            created_ns = self._inodes.now_ns()
        with self._freeze.of(source, stop) as view:
            inode = view.inode(source)
            if inode is None or not inode.nlink:
                raise FsError(errno.ENOENT, f"inode {source} was removed")
            copy = SubtreeCopy(self._stores, view, source, self._new_names.ask, now_ns=None)
            cursor = view.cursor
            path = view.path_of(source)
            assert path is not None, "it has a name"
            with self._removed_on_failure(copy):
                work_through(self._stores, self._committer, copy.steps(), stop=stop)
                row = SnapshotRow(
                    created_ns=created_ns,
                    mount_generation=cursor.mount_generation,
                    sequence=cursor.sequence,
                    files=copy.files,
                    logical_bytes=copy.logical_bytes,
                    source=path,
                )
                with self._stores.lock:
                    self._new_names.take_snapshot(name)
                    self._rename(unfinished_name(copy.top), name, copy.top)
                    self._stores.tree.put_snapshot(copy.top, row)
                self._commit_rename(unfinished_name(copy.top), name, copy.top)
        return Snapshot(name=name, ino=copy.top, row=row)

    def restore(self, name: bytes, path: bytes, parent: int, new_name: bytes, *, stop: Stop = never) -> int:
        """Copy a snapshot, or a part of it, to a new place among the live files. Whole and durable on return.

        The copy shares all blocks, and keeps modes, owners, xattrs, hard links within it and times of change. Cursors
        of the journal become void: whoever follows it compares everything once.

        Args:
            name: Of the snapshot.
            path: Of what is wanted, relative to the snapshot; b"": all of it.
            parent: A live directory.
            new_name: Free there.
            stop: See `Stop`.

        Returns:
            The new inode.

        Raises:
            StoppedError: `stop` said so; nothing was restored.
            FsError: ENOENT, ENOTDIR: no such snapshot, path or directory; EEXIST; EROFS: `parent` is in a snapshot;
                ENAMETOOLONG or EINVAL: a name.
            NoSpaceError: The host is full; nothing was restored. Or only the last commit failed: then the copy is
                there, and becomes durable with the next one.
            BlockfsError: The host failed; likewise.
        """
        tree, inodes = self._stores.tree, self._inodes
        with self._stores.lock:
            top = self.find(name).ino
            source = self._within(top, path)
            self._new_names.check(parent, new_name)
        with held(tree.copying, pause_of(stop)), tree.committed() as view:
            if view.lookup(SNAPSHOTS_INO, name) != top:  # deleted since: what is left of it may not be all
                raise FsError(errno.ENOENT, f"snapshot {shown(name)}")
            copy = SubtreeCopy(self._stores, view, source, self._new_names.ask, now_ns=inodes.now_ns())
            with self._removed_on_failure(copy):
                work_through(self._stores, self._committer, copy.steps(), stop=stop)
                with self._stores.lock:
                    self._new_names.take(parent, new_name)
                    self._rename(unfinished_name(copy.top), new_name, copy.top, parent)
                    tree.void_cursors()
            self._committer.commit()
        return copy.top

    # --- removing ---

    def take_away(self, name: bytes) -> int:
        """Begin to delete a snapshot: durably, nobody finds it any more. Open files in it stay readable.

        Returns:
            Its inode, for `remove`.

        Raises:
            FsError: ENOENT; ENAMETOOLONG or EINVAL for what can't be a name.
            NoSpaceError: The host is full; the snapshot stays.
            BlockfsError: The host failed; likewise.
        """
        with self._stores.lock:
            ino = self.find(name).ino
            self._rename(name, unfinished_name(ino), ino)
        self._commit_rename(name, unfinished_name(ino), ino)
        return ino

    def remove(self, ino: int, *, stop: Stop = never) -> list[tuple[int, bytes]]:
        """Remove what `take_away` has taken away. If it does not come to an end, the next mount goes on.

        Args:
            ino: From `take_away`.
            stop: See `Stop`; it is no failure to be stopped here.

        Returns:
            Directory and name of what the kernel used when it went: it must be told, lest it keeps them for ever.

        Raises:
            NoSpaceError: The host is full.
            BlockfsError: The host failed.
        """
        removal = SubtreeRemoval(self._stores, self._inodes, ino, unfinished_name(ino))
        with suppress(StoppedError):
            work_through(self._stores, self._committer, removal.steps(), stop=stop)
        return removal.in_use

    def remove_unfinished(self, *, stop: Stop = never) -> None:
        """Remove what was half made or half removed when the last mount ended.

        Raises:
            NoSpaceError: The host is full.
            BlockfsError: The host failed.
        """
        for ino in self._left_over:
            self.remove(ino, stop=stop)

    def _unfinished(self) -> list[int]:
        """What is being made or removed."""
        with self._stores.lock:
            entries = self._stores.tree.entries(SNAPSHOTS_INO)
            return [ino for name, ino in entries if name.startswith(UNFINISHED_PREFIX)]

    # --- parts ---

    def _check_source(self, source: int) -> None:
        inode = self._inodes.inode(source)
        self._inodes.check_changeable(inode)  # what is in a snapshot is kept already
        if not inode.nlink:
            raise FsError(errno.ENOENT, f"inode {source} was removed")

    def _within(self, ino: int, path: bytes) -> int:
        for name in path.split(b"/"):
            if name not in {b"", b"."}:
                ino = self._inodes.child(ino, name).ino
        return ino

    def _rename(self, name: bytes, new_name: bytes, ino: int, new_parent: int = SNAPSHOTS_INO) -> None:
        """Move what the directory of snapshots has as `name`."""
        tree, inodes = self._stores.tree, self._inodes
        now_ns = inodes.now_ns()
        links = int(inodes.inode(ino).kind is Kind.DIRECTORY)
        tree.unlink(SNAPSHOTS_INO, name)
        inodes.touch_directory(inodes.directory(SNAPSHOTS_INO), now_ns, links=-links)
        tree.link(new_parent, new_name, ino)
        inodes.touch_directory(inodes.directory(new_parent), now_ns, links=links)

    def _commit_rename(self, name: bytes, new_name: bytes, ino: int) -> None:
        """Make a change of name in the directory of snapshots durable, or take it back: what failed was not done."""
        try:
            self._committer.commit()
        except BlockfsError:
            with self._stores.lock:
                if self._stores.tree.lookup(SNAPSHOTS_INO, name) is None:  # else somebody took the name meanwhile
                    self._rename(new_name, name, ino)
            raise

    @contextmanager
    def _removed_on_failure(self, copy: SubtreeCopy) -> Iterator[None]:
        """Remove a copy that can't be finished. If not even that is possible, the next mount does."""
        try:
            yield
        except StoppedError:
            raise  # no time for it
        except BlockfsError:
            with suppress(BlockfsError):
                if copy.top in self._unfinished():
                    self.remove(copy.top)
            raise


def snapshots_of(tree: TreeReader) -> Iterator[Snapshot]:
    """All complete snapshots of a tree, in byte order of their names."""
    for name, ino in tree.entries(SNAPSHOTS_INO):
        row = tree.snapshot(ino)
        if row is not None and not name.startswith(UNFINISHED_PREFIX):
            yield Snapshot(name=name, ino=ino, row=row)
