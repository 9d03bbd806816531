"""Requests of the kernel → typed values. Pure: bytes in, values or `MalformedError` out, and never another exception.

Fixed parts may be longer than we know: later versions of the protocol add fields at their ends.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, ParamSpec, TypeVar

import msgspec

from blockfs.engine.names.attributes import AttributeChanges, Caller
from blockfs.errors import BlockfsError
from blockfs.fuse.kernel import wire
from blockfs.fuse.kernel.wire import Opcode, SetattrField

_BILLION: Final = 10**9
_SIGNED: Final = 1 << 63  # offsets and sizes are off_t: below this

P = ParamSpec("P")
V = TypeVar("V")


class MalformedError(BlockfsError):
    """A request that the protocol does not allow."""

    errno = errno.EINVAL


class Header(msgspec.Struct, frozen=True):
    """What each request begins with.

    Attributes:
        opcode: Its kind; see `Opcode`, but any number may come.
        unique: Its answer names it.
        node: The inode that it is about.
        uid: Who asks.
        gid: Its first group.
        pid: Its thread; 0 if it is in no namespace of ours.
    """

    opcode: int
    unique: int
    node: int
    uid: int
    gid: int
    pid: int

    @property
    def caller(self) -> Caller:
        """Who asks."""
        return Caller(uid=self.uid, gid=self.gid)

    def maker(self, umask: int) -> Caller:
        """Who asks for a new inode."""
        return Caller(uid=self.uid, gid=self.gid, umask=umask)


class Init(msgspec.Struct, frozen=True, kw_only=True):
    """The first request: what the kernel can do."""

    major: int
    minor: int
    max_readahead: int
    flags: int


class SetAttributes(msgspec.Struct, frozen=True, kw_only=True):
    """chmod, chown, truncate, utimens. `kill_privileges`: a truncation by somebody without CAP_FSETID, or any chown."""

    size_bytes: int | None
    changes: AttributeChanges
    kill_privileges: bool


class Make(msgspec.Struct, frozen=True, kw_only=True):
    """A new inode and its name. `flags` are those of open(2) for CREATE, `rdev` is for MKNOD."""

    name: bytes
    mode: int
    umask: int
    rdev: int = 0
    flags: int = 0


class Symlink(msgspec.Struct, frozen=True, kw_only=True):
    """A new symlink."""

    name: bytes
    target: bytes


class Rename(msgspec.Struct, frozen=True, kw_only=True):
    """A move; `flags` of renameat2(2)."""

    name: bytes
    new_parent: int
    new_name: bytes
    flags: int


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """One more name of an inode."""

    ino: int
    name: bytes


class Open(msgspec.Struct, frozen=True, kw_only=True):
    """`flags` of open(2). `kill_privileges`: with O_TRUNC, by somebody without CAP_FSETID."""

    flags: int
    kill_privileges: bool


class Read(msgspec.Struct, frozen=True):
    """A range of a file, or entries of a directory: then `offset` is a position, and `length` the room for them."""

    fh: int
    offset: int
    length: int


class Write(msgspec.Struct, frozen=True):
    """`data` lies in the buffer of the message. `kill_privileges`: by somebody without CAP_FSETID."""

    fh: int
    offset: int
    data: memoryview
    kill_privileges: bool


class Sync(msgspec.Struct, frozen=True, kw_only=True):
    """fsync, or fdatasync."""

    fh: int
    datasync: bool


class SetXattr(msgspec.Struct, frozen=True, kw_only=True):
    """`flags` of setxattr(2)."""

    name: bytes
    value: bytes
    flags: int


class GetXattr(msgspec.Struct, frozen=True, kw_only=True):
    """`room`: for the value, in bytes; 0: only its length is asked for."""

    name: bytes
    room: int


class Fallocate(msgspec.Struct, frozen=True, kw_only=True):
    """`mode` of fallocate(2)."""

    fh: int
    offset: int
    length: int
    mode: int


class Seek(msgspec.Struct, frozen=True, kw_only=True):
    """SEEK_DATA or SEEK_HOLE."""

    fh: int
    offset: int
    whence: int


class CopyRange(msgspec.Struct, frozen=True, kw_only=True):
    """copy_file_range(2); the file to read is the header's node."""

    fh_in: int
    offset_in: int
    ino_out: int
    fh_out: int
    offset_out: int
    length: int
    flags: int


