"""One set of calls for programs in two worlds: on a mount, by the kernel; and on `Calls` alone, without one."""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

from blockfs.engine.filesystem import Filesystem
from blockfs.engine.names.attributes import AttributeChanges, Attributes, Caller
from blockfs.errors import FsError
from blockfs.fuse.calls import Calls
from blockfs.service.counters import Counters
from tests.conftest import Mounted
from tests.system.posix import renameat2

_ROOT: Final = 1
_PROGRAM: Final = Caller(uid=0, gid=0)
_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]

Status = tuple[int, int, int, int, int, int]
"""Type and permissions, names, size, owner, group, time of the last change in ns. The size of a directory is 0."""


class World(Protocol):
    """What a program can do. Paths are relative, without "." and ".."; what fails is an OSError with its errno."""

    def mkdir(self, path: str, mode: int = 0o755) -> None:
        """mkdir(2)."""

    def rmdir(self, path: str) -> None:
        """rmdir(2)."""

    def unlink(self, path: str) -> None:
        """unlink(2)."""

    def rename(self, old: str, new: str, flags: int = 0) -> None:
        """renameat2(2)."""

    def link(self, old: str, new: str) -> None:
        """link(2)."""

    def symlink(self, target: str, path: str) -> None:
        """symlink(2)."""

    def readlink(self, path: str) -> str:
        """readlink(2)."""

    def names(self, path: str) -> list[str]:
        """A directory's names, sorted, without "." and ".."."""

    def stat(self, path: str) -> Status:
        """lstat(2)."""

    def chmod(self, path: str, mode: int) -> None:
        """chmod(2)."""

    def chown(self, path: str, uid: int, gid: int) -> None:
        """chown(2)."""

    def utime(self, path: str, mtime_ns: int) -> None:
        """utimensat(2): both times."""

    def truncate(self, path: str, size_bytes: int) -> None:
        """truncate(2)."""

    def setxattr(self, path: str, name: str, value: bytes, flags: int = 0) -> None:
        """setxattr(2)."""

    def getxattr(self, path: str, name: str) -> bytes:
        """getxattr(2)."""

    def listxattr(self, path: str) -> list[str]:
        """listxattr(2), sorted."""

    def removexattr(self, path: str, name: str) -> None:
        """removexattr(2)."""

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        """open(2)."""

    def tmpfile(self, path: str) -> int:
        """open(2) with O_TMPFILE, for reading and writing."""

    def link_open(self, fd: int, path: str) -> None:
        """linkat(2) of an open file."""

    def close(self, fd: int) -> None:
        """close(2)."""

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        """pread(2)."""

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        """pwrite(2)."""

    def fsync(self, fd: int) -> None:
        """fsync(2)."""

    def fallocate(self, fd: int, mode: int, offset: int, length: int) -> None:
        """fallocate(2)."""

    def lseek(self, fd: int, offset: int, whence: int) -> int:
        """lseek(2), SEEK_DATA or SEEK_HOLE."""

    def copy_file_range(self, source: int, target: int, length: int, at: int, to: int) -> int:
        """copy_file_range(2)."""

    def flush(self) -> None:
        """Make blocks of all that was written."""


def put(world: World, path: str, content: bytes = b"") -> None:
    """A new file."""
    fd = world.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    if content:
        assert world.pwrite(fd, content, 0) == len(content)
    world.close(fd)


def got(world: World, path: str) -> bytes:
    """A file's content."""
    fd = world.open(path, os.O_RDONLY)
    try:
        return world.pread(fd, 1 << 24, 0)
    finally:
        world.close(fd)


