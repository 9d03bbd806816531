"""What hosts with reflinks offer for files: sharing bytes (FICLONE, FICLONERANGE), telling where they lie (FIEMAP)."""

from __future__ import annotations

import errno
import fcntl
import struct
from collections.abc import Iterator
from hashlib import sha256
from typing import Final

from blockfs.runtime.fiemap import Extent, OddMapError, differing, parse, request

_FICLONE: Final = 0x40049409  # linux/fs.h, _IOW(0x94, 9, int)
_FICLONERANGE: Final = 0x4020940D  # linux/fs.h, _IOW(0x94, 13, struct file_clone_range)
_FIEMAP: Final = 0xC020660B  # linux/fs.h, _IOWR('f', 11, struct fiemap)
_CLONE_RANGE: Final = struct.Struct("=qQQQ")  # source's descriptor, its offset, length, offset in the target
_NOTED: Final = struct.Struct("=qqq")
_EXTENTS: Final = 1024  # asked for at once: 56 KiB

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


def clone_range(source: int, target: int, start: int, length: int) -> bool:
    """Make `target` share a range of `source`, at the same offset.

    Args:
        source: Descriptor, open for reading.
        target: Descriptor, open for writing.
        start: First byte: a multiple of the filesystem's block.
        length: Bytes, not 0: a multiple, too, but where the range ends with both files.

    Returns:
        False where that can't be, as with offsets that don't fit; nothing happened then.

    Raises:
        OSError: Any other failure, such as ENOSPC.
    """
    return _done(target, _FICLONERANGE, _CLONE_RANGE.pack(source, start, length, start))


def extents(descriptor: int, end: int, *, sync: bool = True) -> Iterator[Extent]:
    """Where the first `end` bytes of a file lie. Extents may reach further.

    Args:
        descriptor: Open for reading.
        end: In bytes.
        sync: Dirty pages are written back first. Without that the answer is of use for statistics only.

    Raises:
        OddMapError: The host's answer can't be.
        OSError: As ioctl(2); EOPNOTSUPP where the filesystem does not tell.
    """
    at = 0
    while at < end:
        buffer = request(at, end - at, _EXTENTS, sync=sync)
        fcntl.ioctl(descriptor, _FIEMAP, buffer)
        found, is_last = parse(buffer)
        yield from found
        if is_last or not found:
            return
        following = found[-1][0] + found[-1][2]
        if following <= at:
            raise OddMapError("extents before what was asked for")
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


def _done(descriptor: int, order: int, argument: int | bytes) -> bool:
    try:
        fcntl.ioctl(descriptor, order, argument)
    except OSError as error:
        if error.errno in _CANNOT:
            return False
        raise
    return True