def _checked(decode: Callable[P, V]) -> Callable[P, V]:
    def checked(*args: P.args, **kwargs: P.kwargs) -> V:
        try:
            return decode(*args, **kwargs)
        except struct.error:
            raise MalformedError(f"a {decode.__name__} request is too short") from None

    checked.__name__ = decode.__name__
    return checked


def split(message: memoryview) -> tuple[Header, memoryview]:
    """Header and body of one message.

    Raises:
        MalformedError: It is not as long as it says.
    """
    if len(message) < wire.IN_HEADER.size:
        raise MalformedError(f"a request of {len(message)} bytes")
    length, opcode, unique, node, uid, gid, pid, extensions = wire.IN_HEADER.unpack_from(message)
    end = length - 8 * extensions
    if length != len(message) or end < wire.IN_HEADER.size:
        raise MalformedError(
            f"a request of {len(message)} bytes that says {length}, {8 * extensions} of them extensions"
        )
    return Header(opcode, unique, node, uid, gid, pid), message[wire.IN_HEADER.size : end]


@_checked
def init(body: memoryview) -> Init:
    """INIT."""
    major, minor, max_readahead, flags = wire.INIT_IN.unpack_from(body)
    if flags & wire.InitFlag.INIT_EXT:
        flags |= wire.INIT_IN_EXT.unpack_from(body, wire.INIT_IN.size)[0] << 32
    return Init(major=major, minor=minor, max_readahead=max_readahead, flags=flags)


def name(body: memoryview) -> bytes:
    """LOOKUP, UNLINK, RMDIR, REMOVEXATTR."""
    return _texts(body, 1)[0]


@_checked
def forget(node: int, body: memoryview) -> list[tuple[int, int]]:
    """FORGET: (inode, references)."""
    return [(node, wire.FORGET_IN.unpack_from(body)[0])]


@_checked
def batch_forget(body: memoryview) -> list[tuple[int, int]]:
    """BATCH_FORGET: (inode, references) of each."""
    count, _ = wire.BATCH_FORGET_IN.unpack_from(body)
    start, size = wire.BATCH_FORGET_IN.size, wire.FORGET_ONE.size
    if count * size > len(body) - start:
        raise MalformedError(f"a forget of {count} inodes in {len(body)} bytes")
    return list(wire.FORGET_ONE.iter_unpack(body[start : start + count * size]))


@_checked
def setattr_(body: memoryview) -> SetAttributes:
    """SETATTR."""
    (valid, _, size, _, atime, mtime, ctime, atime_ns, mtime_ns, ctime_ns, mode, uid, gid) = (
        wire.SETATTR_IN.unpack_from(body)
    )
    changes = AttributeChanges(
        mode=mode & 0o7777 if valid & SetattrField.MODE else None,
        uid=uid if valid & SetattrField.UID else None,
        gid=gid if valid & SetattrField.GID else None,
        atime_ns=atime * _BILLION + atime_ns if valid & SetattrField.ATIME else None,
        mtime_ns=mtime * _BILLION + mtime_ns if valid & SetattrField.MTIME else None,
        ctime_ns=ctime * _BILLION + ctime_ns if valid & SetattrField.CTIME else None,
    )
    return SetAttributes(
        size_bytes=_offset(size) if valid & SetattrField.SIZE else None,
        changes=changes,
        kill_privileges=bool(valid & SetattrField.KILL_SUIDGID),
    )


