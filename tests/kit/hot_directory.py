"""Hot files of a mount in a plain directory: what a front-end needs of them, and nothing of what makes them safe.

`HotDirectory` takes the engine's place (`blockfs.fuse.kernel.preparing.HotFiles`): an inode that was asked for once has
its content in a file of the host from then on, and all calls about contents go there. Never sealed, never durable.
"""

from __future__ import annotations

import errno
import os
from typing import Any

from msgspec.structs import replace

from blockfs.engine.filesystem import Filesystem
from blockfs.engine.portions import Stop, never
from blockfs.errors import FsError, WouldBlock
from blockfs.tree.schema import Inode, Kind

_MIB = 1 << 20
_PUNCH_HOLE_KEEP_SIZE = 3


class HotDirectory:
    """See the module.

    Attributes:
        users: ino → how often it was opened and not released.
        made: inos whose file was made, in order.
        hold: A FIFO: files are made when somebody writes to it.
        refuses: inos that can't have one.
    """

    def __init__(self, filesystem: Filesystem, directory: bytes) -> None:
        os.makedirs(directory, exist_ok=True)
        self._filesystem = filesystem
        self._files = filesystem.files
        self._directory = directory
        self._hot: dict[int, int] = {}
        self.users: dict[int, int] = {}
        self.made: list[int] = []
        self.refuses: set[int] = set()
        self.hold: bytes | None = None
        self._plain = {name: getattr(self._files, name) for name in _ROUTED}
        for name in _ROUTED:
            setattr(self._files, name, self._routed(name))
        self._copy_range = filesystem.copy_range
        filesystem.copy_range = self.copy_range  # type: ignore[method-assign,assignment]
        self._live = self._files.live
        self._files.live = self.live  # type: ignore[method-assign]
        self._staged_bytes = self._files.staged_bytes
        self._files.staged_bytes = self.staged_bytes  # type: ignore[method-assign]
        self._setattr = filesystem.namespace.setattr
        filesystem.namespace.setattr = self.setattr  # type: ignore[method-assign]

    # --- HotFiles ---

    def open(self, ino: int, *, may_block: bool = False, stop: Stop = never) -> int | None:
        if ino in self.refuses:
            return None
        if ino not in self._hot:
            size = self._filesystem.namespace.getattr(ino).size_bytes
            if size and not may_block:
                raise WouldBlock("it is assembled")
            if size and self.hold is not None:
                os.close(os.open(self.hold, os.O_RDONLY))
            name = os.path.join(self._directory, b"%d" % ino)
            fd = os.open(name + b".new", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            for offset in range(0, size, _MIB):
                os.pwrite(fd, self._plain["read"](ino, offset, _MIB, may_block=True), offset)
            mtime_ns = self._filesystem.namespace.getattr(ino).mtime_ns
            os.utime(fd, ns=(mtime_ns, mtime_ns))
            self._hot[ino] = fd
            os.rename(name + b".new", name)
            self.made.append(ino)
        self.users[ino] = self.users.get(ino, 0) + 1
        return self._hot[ino]

    def release(self, ino: int) -> None:
        self.users[ino] -= 1

    def is_durable(self, _ino: int) -> bool:
        return True

    def make_durable(self, _ino: int) -> None:
        pass

    def is_hot(self, ino: int) -> bool:
        return ino in self._hot

    # --- what the engine does with one ---

    def _routed(self, name: str) -> Any:
        plain, ours = self._plain[name], getattr(self, f"_{name}")

        def call(ino: int, *arguments: Any, **keywords: Any) -> Any:
            fd = self._hot.get(ino)
            if fd is None:
                return plain(ino, *arguments, **keywords)
            keywords.pop("may_block", None)
            return ours(fd, *arguments, **keywords)

        return call

    def _read(self, fd: int, offset: int, length: int) -> bytes:
        return os.pread(fd, length, offset)

    def _write(self, fd: int, offset: int, data: bytes, *, stamps: bool = True) -> int:
        return os.pwrite(fd, data, offset)

    def _truncate(self, fd: int, size_bytes: int) -> None:
        os.ftruncate(fd, size_bytes)

    def _zero(self, fd: int, offset: int, length: int, *, keeps_size: bool) -> None:
        size = os.fstat(fd).st_size
        end = offset + length
        if end > size and not keeps_size:
            os.ftruncate(fd, end)
        os.pwrite(fd, bytes(max(0, min(end, size) - offset)), offset)

    def _allocate(self, fd: int, offset: int, length: int, *, keeps_size: bool) -> None:
        if not keeps_size:
            os.posix_fallocate(fd, offset, length)

    def _next_data(self, fd: int, offset: int) -> int | None:
        return _seek(fd, offset, os.SEEK_DATA)

    def _next_hole(self, fd: int, offset: int) -> int | None:
        return _seek(fd, offset, os.SEEK_HOLE)

    def _fsync(self, fd: int, *, datasync: bool = False, handle: int | None = None) -> None:
        os.fsync(fd)

    def copy_range(
        self, source: int, offset_in: int, target: int, offset_out: int, length: int, *, by_pages: bool = False
    ) -> int:
        """As `Filesystem.copy_range`, by bytes."""
        if not {source, target} & self._hot.keys():
            return self._copy_range(source, offset_in, target, offset_out, length, by_pages=by_pages)
        data = self._files.read(source, offset_in, length, may_block=True)
        if source == target and abs(offset_in - offset_out) < len(data):
            raise FsError(errno.EINVAL, "ranges overlap")
        return self._files.write(target, offset_out, data, may_block=True) if data else 0

    def live(self, inode: Inode) -> Inode:
        """The inode as readers see it."""
        fd = self._hot.get(inode.ino) if inode.kind is Kind.FILE else None
        if fd is None:
            return self._live(inode)
        told = os.fstat(fd)
        times = {
            "atime_ns": max(inode.atime_ns, told.st_atime_ns),
            "mtime_ns": told.st_mtime_ns,
            "ctime_ns": max(inode.ctime_ns, told.st_ctime_ns),
        }
        return replace(inode, size_bytes=told.st_size, **times)

    def staged_bytes(self, ino: int) -> int:
        """Of a hot file, what the host has given it."""
        fd = self._hot.get(ino)
        return self._staged_bytes(ino) if fd is None else os.fstat(fd).st_blocks * 512

    def setattr(self, ino: int, changes: Any) -> Any:
        """As `Namespace.setattr`; the time of change of a hot file is the host's, too."""
        fd = self._hot.get(ino)
        if fd is not None:
            now = self._filesystem.namespace.getattr(ino)
            atime_ns = now.atime_ns if changes.atime_ns is None else changes.atime_ns
            mtime_ns = now.mtime_ns if changes.mtime_ns is None else changes.mtime_ns
            os.utime(fd, ns=(atime_ns, mtime_ns))
        return self._setattr(ino, changes)


_ROUTED = ("read", "write", "truncate", "zero", "allocate", "next_data", "next_hole", "fsync")


def _seek(fd: int, offset: int, whence: int) -> int | None:
    try:
        return os.lseek(fd, offset, whence)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return None
