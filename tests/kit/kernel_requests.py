"""Requests as the kernel writes them: a valid one of each kind that is answered, and a connection without a kernel."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from struct import Struct
from typing import Final

import trio

from blockfs.fuse.kernel import wire
from blockfs.fuse.kernel.wire import Opcode

UNIQUE: Final = 42
ALL_FLAGS: Final = 0xFFFF_FFFF


def request(opcode: int, body: bytes = b"", *, node: int = 1, unique: int = UNIQUE, uid: int = 1000) -> bytes:
    """One message."""
    return wire.IN_HEADER.pack(wire.IN_HEADER.size + len(body), opcode, unique, node, uid, 1001, 77, 0) + body


def init(major: int = 7, minor: int = 45, flags: int = ALL_FLAGS, upper: int = ALL_FLAGS) -> bytes:
    """The first one, as Linux 6.18 sends it."""
    body = wire.INIT_IN.pack(major, minor, 131072, flags) + wire.INIT_IN_EXT.pack(upper) + bytes(44)
    return request(Opcode.INIT, body, node=0)


def _padded(layout: Struct, *fields: int, more: int = 0) -> bytes:
    return layout.pack(*fields) + bytes(more)


BODIES: Final[dict[Opcode, bytes]] = {
    Opcode.LOOKUP: b"name\0",
    Opcode.FORGET: _padded(wire.FORGET_IN, 1),
    Opcode.GETATTR: bytes(16),
    Opcode.SETATTR: wire.SETATTR_IN.pack(0x47F, 0, 9, 0, 1, -2, 3, 10, 20, 30, stat.S_IFREG | 0o640, 5, 6),
    Opcode.READLINK: b"",
    Opcode.SYMLINK: b"name\0target\0",
    Opcode.MKNOD: wire.MKNOD_IN.pack(stat.S_IFIFO | 0o600, 0, 0o022, 0) + b"name\0",
    Opcode.MKDIR: wire.MKDIR_IN.pack(0o755, 0o022) + b"name\0",
    Opcode.UNLINK: b"name\0",
    Opcode.RMDIR: b"name\0",
    Opcode.RENAME: wire.RENAME_IN.pack(1) + b"old\0new\0",
    Opcode.LINK: wire.LINK_IN.pack(2) + b"name\0",
    Opcode.OPEN: wire.OPEN_IN.pack(os.O_RDWR, 0),
    Opcode.READ: _padded(wire.READ_IN, 1, 4096, 512, more=20),
    Opcode.WRITE: wire.WRITE_IN.pack(1, 4096, 4, 0, 0, os.O_RDWR, 0) + b"data",
    Opcode.STATFS: b"",
    Opcode.RELEASE: _padded(wire.HANDLE_IN, 1, more=16),
    Opcode.FSYNC: wire.FSYNC_IN.pack(1, 1, 0),
    Opcode.SETXATTR: wire.SETXATTR_IN.pack(5, 0) + b"user.x\0a\0b\0c",
    Opcode.GETXATTR: wire.GETXATTR_IN.pack(64, 0) + b"user.x\0",
    Opcode.LISTXATTR: wire.GETXATTR_IN.pack(64, 0),
    Opcode.REMOVEXATTR: b"user.x\0",
    Opcode.OPENDIR: wire.OPEN_IN.pack(os.O_RDONLY | os.O_DIRECTORY, 0),
    Opcode.RELEASEDIR: _padded(wire.HANDLE_IN, 1, more=16),
    Opcode.FSYNCDIR: wire.FSYNC_IN.pack(1, 0, 0),
    Opcode.CREATE: wire.CREATE_IN.pack(os.O_RDWR | os.O_CREAT, stat.S_IFREG | 0o640, 0o022, 0) + b"name\0",
    Opcode.BATCH_FORGET: wire.BATCH_FORGET_IN.pack(2, 0) + wire.FORGET_ONE.pack(5, 1) + wire.FORGET_ONE.pack(6, 2),
    Opcode.FALLOCATE: wire.FALLOCATE_IN.pack(1, 0, 4096, 3, 0),
    Opcode.READDIRPLUS: _padded(wire.READ_IN, 1, 0, 4096, more=20),
    Opcode.RENAME2: wire.RENAME2_IN.pack(1, 1, 0) + b"old\0new\0",
    Opcode.LSEEK: wire.LSEEK_IN.pack(1, 0, os.SEEK_DATA, 0),
    Opcode.COPY_FILE_RANGE: wire.COPY_FILE_RANGE_IN.pack(1, 0, 2, 2, 4096, 8192, 0),
    Opcode.COPY_FILE_RANGE_64: wire.COPY_FILE_RANGE_IN.pack(1, 0, 2, 2, 4096, 8192, 0),
    Opcode.TMPFILE: wire.CREATE_IN.pack(os.O_RDWR, stat.S_IFREG | 0o600, 0o022, 0) + b"#1\0",
    Opcode.STATX: wire.STATX_IN.pack(0, 0, 0, 0, 0xFFF),
}
"""A valid body of each kind, but INIT and INTERRUPT."""


class Wireless:
    """A connection without a kernel: gives what it was given, and keeps the answers.

    Attributes:
        answers: unique → errno, and body.
        is_open: More messages may come: `ready` waits for them.
    """

    def __init__(self, messages: Iterable[bytes] = ()) -> None:
        self.answers: dict[int, tuple[int, bytes]] = {}
        self.is_open = False
        self._messages = list(messages)
        self._arrived = trio.Event()

    def put(self, message: bytes) -> None:
        """The kernel asks."""
        self._messages.append(message)
        self._arrived.set()

    def end(self) -> None:
        """The kernel has unmounted."""
        self.is_open = False
        self._arrived.set()

    def receive(self) -> memoryview | None:
        """See `Channel`."""
        if self._messages:
            return memoryview(bytearray(self._messages.pop(0)))
        if self.is_open:
            return None
        raise EOFError

    async def ready(self) -> None:
        """See `Channel`."""
        await self._arrived.wait()
        self._arrived = trio.Event()

    def answer(self, unique: int, body: bytes | memoryview) -> None:
        """See `Channel`."""
        assert unique not in self.answers, "answered twice"
        self.answers[unique] = (0, bytes(body))

    def refuse(self, unique: int, number: int) -> None:
        """See `Channel`."""
        assert unique not in self.answers, "answered twice"
        assert 0 < number < 512, "the kernel takes no others"
        self.answers[unique] = (number, b"")
