"""The bytes of one file of the host: written, read, punched, and asked where they are.

Where is what SEEK_DATA says: exactly, to the page, or the volume is not mounted (`probe`).
"""

from __future__ import annotations

import contextlib
import errno
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final

from blockfs.engine.content.pagemap import PAGE
from blockfs.errors import BlockfsError, UsageError, WouldBlock
from blockfs.runtime.atomic import space_errors, sync_directory
from blockfs.runtime.failures import said
from blockfs.runtime.linux import punch_hole, write_back
from blockfs.runtime.reflink import unwritten_ranges

_WRITE_BACK_BYTES: Final = 4 << 20  # some milliseconds of a disk


class HostIoError(BlockfsError):
    """The host failed to read or write (EIO and the like)."""

    errno = errno.EIO


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


def write_pages(fd: int, parts: Sequence[bytes | memoryview], offset: int, total: int) -> tuple[int, OSError | None]:
    """Write `parts`, `total` bytes in all, one after the other at `offset` of a staging file.

    Returns:
        Bytes written, and the host's failure if these are not all; then nothing is known of the rest.
    """
    written = 0
    try:
        written = os.pwritev(fd, parts, offset)
        while written < total:
            rest = memoryview(b"".join(parts))[written:]
            written += os.pwrite(fd, rest, offset + written)
    except OSError as failure:
        return written, failure
    return written, None


def write_back_slowly(fd: int, pace: Callable[[], None]) -> None:
    """Have the host write a file's dirty pages, a little at a time: an fsync in between finds the disk free."""
    at = _next_data(fd, 0)
    while at is not None:
        pace()
        write_back(fd, at, _WRITE_BACK_BYTES, wait=True)
        at = _next_data(fd, at + _WRITE_BACK_BYTES)


def punch(fd: int, offset: int, length: int) -> None:
    """Make a page-aligned range a hole again, as far as the host can: clears up after a failed write."""
    with contextlib.suppress(OSError):
        punch_hole(fd, offset, length)


def read_range(fd: int, offset: int, length: int) -> bytes:
    """Read from a staging file; what lies past its end is NUL.

    Raises:
        HostIoError: The host failed.
    """
    with translated("staging"):
        data = _read(fd, offset, length)
    return data + bytes(length - len(data)) if len(data) < length else data


def read_range_into(fd: int, offset: int, view: memoryview) -> None:
    """As `read_range`, from the page cache alone, into a buffer.

    Raises:
        WouldBlock: Not all of it is in the page cache.
        HostIoError: The host failed.
    """
    try:
        got = os.preadv(fd, (view,), offset, os.RWF_NOWAIT)
    except BlockingIOError:
        raise WouldBlock("staged data are not in the page cache") from None
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise HostIoError(f"staging: {said(error)}") from error
        view[:] = read_range(fd, offset, len(view))  # tmpfs knows no RWF_NOWAIT, and has no disk to wait for
        return
    if got < len(view):
        with translated("staging"):
            size_bytes = os.fstat(fd).st_size
        if offset + got < size_bytes:
            raise WouldBlock("staged data are not in the page cache")
        view[got:] = bytes(len(view) - got)


def _read(fd: int, offset: int, length: int) -> bytes:
    data = os.pread(fd, length, offset)
    while len(data) < length:
        more = os.pread(fd, length - len(data), offset + len(data))
        if not more:
            break
        data += more
    return data


def data_extents(fd: int) -> Iterator[tuple[int, int]]:
    """Runs of pages that hold data, as (offset, length), whole pages, from SEEK_DATA and SEEK_HOLE."""
    start = _next_data(fd, 0)
    while start is not None:
        end = os.lseek(fd, start, os.SEEK_HOLE)
        first = start // PAGE * PAGE
        yield first, -(-end // PAGE) * PAGE - first
        start = _next_data(fd, end)


def written_extents(fd: int) -> Iterator[tuple[int, int]]:
    """Runs of pages that somebody has written, as `data_extents`, for who has nothing else to know them by.

    XFS takes room ahead of a file that grows, and what is not written of it stays in the file. If somebody reads that,
    a backup or the host's own read-ahead, SEEK_DATA takes the zeros in the page cache for data. So what FIEMAP calls
    unwritten, after all dirty pages were written back, doesn't count.

    Raises:
        OSError: The host failed.
    """
    gaps = unwritten_ranges(fd, os.fstat(fd).st_size)
    for start, length in data_extents(fd):
        at, end = start, start + length
        first = bisect_right(gaps, at, key=lambda gap: gap[1])
        for gap in islice(gaps, first, None):
            if gap[0] >= end:
                break
            # Whole pages only: a page of which a part is written is data.
            behind, before = -(-gap[0] // PAGE) * PAGE, gap[1] // PAGE * PAGE
            if behind < before:
                if behind > at:
                    yield at, behind - at
                at = max(at, before)
        if at < end:
            yield at, end - at


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
        fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
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
