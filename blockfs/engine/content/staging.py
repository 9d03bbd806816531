"""Staging files: data that was written but not yet sealed into blocks.

One sparse file per inode, generation and 1 TiB range of the file, named `<ino>.<range>.<generation>` in decimal. A page
lies at its own offset within the range, so which pages are staged is what SEEK_DATA says: nothing else is recorded.
Generation numbers are unique within the directory and never used twice in one mount.

Descriptors: at most `open_files` stay open beyond those in use. A `StagingFile` in use is pinned, so a thread that
reads never finds its descriptor closed or, worse, given to another file. What was written is synced before a descriptor
is closed: the kernel forgets a file that nobody has open, and with it that it failed to write its pages.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import Final

from blockfs.engine.content.hostfile import HostIoError, translated, write_back_slowly
from blockfs.errors import BlockfsError, CorruptionError
from blockfs.runtime.atomic import space_errors
from blockfs.runtime.linux import check_written
from blockfs.runtime.logs import Log

RANGE_SHIFT: Final = 40
RANGE: Final = 1 << RANGE_SHIFT
_FLAGS: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
"""Bytes of a file that one staging file covers: host filesystems end near 16 TiB."""

log = Log()

Key = tuple[int, int, int]
"""(ino, range index, generation): the name of a staging file."""


def encode_name(key: Key) -> bytes:
    """File name of a staging file."""
    return b"%d.%d.%d" % key


def decode_name(name: bytes) -> Key | None:
    """Key of a staging file's name; None for other names."""
    parts = name.split(b".")
    if len(parts) != 3 or not all(part.isdigit() for part in parts):
        return None
    ino, range_index, generation = (int(part) for part in parts)
    return (ino, range_index, generation) if encode_name((ino, range_index, generation)) == name else None


class StagingFile:
    """One staging file. Made by `StagingDirectory`; all fields are its own and guarded by its lock.

    Attributes:
        key: Its name.
        failed: An fdatasync failed: what the kernel dropped is unknown, so no later success may be believed. It is not
            synced again; see `blockfs.engine.durable.failing`.
        is_dirty: It was written to since its last good fdatasync began.
        is_shared: It may be a segment, too, of which dead blocks are punched when this name is gone.
        segment: The number of the segment that was made of it.
    """

    __slots__ = ("dead", "failed", "fd", "is_dirty", "is_shared", "key", "segment", "users")

    def __init__(self, key: Key, fd: int, *, is_shared: bool = False) -> None:
        self.key = key
        self.fd = fd
        self.users = 0
        self.failed = False
        self.dead = False
        self.is_dirty = False
        self.is_shared = is_shared
        self.segment: int | None = None


