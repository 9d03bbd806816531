"""How far a file may reach, and what is said of a request that asks for more. Pure."""

from __future__ import annotations

import errno
from typing import Final

from blockfs.errors import FsError

MAX_SIZE: Final = 2**63 - 1  # loff_t


def check_size(ino: int, size_bytes: int) -> None:
    """Let a size pass that a file can have.

    Raises:
        FsError: EINVAL: it is negative; EFBIG: no file is so long.
    """
    if size_bytes < 0:
        raise FsError(errno.EINVAL, f"inode {ino}: size {size_bytes}")
    if size_bytes > MAX_SIZE:
        raise FsError(errno.EFBIG, f"inode {ino}: size {size_bytes}")


def checked_end(ino: int, offset: int, length: int) -> int:
    """The end of a range.

    Raises:
        FsError: EINVAL: it is none; EFBIG: no file reaches so far.
    """
    if offset < 0 or length <= 0:
        raise FsError(errno.EINVAL, f"inode {ino}: {length} bytes at {offset}")
    if offset + length > MAX_SIZE:
        raise FsError(errno.EFBIG, f"inode {ino}: a range to {offset + length}")
    return offset + length
