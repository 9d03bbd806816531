"""What hosts with reflinks offer for files: sharing bytes (FICLONE, FICLONERANGE), telling where they lie (FIEMAP)."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
from collections.abc import Iterator
from hashlib import sha256
from typing import Final

from blockfs.runtime.fiemap import Extent, OddMapError, counted, differing, parse, request, unshared, unwritten

_FICLONE: Final = 0x40049409  # linux/fs.h, _IOW(0x94, 9, int)
_FICLONERANGE: Final = 0x4020940D  # linux/fs.h, _IOW(0x94, 13, struct file_clone_range)
_FIDEDUPERANGE: Final = 0xC0189436  # linux/fs.h, _IOWR(0x94, 54, struct file_dedupe_range)
_GET_ATTRIBUTES: Final = 0x801C581F  # linux/fs.h, FS_IOC_FSGETXATTR, _IOR('X', 31, struct fsxattr)
_SET_ATTRIBUTES: Final = 0x401C5820  # linux/fs.h, FS_IOC_FSSETXATTR
_FIEMAP: Final = 0xC020660B  # linux/fs.h, _IOWR('f', 11, struct fiemap)
_CLONE_RANGE: Final = struct.Struct("=qQQQ")  # source's descriptor, its offset, length, offset in the target
_DEDUPE: Final = struct.Struct("=QQHxxxxxx")  # source's offset, length, targets
_DEDUPE_TARGET: Final = struct.Struct("=qQQixxxx")  # descriptor, offset, bytes done, status
_ATTRIBUTES: Final = struct.Struct("=IIIII8x")  # flags, extent size, extents, project, size of copies on write
_COW_EXTENT_SIZE: Final = 0x00010000  # FS_XFLAG_COWEXTSIZE
_PAGE: Final = 4096
_NOTED: Final = struct.Struct("=qqq")
_EXTENTS: Final = 1024  # asked for at once: 56 KiB
_READ_AHEAD: Final = 128 << 10  # no call gets more than a disk's read_ahead_kb, this by default (mm/readahead.c)

# No reflinks; not for these two files (other filesystems or devices, a swap file, one immutable); offsets unfit.
_CANNOT: Final = frozenset(
    {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EXDEV, errno.ENOTTY, errno.EPERM, errno.ETXTBSY}
)


def clone_file(source: int, target: int) -> bool:
    """Make `target` share all of `source`'s content, as of one moment.

    Returns:
        False where the filesystem has no reflinks or the two lie on different ones; nothing happened then.

    Raises:
        OSError: Any other failure, such as ENOSPC.
    """
    return _done(target, _FICLONE, source)


def clone_range(source: int, target: int, start: int, length: int, to: int | None = None) -> bool:
    """Make `target` share a range of `source`.

    Args:
        source: Descriptor, open for reading.
        target: Descriptor, open for writing.
        start: First byte: a multiple of the filesystem's block.
        length: Bytes, not 0: a multiple, too, but where the range ends with both files.
        to: First byte in the target, likewise; None: the same.

    Returns:
        False where that can't be, as with offsets that don't fit; nothing happened then.

    Raises:
        OSError: Any other failure, such as ENOSPC.
    """
    return _done(target, _FICLONERANGE, _CLONE_RANGE.pack(source, start, length, start if to is None else to))


def share_equal(source: int, start: int, length: int, target: int, to: int) -> bool:
    """Make a range of `target` share a range of `source`, if the two hold the same bytes. Atomic for whoever writes.

    A range of holes in the source makes holes of NUL bytes in the target.

    Args:
        source: Descriptor, open for reading.
        start: First byte: a multiple of the filesystem's block, like all numbers here.
        length: Bytes, at most 16 MiB (the kernel may do less of more).
        target: Descriptor, open for writing.
        to: First byte in the target.

    Returns:
        Whether they share now. False, too, where that can't be.

    Raises:
        OSError: Any other failure, such as ENOSPC.
    """
    _want(source, start, length)
    _want(target, to, length)
    order = bytearray(_DEDUPE.size + _DEDUPE_TARGET.size)
    _DEDUPE.pack_into(order, 0, start, length, 1)
    _DEDUPE_TARGET.pack_into(order, _DEDUPE.size, target, to, 0, 0)
    if not _done(source, _FIDEDUPERANGE, order):
        return False
    done, status = _DEDUPE_TARGET.unpack_from(order, _DEDUPE.size)[2:]
    return bool(status == 0 and done == length)


def _want(descriptor: int, start: int, length: int) -> None:
    """Have the kernel read a range ahead: what it compares it reads page by page otherwise, a tenth as fast."""
    for at in range(start, start + length, _READ_AHEAD):
        os.posix_fadvise(descriptor, at, min(_READ_AHEAD, start + length - at), os.POSIX_FADV_WILLNEED)


def copy_in_pages(descriptor: int) -> None:
    """Have XFS copy single pages of a file that shares, when they are written; its default is 128 KiB at least.

    Nothing happens on other filesystems: they do so anyway.
    """
    attributes = bytearray(_ATTRIBUTES.size)
    if not _done(descriptor, _GET_ATTRIBUTES, attributes):
        return
    flags, extent_size, extents_, project, _ = _ATTRIBUTES.unpack(attributes)
    wanted = _ATTRIBUTES.pack(flags | _COW_EXTENT_SIZE, extent_size, extents_, project, _PAGE)
    with contextlib.suppress(OSError):
        fcntl.ioctl(descriptor, _SET_ATTRIBUTES, wanted)


def extents(descriptor: int, end: int, *, sync: bool = True, start: int = 0) -> Iterator[Extent]:
    """Where the first `end` bytes of a file lie. Extents may reach further.

    Args:
        descriptor: Open for reading.
        end: In bytes.
        start: Bytes before it are not looked at; an extent may begin there.
        sync: Dirty pages are written back first. Without that the answer is of use for statistics only.

    Raises:
        OddMapError: The host's answer can't be.
        OSError: As ioctl(2); EOPNOTSUPP where the filesystem does not tell.
    """
    at = start
    while at < end:
        buffer = request(at, end - at, min(_EXTENTS, (end - at) // _PAGE + 1), sync=sync)
        fcntl.ioctl(descriptor, _FIEMAP, buffer)
        found, is_last = parse(buffer)
        yield from found
        if is_last or not found:
            return
        following = found[-1][0] + found[-1][2]
        if following <= at:
            raise OddMapError("extents before what was asked for")
        at = following


def unwritten_ranges(descriptor: int, end: int) -> list[tuple[int, int]]:
    """Ranges of the first `end` bytes for which the host took room that nobody has written: they are zeros, not data.

    Dirty pages are written back first. Where the filesystem does not tell, there are none.

    Raises:
        OddMapError: The host's answer can't be.
        OSError: As ioctl(2), EIO of the write-back for one.
    """
    ranges: list[tuple[int, int]] = []
    at = 0
    while at < end:
        buffer = request(at, end - at, min(_EXTENTS, (end - at) // _PAGE + 1))
        if not _done(descriptor, _FIEMAP, buffer):
            return []
        found, following = unwritten(buffer)
        ranges += found
        if following == 0:
            break
        if following <= at:
            raise OddMapError("extents before what was asked for")
        at = following
    return ranges


def extent_count(descriptor: int, end: int) -> int:
    """Of how many extents the first `end` bytes of a file are; what was not written back yet may count as none.

    Raises:
        OSError: As ioctl(2); EOPNOTSUPP where the filesystem does not tell.
    """
    buffer = request(0, end, 0, sync=False)
    fcntl.ioctl(descriptor, _FIEMAP, buffer)
    return counted(buffer)


def unshared_bytes(descriptor: int, end: int) -> int:
    """How much of the first `end` bytes of a file is shared with nobody, of what was written back. For statistics.

    Raises:
        OddMapError: The host's answer can't be.
        OSError: As ioctl(2); EOPNOTSUPP where the filesystem does not tell.
    """
    at = total = 0
    while True:
        buffer = request(at, end - at, min(_EXTENTS, (end - at) // _PAGE + 1), sync=False)
        fcntl.ioctl(descriptor, _FIEMAP, buffer)
        count, following = unshared(buffer)
        total += count
        if not at < following < end:
            return total
        at = following


def apart(still: int, other: int, end: int) -> list[tuple[int, int]]:
    """Where two files do not share, or may not; see `differing`.

    A byte that is not in these ranges was the same in both at one moment during the call: `still` is asked before and
    after `other`. Else, where somebody moves data about (defragmentation), one file's byte may come to lie where the
    other's was just before.

    Args:
        still: Descriptor of a file that nobody writes to.
        other: Descriptor.
        end: Bytes from here on are not looked at.

    Raises:
        OddMapError: The host's answer can't be, or data are being moved about.
        OSError: As `extents`.
    """
    before = _Noted(extents(still, end))
    found = list(differing(before, extents(other, end), end))
    if before.noted() != _Noted(extents(still, end)).noted():
        raise OddMapError("data are being moved about")
    return found


class _Noted:
    """Hands extents on, and notes what they were."""

    def __init__(self, found: Iterator[Extent]) -> None:
        self._found = found
        self._digest = sha256()

    def __iter__(self) -> Iterator[Extent]:
        for extent in self._found:
            self._digest.update(_NOTED.pack(*extent))
            yield extent

    def noted(self) -> bytes:
        """The digest of all, the rest included."""
        for _ in self:
            pass
        return self._digest.digest()


def _done(descriptor: int, order: int, argument: int | bytes | bytearray) -> bool:
    try:
        fcntl.ioctl(descriptor, order, argument)
    except OSError as error:
        if error.errno in _CANNOT:
            return False
        raise
    return True
