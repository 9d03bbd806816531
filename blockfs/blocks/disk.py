"""The calls that change a block directory on disk: one seam, so that tests can fail or die at each of them."""

from __future__ import annotations

import contextlib
import os
from typing import Final

import lmdb

from blockfs.errors import NoSpaceError, QuotaError
from blockfs.runtime.atomic import space_errors, sync_directory, write_all
from blockfs.runtime.linux import punch_hole, write_back
from blockfs.runtime.reflink import clone_range
from blockfs.runtime.space import Space, host_space

_RESERVE_BYTES: Final = 16 << 20
_RESERVE_SHARE: Final = 128
_QUOTA_RESERVE_SHARE: Final = 16
"""Payload stops when 16 MiB of the disk, 1/128 of a small one or 1/16 of a small quota are left: metadata commits and
the collector need room to get out of a full disk."""


class Disk:
    """Real system calls. Crash tests override them and raise before, after or instead of any.

    Every method raises NoSpaceError on ENOSPC and EDQUOT, and OSError otherwise.
    """

    def create(self, path: str) -> int:
        """Create a file that must not exist, for reading and writing."""
        with space_errors(path):
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def write(self, fd: int, data: bytes, offset: int) -> None:
        """Write all of `data` at `offset`."""
        with space_errors("block directory"):
            write_all(fd, data, offset)

    def link(self, fd: int, path: str, target: str) -> None:
        """Give a file a second name. fsync before the folder's: what some hosts need to keep both names."""
        with space_errors(target):
            os.link(path, target)
            os.fsync(fd)

    def share(self, source: int, start: int, fd: int, offset: int, length: int) -> bool:
        """Make a range of a file share a range of another; False: that can't be, and nothing was changed."""
        with space_errors("block directory"):
            return clone_range(source, fd, start, length, offset)

    def start_writing_back(self, fd: int, offset: int, length: int) -> None:
        """Have the host begin to write what it holds of a range. Whether that succeeds is fdatasync's to say."""
        with contextlib.suppress(OSError):
            write_back(fd, offset, length, wait=False)

    def fdatasync(self, fd: int) -> None:
        """Make a file's content durable. After a failure nothing is known about any unsynced page of it."""
        with space_errors("block directory"):
            os.fdatasync(fd)

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable."""
        with space_errors(path):
            sync_directory(path)

    def commit(self, transaction: lmdb.Transaction[bytes]) -> None:
        """Commit an index transaction durably."""
        transaction.commit()

    def punch(self, fd: int, offset: int, length: int) -> None:
        """Give a byte range back to the host filesystem; it reads as NUL bytes from now on.

        Raises:
            OSError: EOPNOTSUPP where the filesystem has no holes.
        """
        with space_errors("block directory"):
            punch_hole(fd, offset, length)

    def truncate(self, fd: int, size_bytes: int) -> None:
        """Cut a file."""
        with space_errors("block directory"):
            os.ftruncate(fd, size_bytes)

    def unlink(self, path: str) -> None:
        """Remove a name."""
        with space_errors(path):
            os.unlink(path)

    def room_bytes(self, path: str) -> int:
        """Bytes that payload may still take on the path's filesystem; negative when it is nearly full."""
        space = self.space(path)
        share = _QUOTA_RESERVE_SHARE if space.is_quota else _RESERVE_SHARE
        return space.available_bytes - min(_RESERVE_BYTES, space.total_bytes // share)

    def check_room(self, path: str, length: int) -> None:
        """Refuse payload that would take what is kept for the way out of a full disk.

        Raises:
            NoSpaceError: The disk is full, or nearly so.
            QuotaError: The quota is.
        """
        if self.room_bytes(path) < length:
            if self.space(path).is_quota:
                raise QuotaError(f"{path}: the quota is used up; free some space and repeat")
            raise NoSpaceError(f"{path}: the disk is full; free some space and repeat")

    def space(self, path: str) -> Space:
        """The room there is on the path's filesystem."""
        return host_space(path)
