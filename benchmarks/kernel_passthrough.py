"""A minimal passthrough of one flat directory on the FUSE kernel protocol: what the round trip costs, and Python.

python -m benchmarks.kernel_passthrough SOURCE MOUNTPOINT      as root; runs until it is unmounted

It asks for all that makes a mount fast: the writeback cache, requests of 1 MiB, asynchronous direct requests, no
question for security.capability before writes, attributes with each listing, direct writes side by side where the
kernel allows them, 512 KiB of read-ahead. One thread reads a request, does one or two system calls, answers. It checks
nothing, and files that are opened with O_DIRECT keep their old times: it is a yardstick, was tuned first and is left
alone.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from struct import Struct

from blockfs.fuse.kernel import wire
from blockfs.fuse.kernel.decode import Init
from blockfs.fuse.kernel.decode import init as decode_init
from blockfs.fuse.kernel.wire import FSYNC_DATASYNC, HANDLE_IN, InitFlag, Opcode, SetattrField
from blockfs.runtime.linux import mount
from blockfs.runtime.mountinfo import read_mounts

ROOT = 1
CACHE_S = 86400
READ = Struct("=QQI")
WRITE = Struct("=QQI")
WRITE_DATA = wire.IN_HEADER.size + wire.WRITE_IN.size
BODY = wire.IN_HEADER.size
PARALLEL_DIRECT_WRITES, DIRECT_IO, KEEP_CACHE = 1 << 6, 1 << 0, wire.FOPEN_KEEP_CACHE
DIRECT_IO_ALLOW_MMAP = 1 << 36
FLAGS = (
    InitFlag.ASYNC_READ
    | InitFlag.ATOMIC_O_TRUNC
    | InitFlag.BIG_WRITES
    | InitFlag.DO_READDIRPLUS
    | InitFlag.ASYNC_DIO
    | InitFlag.WRITEBACK_CACHE
    | InitFlag.PARALLEL_DIROPS
    | InitFlag.MAX_PAGES
    | InitFlag.HANDLE_KILLPRIV_V2
    | InitFlag.INIT_EXT
)
NOTHING = b""


class Passthrough:
    """The files of one directory by the descriptors of /dev/fuse and of the directory."""

    def __init__(self, device: int, source: str) -> None:
        self.device = device
        self.source = os.open(source, os.O_RDONLY | os.O_DIRECTORY)
        self.names: dict[int, bytes] = {ROOT: b"."}
        self.listings: dict[int, list[bytes]] = {}
        self.buffer = bytearray(wire.BUFFER_BYTES)
        self.view = memoryview(self.buffer)
        self.answers: dict[int, Callable[[int, int], bytes]] = {
            Opcode.LOOKUP: self.lookup,
            Opcode.GETATTR: self.getattr,
            Opcode.SETATTR: self.setattr,
            Opcode.OPEN: self.open,
            Opcode.CREATE: self.create,
            Opcode.READ: self.read,
            Opcode.WRITE: self.write,
            Opcode.FSYNC: self.fsync,
            Opcode.RELEASE: self.release,
            Opcode.UNLINK: self.unlink,
            Opcode.OPENDIR: self.opendir,
            Opcode.READDIRPLUS: self.readdir,
            Opcode.RELEASEDIR: self.releasedir,
            Opcode.STATFS: self.statfs,
            Opcode.INIT: self.init,
        }

    def serve(self) -> None:
        """Answer until the kernel has unmounted."""
        device, buffers, answers = self.device, (self.buffer,), self.answers
        header, answer_header = wire.IN_HEADER, wire.OUT_HEADER
        forgets = {Opcode.FORGET, Opcode.BATCH_FORGET}
        while True:
            try:
                length = os.readv(device, buffers)
            except OSError as error:
                if error.errno == errno.ENODEV:
                    return
                if error.errno in {errno.ENOENT, errno.EINTR}:
                    continue
                raise
            _, opcode, unique, node, *_ = header.unpack_from(self.buffer)
            answer = answers.get(opcode)
            if answer is None:
                if opcode not in forgets:
                    os.write(device, answer_header.pack(16, -errno.ENOSYS, unique))
                continue
            try:
                body = answer(node, length)
            except OSError as error:
                os.write(device, answer_header.pack(16, -(error.errno or errno.EIO), unique))
            else:
                os.writev(device, (answer_header.pack(16 + len(body), 0, unique), body))

    # --- names and attributes ---

    def attributes(self, node: int, found: os.stat_result) -> bytes:
        times = (found.st_atime_ns, found.st_mtime_ns, found.st_ctime_ns)
        seconds, nanoseconds = [each // 10**9 for each in times], [each % 10**9 for each in times]
        owner = (found.st_mode, found.st_nlink, found.st_uid, found.st_gid, found.st_rdev, 4096, 0)
        return wire.ATTR.pack(node, found.st_size, found.st_blocks, *seconds, *nanoseconds, *owner)

    def entry(self, name: bytes) -> bytes:
        found = os.stat(name, dir_fd=self.source, follow_symlinks=False)
        node = found.st_ino + 2  # never that of the root
        self.names[node] = name
        return wire.ENTRY.pack(node, 0, CACHE_S, CACHE_S, 0, 0) + self.attributes(node, found)

    def text(self, start: int, length: int) -> bytes:
        return bytes(self.view[start : length - 1])

    def lookup(self, _node: int, length: int) -> bytes:
        try:
            return self.entry(self.text(BODY, length))
        except FileNotFoundError:  # which the kernel may remember
            return wire.ENTRY.pack(0, 0, CACHE_S, 0, 0, 0) + bytes(wire.ATTR.size)

    def getattr(self, node: int, _length: int) -> bytes:
        found = os.stat(self.names[node], dir_fd=self.source, follow_symlinks=False)
        return wire.ATTR_OUT.pack(CACHE_S, 0, 0) + self.attributes(node, found)

    def setattr(self, node: int, length: int) -> bytes:
        valid, _, size, _, atime, mtime, _, atime_ns, mtime_ns, _, mode, *_ = wire.SETATTR_IN.unpack_from(
            self.view, BODY
        )
        name = self.names[node]
        if valid & SetattrField.SIZE:
            os.truncate(f"/proc/self/fd/{self.source}/{os.fsdecode(name)}", size)
        if valid & SetattrField.MODE:
            os.chmod(name, stat.S_IMODE(mode), dir_fd=self.source)
        if valid & (SetattrField.ATIME | SetattrField.MTIME):
            now = os.stat(name, dir_fd=self.source)
            first = atime * 10**9 + atime_ns if valid & SetattrField.ATIME else now.st_atime_ns
            second = mtime * 10**9 + mtime_ns if valid & SetattrField.MTIME else now.st_mtime_ns
            os.utime(name, ns=(first, second), dir_fd=self.source)
        return self.getattr(node, length)

    def unlink(self, _node: int, length: int) -> bytes:
        os.unlink(self.text(BODY, length), dir_fd=self.source)
        return NOTHING

    def statfs(self, _node: int, _length: int) -> bytes:
        found = os.fstatvfs(self.source)
        files = (found.f_files, found.f_ffree, found.f_bsize, found.f_namemax, found.f_frsize)
        return wire.STATFS_OUT.pack(found.f_blocks, found.f_bfree, found.f_bavail, *files)

    # --- files ---

    def opened(self, descriptor: int, flags: int) -> bytes:
        how = DIRECT_IO | PARALLEL_DIRECT_WRITES if flags & os.O_DIRECT else KEEP_CACHE
        return wire.OPEN_OUT.pack(descriptor, how, 0)

    def open(self, node: int, _length: int) -> bytes:
        flags = wire.OPEN_IN.unpack_from(self.view, BODY)[0]
        return self.opened(os.open(self.names[node], os.O_RDWR | flags & os.O_TRUNC, dir_fd=self.source), flags)

    def create(self, _node: int, length: int) -> bytes:
        flags, mode, _, _ = wire.CREATE_IN.unpack_from(self.view, BODY)
        name = self.text(BODY + wire.CREATE_IN.size, length)
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT | flags & os.O_TRUNC, mode & 0o7777, dir_fd=self.source)
        return self.entry(name) + self.opened(descriptor, flags)

    def read(self, _node: int, _length: int) -> bytes:
        handle, offset, size = READ.unpack_from(self.buffer, BODY)
        return os.pread(handle, size, offset)

    def write(self, _node: int, length: int) -> bytes:
        handle, offset, _ = WRITE.unpack_from(self.buffer, BODY)
        return wire.WRITE_OUT.pack(os.pwrite(handle, self.view[WRITE_DATA:length], offset), 0)

    def fsync(self, _node: int, _length: int) -> bytes:
        handle, flags, _ = wire.FSYNC_IN.unpack_from(self.view, BODY)
        (os.fdatasync if flags & FSYNC_DATASYNC else os.fsync)(handle)
        return NOTHING

    def release(self, _node: int, _length: int) -> bytes:
        os.close(HANDLE_IN.unpack_from(self.view, BODY)[0])
        return NOTHING

    # --- the directory ---

    def opendir(self, _node: int, _length: int) -> bytes:
        handle = max(self.listings, default=0) + 1
        self.listings[handle] = [os.fsencode(name) for name in os.listdir(self.source)]
        return wire.OPEN_OUT.pack(handle, 0, 0)

    def readdir(self, _node: int, _length: int) -> bytes:
        handle, position, room = READ.unpack_from(self.buffer, BODY)
        parts: list[bytes] = []
        for number, name in enumerate(self.listings[handle][position:], position + 1):
            unpadded = wire.ENTRY.size + wire.ATTR.size + wire.DIRENT.size + len(name)
            room -= unpadded + 7 & ~7
            if room < 0:
                break
            entry = self.entry(name)
            node = int.from_bytes(entry[:8], sys.byteorder)
            parts += (entry, wire.DIRENT.pack(node, number, len(name), stat.S_IFREG >> 12), name, bytes(-unpadded % 8))
        return b"".join(parts)

    def releasedir(self, _node: int, _length: int) -> bytes:
        del self.listings[HANDLE_IN.unpack_from(self.view, BODY)[0]]
        return NOTHING

    def init(self, _node: int, length: int) -> bytes:
        asked: Init = decode_init(self.view[BODY:length])
        flags = (FLAGS | DIRECT_IO_ALLOW_MMAP) & asked.flags
        limits = (32, 24, wire.MAX_REQUEST, 1, wire.MAX_PAGES, 0)
        numbers = (wire.MAX_REQUEST, flags & 0xFFFF_FFFF, *limits, flags >> 32, 0)
        return wire.INIT_OUT.pack(wire.MAJOR, wire.MINOR, *numbers)


def main() -> None:
    """Serve SOURCE at MOUNTPOINT until it is unmounted."""
    source, mountpoint = sys.argv[1:]
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,default_permissions"
    mount(b"passthrough", os.fsencode(mountpoint), b"fuse.passthrough", 0, options.encode())
    minor = next(each.device_minor for each in reversed(read_mounts()) if each.mountpoint == os.fsencode(mountpoint))
    Path(f"/sys/class/bdi/0:{minor}/read_ahead_kb").write_text("512")
    print("ready", flush=True)
    Passthrough(device, os.path.realpath(source)).serve()


if __name__ == "__main__":
    main()
