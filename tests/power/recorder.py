"""A disk that remembers: a FUSE mount with one file, `disk`, that records every write and flush it gets, in order.

python -m tests.power.recorder MOUNTPOINT HOME SIZE_BYTES     prints "ready" once it is mounted

A loop device with direct I/O on that file sends what a real disk would get. HOME holds

    image        what the disk would return now, if nothing were ever lost
    recording    all writes and barriers, see `tests.power.recording`
    fail-writes  while it exists, writes and flushes fail with EIO
    fail-reads   while it exists, reads fail with EIO

A request is recorded before it is answered. So if a flush was answered, all writes answered before it was sent stand
before its barrier in the recording, and the recording's length is a clock that can only be late, never early.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from pathlib import Path

import pyfuse3
import trio
from pyfuse3 import EntryAttributes, FileHandleT, FileInfo, FUSEError, InodeT, RequestContext

from tests.power.recording import encode_barrier, encode_write

_DISK = InodeT(2)
_NAME = b"disk"


class RecordingDisk(pyfuse3.Operations):
    """Answers one request at a time: no handler awaits anything."""

    def __init__(self, home: Path, size_bytes: int) -> None:
        super().__init__()
        self._size_bytes = size_bytes
        self._image = os.open(home / "image", os.O_RDWR | os.O_CREAT)
        os.truncate(self._image, size_bytes)
        self._recording = os.open(home / "recording", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._fails_writes = home / "fail-writes"
        self._fails_reads = home / "fail-reads"

    async def getattr(self, inode: InodeT, ctx: RequestContext | None = None) -> EntryAttributes:
        entry = EntryAttributes()
        entry.st_ino = inode
        entry.st_nlink = 1
        entry.st_mode = stat.S_IFREG | 0o600
        entry.st_size = self._size_bytes
        if inode == pyfuse3.ROOT_INODE:
            entry.st_mode = stat.S_IFDIR | 0o700
        return entry

    async def lookup(self, parent_inode: InodeT, name: bytes, ctx: RequestContext) -> EntryAttributes:
        if name != _NAME:
            raise FUSEError(errno.ENOENT)
        return await self.getattr(_DISK)

    async def open(self, inode: InodeT, flags: int, ctx: RequestContext) -> FileInfo:
        return FileInfo(fh=FileHandleT(inode))

    async def read(self, fh: FileHandleT, off: int, size: int) -> bytes:
        if self._fails_reads.exists():
            raise FUSEError(errno.EIO)
        return os.pread(self._image, size, off)

    async def write(self, fh: FileHandleT, off: int, buf: bytes) -> int:
        if self._fails_writes.exists():
            raise FUSEError(errno.EIO)
        os.write(self._recording, encode_write(off, buf))
        return os.pwrite(self._image, buf, off)

    async def fsync(self, fh: FileHandleT, datasync: bool) -> None:
        if self._fails_writes.exists():
            raise FUSEError(errno.EIO)
        os.write(self._recording, encode_barrier())

    async def flush(self, fh: FileHandleT) -> None:
        return None

    async def release(self, fh: FileHandleT) -> None:
        return None


def main(mountpoint: str, home: str, size_bytes: str) -> None:
    pyfuse3.init(RecordingDisk(Path(home), int(size_bytes)), mountpoint, {"fsname=recorder"})
    print("ready", flush=True)
    try:
        trio.run(pyfuse3.main)
    finally:
        pyfuse3.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
