"""The kernel's requests, as bytes that nobody promises anything about: each is answered once, by its number."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping
from itertools import repeat
from types import SimpleNamespace
from typing import Any, Final

from blockfs.engine.names.attributes import Attributes, FilesystemNumbers
from blockfs.engine.portions import Stop, never
from blockfs.engine.priority import Priority
from blockfs.errors import FsError, WouldBlock
from blockfs.fuse.answering import Answering
from blockfs.fuse.kernel import decode, encode, wire
from blockfs.fuse.kernel.native import NativeFiles
from blockfs.fuse.kernel.serving import Refused, Serving
from blockfs.fuse.kernel.translation import UNANSWERED, Row, Translation
from blockfs.service.counters import Counters
from blockfs.service.errnos import errno_of
from blockfs.tree.schema import Kind
from tests.fuzz.search import Target
from tests.kit.kernel_requests import BODIES, Wireless, request

_REQUESTS: Final = 64  # to one native mount

_FILE: Final = Attributes(
    ino=2, kind=Kind.FILE, mode=0o644, nlink=1, uid=0, gid=0, rdev=0, size_bytes=1, allocated_bytes=4096, atime_ns=1,
    mtime_ns=2, ctime_ns=3, btime_ns=4,
)  # fmt: skip
_NUMBERS: Final = FilesystemNumbers(
    fragment_bytes=4096, blocks=3, blocks_free=2, blocks_available=1, files=9, files_free=8, name_max=255
)


class _Calls:
    """Answers at once, with what has the right type, and looks at what it is given."""

    def failed(self, error: Any, fh: int | None = None) -> int:
        return errno_of(error)

    def lookup(self, parent: int, name: bytes) -> Attributes | None:
        return _FILE if _named(name) and len(name) % 2 else None

    def forget(self, references: Any) -> None:
        assert all(len(each) == 2 for each in references)

    def _made(self, parent: int, name: bytes, *_rest: Any, may_block: bool) -> Attributes:
        assert _named(name)
        return _FILE

    mknod = mkdir = symlink = _made

    def link(self, ino: int, parent: int, name: bytes, *, may_block: bool) -> Attributes:
        assert _named(name)
        return _FILE

    def create(self, *_arguments: Any, may_block: bool) -> tuple[int, Attributes]:
        return 1, _FILE

    def tmpfile(self, *_arguments: Any, may_block: bool) -> tuple[int, Attributes]:
        return 1, _FILE

    def unlink(self, parent: int, name: bytes) -> None:
        assert _named(name)

    rmdir = removexattr = unlink

    def rename(self, *_arguments: Any, may_block: bool) -> None:
        raise WouldBlock("always")

    def getattr(self, ino: int) -> Attributes:
        return _FILE

    def setattr(
        self, ino: int, size: int | None, changes: Any, *, kill_privileges: bool, may_block: bool
    ) -> Attributes:
        assert size is None or 0 <= size < 1 << 63
        return _FILE

    def readlink(self, ino: int) -> bytes:
        return b"target"

    def getxattr(self, ino: int, name: bytes) -> bytes:
        if len(name) % 2:
            raise FsError(errno.ENODATA, "none")
        return b"value"

    def listxattr(self, ino: int, caller: Any) -> list[bytes]:
        return [b"user.x"]

    def setxattr(self, ino: int, name: bytes, value: bytes, *_rest: Any, may_block: bool) -> None:
        assert _named(name)

    def statfs(self) -> FilesystemNumbers:
        return _NUMBERS

    def open(self, ino: int, flags: int, caller: Any, *, kill_privileges: bool | None, may_block: bool) -> int:
        return 1

    def read(self, fh: int, offset: int, length: int, *, may_block: bool) -> bytes:
        assert offset < 1 << 63
        assert length <= wire.MAX_REQUEST
        return b"x"

    def write(self, fh: int, offset: int, data: memoryview, *, kill_privileges: bool, may_block: bool) -> int:
        assert offset < 1 << 63
        return len(data)

    def fsync(self, fh: int, datasync: bool, *, may_block: bool) -> None:
        raise WouldBlock("always")

    def release(self, fh: int) -> None: ...

    releasedir = release

    def opendir(self, ino: int) -> int:
        return 1

    def readdir(self, fh: int, position: int, add: encode.Entries) -> None: ...

    def fsyncdir(self, *, may_block: bool) -> None:
        raise WouldBlock("always")

    def __getattr__(self, name: str) -> Any:  # a call that came later: it answers an errno
        def refused(*_arguments: Any, **_keywords: Any) -> Any:
            raise FsError(errno.EOPNOTSUPP, name)

        return refused


def _named(name: bytes) -> bool:
    assert name
    assert b"\0" not in name
    return True


class _Fatal:
    def met(self, error: BaseException, _doing: object) -> None:
        raise error


_calls: Any = _Calls()
_filesystem: Any = SimpleNamespace(fatal=_Fatal(), priority=Priority())
_answering: Final = Answering(_filesystem, _calls, Counters(), Refused)
_rows: Final = Translation(_calls, tells_privileges=True).rows


class _Hot:
    """Has a file for every other inode."""

    def open(self, ino: int, *, may_block: bool = False, stop: Stop = never) -> int | None:
        return ino if ino % 2 else None

    def release(self, ino: int) -> None: ...

    def is_hot(self, ino: int) -> bool:
        return bool(ino % 3)

    def is_durable(self, ino: int) -> bool:
        return bool(ino % 5)

    def make_durable(self, ino: int) -> None: ...

    def register(self, descriptor: int) -> int:
        return 1

    def unregister(self, backing_id: int) -> None: ...


def _native_rows() -> Iterator[Mapping[int, Row]]:
    """Of one native mount after another: to make them takes longer than a request."""
    while True:
        hot = _Hot()
        native = NativeFiles(hot, hot, lambda _ino: 0, lambda _ino: None, lambda _descriptor: False)
        yield from repeat(Translation(_calls, tells_privileges=True, native=native).rows, _REQUESTS)


_rows_of_native: Final = _native_rows()


def answered_natively(data: bytes) -> None:
    """As `answered`, on a native mount, of which requests before may have opened something."""
    answered(data, next(_rows_of_native))


def answered(data: bytes, rows: Mapping[int, Row] = _rows) -> None:
    """Each request has its answer, or waits for it, unless it lies about its length or wants none."""
    wireless = Wireless()
    left = Serving(wireless, rows, _answering).answer(memoryview(data))
    try:
        header, body = decode.split(memoryview(data))
    except decode.MalformedError:
        assert left is None
        assert not wireless.answers
        return
    if left is not None:
        assert (left[1], left[2]) == (header, bytes(body))
    elif header.opcode not in UNANSWERED:
        [(unique, (number, answer))] = wireless.answers.items()
        assert unique == header.unique
        assert not (number and answer)
        assert number in {0, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENODATA, errno.ERANGE}


def bodied(data: bytes) -> None:
    """As `answered`, for the body of any kind of request: lengths are right, what is inside need not be."""
    opcode = data[0] if data else 0
    answered(request(opcode, data[1:]))


TARGETS: Final = (
    Target(
        "message", tuple(request(opcode, body) for opcode, body in BODIES.items()), answered, "blockfs/fuse/kernel/"
    ),
    Target(
        "native",
        tuple(request(opcode, body) for opcode, body in BODIES.items()),
        answered_natively,
        "blockfs/fuse/kernel/",
    ),
    Target("body", tuple(bytes([opcode]) + body for opcode, body in BODIES.items()), bodied, "blockfs/fuse/kernel/"),
)
