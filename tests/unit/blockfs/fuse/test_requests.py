"""A bug in each request: those that change nothing are EIO, all others abandon the mount."""

from __future__ import annotations

import errno
import os
import stat
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyfuse3
import pytest
import structlog
import trio

from blockfs.control import protocol
from blockfs.engine import volume as volumes
from blockfs.engine.config import EngineConfig
from blockfs.engine.filesystem import Filesystem
from blockfs.errors import AbandonedError
from blockfs.fuse.calls import Calls
from blockfs.fuse.pyfuse3_frontend import Operations
from blockfs.fuse.requests import REQUESTS
from blockfs.service.counters import Counters
from blockfs.service.handler import BugError, MountHandler
from blockfs.service.requests import LOOKING

ALL_CONTROL: list[type[msgspec.Struct]] = sorted(typing.get_args(protocol.Request), key=lambda one: one.__name__)


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


def test_the_table_knows_all_requests_of_the_kernel_that_are_answered() -> None:
    assert set(REQUESTS) == set(ARGUMENTS)
    assert set(ALL_CONTROL) >= LOOKING


@pytest.mark.parametrize("kind", REQUESTS)
def test_a_bug_in_a_request_of_the_kernel_is_an_error_and_ends_the_mount_if_it_may_have_changed_something(
    filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    counters = Counters()
    calls = Calls(filesystem, counters)
    operations = Operations(filesystem, calls, counters)
    monkeypatch.setattr(calls, "_names", Broken())
    monkeypatch.setattr(calls, "_files", Broken())
    monkeypatch.setattr(filesystem, "commit", Broken().commit)
    with structlog.testing.capture_logs() as logs, pytest.raises(pyfuse3.FUSEError) as caught:
        trio.run(getattr(operations, kind), *ARGUMENTS[kind])
    assert caught.value.errno == errno.EIO
    assert counters.errors == {errno.EIO: 1}
    looks = not REQUESTS[kind].changes
    assert [(one["event"], one["doing"]) for one in logs] == [
        ("request.crashed" if looks else "mount.abandoned", f"the request {kind}")
    ]
    assert isinstance(logs[0]["exc_info"], Exception)
    assert filesystem.fatal.has_struck is not looks


@pytest.mark.parametrize("kind", ALL_CONTROL, ids=lambda kind: kind.__name__)
def test_a_bug_in_a_control_request_is_told_and_ends_the_mount_if_it_may_have_changed_something(
    filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch, kind: type[msgspec.Struct]
) -> None:
    handler = MountHandler(filesystem, Broken(), b"/mnt", lambda: None, Counters())
    session = handler.session()
    monkeypatch.setattr(session, "_answer", Broken().answer)
    request: Any = kind(**{field.name: None for field in msgspec.structs.fields(kind) if field.required})
    looks = kind in LOOKING
    with structlog.testing.capture_logs() as logs, pytest.raises(BugError if looks else AbandonedError):
        session.answer(request)
    assert [one["event"] for one in logs] == ["request.crashed" if looks else "mount.abandoned"]
    assert filesystem.fatal.has_struck is not looks
    assert handler.ending.is_set() is not looks


def test_a_bug_while_a_conversation_is_cleared_away_ends_the_mount(
    filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = MountHandler(filesystem, Broken(), b"/mnt", lambda: None, Counters()).session()
    session._prepared.add(7)
    monkeypatch.setattr(filesystem, "apply", Broken())
    with pytest.raises(AssertionError):
        session.close()
    assert filesystem.fatal.has_struck


def test_a_prepared_file_that_can_not_be_dropped_keeps_no_other_from_it(
    filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped: list[int] = []

    def abandon_file(handle: int) -> None:
        dropped.append(handle)
        if len(dropped) == 1:
            raise OSError(errno.EIO, "the host fails")

    session = MountHandler(filesystem, Broken(), b"/mnt", lambda: None, Counters()).session()
    session._prepared.update({7, 8})
    monkeypatch.setattr(filesystem.apply, "abandon_file", abandon_file)
    session.close()
    assert sorted(dropped) == [7, 8]
    assert not filesystem.fatal.has_struck
