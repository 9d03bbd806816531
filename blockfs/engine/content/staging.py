"""Staging files: data that was written but not yet sealed into blocks.

One sparse file per inode, generation and 1 TiB range of the file, named `<ino>.<range>.<generation>` in decimal. A page
lies at its own offset within the range, so which pages are staged is what SEEK_DATA says: nothing else is recorded.
Generation numbers are unique within the directory and never used twice in one mount.

Descriptors: at most `open_files` stay open beyond those in use. A `StagingFile` in use is pinned, so a thread that
reads never finds its descriptor closed or, worse, given to another file.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from blockfs.engine.content.pagemap import PAGE
from blockfs.errors import BlockfsError, CorruptionError, UsageError, WouldBlock
from blockfs.runtime.atomic import space_errors, sync_directory
from blockfs.runtime.failures import said
from blockfs.runtime.linux import check_written, write_back
from blockfs.runtime.logs import Log

RANGE_SHIFT: Final = 40
RANGE: Final = 1 << RANGE_SHIFT
"""Bytes of a file that one staging file covers: host filesystems end near 16 TiB."""

_WRITE_BACK_BYTES: Final = 4 << 20  # some milliseconds of a disk
log = Log()

_PUNCH_HOLE_KEEP_SIZE: Final = 0x02 | 0x01  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, linux/falloc.h
_libc: Final = ctypes.CDLL(None, use_errno=True)  # Python has no fallocate(2) with a mode
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]

Key = tuple[int, int, int]
"""(ino, range index, generation): the name of a staging file."""


class HostIoError(BlockfsError):
    """The host failed to read or write (EIO and the like)."""

    errno = errno.EIO


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
    """

    __slots__ = ("dead", "failed", "fd", "key", "users")

    def __init__(self, key: Key, fd: int) -> None:
        self.key = key
        self.fd = fd
        self.users = 0
        self.failed = False
        self.dead = False


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
                os.close(file.fd)
                file.fd = -1
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
            os.stat(name, dir_fd=self._directory_fd)
        except FileNotFoundError:
            raise CorruptionError(
                f"{os.fsdecode(os.path.join(self.path, name))}: staged data of inode {key[0]} are missing; "
                "restore the file from a backup"
            ) from None
        return StagingFile(key, -1)

    def unlink(self, key: Key) -> None:
        """Remove a staging file; one that is gone already is fine."""
        self._checkpoint("staging.unlink")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(encode_name(key), dir_fd=self._directory_fd)

    def doom(self, file: StagingFile) -> None:
        """Note that a file may go; `sweep` removes it."""
        self._doomed.append(file)

    def sweep(self) -> None:
        """Remove doomed files. Without the engine's lock: unlinking a large file takes milliseconds.

        What the host refuses to remove is left to the next call, or to the next mount: nobody needs to wait for it.
        Several may sweep at once.
        """
        while True:
            try:
                file = self._doomed.popleft()
            except IndexError:  # asked first, another thread could take the last one in between
                return
            try:
                self._discard(file)
            except OSError as error:
                self._doomed.append(file)
                log.warning("staging.not_removed", name=encode_name(file.key), reason=str(error))
                return

    def _discard(self, file: StagingFile) -> None:
        """Remove a file and close it as soon as nobody reads it."""
        self.unlink(file.key)
        with self._lock:
            file.dead = True
            if not file.users:
                self._idle.pop(file, None)
                if file.fd >= 0:
                    os.close(file.fd)
                    file.fd = -1

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

    def acquire(self, file: StagingFile) -> int:
        """Pin a file; returns its descriptor. Pair it with `release`."""
        with self._lock:
            if file.fd < 0:
                file.fd = os.open(encode_name(file.key), os.O_RDWR | os.O_CLOEXEC, dir_fd=self._directory_fd)
            elif not file.users:
                self._idle.pop(file, None)
            file.users += 1
            return file.fd

    def release(self, file: StagingFile) -> None:
        """Unpin a file."""
        with self._lock:
            file.users -= 1
            if file.users:
                return
            if file.dead:
                os.close(file.fd)
                file.fd = -1
                return
        self._release_idle(file)

    def _release_idle(self, file: StagingFile) -> None:
        with self._lock:
            if file.users or file.fd < 0:
                return
            self._idle[file] = None
            if len(self._idle) > self._open_files:
                oldest, _ = self._idle.popitem(last=False)
                os.close(oldest.fd)
                oldest.fd = -1

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
                _write_back(fd, pace)
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


