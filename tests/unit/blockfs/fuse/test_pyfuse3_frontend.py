"""The translation layer, without a kernel: requests in, engine calls, errno and attributes out."""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyfuse3
import pytest
import trio

from blockfs.engine import volume as volumes
from blockfs.engine.config import EngineConfig
from blockfs.engine.filesystem import Filesystem
from blockfs.errors import CorruptBlockError, WouldBlock
from blockfs.fuse import calls as call_module
from blockfs.fuse import pyfuse3_frontend as frontends
from blockfs.fuse.calls import Calls
from blockfs.fuse.pyfuse3_frontend import Operations
from blockfs.service.counters import Counters

ROOT = 1


@dataclass
class Context:
    uid: int = 1000
    gid: int = 1001
    pid: int = 1
    umask: int = 0


CONTEXT: Any = Context()


@pytest.fixture
def filesystem(tmp_path: Path) -> Iterator[Filesystem]:
    path = os.fsencode(tmp_path / "v")
    volumes.init(path)
    opened = Filesystem.open(path, EngineConfig(background=False))
    yield opened
    opened.close()


@pytest.fixture
def operations(filesystem: Filesystem) -> Operations:
    counters = Counters()
    return Operations(filesystem, Calls(filesystem, counters), counters)


def call(request: Callable[..., Awaitable[Any]], *arguments: Any, **keywords: Any) -> Any:
    return trio.run(partial(request, *arguments, **keywords))


def fails_with(number: int, request: Callable[..., Awaitable[Any]], *arguments: Any) -> None:
    with pytest.raises(pyfuse3.FUSEError) as caught:
        call(request, *arguments)
    assert caught.value.errno == number


def created(operations: Operations, name: bytes, flags: int = os.O_RDWR) -> tuple[int, int]:
    info, entry = call(operations.create, ROOT, name, stat.S_IFREG | 0o640, flags, CONTEXT)
    return info.fh, entry.st_ino


def test_a_missing_name_is_an_answer_the_kernel_may_remember(operations: Operations) -> None:
    entry = call(operations.lookup, ROOT, b"missing", CONTEXT)
    assert entry.st_ino == 0
    assert entry.entry_timeout == frontends.CACHE_S
    fails_with(errno.ENAMETOOLONG, operations.lookup, ROOT, b"n" * 256, CONTEXT)


def test_a_new_file_belongs_to_its_caller(operations: Operations) -> None:
    _, ino = created(operations, b"f")
    found = call(operations.lookup, ROOT, b"f", CONTEXT)
    assert (found.st_ino, found.st_uid, found.st_gid) == (ino, 1000, 1001)
    assert found.st_mode == stat.S_IFREG | 0o640
    assert found.st_blksize == 4096


def test_each_answered_entry_keeps_its_inode_until_it_is_forgotten(
    operations: Operations, filesystem: Filesystem
) -> None:
    fh, ino = created(operations, b"f")
    call(operations.lookup, ROOT, b"f", CONTEXT)
    assert filesystem.namespace.inodes.references(ino) == 2
    call(operations.write, fh, 0, b"x")
    call(operations.release, fh)
    call(operations.unlink, ROOT, b"f", CONTEXT)
    assert call(operations.getattr, ino, CONTEXT).st_nlink == 0
    call(operations.forget, [(ino, 2)])
    fails_with(errno.ENOENT, operations.getattr, ino, CONTEXT)


def test_what_would_block_is_done_in_a_thread(
    operations: Operations, filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    fh, _ = created(operations, b"f")
    seen: list[tuple[bool, bool]] = []

    def read(_ino: int, _offset: int, _length: int, *, may_block: bool) -> bytes:
        seen.append((may_block, threading.current_thread() is threading.main_thread()))
        if not may_block:
            raise WouldBlock("cold")
        return b"cold data"

    monkeypatch.setattr(filesystem.files, "read", read)
    assert call(operations.read, fh, 0, 9) == b"cold data"
    assert seen == [(False, True), (True, False)]


def test_damage_is_an_io_error_in_either_path(
    operations: Operations, filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    fh, _ = created(operations, b"f")
    monkeypatch.setattr(call_module, "log", SilentLog())
    for fast in (True, False):

        def read(*_arguments: int, may_block: bool, fast: bool = fast) -> bytes:
            if not fast and not may_block:
                raise WouldBlock("cold")
            raise CorruptBlockError(bytes(32), "wrong")

        monkeypatch.setattr(filesystem.files, "read", read)
        fails_with(errno.EIO, operations.read, fh, 0, 1)
    assert len(call_module.log.events) == 2


class SilentLog:
    def __init__(self) -> None:
        self.events: list[str] = []

    def error(self, event: str, **_fields: object) -> None:
        self.events.append(event)


def test_attributes_change_field_by_field(operations: Operations) -> None:
    _, ino = created(operations, b"f")
    wanted = pyfuse3.EntryAttributes()
    wanted.st_mode, wanted.st_uid, wanted.st_size, wanted.st_mtime_ns = stat.S_IFREG | 0o711, 7, 12345, -1
    for name in ("mode", "uid", "size", "mtime"):
        call(operations.setattr, ino, wanted, Fields(name), None, CONTEXT)
    found = call(operations.getattr, ino, CONTEXT)
    assert (found.st_mode, found.st_uid, found.st_size, found.st_mtime_ns) == (stat.S_IFREG | 0o711, 7, 12345, -1)
    assert found.st_gid == 1001


class Fields:
    def __init__(self, changed: str) -> None:
        for name in ("atime", "mtime", "ctime", "mode", "uid", "gid", "size"):
            setattr(self, f"update_{name}", name == changed)


def test_what_the_kernel_never_needs_to_send_is_not_implemented(operations: Operations) -> None:
    """ENOSYS makes it stop asking; for flush that is a round trip per close."""
    fails_with(errno.ENOSYS, operations.flush, 1)


def test_mount_options_are_any_bytes() -> None:
    option = frontends._Option(b"fsname=/caf\xe9")
    assert option.encode("us-ascii") == b"fsname=/caf\xe9"


@pytest.mark.parametrize("number", [errno.ENOENT, errno.ENOTCONN])
def test_the_kernel_need_not_know_what_it_is_told_to_forget(number: int) -> None:
    def notify() -> None:
        raise OSError(number, "")

    frontends._notify(notify)


def test_other_failures_of_notifications_are_failures() -> None:
    def notify() -> None:
        raise OSError(errno.ENOSYS, "")

    with pytest.raises(OSError, match="38"):
        frontends._notify(notify)