def symlink(body: memoryview) -> Symlink:
    """SYMLINK."""
    made, target = _texts(body, 2)
    return Symlink(name=made, target=target)


@_checked
def mknod(body: memoryview) -> Make:
    """MKNOD."""
    mode, rdev, umask, _ = wire.MKNOD_IN.unpack_from(body)
    return Make(name=name(body[wire.MKNOD_IN.size :]), mode=mode, umask=umask, rdev=rdev)


@_checked
def mkdir(body: memoryview) -> Make:
    """MKDIR."""
    mode, umask = wire.MKDIR_IN.unpack_from(body)
    return Make(name=name(body[wire.MKDIR_IN.size :]), mode=mode, umask=umask)


@_checked
def create(body: memoryview) -> Make:
    """CREATE and TMPFILE."""
    flags, mode, umask, _ = wire.CREATE_IN.unpack_from(body)
    return Make(name=name(body[wire.CREATE_IN.size :]), mode=mode, umask=umask, flags=flags)


@_checked
def rename(body: memoryview) -> Rename:
    """RENAME."""
    (new_parent,) = wire.RENAME_IN.unpack_from(body)
    old, new = _texts(body[wire.RENAME_IN.size :], 2)
    return Rename(name=old, new_parent=new_parent, new_name=new, flags=0)


@_checked
def rename2(body: memoryview) -> Rename:
    """RENAME2."""
    new_parent, flags, _ = wire.RENAME2_IN.unpack_from(body)
    old, new = _texts(body[wire.RENAME2_IN.size :], 2)
    return Rename(name=old, new_parent=new_parent, new_name=new, flags=flags)


@_checked
def link(body: memoryview) -> Link:
    """LINK."""
    (ino,) = wire.LINK_IN.unpack_from(body)
    return Link(ino=ino, name=name(body[wire.LINK_IN.size :]))


@_checked
def open_(body: memoryview) -> Open:
    """OPEN and OPENDIR."""
    flags, more = wire.OPEN_IN.unpack_from(body)
    return Open(flags=flags, kill_privileges=bool(more & wire.OPEN_KILL_SUIDGID))


@_checked
def read(body: memoryview) -> Read:
    """READ and READDIRPLUS."""
    fh, offset, length = wire.READ_IN.unpack_from(body)
    if length > wire.MAX_REQUEST:
        raise MalformedError(f"a read of {length} bytes")
    return Read(fh, _offset(offset), length)


@_checked
def write(body: memoryview) -> Write:
    """WRITE."""
    fh, offset, length, flags, _, _, _ = wire.WRITE_IN.unpack_from(body)
    data = body[wire.WRITE_IN.size :]
    if length != len(data):
        raise MalformedError(f"a write of {length} bytes with {len(data)}")
    return Write(fh, _offset(offset), data, bool(flags & wire.WRITE_KILL_SUIDGID))


@_checked
def handle(body: memoryview) -> int:
    """RELEASE and RELEASEDIR."""
    fh: int = wire.HANDLE_IN.unpack_from(body)[0]
    return fh


@_checked
def sync(body: memoryview) -> Sync:
    """FSYNC and FSYNCDIR."""
    fh, flags, _ = wire.FSYNC_IN.unpack_from(body)
    return Sync(fh=fh, datasync=bool(flags & wire.FSYNC_DATASYNC))


@_checked
def setxattr(body: memoryview) -> SetXattr:
    """SETXATTR."""
    length, flags = wire.SETXATTR_IN.unpack_from(body)
    key, nul, value = bytes(body[wire.SETXATTR_IN.size :]).partition(b"\0")
    if not nul or not key or len(value) != length:
        raise MalformedError(f"a value of {length} bytes with {len(value)}")
    return SetXattr(name=key, value=value, flags=flags)


@_checked
def getxattr(body: memoryview) -> GetXattr:
    """GETXATTR."""
    room, _ = wire.GETXATTR_IN.unpack_from(body)
    return GetXattr(name=name(body[wire.GETXATTR_IN.size :]), room=room)