@contextlib.contextmanager
def translated(what: str) -> Iterator[None]:
    """Turn the host's errors into ours.

    Raises:
        NoSpaceError: ENOSPC or EDQUOT.
        HostIoError: Any other OSError.
    """
    try:
        with space_errors(what):
            yield
    except OSError as error:
        raise HostIoError(f"{what}: {said(error)}") from error


def write_pages(fd: int, parts: Sequence[bytes | memoryview], offset: int) -> tuple[int, OSError | None]:
    """Write `parts` one after the other at `offset` of a staging file.

    Returns:
        Bytes written, and the host's failure if these are not all; then nothing is known of the rest.
    """
    total = sum(len(part) for part in parts)
    written = 0
    try:
        written = os.pwritev(fd, parts, offset)
        while written < total:
            rest = memoryview(b"".join(parts))[written:]
            written += os.pwrite(fd, rest, offset + written)
    except OSError as failure:
        return written, failure
    return written, None


def _write_back(fd: int, pace: Callable[[], None]) -> None:
    """Have the host write a file's dirty pages, a little at a time: an fsync in between finds the disk free."""
    at = _next_data(fd, 0)
    while at is not None:
        pace()
        write_back(fd, at, _WRITE_BACK_BYTES, wait=True)
        at = _next_data(fd, at + _WRITE_BACK_BYTES)


def punch(fd: int, offset: int, length: int) -> None:
    """Make a page-aligned range a hole again, as far as the host can: clears up after a failed write."""
    _libc.fallocate(fd, _PUNCH_HOLE_KEEP_SIZE, offset, length)


def read_range(fd: int, offset: int, length: int, *, may_block: bool) -> bytes:
    """Read from a staging file; what lies past its end is NUL.

    Raises:
        WouldBlock: Not all of it is in the page cache and `may_block` is false.
        HostIoError: The host failed.
    """
    with translated("staging"):
        data = _read_blocking(fd, offset, length) if may_block else _read_cached(fd, offset, length)
    return data + bytes(length - len(data)) if len(data) < length else data


def _read_blocking(fd: int, offset: int, length: int) -> bytes:
    data = os.pread(fd, length, offset)
    while len(data) < length:
        more = os.pread(fd, length - len(data), offset + len(data))
        if not more:
            break
        data += more
    return data


def _read_cached(fd: int, offset: int, length: int) -> bytes:
    buffer = bytearray(length)
    try:
        got = os.preadv(fd, [buffer], offset, os.RWF_NOWAIT)
    except BlockingIOError:
        raise WouldBlock("staged data are not in the page cache") from None
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        return _read_blocking(fd, offset, length)  # tmpfs knows no RWF_NOWAIT, and has no disk to wait for
    if got < length and offset + got < os.fstat(fd).st_size:
        raise WouldBlock("staged data are not in the page cache")
    return bytes(buffer)


def data_extents(fd: int) -> Iterator[tuple[int, int]]:
    """Runs of pages that hold data, as (offset, length), whole pages, from SEEK_DATA and SEEK_HOLE."""
    start = _next_data(fd, 0)
    while start is not None:
        end = os.lseek(fd, start, os.SEEK_HOLE)
        first = start // PAGE * PAGE
        yield first, -(-end // PAGE) * PAGE - first
        start = _next_data(fd, end)


def _next_data(fd: int, at: int) -> int | None:
    try:
        return os.lseek(fd, at, os.SEEK_DATA)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return None


def probe(path: bytes) -> None:
    """Check that the host filesystem tells data from holes to the page, as recovery needs.

    Raises:
        UsageError: It doesn't.
        NoSpaceError: The host is full.
    """
    name = os.path.join(path, b".probe")
    with space_errors(os.fsdecode(name)):
        fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            # A page of NULs is data, too: staged zeros must not be taken for holes.
            os.pwrite(fd, b"\x01" * PAGE, 3 * PAGE)
            os.pwrite(fd, bytes(PAGE), 7 * PAGE)
            before = list(data_extents(fd))
            os.fdatasync(fd)
            after = list(data_extents(fd))
        finally:
            os.close(fd)
            os.unlink(name)
    expected = [(3 * PAGE, PAGE), (7 * PAGE, PAGE)]
    if before != expected or after != expected:
        raise UsageError(
            f"{os.fsdecode(path)}: the filesystem does not report holes exactly to {PAGE} bytes "
            "(SEEK_DATA), which crash recovery needs; put the volume on ext4, XFS, btrfs or tmpfs"
        )
    sync_directory(path)
