"""A mount collects by itself when there is a reason to."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from blockfs.blocks.maintenance import gc
from blockfs.engine import volume as volumes
from blockfs.engine.filesystem import Filesystem
from blockfs.engine.names.attributes import Caller
from blockfs.engine.space import policy
from blockfs.service import collector as collectors
from blockfs.service import maintenance
from blockfs.service.collector import Collector
from blockfs.service.counters import Counters


@pytest.fixture
def filesystem(tmp_path: Path) -> Iterator[Filesystem]:
    path = os.fsencode(tmp_path / "v")
    volumes.init(path)
    opened = Filesystem.open(path)
    write_and_unlink(opened, b"f")
    yield opened
    opened.close()


def write_and_unlink(filesystem: Filesystem, name: bytes) -> None:
    """Leave a dead block."""
    ino = filesystem.namespace.create(1, name, mode=0o600, caller=Caller(uid=0, gid=0)).ino
    filesystem.files.write(ino, 0, os.urandom(65535) + b"x", may_block=True)  # trailing NUL bytes would not count
    filesystem.files.flush()
    filesystem.namespace.unlink(1, name)
    filesystem.commit()


@pytest.fixture
def collector(filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    monkeypatch.setattr(policy, "LOW_SHARE", 1 << 60)  # never low, however full this machine is
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


def test_much_that_is_dead_is_a_reason(
    filesystem: Filesystem, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deletions append nothing."""
    monkeypatch.setattr(gc, "_DEAD_BYTES", 65535)
    collector.look()
    assert filesystem.blocks.statistics().blocks == 0


def test_what_a_collection_keeps_is_no_reason_for_the_next_one(
    filesystem: Filesystem, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pinned blocks are in no leaf: they must not be searched through every ten seconds."""
    owner = "12345678-1234-5678-1234-567812345678"
    monkeypatch.setattr(gc, "_DEAD_BYTES", 65535)
    filesystem.blocks.pin(owner, list(filesystem.blocks.ids()))
    runs: list[object] = []
    collect = maintenance.gc
    monkeypatch.setattr(maintenance, "gc", lambda *args, **kwargs: runs.append(args) or collect(*args, **kwargs))
    collector.look()
    collector.look()
    assert len(runs) == 1
    filesystem.blocks.unpin(owner)
    write_and_unlink(filesystem, b"g")
    write_and_unlink(filesystem, b"h")
    collector.look()
    assert len(runs) == 2
    assert filesystem.blocks.statistics().blocks == 0


def test_it_looks_by_itself_and_ends_with_the_mount(filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collectors, "LOOK_S", 0.01)
    monkeypatch.setattr(gc, "_DEAD_BYTES", 65535)
    collected, ending = threading.Event(), threading.Event()
    collect = maintenance.gc

    def collect_and_tell(*args: Any, **kwargs: Any) -> Any:
        done = collect(*args, **kwargs)
        collected.set()
        return done

    monkeypatch.setattr(maintenance, "gc", collect_and_tell)
    made = Collector(filesystem, ending, Counters())
    assert collected.wait(60)
    assert filesystem.blocks.statistics().blocks == 0
    ending.set()
    made.join()


def test_low_space_is_a_reason_once_in_a_while(
    filesystem: Filesystem, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy, "LOW_SHARE", 0)
    collector.look()
    assert filesystem.blocks.statistics().blocks == 0
    assert not collector._space_is_low()