@_checked
def listxattr(body: memoryview) -> int:
    """LISTXATTR: the room for the names; 0: only their length is asked for."""
    room: int = wire.GETXATTR_IN.unpack_from(body)[0]
    return room


@_checked
def interrupt(body: memoryview) -> int:
    """INTERRUPT: the unique of the request whose caller got a signal."""
    unique: int = wire.INTERRUPT_IN.unpack_from(body)[0]
    return unique


@_checked
def fallocate(body: memoryview) -> Fallocate:
    """FALLOCATE."""
    fh, offset, length, mode, _ = wire.FALLOCATE_IN.unpack_from(body)
    return Fallocate(fh=fh, offset=_offset(offset), length=_offset(length), mode=mode)


@_checked
def lseek(body: memoryview) -> Seek:
    """LSEEK. An offset below 0 is for the call to refuse: with ENXIO."""
    fh, offset, whence, _ = wire.LSEEK_IN.unpack_from(body)
    return Seek(fh=fh, offset=offset, whence=whence)


@_checked
def copy_range(body: memoryview) -> CopyRange:
    """COPY_FILE_RANGE, with an answer of 32 bits or of 64."""
    fh_in, offset_in, ino_out, fh_out, offset_out, length, flags = wire.COPY_FILE_RANGE_IN.unpack_from(body)
    return CopyRange(
        fh_in=fh_in,
        offset_in=_offset(offset_in),
        ino_out=ino_out,
        fh_out=fh_out,
        offset_out=_offset(offset_out),
        length=length,
        flags=flags,
    )


@_checked
def statx(body: memoryview) -> int:
    """STATX: the mask of what is wanted."""
    mask: int = wire.STATX_IN.unpack_from(body)[4]
    return mask


def _texts(body: memoryview, count: int) -> list[bytes]:
    """So many names, each ended by a NUL."""
    *texts, rest = bytes(body).split(b"\0")
    if len(texts) != count or rest or not all(texts):
        raise MalformedError(f"{len(texts)} names, and not {count}")
    return texts


def _offset(number: int) -> int:
    if number >= _SIGNED:
        raise MalformedError(f"an offset of {number}")
    return number


DECODERS: Final[Mapping[Opcode, Callable[[memoryview], Any]]] = MappingProxyType(
    {
        Opcode.LOOKUP: name,
        Opcode.SETATTR: setattr_,
        Opcode.SYMLINK: symlink,
        Opcode.MKNOD: mknod,
        Opcode.MKDIR: mkdir,
        Opcode.UNLINK: name,
        Opcode.RMDIR: name,
        Opcode.RENAME: rename,
        Opcode.LINK: link,
        Opcode.OPEN: open_,
        Opcode.READ: read,
        Opcode.WRITE: write,
        Opcode.RELEASE: handle,
        Opcode.FSYNC: sync,
        Opcode.SETXATTR: setxattr,
        Opcode.GETXATTR: getxattr,
        Opcode.LISTXATTR: listxattr,
        Opcode.REMOVEXATTR: name,
        Opcode.INIT: init,
        Opcode.OPENDIR: open_,
        Opcode.RELEASEDIR: handle,
        Opcode.FSYNCDIR: sync,
        Opcode.CREATE: create,
        Opcode.INTERRUPT: interrupt,
        Opcode.BATCH_FORGET: batch_forget,
        Opcode.FALLOCATE: fallocate,
        Opcode.READDIRPLUS: read,
        Opcode.RENAME2: rename2,
        Opcode.LSEEK: lseek,
        Opcode.COPY_FILE_RANGE: copy_range,
        Opcode.TMPFILE: create,
        Opcode.STATX: statx,
        Opcode.COPY_FILE_RANGE_64: copy_range,
    }
)
"""What the bodies of requests hold. FORGET needs its header, too; the rest have no body that counts."""
