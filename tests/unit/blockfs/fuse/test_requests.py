"""A bug in each request: those that change nothing are EIO, all others abandon the mount."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pyfuse3
import pytest
import structlog
import trio

from blockfs.engine import volume as volumes
from blockfs.engine.config import EngineConfig
from blockfs.engine.filesystem import Filesystem
from blockfs.engine.names.attributes import Caller
from blockfs.errors import CorruptBlockError
from blockfs.fuse import calls as module
from blockfs.fuse.answering import Answering
from blockfs.fuse.calls import Calls
from blockfs.fuse.pyfuse3_frontend import INEXPRESSIBLE, Operations
from blockfs.fuse.requests import REQUESTS
from blockfs.service.counters import Counters


class Broken:
    """Every call of it is a bug."""

    def __getattr__(self, name: str) -> Any:
        def fails(*_arguments: object, **_keywords: object) -> None:
            raise AssertionError(name)

        return fails


@pytest.fixture
def filesystem(tmp_path: Path) -> Iterator[Filesystem]:
    path = os.fsencode(tmp_path / "v")
    volumes.init(path)
    opened = Filesystem.open(path, EngineConfig(background=False))
    yield opened
    opened.abandon()


class Context:
    uid = gid = 1000
    pid = 1
    umask = 0


CONTEXT: Any = Context()
UNKNOWN = 99  # no such handle: what the kernel never asks for
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "lookup": (1, b"f", CONTEXT),
    "forget": ([(1, 1)],),
    "mknod": (1, b"f", stat.S_IFIFO, 0, CONTEXT),
    "mkdir": (1, b"f", 0o755, CONTEXT),
    "symlink": (1, b"f", b"target", CONTEXT),
    "link": (2, 1, b"f", CONTEXT),
    "create": (1, b"f", 0o644, os.O_RDWR, CONTEXT),
    "unlink": (1, b"f", CONTEXT),
    "rmdir": (1, b"f", CONTEXT),
    "rename": (1, b"f", 1, b"g", 0, CONTEXT),
    "readlink": (2, CONTEXT),
    "getattr": (2, CONTEXT),
    "setattr": (2, pyfuse3.EntryAttributes(), None, None, CONTEXT),
    "getxattr": (2, b"user.x", CONTEXT),
    "listxattr": (2, CONTEXT),
    "setxattr": (2, b"user.x", b"value", CONTEXT),
    "removexattr": (2, b"user.x", CONTEXT),
    "statfs": (CONTEXT,),
    "open": (2, os.O_RDWR, CONTEXT),
    "read": (UNKNOWN, 0, 1),
    "write": (UNKNOWN, 0, b"x"),
    "fsync": (UNKNOWN, False),
    "release": (UNKNOWN,),
    "opendir": (2, CONTEXT),
    "readdir": (UNKNOWN, 0, None),
    "releasedir": (UNKNOWN,),
    "fsyncdir": (UNKNOWN, False),
}


INEXPRESSIBLE_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "tmpfile": (1, 0o644, os.O_RDWR, Caller(uid=1000, gid=1000)),
    "lseek": (UNKNOWN, 0, os.SEEK_DATA),
    "fallocate": (UNKNOWN, 0, 1, 0),
    "copy_file_range": (UNKNOWN, 0, UNKNOWN, 0, 1, 0),
}
"""Of the calls: there is no handler that would translate."""


def test_the_table_knows_all_requests_of_the_kernel_that_are_answered() -> None:
    assert set(REQUESTS) == set(ARGUMENTS) | set(INEXPRESSIBLE_ARGUMENTS)
    assert set(INEXPRESSIBLE_ARGUMENTS) == INEXPRESSIBLE


def test_pyfuse3_has_a_handler_for_all_others() -> None:
    """What the base class of pyfuse3 does not know is never asked for."""
    assert {kind for kind in REQUESTS if not hasattr(pyfuse3.Operations, kind)} == INEXPRESSIBLE


def handler(filesystem: Filesystem, calls: Calls, counters: Counters, kind: str) -> Callable[..., Awaitable[object]]:
    """What answers this kind of request; without one of pyfuse3, what any other front-end would make of the call."""
    if kind not in INEXPRESSIBLE:
        found: Callable[..., Awaitable[object]] = getattr(Operations(filesystem, calls, counters), kind)
        return found
    answering = Answering(filesystem, calls, counters, pyfuse3.FUSEError)

    async def answer(*arguments: object) -> object:
        return await answering.patiently(getattr(calls, kind), *arguments)

    return answering.owned(kind, answer)


@pytest.mark.parametrize("kind", REQUESTS)
def test_a_bug_in_a_request_of_the_kernel_is_an_error_and_ends_the_mount_if_it_may_have_changed_something(
    filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    counters = Counters()
    calls = Calls(filesystem, counters)
    handle = handler(filesystem, calls, counters, kind)
    monkeypatch.setattr(calls, "_names", Broken())
    monkeypatch.setattr(calls, "_files", Broken())
    monkeypatch.setattr(filesystem, "commit", Broken().commit)
    with structlog.testing.capture_logs() as logs, pytest.raises(pyfuse3.FUSEError) as caught:
        trio.run(handle, *(ARGUMENTS | INEXPRESSIBLE_ARGUMENTS)[kind])
    assert caught.value.errno == errno.EIO
    assert counters.errors == {errno.EIO: 1}
    looks = not REQUESTS[kind].changes
    assert [(one["event"], one["doing"]) for one in logs] == [
        ("request.crashed" if looks else "mount.abandoned", f"the request {kind}")
    ]
    assert isinstance(logs[0]["exc_info"], Exception)
    assert filesystem.fatal.has_struck is not looks


def test_a_bug_while_damage_is_told_has_an_owner_too(filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when the loop ends, and the mount with it, because a damaged file's path could not be found."""
    calls = Calls(filesystem, Counters())
    operations = Operations(filesystem, calls, Counters())
    fh, _ = calls.create(1, b"f", stat.S_IFREG | 0o600, os.O_RDWR, Caller(uid=0, gid=0))

    def read(*_arguments: int, **_keywords: bool) -> bytes:
        raise CorruptBlockError(bytes(32), "wrong")

    monkeypatch.setattr(filesystem.files, "read", read)
    monkeypatch.setattr(module, "paths_of", Broken().paths_of)
    with structlog.testing.capture_logs() as logs, pytest.raises(pyfuse3.FUSEError) as caught:
        trio.run(operations.read, fh, 0, 1)
    assert caught.value.errno == errno.EIO
    assert [one["event"] for one in logs] == ["request.crashed"]
    assert not filesystem.fatal.has_struck