class StagingDirectory:
    """The directory of staging files and its descriptors. Thread-safe.

    Args:
        path: The directory.
        open_files: Descriptors kept open while nobody uses them.
        checkpoint: Called with the name of each durability step before it is done.
    """

    def __init__(self, path: bytes, *, open_files: int, checkpoint: Callable[[str], None]) -> None:
        self._directory_fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.path = path
        self._open_files = open_files
        self._checkpoint = checkpoint
        self._lock = threading.Lock()
        self._idle: OrderedDict[StagingFile, None] = OrderedDict()
        self._doomed: deque[StagingFile] = deque()

    def close(self) -> None:
        """Close all descriptors. Nobody may use a file any more."""
        with self._lock:
            for file in self._idle:
                _close(file)
            self._idle.clear()
            os.close(self._directory_fd)

    # --- names ---

    def names(self) -> list[Key]:
        """Keys of all staging files; foreign names are left out."""
        keys = (decode_name(os.fsencode(name)) for name in os.listdir(self._directory_fd))
        return sorted(key for key in keys if key is not None)

    def create(self, key: Key) -> StagingFile:
        """Make a new staging file. Its name is durable after the next `sync_names`.

        Raises:
            NoSpaceError: The host is full.
            OSError: As open(2).
        """
        self._checkpoint("staging.create")
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with space_errors("staging"):
            fd = os.open(encode_name(key), flags, 0o600, dir_fd=self._directory_fd)
        file = StagingFile(key, fd)
        self._release_idle(file)
        return file

    def existing(self, key: Key) -> StagingFile:
        """A staging file of an earlier mount.

        Raises:
            CorruptionError: It is gone: the tree names generations only once their names are durable.
        """
        name = encode_name(key)
        try:
            found = os.stat(name, dir_fd=self._directory_fd)
        except FileNotFoundError:
            raise CorruptionError(
                f"{os.fsdecode(os.path.join(self.path, name))}: staged data of inode {key[0]} are missing; "
                "restore the file from a backup"
            ) from None
        return StagingFile(key, -1, is_shared=found.st_nlink > 1)

    def unlink(self, key: Key) -> None:
        """Remove a staging file; one that is gone already is fine."""
        self._checkpoint("staging.unlink")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(encode_name(key), dir_fd=self._directory_fd)

    def doom(self, file: StagingFile) -> None:
        """Note that a file may go; `sweep` removes it."""
        self._doomed.append(file)

    def sweep(self) -> list[int]:
        """Remove doomed files. Without the engine's lock: unlinking a large file takes milliseconds.

        What the host refuses to remove is left to the next call, or to the next mount: nobody needs to wait for it.
        Several may sweep at once. One that is a segment, too, stays until nobody reads it.

        Returns:
            The segments that have lost their names here: what of them is no block's may be punched.
        """
        adopted: list[int] = []
        busy: list[StagingFile] = []
        while True:
            try:
                file = self._doomed.popleft()
            except IndexError:  # asked first, another thread could take the last one in between
                break
            if file.is_shared and file.users:
                busy.append(file)
                continue
            try:
                self._discard(file)
            except OSError as error:
                self._doomed.append(file)
                log.warning("staging.not_removed", name=encode_name(file.key), reason=str(error))
                break
            if file.segment is not None:
                adopted.append(file.segment)
        self._doomed.extend(busy)
        return adopted

    def _discard(self, file: StagingFile) -> None:
        """Remove a file and close it as soon as nobody reads it."""
        self.unlink(file.key)
        with self._lock:
            file.dead = True
            if not file.users:
                self._idle.pop(file, None)
                if file.fd >= 0:
                    _close(file)

    def sync_names(self) -> None:
        """Make the names of new files durable.

        Raises:
            NoSpaceError: The host is full.
            HostIoError: The host failed.
        """
        self._checkpoint("staging.sync_names")
        with translated("staging"):
            os.fsync(self._directory_fd)

    # --- contents ---

    @contextlib.contextmanager
    def using(self, file: StagingFile) -> Iterator[int]:
        """The descriptor of a file, which stays valid inside the block."""
        fd = self.acquire(file)
        try:
            yield fd
        finally:
            self.release(file)

    def acquire(self, file: StagingFile, *, writes: bool = False) -> int:
        """Pin a file, perhaps to write to it; returns its descriptor. Pair it with `release`."""
        with self._lock:
            if file.fd < 0:
                file.fd = os.open(encode_name(file.key), _FLAGS, dir_fd=self._directory_fd)
            elif not file.users:
                self._idle.pop(file, None)
            file.users += 1
            file.is_dirty |= writes
            return file.fd

    def release(self, file: StagingFile) -> None:
        """Unpin a file."""
        with self._lock:
            file.users -= 1
            if file.users:
                return
            if file.dead:
                _close(file)
                return
        self._release_idle(file)

    def _release_idle(self, file: StagingFile) -> None:
        with self._lock:
            if file.users or file.fd < 0:
                return
            self._idle[file] = None
            if len(self._idle) <= self._open_files:
                return
            oldest, _ = self._idle.popitem(last=False)
            if not oldest.is_dirty:
                _close(oldest)
                return
            oldest.users += 1
        with contextlib.suppress(BlockfsError):  # it has failed then, and whoever syncs or seals it is told
            self.sync(oldest)
        with self._lock:
            oldest.users -= 1
            if oldest.users:
                return
            if oldest.is_dirty and not oldest.dead:
                self._idle[oldest] = None  # written to meanwhile
            else:
                _close(oldest)

    def sync(self, file: StagingFile, pace: Callable[[], None] | None = None) -> None:
        """Make a file's content durable.

        Args:
            file: The file.
            pace: Do it piece by piece, and call this between them.

        Raises:
            NoSpaceError: The host is full.
            HostIoError: The host failed, now or at an earlier sync of this file.
        """
        self._checkpoint("staging.fdatasync")
        with self._unfailed(file) as fd:
            if pace is not None:
                write_back_slowly(fd, pace)
            file.is_dirty = False  # before: who writes meanwhile says so again
            os.fdatasync(fd)

    def check(self, file: StagingFile) -> None:
        """Learn whether the kernel, writing back on its own, failed to write pages of a file. Writes nothing.

        Raises:
            NoSpaceError: It found no room.
            HostIoError: The host failed, now or at an earlier sync of this file.
        """
        with self._unfailed(file) as fd:
            check_written(fd)

    @contextlib.contextmanager
    def _unfailed(self, file: StagingFile) -> Iterator[int]:
        if file.failed:
            raise HostIoError(f"staged data of inode {file.key[0]} could not be written to the host's disk")
        with self.using(file) as fd:
            try:
                with translated("staging"):
                    yield fd
            except BlockfsError:
                # The kernel marks pages clean after a failed write-back, also for want of space (on a thin disk, say):
                # the next fdatasync would lie.
                file.failed = True
                raise


def _close(file: StagingFile) -> None:
    os.close(file.fd)
    file.fd = -1