class OnMount:
    """By the kernel, below a folder of a mount."""

    def __init__(self, mount: Mounted, folder: Path) -> None:
        self._mount = mount
        self._folder = folder
        self._opened: set[int] = set()

    def end(self) -> None:
        """Close what a failed test has left open."""
        for fd in self._opened:
            os.close(fd)

    def _at(self, path: str) -> Path:
        return self._folder / path

    def mkdir(self, path: str, mode: int = 0o755) -> None:
        os.mkdir(self._at(path), mode)

    def rmdir(self, path: str) -> None:
        os.rmdir(self._at(path))

    def unlink(self, path: str) -> None:
        os.unlink(self._at(path))

    def rename(self, old: str, new: str, flags: int = 0) -> None:
        renameat2(self._at(old), self._at(new), flags)

    def link(self, old: str, new: str) -> None:
        os.link(self._at(old), self._at(new), follow_symlinks=False)

    def symlink(self, target: str, path: str) -> None:
        os.symlink(target, self._at(path))

    def readlink(self, path: str) -> str:
        return os.readlink(self._at(path))

    def names(self, path: str) -> list[str]:
        return sorted(os.listdir(self._at(path)))

    def stat(self, path: str) -> Status:
        told = os.lstat(self._at(path))
        size = 0 if stat.S_ISDIR(told.st_mode) else told.st_size
        return told.st_mode, told.st_nlink, size, told.st_uid, told.st_gid, told.st_mtime_ns

    def chmod(self, path: str, mode: int) -> None:
        os.chmod(self._at(path), mode)

    def chown(self, path: str, uid: int, gid: int) -> None:
        os.chown(self._at(path), uid, gid)

    def utime(self, path: str, mtime_ns: int) -> None:
        os.utime(self._at(path), ns=(mtime_ns, mtime_ns))

    def truncate(self, path: str, size_bytes: int) -> None:
        os.truncate(self._at(path), size_bytes)

    def setxattr(self, path: str, name: str, value: bytes, flags: int = 0) -> None:
        os.setxattr(self._at(path), name, value, flags, follow_symlinks=False)

    def getxattr(self, path: str, name: str) -> bytes:
        return os.getxattr(self._at(path), name, follow_symlinks=False)

    def listxattr(self, path: str) -> list[str]:
        return sorted(os.listxattr(self._at(path), follow_symlinks=False))

    def removexattr(self, path: str, name: str) -> None:
        os.removexattr(self._at(path), name, follow_symlinks=False)

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        fd = os.open(self._at(path), flags, mode)
        self._opened.add(fd)
        return fd

    def tmpfile(self, path: str) -> int:
        return self.open(path, os.O_TMPFILE | os.O_RDWR, 0o600)

    def link_open(self, fd: int, path: str) -> None:
        os.link(f"/proc/self/fd/{fd}", self._at(path), src_dir_fd=fd)  # linkat(2) with AT_SYMLINK_FOLLOW

    def close(self, fd: int) -> None:
        self._opened.remove(fd)
        os.close(fd)

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        return os.pread(fd, length, offset)

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        return os.pwrite(fd, data, offset)

    def fsync(self, fd: int) -> None:
        os.fsync(fd)

    def fallocate(self, fd: int, mode: int, offset: int, length: int) -> None:
        if _libc.fallocate(fd, mode, offset, length) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    def lseek(self, fd: int, offset: int, whence: int) -> int:
        return os.lseek(fd, offset, whence)

    def copy_file_range(self, source: int, target: int, length: int, at: int, to: int) -> int:
        return os.copy_file_range(source, target, length, at, to)

    def flush(self) -> None:
        self._mount.run("flush", self._mount.path)


@contextmanager
def _errors() -> Iterator[None]:
    """What a call refuses is the errno of a program."""
    try:
        yield
    except FsError as error:
        raise OSError(error.errno, os.strerror(error.errno)) from error


