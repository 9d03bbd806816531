"""Errors that nobody expected, in any thread: nothing half-done becomes durable, and the mount does not go on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from blockfs.engine.config import EngineConfig
from blockfs.engine.copies.snapshots import Snapshots
from blockfs.engine.durable.committer import Committer
from blockfs.engine.durable.flush import Flusher
from blockfs.engine.durable.seal_queue import SealQueue
from blockfs.engine.fatal import Doing, Fatal
from blockfs.engine.filesystem import Filesystem
from blockfs.errors import AbandonedError, FsError
from blockfs.tree.schema import ROOT_INO
from tests.unit.blockfs.engine.volumes import USER, config, create, find, findings, make

PATIENCE_S = 60.0  # for what must come; nothing is asserted about time


class BugError(Exception):
    """What nobody expects."""


@pytest.fixture
def path(tmp_path: Path) -> bytes:
    return make(tmp_path / "volume")


@pytest.fixture
def filesystem(path: bytes) -> Iterator[Filesystem]:
    opened = Filesystem.open(path, config())
    yield opened
    opened.abandon()


def fails(*_arguments: Any, **_keywords: Any) -> None:
    raise BugError


def in_a_thread(call: Callable[[], object]) -> None:
    """As a control request: whoever meets the error is not who commits."""

    def quietly() -> None:
        with pytest.raises(BugError):
            call()

    thread = threading.Thread(target=quietly)
    thread.start()
    thread.join()


CHANGES: dict[str, Callable[[Filesystem, int], object]] = {
    "mkdir": lambda fs, _: fs.namespace.mkdir(ROOT_INO, b"new", mode=0o755, caller=USER),
    "create": lambda fs, _: fs.namespace.create(ROOT_INO, b"new", mode=0o644, caller=USER),
    "link": lambda fs, ino: fs.namespace.link(ino, ROOT_INO, b"new"),
    "unlink": lambda fs, _: fs.namespace.unlink(ROOT_INO, b"old"),
    "rename": lambda fs, _: fs.namespace.rename(ROOT_INO, b"old", ROOT_INO, b"new"),
}


STEPS = [
    (kind, step)
    for kind, steps in {
        "mkdir": ("link", "put_inode"),
        "create": ("link", "put_inode"),
        "link": ("link", "put_inode"),
        "unlink": ("unlink", "put_inode"),
        "rename": ("unlink", "link", "put_inode"),
    }.items()
    for step in steps
]


@pytest.mark.parametrize(("kind", "step"), STEPS)
def test_half_a_change_never_becomes_durable(
    path: bytes, monkeypatch: pytest.MonkeyPatch, kind: str, step: str
) -> None:
    """The engine's lock is free after the bug; the next commit must not take the half along."""
    filesystem = Filesystem.open(path, config())
    ino = create(filesystem, b"old")
    filesystem.commit()
    whole = getattr(filesystem.tree, step)

    def then_fails(*arguments: Any, **keywords: Any) -> None:
        whole(*arguments, **keywords)
        raise BugError

    monkeypatch.setattr(filesystem.tree, step, then_fails)
    in_a_thread(lambda: CHANGES[kind](filesystem, ino))
    with pytest.raises(AbandonedError, match="BugError in"):
        filesystem.commit()
    with pytest.raises(AbandonedError):
        filesystem.close()
    again = Filesystem.open(path, config())
    assert find(again, b"old") == ino
    assert find(again, b"new") is None
    assert findings(again) == []
    again.close()


def test_the_same_error_where_nothing_is_changed_costs_the_request_only(
    filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(filesystem, b"f")
    monkeypatch.setattr(filesystem.namespace.inodes, "attributes", fails)
    with Doing("lookup", looks=True) as doing, pytest.raises(BugError) as caught:
        filesystem.namespace.lookup(ROOT_INO, b"f")
    filesystem.fatal.met(caught.value, doing)
    assert not filesystem.fatal.has_struck
    filesystem.commit()


def test_an_expected_failure_abandons_nothing(filesystem: Filesystem) -> None:
    with pytest.raises(FsError):
        filesystem.namespace.unlink(ROOT_INO, b"missing")
    filesystem.commit()


def test_an_fsync_after_the_bug_does_not_succeed(filesystem: Filesystem) -> None:
    """What it would promise is never committed."""
    ino = create(filesystem, b"f")
    filesystem.files.write(ino, 0, b"x")
    filesystem.fatal.strike(BugError(), "a test")
    with pytest.raises(AbandonedError):
        filesystem.files.fsync(ino)


def test_a_writer_at_the_limit_does_not_wait_for_sealing_that_will_not_come(
    path: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited = EngineConfig(staged_limit_bytes=4096, reserve_bytes=0, ballast_bytes=0)
    filesystem = Filesystem.open(path, limited)
    ino = create(filesystem, b"f")
    monkeypatch.setattr(filesystem._seal_queue, "seal_due", fails)
    filesystem.files.write(ino, 0, bytes(4096), may_block=True)
    with pytest.raises(AbandonedError):
        filesystem.files.write(ino, 4096, bytes(1 << 20), may_block=True)
    filesystem.abandon()


WORKERS: dict[str, tuple[type, str]] = {
    "blocksync-commit": (Committer, "commit"),
    "blocksync-publish": (Flusher, "publish_older"),
    "blocksync-remove": (Snapshots, "remove_unfinished"),
    "blocksync-seal-0": (SealQueue, "seal_due"),
}


@pytest.mark.parametrize("name", WORKERS)
def test_a_bug_in_any_worker_ends_the_mount_and_not_the_thread_alone(
    path: bytes, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A mount without its commit thread would go on, and make nothing durable that nobody fsyncs."""
    owner, method = WORKERS[name]
    monkeypatch.setattr(owner, method, fails)
    eager = EngineConfig(commit_s=0.001, publish_s=0.001, seal_workers=1, reserve_bytes=0, ballast_bytes=0)
    filesystem = Filesystem.open(path, eager)
    struck = threading.Event()
    filesystem.fatal.listen(struck.set)
    filesystem._seal_queue.wanted.set()
    assert struck.wait(PATIENCE_S)
    with pytest.raises(AbandonedError, match=f"BugError in {name}"):
        filesystem.close()


def test_the_first_error_is_the_one_that_is_told_and_listeners_hear_it_once() -> None:
    fatal = Fatal()
    heard: list[str] = []
    fatal.listen(lambda: heard.append("before"))
    fatal.check()
    fatal.strike(BugError(), "one place")
    fatal.strike(KeyError(), "another")
    fatal.listen(lambda: heard.append("after"))
    assert heard == ["before", "after"]
    with pytest.raises(AbandonedError, match="BugError in one place"):
        fatal.check()
