"""What each request of the kernel becomes: decode, one of the `Calls`, encode. Synchronous, and holds no rules.

A function that raises `WouldBlock` has done nothing, as its call; it is called again with `may_block` where the table
of requests says. Then its message must still be there: the front-end keeps a copy.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final

import msgspec

from blockfs.engine.fatal import Doing
from blockfs.engine.names.attributes import AttributeChanges, Attributes
from blockfs.errors import FsError, WouldBlock
from blockfs.fuse.calls import Calls
from blockfs.fuse.kernel import decode, encode, wire
from blockfs.fuse.kernel.decode import Header
from blockfs.fuse.kernel.native import NativeFiles
from blockfs.fuse.kernel.wire import Opcode
from blockfs.fuse.requests import REQUESTS, Request

Answer = Callable[[Header, memoryview, bool], bytes | memoryview]
"""(header, body, may_block) → body of the answer. What is no `bytes` is good until the next call
without may_block."""

_DONE: Final = b""
_LISTING_BYTES: Final = 32768
"""Of entries in one answer. Newer kernels ask for as much as the program has room for; others would wait meanwhile."""

UNANSWERED: Final = frozenset({Opcode.FORGET, Opcode.BATCH_FORGET, Opcode.NOTIFY_REPLY})
"""The kernel waits for no answer."""


class Row(msgspec.Struct, frozen=True):
    """How one kind of request is answered.

    Attributes:
        request: Its call's.
        answer: Translates.
        doing: To be told of an error that nobody expected.
    """

    request: Request
    answer: Answer
    doing: Doing


class Translation:
    """The kernel's requests as calls.

    Args:
        calls: Answer them.
        tells_privileges: The kernel says when setuid, setgid and capabilities must go (FUSE_HANDLE_KILLPRIV_V2).
        native: Knows the files that the kernel reads and writes itself; None: all go through us.
    """

    def __init__(self, calls: Calls, *, tells_privileges: bool, native: NativeFiles | None = None) -> None:
        self._calls = calls
        self._native = native
        self._valid_s = encode.always if native is None else native.valid_s
        self._tells_privileges = tells_privileges
        self._buffer = memoryview(bytearray(wire.MAX_REQUEST))  # of answers to what is read in the loop
        answers: dict[Opcode, tuple[str, Answer]] = {
            Opcode.LOOKUP: ("lookup", self._lookup),
            Opcode.FORGET: ("forget", self._forget),
            Opcode.BATCH_FORGET: ("forget", self._batch_forget),
            Opcode.GETATTR: ("getattr", self._getattr),
            Opcode.STATX: ("getattr", self._statx),
            Opcode.SETATTR: ("setattr", self._setattr),
            Opcode.READLINK: ("readlink", self._readlink),
            Opcode.SYMLINK: ("symlink", self._symlink),
            Opcode.MKNOD: ("mknod", self._mknod),
            Opcode.MKDIR: ("mkdir", self._mkdir),
            Opcode.UNLINK: ("unlink", self._unlink),
            Opcode.RMDIR: ("rmdir", self._rmdir),
            Opcode.RENAME: ("rename", self._rename),
            Opcode.RENAME2: ("rename", self._rename2),
            Opcode.LINK: ("link", self._link),
            Opcode.OPEN: ("open", self._open),
            Opcode.CREATE: ("create", self._create),
            Opcode.TMPFILE: ("tmpfile", self._tmpfile),
            Opcode.READ: ("read", self._read),
            Opcode.WRITE: ("write", self._write),
            Opcode.RELEASE: ("release", self._release),
            Opcode.LSEEK: ("lseek", self._lseek),
            Opcode.FALLOCATE: ("fallocate", self._fallocate),
            Opcode.COPY_FILE_RANGE: ("copy_file_range", self._copy_range),
            Opcode.COPY_FILE_RANGE_64: ("copy_file_range", self._copy_range_64),
            Opcode.FSYNC: ("fsync", self._fsync),
            Opcode.SETXATTR: ("setxattr", self._setxattr),
            Opcode.GETXATTR: ("getxattr", self._getxattr),
            Opcode.LISTXATTR: ("listxattr", self._listxattr),
            Opcode.REMOVEXATTR: ("removexattr", self._removexattr),
            Opcode.STATFS: ("statfs", self._statfs),
            Opcode.OPENDIR: ("opendir", self._opendir),
            Opcode.READDIRPLUS: ("readdir", self._readdir),
            Opcode.RELEASEDIR: ("releasedir", self._releasedir),
            Opcode.FSYNCDIR: ("fsyncdir", self._fsyncdir),
        }
        rows: dict[int, Row] = {}
        for opcode, (kind, answer) in answers.items():
            request = REQUESTS[kind]
            rows[opcode] = Row(request, answer, Doing(request.what, looks=not request.changes))
        self.rows: Final[Mapping[int, Row]] = MappingProxyType(rows)

    # --- names ---

    def _lookup(self, header: Header, body: memoryview, _may_block: bool) -> bytes:
        found = self._calls.lookup(header.node, decode.name(body))
        return encode.MISSING if found is None else self._entry(found)

    def _entry(self, found: Attributes) -> bytes:
        return encode.entry(found, self._valid_s(found.ino))

    def _forget(self, header: Header, body: memoryview, _may_block: bool) -> bytes:
        self._calls.forget(decode.forget(header.node, body))
        return _DONE

    def _batch_forget(self, _header: Header, body: memoryview, _may_block: bool) -> bytes:
        self._calls.forget(decode.batch_forget(body))
        return _DONE

    def _symlink(self, header: Header, body: memoryview, may_block: bool) -> bytes:
        asked = decode.symlink(body)
        made = self._calls.symlink(header.node, asked.name, asked.target, header.caller, may_block=may_block)
        return encode.entry(made)

    def _mknod(self, header: Header, body: memoryview, may_block: bool) -> bytes:
        asked = decode.mknod(body)
        caller = header.maker(asked.umask)
        made = self._calls.mknod(header.node, asked.name, asked.mode, asked.rdev, caller, may_block=may_block)
        return encode.entry(made)

    def _mkdir(self, header: Header, body: memoryview, may_block: bool) -> bytes:
        asked = decode.mkdir(body)
        caller = header.maker(asked.umask)
        return encode.entry(self._calls.mkdir(header.node, asked.name, asked.mode, caller, may_block=may_block))

    def _unlink(self, header: Header, body: memoryview, _may_block: bool) -> bytes:
        self._calls.unlink(header.node, decode.name(body))
        return _DONE

    def _rmdir(self, header: Header, body: memoryview, _may_block: bool) -> bytes:
        self._calls.rmdir(header.node, decode.name(body))
        return _DONE

    def _rename(self, header: Header, body: memoryview, may_block: bool) -> bytes:
        return self._renamed(header, decode.rename(body), may_block)

    def _rename2(self, header: Header, body: memoryview, may_block: bool) -> bytes:
        return self._renamed(header, decode.rename2(body), may_block)

    def _renamed(self, header: Header, asked: decode.Rename, may_block: bool) -> bytes:
        places = header.node, asked.name, asked.new_parent, asked.new_name
        self._calls.rename(*places, asked.flags, header.caller, may_block=may_block)
        return _DONE

    def _link(self, header: Header, body: memoryview, may_block: bool) -> bytes:
        asked = decode.link(body)
        return self._entry(self._calls.link(asked.ino, header.node, asked.name, may_block=may_block))

    def _readlink(self, header: Header, _body: memoryview, _may_block: bool) -> bytes:
        return self._calls.readlink(header.node)

    # --- attributes ---

    def _getattr(self, header: Header, _body: memoryview, _may_block: bool) -> bytes:
        return encode.attr_out(self._calls.getattr(header.node), self._valid_s(header.node))

    def _statx(self, header: Header, _body: memoryview, _may_block: bool) -> bytes:
        return encode.statx_out(self._calls.getattr(header.node), self._valid_s(header.node))

    def _setattr(self, header: Header, body: memoryview, may_block: bool) -> bytes:
        asked = decode.setattr_(body)
        # A new owner has the flag, too. With chown(2) the kernel has removed capabilities before (setattr_prepare), and
        # set-id bits end with the owner; overlayfs changes the owner of what it copies, which keeps its capabilities.
        is_chown = asked.size_bytes is None and (asked.changes.uid, asked.changes.gid) != (None, None)
        kill = asked.kill_privileges and not is_chown
        kill = kill or (self._tells_privileges and self._ends_all(header, asked))
        changed = self._calls.setattr(
            header.node, asked.size_bytes, asked.changes, kill_privileges=kill, may_block=may_block
        )
        return encode.attr_out(changed, self._valid_s(header.node))

    def _ends_all(self, header: Header, asked: decode.SetAttributes) -> bool:
        """Whether a change without a field is one that ends privileges.

        With a writeback cache chown(-1, -1) sends a time of change, without one nothing; and so does a write that
        passes through, by whom privileges end with it. No other request does.
        """
        native, ctime_ns = self._native, asked.changes.ctime_ns
        says_when = native is None
        if asked.size_bytes is not None or says_when != (ctime_ns is not None):
            return False
        if asked.changes != AttributeChanges(ctime_ns=ctime_ns):
            return False
        may_change_owner = header.uid in {0, self._calls.getattr(header.node).uid}
        return may_change_owner or (native is not None and native.passes_through(header.node))

    def _setxattr(self, header: Header, body: memoryview, may_block: bool) -> bytes:
        asked = decode.setxattr(body)
        to = header.node, asked.name, asked.value
        self._calls.setxattr(*to, header.caller, header.pid, asked.flags, may_block=may_block)
        return _DONE

    def _getxattr(self, header: Header, body: memoryview, _may_block: bool) -> bytes:
        asked = decode.getxattr(body)
        return _fitting(self._calls.getxattr(header.node, asked.name), asked.room)

    def _listxattr(self, header: Header, body: memoryview, _may_block: bool) -> bytes:
        room = decode.listxattr(body)
        return _fitting(b"".join(name + b"\0" for name in self._calls.listxattr(header.node, header.caller)), room)

    def _removexattr(self, header: Header, body: memoryview, _may_block: bool) -> bytes:
        self._calls.removexattr(header.node, decode.name(body))
        return _DONE

    def _statfs(self, _header: Header, _body: memoryview, _may_block: bool) -> bytes:
        return encode.statfs(self._calls.statfs())

    # --- files ---

    def _open(self, header: Header, body: memoryview, may_block: bool) -> bytes:
        asked = decode.open_(body)
        kill = asked.kill_privileges if self._tells_privileges else None
        ino, native = header.node, self._native
        opening = partial(self._calls.open, ino, asked.flags, header.caller, kill_privileges=kill, may_block=may_block)
        if native is None:
            return encode.opened(opening())
        if may_block:
            return self._natively(native, ino, asked.flags, opening(), may_block=True)  # what O_TRUNC cuts is not made
        native.opening(ino, asked.flags)
        try:
            fh = opening()
        except BaseException:
            native.closing(ino)
            raise
        return encode.opened(fh, *native.opened(ino, fh))

    def _natively(
        self, native: NativeFiles, ino: int, flags: int, fh: int, *, is_new: bool = False, may_block: bool = False
    ) -> bytes:
        """The answer to an open that gave this handle."""
        try:
            native.opening(ino, flags, is_new=is_new, may_block=may_block)
        except BaseException:
            self._calls.release(fh)
            raise
        return encode.opened(fh, *native.opened(ino, fh))

    def _in_thread(self, flags: int, *, may_block: bool) -> None:
        """Before a file is made that must be waited for: afterwards it could not be asked for again."""
        if not may_block and self._native is not None and self._native.creates_in_thread(flags):
            raise WouldBlock("the file must be made durable")

    def _made(self, fh: int, made: Attributes, flags: int, *, may_block: bool) -> bytes:
        """The answer to a request that made a file and opened it."""
        native = self._native
        if native is None:
            return encode.entry(made) + encode.opened(fh)
        opened = self._natively(native, made.ino, flags, fh, is_new=True, may_block=may_block)
        # Else the first write asks for them.
        return encode.entry(made, self._valid_s(made.ino), encode.NEW_NS) + opened

    def _create(self, header: Header, body: memoryview, may_block: bool) -> bytes:
        asked = decode.create(body)
        self._in_thread(asked.flags, may_block=may_block)
        to = header.node, asked.name, asked.mode, asked.flags
        fh, made = self._calls.create(*to, header.maker(asked.umask), may_block=may_block)
        return self._made(fh, made, asked.flags, may_block=may_block)

    def _tmpfile(self, header: Header, body: memoryview, may_block: bool) -> bytes:
        asked = decode.create(body)  # its name is the kernel's own, of no use to anybody
        self._in_thread(asked.flags, may_block=may_block)
        caller = header.maker(asked.umask)
        fh, made = self._calls.tmpfile(header.node, asked.mode, asked.flags, caller, may_block=may_block)
        return self._made(fh, made, asked.flags, may_block=may_block)

    def _read(self, _header: Header, body: memoryview, may_block: bool) -> bytes | memoryview:
        asked = decode.read(body)
        if may_block or asked.length > len(self._buffer):
            return self._calls.read(asked.fh, asked.offset, asked.length, may_block=may_block)
        view = self._buffer[: asked.length]
        return view[: self._calls.read_into(asked.fh, asked.offset, view)]

    def _write(self, _header: Header, body: memoryview, may_block: bool) -> bytes:
        asked = decode.write(body)
        to = asked.fh, asked.offset, asked.data
        written = self._calls.write(*to, kill_privileges=asked.kill_privileges, may_block=may_block)
        return encode.written(written)

    def _lseek(self, _header: Header, body: memoryview, may_block: bool) -> bytes:
        asked = decode.lseek(body)
        return encode.found(self._calls.lseek(asked.fh, asked.offset, asked.whence, may_block=may_block))

    def _fallocate(self, header: Header, body: memoryview, may_block: bool) -> bytes:
        asked = decode.fallocate(body)
        kill = self._ends_privileges(header)
        self._calls.fallocate(
            asked.fh, asked.offset, asked.length, asked.mode, kill_privileges=kill, may_block=may_block
        )
        return _DONE

    def _copy_range(self, header: Header, body: memoryview, may_block: bool) -> bytes:
        return encode.written(self._copied(header, body, may_block))

    def _copy_range_64(self, header: Header, body: memoryview, may_block: bool) -> bytes:
        return encode.found(self._copied(header, body, may_block))

    def _copied(self, header: Header, body: memoryview, may_block: bool) -> int:
        asked = decode.copy_range(body)
        places = asked.fh_in, asked.offset_in, asked.fh_out, asked.offset_out
        kill = self._ends_privileges(header)
        return self._calls.copy_file_range(
            *places, asked.length, asked.flags, kill_privileges=kill, may_block=may_block
        )

    def _ends_privileges(self, header: Header) -> bool:
        """Whether this caller's change of content does, where the protocol has no flag that says so."""
        return self._tells_privileges and header.uid != 0

    def _release(self, _header: Header, body: memoryview, _may_block: bool) -> bytes:
        fh = decode.handle(body)
        if self._native is not None:
            self._native.closed(fh)
        self._calls.release(fh)
        return _DONE

    def _fsync(self, _header: Header, body: memoryview, may_block: bool) -> bytes:
        asked = decode.sync(body)
        self._calls.fsync(asked.fh, asked.datasync, may_block=may_block)
        return _DONE

    # --- directories ---

    def _opendir(self, header: Header, _body: memoryview, _may_block: bool) -> bytes:
        return encode.opened(self._calls.opendir(header.node), 0)

    def _readdir(self, _header: Header, body: memoryview, _may_block: bool) -> bytes:
        asked = decode.read(body)
        entries = encode.Entries(min(asked.length, _LISTING_BYTES), self._valid_s)
        self._calls.readdir(asked.fh, asked.offset, entries.add)
        return entries.body

    def _releasedir(self, _header: Header, body: memoryview, _may_block: bool) -> bytes:
        self._calls.releasedir(decode.handle(body))
        return _DONE

    def _fsyncdir(self, _header: Header, _body: memoryview, may_block: bool) -> bytes:
        self._calls.fsyncdir(may_block=may_block)
        return _DONE


def _fitting(value: bytes, room: int) -> bytes:
    told = encode.xattr(value, room)
    if told is None:
        raise FsError(errno.ERANGE, f"{len(value)} bytes, with room for {room}")
    return told
