"""The twins of one root: where they lie, which there are, when they go.

`ROOT/.blocksync/twins/` holds a file for each, mode 0600, under a random name; the root's state knows whose twin it is,
what is in it and what evidence it had (table.py). So a twin counts only while nobody has touched it, and one that
nobody knows of (a kill before it was booked, a state that was lost) is deleted. Losing a twin costs a full look.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from blockfs.runtime.linux import filesystem_magic
from blockfs.runtime.reflink import clone_file
from blockfs.runtime.space import has_block_limit, host_space
from syncer.core.model import Content, FileStat, LocalTag, RelPath
from syncer.core.rows import BaseRows
from syncer.errors import LocalChangedError, NoSpaceError
from syncer.local.blocklists import BlockLists
from syncer.local.safe_open import DIRECTORY_FLAGS, FILE_FLAGS, look, parent_directory, tag_of
from syncer.local.syscalls import status
from syncer.local.twins.table import Inode, Twin, dump, inode_of, load
from syncer.ports.state import State

TWINS: Final = b"twins"
_NEW: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_TRIED: Final = frozenset({0x58465342, 0x9123683E})  # XFS, btrfs: where the comparison of places was tried
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_SHORT_BYTES: Final = 4 << 30  # less room, or less than this share of all, and no twin holds any of it
_SHORT_SHARE: Final = 0.05
_LONG_AGO_NS: Final = 0  # mtime of a twin: whoever writes to it changes that, also within one tick of the clock


class Twins:
    """Those of one root. Safe for many threads. Who changes the root's state is the only one who may use it.

    Nothing here fails for a twin's sake: without it a file is read as a whole.

    Attributes:
        lists: Block lists by content: they tell what a twin holds.
        least_bytes: Smaller files have no twin.
    """

    def __init__(
        self, path: bytes, root: int, top: int, state: State, lists: BlockLists, *, least_bytes: int, used: bool
    ) -> None:
        """Take over descriptors (not closed here).

        Args:
            path: Of the root.
            root: Its descriptor.
            top: That of its private folder.
            state: What is kept between cycles.
            lists: See there.
            least_bytes: See there.
            used: False: there are none, and what is there is left alone.
        """
        self._path = path
        self._root = root
        self._top = top
        self._state = state
        self.least_bytes = least_bytes
        self._used = used
        self._lock = threading.RLock()
        self._known: dict[Inode, Twin] | None = None
        self.lists = lists

    # --- one file

    def copy(self, live: int, size_bytes: int) -> tuple[bytes, int] | None:
        """Make a copy of a file as of one moment: its name in the folder of twins, and a descriptor for the caller.

        The kernel keeps writers out meanwhile, and writes dirty pages back; so whoever stores to a mapped page from
        now on changes the file's mtime.

        Args:
            live: Descriptor of the file.
            size_bytes: How long it should be.

        Returns:
            None: it may not have a twin, can't, or has another size.
        """
        if not self._used or size_bytes < self.least_bytes:
            return None
        try:
            if filesystem_magic(live) not in _TRIED or self._is_short():
                return None
            if has_block_limit(live, os.geteuid(), os.getegid()):
                return None
            # Twice, for the second takes what was written during the first: the copy then holds writers up for less.
            os.fdatasync(live)
            os.fdatasync(live)
            with self._folder(make=True) as folder:
                return _copied(folder, live, size_bytes)
        except OSError as error:
            if error.errno in _FULL:
                self.drop_all()
            return None

    def of(self, tag: LocalTag) -> Twin | None:
        """A file's twin."""
        with self._lock:
            return self._table().get(inode_of(tag)) if self._used else None

    @contextmanager
    def opened(self, twin: Twin) -> Iterator[int | None]:
        """A descriptor of a twin; None if it is not what we made, or somebody touches it."""
        try:
            with self._folder() as folder:
                descriptor = os.open(twin.name, FILE_FLAGS, dir_fd=folder)
        except OSError:
            yield None
            return
        try:
            yield descriptor if is_untouched(twin, descriptor) else None
        finally:
            os.close(descriptor)

    def book(self, live: LocalTag, twin: Twin) -> None:
        """A file has this twin from now on.

        Order: the twin is durable already → the state knows it → the one before it goes. A crash leaves a file in the
        folder that nobody knows of.
        """
        with self._lock:
            table = self._table()
            before = table.get(inode_of(live))
            table[inode_of(live)] = twin
            self._state.keep("twins", dump(table))
        if before is not None:
            self.unlink(before.name)

    def adopt(self, made: int, path: RelPath, content: Content) -> None:
        """Let a file that we made, and that has no name yet, have a twin.

        Args:
            made: Descriptor of the file; it is durable.
            path: Where it is going to be.
            content: What it is known to hold.
        """
        copied = self.copy(made, content.size_bytes)
        if copied is None:
            return
        name, descriptor = copied
        is_booked = False
        try:
            with suppress(OSError):
                self.book(tag_of(status(b"", made)), finished(name, descriptor, content, path))
                is_booked = True
        finally:
            os.close(descriptor)
            if not is_booked:
                self.unlink(name)

    def unlink(self, name: bytes) -> None:
        """Delete a file of the folder."""
        with suppress(OSError), self._folder() as folder:
            os.unlink(name, dir_fd=folder)

    # --- when they go

    def tidy(self) -> None:
        """Drop those whose files are gone or small by now, what nobody knows of, and all if space is short."""
        if not self._used:
            return
        with self._lock:
            table = self._table()
            if not table and not self._names():
                return
            if table and self._is_short():
                self.drop_all()
                return
            with self._state.rows() as rows:
                stale = [inode for inode, twin in table.items() if not self._is_there(inode, twin, rows)]
            self._forget(stale)
            known = {twin.name for twin in table.values()}
            for name in self._names():
                if name not in known:
                    self.unlink(name)

    def keep_only(self, stats: Iterable[FileStat]) -> None:
        """Drop those of files that are not synced any more.

        Args:
            stats: All files that are.
        """
        if not self._used:
            return
        with self._lock:
            table = self._table()
            if table:
                there = {inode_of(stat.tag) for stat in stats if stat.tag.size_bytes >= self.least_bytes}
                self._forget([inode for inode in table if inode not in there])

    def drop_all(self) -> None:
        """Give back all that they hold."""
        if self._used:
            with self._lock, suppress(NoSpaceError):
                self._forget(list(self._table()))

    def _forget(self, inodes: list[Inode]) -> None:
        """Room first, then the state: that may need some, and one that it knows and that is gone does no harm."""
        if inodes:
            table = self._table()
            for inode in inodes:
                self.unlink(table.pop(inode).name)
            self._state.keep("twins", dump(table))

    def _is_there(self, inode: Inode, twin: Twin, rows: BaseRows) -> bool:
        """Whether the file of a twin still is in the root, and large."""
        return any(self._is_at(path, inode) for path in places_of(inode, twin, rows))

    def _is_at(self, path: RelPath, inode: Inode) -> bool:
        try:
            with parent_directory(self._root, path) as (directory, name):
                found = look(directory, name, path)
        except (OSError, LocalChangedError):
            return False
        return inode_of(found) == inode and found.size_bytes >= self.least_bytes

    # --- parts

    def _table(self) -> dict[Inode, Twin]:
        if self._known is None:
            self._known = load(self._state.memory("twins"))
        return self._known

    def _is_short(self) -> bool:
        try:
            room = host_space(self._path)
        except OSError:  # who can't tell holds nothing
            return True
        return room.available_bytes < min(_SHORT_BYTES, room.total_bytes * _SHORT_SHARE)

    def _names(self) -> list[bytes]:
        try:
            with self._folder() as folder, os.scandir(folder) as entries:
                return [os.fsencode(entry.name) for entry in entries]
        except OSError:
            return []

    @contextmanager
    def _folder(self, *, make: bool = False) -> Iterator[int]:
        if make:
            with suppress(FileExistsError):
                os.mkdir(TWINS, 0o700, dir_fd=self._top)
        descriptor = os.open(TWINS, DIRECTORY_FLAGS, dir_fd=self._top)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


