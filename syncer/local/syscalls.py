"""Linux system calls that Python's os module lacks: renameat2 and statx.

Small on purpose. Libraries were looked at: none wraps renameat2 with both flags and is kept up.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from typing import Final

import msgspec

_LIBC: Final = ctypes.CDLL(None, use_errno=True)

_RENAME_NOREPLACE: Final = 1  # linux/fs.h
_RENAME_EXCHANGE: Final = 2
_AT_SYMLINK_NOFOLLOW: Final = 0x100
_AT_NO_AUTOMOUNT: Final = 0x800
_AT_EMPTY_PATH: Final = 0x1000
_STATX_BASIC_AND_BTIME: Final = 0xFFF

# struct statx, linux/stat.h: mask, blksize, attributes, nlink, uid, gid, mode, ino, size, blocks, attributes_mask,
# atime, btime, ctime, mtime (seconds, nanoseconds each), rdev major and minor, dev major and minor.
_STATX: Final = struct.Struct("=IIQIIIHxxQQQQqIxxxxqIxxxxqIxxxxqIxxxxIIII")
_STATX_SIZE: Final = 256
_NANOSECONDS: Final = 1_000_000_000
_TIME_MIN_NS: Final = -(1 << 63)
_TIME_MAX_NS: Final = (1 << 63) - 1

_UNSUPPORTED: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """What statx(2) says of one entry. A symlink is described itself.

    Attributes:
        mode: Type and permission bits, as in `stat.S_IFMT`.
        nlink: Names of the inode.
        device: As `os.makedev` makes it.
        ino: Inode number.
        size_bytes: Size.
        mtime_ns: Last change of content, as `held_time` tells it.
        ctime_ns: Last change of content or metadata, by the kernel's clock.
        btime_ns: Birth; 0 where the filesystem keeps none.
    """

    mode: int
    nlink: int
    device: int
    ino: int
    size_bytes: int
    mtime_ns: int
    ctime_ns: int
    btime_ns: int


def rename_noreplace(source: bytes, source_dir: int, target: bytes, target_dir: int) -> None:
    """Rename, unless the target exists: then FileExistsError and nothing happened.

    Args:
        source: Name below `source_dir`.
        source_dir: Directory descriptor.
        target: Name below `target_dir`.
        target_dir: Directory descriptor on the same filesystem.

    Raises:
        OSError: As renameat2(2); EINVAL, ENOSYS or EOPNOTSUPP where the filesystem can't (see `cannot`).
    """
    _renameat2(source, source_dir, target, target_dir, _RENAME_NOREPLACE)


def rename_exchange(source: bytes, source_dir: int, target: bytes, target_dir: int) -> None:
    """Swap two existing entries atomically.

    Raises:
        OSError: As `rename_noreplace`; FileNotFoundError if either is missing.
    """
    _renameat2(source, source_dir, target, target_dir, _RENAME_EXCHANGE)


def cannot(error: OSError) -> bool:
    """Whether an error says that the filesystem or the kernel lacks the call, not that this use of it failed."""
    return error.errno in _UNSUPPORTED


def status(name: bytes, directory: int) -> Status:
    """Describe an entry of a directory; never follows a symlink, never triggers an automount.

    Args:
        name: Entry name below `directory`; b"" describes the descriptor itself.
        directory: Descriptor.

    Raises:
        OSError: As statx(2).
    """
    buffer = ctypes.create_string_buffer(_STATX_SIZE)
    flags = _AT_SYMLINK_NOFOLLOW | _AT_NO_AUTOMOUNT | (0 if name else _AT_EMPTY_PATH)
    if _LIBC.statx(directory, name, flags, _STATX_BASIC_AND_BTIME, buffer):
        _raise(name)
    row = _STATX.unpack_from(buffer)
    return Status(
        nlink=row[3],
        mode=row[6],
        ino=row[7],
        size_bytes=row[8],
        btime_ns=row[13] * _NANOSECONDS + row[14],
        ctime_ns=row[15] * _NANOSECONDS + row[16],
        mtime_ns=held_time(row[17] * _NANOSECONDS + row[18]),
        device=os.makedev(row[21], row[22]),
    )


def held_time(time_ns: int) -> int:
    """The nearest time of the years 1677 to 2262, which 64 bits can hold: anybody can set others on his files.

    As volumes do. ext4 has times up to 2446, xfs up to 2486, tmpfs any.
    """
    return max(_TIME_MIN_NS, min(_TIME_MAX_NS, time_ns))


def _renameat2(source: bytes, source_dir: int, target: bytes, target_dir: int, flags: int) -> None:
    if _LIBC.renameat2(source_dir, source, target_dir, target, flags):
        _raise(source, target)


def _raise(name: bytes, other: bytes | None = None) -> None:
    code = ctypes.get_errno()
    raise OSError(code, os.strerror(code), name, None, other)
