"""Control requests when the mount ends: its end waits for them, so each one that can take long lets go."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lmdb
import pytest

from blockfs.blocks.environment import lmdb_error
from blockfs.blocks.maintenance.gc import CollectionStopped
from blockfs.blocks.maintenance.scrub import ScrubStopped
from blockfs.control import protocol, snapshots
from blockfs.engine import volume as volumes
from blockfs.engine.config import EngineConfig
from blockfs.engine.filesystem import Filesystem
from blockfs.engine.names.attributes import Caller
from blockfs.engine.portions import StoppedError
from blockfs.errors import ChangesLostError
from blockfs.service.counters import Counters
from blockfs.service.handler import MountHandler, MountSession
from blockfs.tree.schema import ROOT_INO


class DeafKernel:
    def forget_entry(self, _parent: int, _name: bytes) -> None: ...

    def forget_attributes(self, _ino: int) -> None: ...

    def take_pages(self) -> None: ...


@pytest.fixture
def filesystem(tmp_path: Path) -> Iterator[Filesystem]:
    path = os.fsencode(tmp_path / "v")
    volumes.init(path)
    opened = Filesystem.open(path, EngineConfig(background=False))
    ino = opened.namespace.create(ROOT_INO, b"f", mode=0o600, caller=Caller(uid=0, gid=0)).ino
    opened.files.write(ino, 0, b"x" * 100_000)
    opened.files.flush()
    opened.snapshots.create(ROOT_INO, b"old")
    opened.files.write(ino, 0, b"y", may_block=True)
    yield opened
    opened.close()


@pytest.fixture
def handler(filesystem: Filesystem) -> MountHandler:
    return MountHandler(filesystem, DeafKernel(), b"/mnt", lambda: None, Counters())


@pytest.fixture
def session(handler: MountHandler) -> MountSession:
    return handler.session()


LONG: list[tuple[Any, type[Exception]]] = [
    (protocol.Stats(), StoppedError),
    (protocol.Fsck(), StoppedError),
    (protocol.Flush(), StoppedError),
    (protocol.Shutdown(seal=True), StoppedError),
    (protocol.Scrub(), ScrubStopped),
    (protocol.Gc(), CollectionStopped),
    (protocol.Changes(cursor=None, after=0, limit=100), StoppedError),
]


@pytest.mark.parametrize(("request_", "error"), LONG, ids=lambda one: type(one).__name__)
def test_a_long_request_lets_go_when_the_mount_ends(
    session: MountSession, handler: MountHandler, request_: Any, error: type[Exception]
) -> None:
    handler.ending.set()
    with pytest.raises(error):
        session.answer(request_)


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (protocol.Gc(), CollectionStopped),
        (snapshots.SnapshotCreate(src=b"", name=b"new"), StoppedError),
        (snapshots.SnapshotRestore(name=b"old", path=b"", dst=b"again"), StoppedError),
    ],
    ids=lambda one: type(one).__name__,
)
def test_who_waits_for_a_long_copy_lets_go_when_the_mount_ends(
    session: MountSession, handler: MountHandler, filesystem: Filesystem, request_: Any, error: type[Exception]
) -> None:
    """A collection marks only when nobody copies leaves, and a restore may copy for minutes."""
    ended: list[BaseException] = []
    filesystem.files.flush()

    def ask() -> None:
        with pytest.raises(error) as caught:
            session.answer(request_)
        ended.append(caught.value)

    asking = threading.Thread(target=ask)
    with filesystem.tree.copying:
        asking.start()
        handler.ending.set()
        asking.join()
    assert len(ended) == 1


def test_a_mount_that_ends_because_nothing_can_be_committed_says_that_it_has_ended(
    filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaks if who unmounts is told to unmount."""
    ended: list[bool] = []
    handler = MountHandler(filesystem, DeafKernel(), b"/mnt", lambda: ended.append(True), Counters())

    def fail() -> None:
        raise lmdb_error(lmdb.PanicError("x"), "/volume/tree", "")

    monkeypatch.setattr(filesystem, "sync", fail)
    with pytest.raises(ChangesLostError, match=r"the mount has ended; /volume/tree: the disk failed .*mount it anew"):
        handler.session().answer(protocol.Shutdown(seal=False))
    assert ended == [True]
