"""Typed values → answers and notifications for the kernel. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from blockfs.engine.names.attributes import Attributes, FilesystemNumbers
from blockfs.fuse.kernel import wire

CACHE_S: Final = 86400
"""How long the kernel trusts entries and attributes. This process is the only writer, and tells what it changes."""

NEW_NS: Final = 10_000_000
"""How long, in nanoseconds, it trusts those of a file that was just made, if it then reads and writes it itself."""

_BILLION: Final = 10**9
_BLKSIZE: Final = 4096  # the kernel's page: a larger one becomes i_blkbits, which its buffered writes trip over
_STATX_BASIC: Final = 0x7FF
_STATX_BTIME: Final = 0x800
_NOTHING: Final = bytes(wire.ATTR.size)

MISSING: Final = wire.ENTRY.pack(0, 0, CACHE_S, 0, 0, 0) + _NOTHING
"""There is no such name, and the kernel may remember that."""


def header(unique: int, body: bytes | memoryview) -> bytes:
    """What goes before the body of an answer."""
    return wire.OUT_HEADER.pack(wire.OUT_HEADER.size + len(body), 0, unique)


def refusal(unique: int, number: int) -> bytes:
    """A whole answer: an errno."""
    return wire.OUT_HEADER.pack(wire.OUT_HEADER.size, -number, unique)


def attributes(found: Attributes) -> bytes:
    """The part that all kinds of attributes share."""
    atime, atime_ns = divmod(found.atime_ns, _BILLION)
    mtime, mtime_ns = divmod(found.mtime_ns, _BILLION)
    ctime, ctime_ns = divmod(found.ctime_ns, _BILLION)
    return wire.ATTR.pack(
        found.ino,
        found.size_bytes,
        found.allocated_bytes // 512,
        atime,
        mtime,
        ctime,
        atime_ns,
        mtime_ns,
        ctime_ns,
        found.st_mode,
        found.nlink,
        found.uid,
        found.gid,
        found.rdev,
        _BLKSIZE,
        0,
    )


def entry(found: Attributes, valid_s: int = CACHE_S, valid_ns: int = 0) -> bytes:
    """LOOKUP and whatever makes an inode. The generation is 0: inos are never reused. `valid_s`: the attributes are."""
    return wire.ENTRY.pack(found.ino, 0, CACHE_S, valid_s, 0, valid_ns) + attributes(found)


def attr_out(found: Attributes, valid_s: int = CACHE_S) -> bytes:
    """GETATTR and SETATTR."""
    return wire.ATTR_OUT.pack(valid_s, 0, 0) + attributes(found)


def statx_out(found: Attributes, valid_s: int = CACHE_S) -> bytes:
    """STATX: all that stat(2) tells, and the time of birth."""
    times = [divmod(each, _BILLION) for each in (found.atime_ns, found.btime_ns, found.ctime_ns, found.mtime_ns)]
    return wire.STATX_OUT.pack(valid_s, 0, 0) + wire.STATX.pack(
        _STATX_BASIC | _STATX_BTIME,
        _BLKSIZE,
        0,
        found.nlink,
        found.uid,
        found.gid,
        found.st_mode,
        found.ino,
        found.size_bytes,
        found.allocated_bytes // 512,
        0,
        *(part for time in times for part in time),
        found.rdev >> 8 & 0xFFF,
        found.rdev & 0xFF | found.rdev >> 12 & 0xFFF00,
        0,
        0,
    )


def opened(fh: int, flags: int = wire.FOPEN_KEEP_CACHE, backing_id: int = 0) -> bytes:
    """OPEN and OPENDIR, and the second half of CREATE."""
    return wire.OPEN_OUT.pack(fh, flags, backing_id)


def written(length: int) -> bytes:
    """WRITE and COPY_FILE_RANGE."""
    return wire.WRITE_OUT.pack(length, 0)


def found(offset: int) -> bytes:
    """LSEEK, and of COPY_FILE_RANGE_64 how much was copied."""
    return wire.OFFSET_OUT.pack(offset)


def xattr(value: bytes, room: int) -> bytes | None:
    """GETXATTR and LISTXATTR: the value, or its length if that is asked for; None: it has no room (ERANGE)."""
    if not room:
        return wire.GETXATTR_OUT.pack(len(value), 0)
    return value if len(value) <= room else None


def statfs(numbers: FilesystemNumbers) -> bytes:
    """STATFS."""
    return wire.STATFS_OUT.pack(
        numbers.blocks,
        numbers.blocks_free,
        numbers.blocks_available,
        numbers.files,
        numbers.files_free,
        numbers.fragment_bytes,
        numbers.name_max,
        numbers.fragment_bytes,
    )


def always(_ino: int) -> int:
    """As long as all other attributes."""
    return CACHE_S


class Entries:
    """READDIRPLUS: entries with their attributes, as many as have room.

    Args:
        room: Bytes.
        valid_s: How long the kernel may trust an inode's attributes.
    """

    def __init__(self, room: int, valid_s: Callable[[int], int] = always) -> None:
        self._left = room
        self._valid_s = valid_s
        self._parts: list[bytes] = []

    def add(self, name: bytes, found: Attributes, next_position: int) -> bool:
        """Add one; whether it had room."""
        unpadded = wire.ENTRY.size + wire.ATTR.size + wire.DIRENT.size + len(name)
        length = unpadded + 7 & ~7
        if length > self._left:
            return False
        self._left -= length
        dirent = wire.DIRENT.pack(found.ino, next_position, len(name), found.st_mode >> 12)
        self._parts += (entry(found, self._valid_s(found.ino)), dirent, name, bytes(length - unpadded))
        return True

    @property
    def body(self) -> bytes:
        """All that were added."""
        return b"".join(self._parts)


def forget_inode(ino: int, *, pages: bool) -> bytes:
    """A notification: attributes have changed, and if `pages` is set, all of the content."""
    return _notification(wire.Notification.INVAL_INODE, wire.INVAL_INODE_OUT.pack(ino, 0 if pages else -1, 0))


def forget_entry(parent: int, name: bytes) -> bytes:
    """A notification: a name leads elsewhere, or nowhere."""
    body = wire.INVAL_ENTRY_OUT.pack(parent, len(name), 0) + name + b"\0"
    return _notification(wire.Notification.INVAL_ENTRY, body)


def _notification(code: wire.Notification, body: bytes) -> bytes:
    return wire.OUT_HEADER.pack(wire.OUT_HEADER.size + len(body), code, 0) + body
