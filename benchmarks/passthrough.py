"""A minimal pyfuse3 passthrough of one flat directory: what the front-end costs before blocksync does anything.

python -m benchmarks.passthrough [--xattrs] SOURCE MOUNTPOINT      runs until it is unmounted

Without --xattrs the kernel learns from the first ENOSYS that there are none and never asks again. With them it asks for
security.capability before each write, as on every filesystem with xattrs behind pyfuse3, blocksync included.
"""

from __future__ import annotations

import errno
import os
import stat
import sys

import pyfuse3
import trio

TIMEOUT_S = 300.0  # as blocksync: this process is the only writer


class Passthrough(pyfuse3.Operations):
    """Names of one directory, files by descriptor."""

    enable_writeback_cache = True

    def __init__(self, source: str) -> None:
        super().__init__()
        self.source = source
        self.paths: dict[int, str] = {pyfuse3.ROOT_INODE: source}

    def attributes(self, path: str) -> pyfuse3.EntryAttributes:
        status = os.lstat(path)
        entry = pyfuse3.EntryAttributes()
        entry.st_ino = pyfuse3.ROOT_INODE if path == self.source else status.st_ino
        for name in ("st_mode", "st_nlink", "st_uid", "st_gid", "st_rdev", "st_size", "st_blocks", "st_blksize"):
            setattr(entry, name, getattr(status, name))
        for name in ("st_atime_ns", "st_mtime_ns", "st_ctime_ns"):
            setattr(entry, name, getattr(status, name))
        entry.entry_timeout = entry.attr_timeout = TIMEOUT_S
        self.paths[entry.st_ino] = path
        return entry

    def child(self, name: bytes) -> str:
        return os.path.join(self.source, os.fsdecode(name))

    async def lookup(self, parent_inode: int, name: bytes, ctx: object) -> pyfuse3.EntryAttributes:
        try:
            return self.attributes(self.child(name))
        except OSError as error:
            raise pyfuse3.FUSEError(error.errno or 5) from None

    async def getattr(self, inode: int, ctx: object) -> pyfuse3.EntryAttributes:
        return self.attributes(self.paths[inode])

    async def setattr(self, inode, attr, fields, fh, ctx):  # type: ignore[no-untyped-def]  # pyfuse3 has no stubs
        path = self.paths[inode]
        if not os.path.lexists(path):  # the kernel writes back the times of a file that was unlinked while open
            raise pyfuse3.FUSEError(errno.ENOENT)
        if fields.update_size:
            os.truncate(path, attr.st_size)
        if fields.update_mode:
            os.chmod(path, stat.S_IMODE(attr.st_mode))
        if fields.update_mtime or fields.update_atime:
            now = os.lstat(path)
            atime = attr.st_atime_ns if fields.update_atime else now.st_atime_ns
            os.utime(path, ns=(atime, attr.st_mtime_ns if fields.update_mtime else now.st_mtime_ns))
        return self.attributes(path)

    async def create(self, parent_inode, name, mode, flags, ctx):  # type: ignore[no-untyped-def]  # as above
        path = self.child(name)
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR, stat.S_IMODE(mode))
        return pyfuse3.FileInfo(fh=descriptor, keep_cache=True), self.attributes(path)

    async def open(self, inode, flags, ctx):  # type: ignore[no-untyped-def]  # as above
        return pyfuse3.FileInfo(fh=os.open(self.paths[inode], os.O_RDWR), keep_cache=True)

    async def read(self, fh: int, off: int, size: int) -> bytes:
        return os.pread(fh, size, off)

    async def write(self, fh: int, off: int, buf: bytes) -> int:
        return os.pwrite(fh, buf, off)

    async def fsync(self, fh: int, datasync: bool) -> None:
        await trio.to_thread.run_sync(os.fdatasync if datasync else os.fsync, fh)

    async def flush(self, fh: int) -> None:
        return

    async def release(self, fh: int) -> None:
        os.close(fh)

    async def unlink(self, parent_inode, name, ctx):  # type: ignore[no-untyped-def]  # as above
        os.unlink(self.child(name))

    async def opendir(self, inode, ctx):  # type: ignore[no-untyped-def]  # as above
        return inode

    async def readdir(self, fh, start_id, token):  # type: ignore[no-untyped-def]  # as above
        names = sorted(os.listdir(self.source))
        for number, name in enumerate(names[start_id:], start_id + 1):
            if not pyfuse3.readdir_reply(
                token, os.fsencode(name), self.attributes(self.child(os.fsencode(name))), number
            ):
                return

    async def statfs(self, ctx):  # type: ignore[no-untyped-def]  # as above
        status, reply = os.statvfs(self.source), pyfuse3.StatvfsData()
        for name in ("f_bsize", "f_frsize", "f_blocks", "f_bfree", "f_bavail", "f_files", "f_ffree", "f_favail"):
            setattr(reply, name, getattr(status, name))
        return reply


class PassthroughWithXattrs(Passthrough):
    """The same, with extended attributes."""

    async def getxattr(self, inode: int, name: bytes, ctx: object) -> bytes:
        try:
            return os.getxattr(self.paths[inode], name, follow_symlinks=False)
        except OSError as error:
            raise pyfuse3.FUSEError(error.errno or errno.EIO) from None

    async def setxattr(self, inode: int, name: bytes, value: bytes, ctx: object) -> None:
        os.setxattr(self.paths[inode], name, value, follow_symlinks=False)


def main() -> None:
    """Serve SOURCE at MOUNTPOINT until it is unmounted."""
    *flags, source, mountpoint = sys.argv[1:]
    operations = (
        PassthroughWithXattrs(os.path.realpath(source))
        if "--xattrs" in flags
        else Passthrough(os.path.realpath(source))
    )
    options = set(pyfuse3.default_options) | {"fsname=passthrough", "default_permissions"}
    pyfuse3.init(operations, mountpoint, options)
    print("ready", flush=True)
    try:
        trio.run(pyfuse3.main)
    finally:
        pyfuse3.close()


if __name__ == "__main__":
    main()