def _copied(folder: int, live: int, size_bytes: int) -> tuple[bytes, int] | None:
    name = os.urandom(8).hex().encode()
    descriptor = os.open(name, _NEW, 0o600, dir_fd=folder)
    is_good = False
    try:
        is_good = clone_file(live, descriptor) and os.fstat(descriptor).st_size == size_bytes
    finally:
        if not is_good:
            os.close(descriptor)
            os.unlink(name, dir_fd=folder)
    return (name, descriptor) if is_good else None


def places_of(inode: Inode, twin: Twin, rows: BaseRows) -> set[RelPath]:
    """Where the file of a twin may be."""
    tag = LocalTag(device=0, ino=inode[0], btime_ns=inode[1], size_bytes=0, mtime_ns=0, ctime_ns=0)
    return {twin.path} | {path for row in rows.with_inode(tag) if (path := rows.path(row)) is not None}


def is_untouched(twin: Twin, descriptor: int) -> bool:
    """Whether an open file is the twin that we made, and nobody changed anything about it."""
    return tag_of(status(b"", descriptor)) == twin.tag


def finished(name: bytes, descriptor: int, content: Content, path: RelPath) -> Twin:
    """Make a twin durable; from now on nobody touches it.

    Raises:
        OSError: The host failed.
    """
    os.utime(descriptor, ns=(_LONG_AGO_NS, _LONG_AGO_NS))
    # What the state tells of must be there after a power cut: then all of the twin is, or its evidence is another one.
    os.fsync(descriptor)
    return Twin(name=name, tag=tag_of(status(b"", descriptor)), content=content, path=path)


def remove_twins(top: int) -> None:
    """Delete all twins of a root, and their folder; what can't be deleted stays.

    Args:
        top: Descriptor of its private folder.
    """
    with suppress(OSError):
        folder = os.open(TWINS, DIRECTORY_FLAGS, dir_fd=top)
        try:
            for name in os.listdir(folder):
                with suppress(OSError):
                    os.unlink(name, dir_fd=folder)
        finally:
            os.close(folder)
        os.rmdir(TWINS, dir_fd=top)