class OnCalls:
    """Without a kernel: each call finds its inode as a kernel does that remembers no name, and asks as root does."""

    def __init__(self, filesystem: Filesystem) -> None:
        self._filesystem = filesystem
        self._calls = Calls(filesystem, Counters())
        self._calls.stamps_writes = True  # there is no kernel that does
        self._inodes: dict[int, int] = {}
        """Handle → inode."""

    def _find(self, path: str) -> Attributes:
        found = self._calls.getattr(_ROOT)
        for name in path.split("/") if path else ():
            entry = self._calls.lookup(found.ino, os.fsencode(name))
            if entry is None:
                raise FileNotFoundError(2, os.strerror(2))
            found = entry
        return found

    def _place(self, path: str) -> tuple[int, bytes]:
        folder, _, name = path.rpartition("/")
        return self._find(folder).ino, os.fsencode(name)

    def _change(self, path: str, size_bytes: int | None = None, changes: AttributeChanges | None = None) -> None:
        with _errors():
            self._calls.setattr(self._find(path).ino, size_bytes, changes or AttributeChanges(), may_block=True)

    def mkdir(self, path: str, mode: int = 0o755) -> None:
        with _errors():
            self._calls.mkdir(*self._place(path), mode, _PROGRAM, may_block=True)

    def rmdir(self, path: str) -> None:
        with _errors():
            self._calls.rmdir(*self._place(path))

    def unlink(self, path: str) -> None:
        with _errors():
            self._calls.unlink(*self._place(path))

    def rename(self, old: str, new: str, flags: int = 0) -> None:
        with _errors():
            self._calls.rename(*self._place(old), *self._place(new), flags, _PROGRAM, may_block=True)

    def link(self, old: str, new: str) -> None:
        with _errors():
            self._calls.link(self._find(old).ino, *self._place(new), may_block=True)

    def symlink(self, target: str, path: str) -> None:
        with _errors():
            self._calls.symlink(*self._place(path), os.fsencode(target), _PROGRAM, may_block=True)

    def readlink(self, path: str) -> str:
        with _errors():
            return os.fsdecode(self._calls.readlink(self._find(path).ino))

    def names(self, path: str) -> list[str]:
        found: list[str] = []

        def add(name: bytes, _attributes: Attributes, _position: int) -> bool:
            found.append(os.fsdecode(name))
            return True

        with _errors():
            fh = self._calls.opendir(self._find(path).ino)
            self._calls.readdir(fh, 0, add)
            self._calls.releasedir(fh)
        return sorted(set(found) - {".", ".."})

    def stat(self, path: str) -> Status:
        with _errors():
            told = self._find(path)
        size = 0 if stat.S_ISDIR(told.kind.value) else told.size_bytes
        return told.kind.value | told.mode, told.nlink, size, told.uid, told.gid, told.mtime_ns

    def chmod(self, path: str, mode: int) -> None:
        self._change(path, changes=AttributeChanges(mode=mode))

    def chown(self, path: str, uid: int, gid: int) -> None:
        self._change(path, changes=AttributeChanges(uid=uid, gid=gid))

    def utime(self, path: str, mtime_ns: int) -> None:
        self._change(path, changes=AttributeChanges(atime_ns=mtime_ns, mtime_ns=mtime_ns))

    def truncate(self, path: str, size_bytes: int) -> None:
        self._change(path, size_bytes)

    def setxattr(self, path: str, name: str, value: bytes, flags: int = 0) -> None:
        with _errors():
            ino = self._find(path).ino
            self._calls.setxattr(ino, os.fsencode(name), value, _PROGRAM, os.getpid(), flags, may_block=True)

    def getxattr(self, path: str, name: str) -> bytes:
        with _errors():
            return self._calls.getxattr(self._find(path).ino, os.fsencode(name))

    def listxattr(self, path: str) -> list[str]:
        with _errors():
            return sorted(os.fsdecode(name) for name in self._calls.listxattr(self._find(path).ino, _PROGRAM))

    def removexattr(self, path: str, name: str) -> None:
        with _errors():
            self._calls.removexattr(self._find(path).ino, os.fsencode(name))

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        with _errors():
            parent, name = self._place(path)
            found = self._calls.lookup(parent, name)
            if flags & os.O_CREAT and (found is None or flags & os.O_EXCL):
                file_mode = stat.S_IFREG | mode
                fh, made = self._calls.create(parent, name, file_mode, flags, _PROGRAM, may_block=True)
                return self._opened(fh, made.ino)
            if found is None:
                raise FileNotFoundError(2, os.strerror(2))
            return self._opened(self._calls.open(found.ino, flags, _PROGRAM, may_block=True), found.ino)

    def _opened(self, fh: int, ino: int) -> int:
        self._inodes[fh] = ino
        return fh

    def tmpfile(self, path: str) -> int:
        with _errors():
            parent = self._find(path).ino
            fh, made = self._calls.tmpfile(parent, stat.S_IFREG | 0o600, os.O_RDWR, _PROGRAM, may_block=True)
            return self._opened(fh, made.ino)

    def link_open(self, fd: int, path: str) -> None:
        with _errors():
            self._calls.link(self._inodes[fd], *self._place(path), may_block=True)

    def close(self, fd: int) -> None:
        del self._inodes[fd]
        self._calls.release(fd)

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        with _errors():
            return self._calls.read(fd, offset, length, may_block=True)

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        with _errors():
            return self._calls.write(fd, offset, data, may_block=True)

    def fsync(self, fd: int) -> None:
        with _errors():
            self._calls.fsync(fd, False, may_block=True)

    def fallocate(self, fd: int, mode: int, offset: int, length: int) -> None:
        with _errors():
            self._calls.fallocate(fd, offset, length, mode, may_block=True)

    def lseek(self, fd: int, offset: int, whence: int) -> int:
        with _errors():
            return self._calls.lseek(fd, offset, whence, may_block=True)

    def copy_file_range(self, source: int, target: int, length: int, at: int, to: int) -> int:
        with _errors():
            return self._calls.copy_file_range(source, at, target, to, length, 0, may_block=True)

    def flush(self) -> None:
        self._filesystem.flush()
