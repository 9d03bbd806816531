"""A mount collects by itself when there is a reason to."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from blockfs.engine import volume as volumes
from blockfs.engine.attributes import Caller
from blockfs.engine.filesystem import Filesystem
from blockfs.fuse import collector as collectors
from blockfs.fuse.collector import Collector
from blockfs.fuse.counters import Counters


@pytest.fixture
def filesystem(tmp_path: Path) -> Iterator[Filesystem]:
    path = os.fsencode(tmp_path / "v")
    volumes.init(path)
    opened = Filesystem.open(path)
    ino = opened.namespace.create(1, b"f", mode=0o600, caller=Caller(uid=0, gid=0)).ino
    opened.files.write(ino, 0, os.urandom(65536), may_block=True)
    opened.files.flush()
    opened.namespace.unlink(1, b"f")
    yield opened
    opened.close()


@pytest.fixture
def collector(filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    monkeypatch.setattr(collectors, "LOW_SPACE_SHARE", 1 << 60)  # never low, however full this machine is
    ending = threading.Event()
    made = Collector(filesystem, ending, Counters())
    yield made
    ending.set()
    made.join()


def test_nothing_is_done_without_a_reason(filesystem: Filesystem, collector: Collector) -> None:
    collector.look()
    assert filesystem.blocks.statistics().blocks == 1


def test_much_appended_is_a_reason(
    filesystem: Filesystem, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collectors, "is_due", lambda _blocks, _dead: True)
    collector.look()
    assert filesystem.blocks.statistics().blocks == 0


def test_low_space_is_a_reason_once_in_a_while(
    filesystem: Filesystem, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collectors, "LOW_SPACE_SHARE", 0)
    collector.look()
    assert filesystem.blocks.statistics().blocks == 0
    assert not collector._space_is_low()
