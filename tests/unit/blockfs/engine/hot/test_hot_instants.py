"""Snapshots of files that the kernel writes: what a power cut at that moment could have left."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from blockfs.blocks.maintenance.scrub import scrub
from blockfs.engine.filesystem import Filesystem
from blockfs.engine.gate import WriteGate
from blockfs.engine.hot import naming, seal
from blockfs.engine.hot.folder import Descriptor, HotFolder
from blockfs.engine.hot.naming import Named
from blockfs.tree.schema import ROOT_INO, SNAPSHOTS_INO, HotState
from tests.unit.blockfs.engine.hot.hosts import BLOCK, PAGE, config, content, create, hot, make, sealed
from tests.unit.blockfs.engine.volumes import findings

ROUNDS = 3


def test_a_snapshot_has_what_was_synced_before_anything_else_in_it_was_written(
    filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaks as a database whose log was copied before it was synced, and whose tables after that."""
    inos = create(filesystem, b"log"), create(filesystem, b"tables")
    files = [hot(filesystem, ino) for ino in inos]
    for file in files:
        os.pwrite(file, b"0" * PAGE, 0)
    gate = filesystem._table.gate
    waits, captured, real_enter, real = threading.Event(), 0, WriteGate.enter, HotFolder.capture

    def enter(self: WriteGate, *, may_block: bool) -> None:
        if self._closings:
            waits.set()
        real_enter(self, may_block=may_block)

    def write() -> None:
        for number in range(1, ROUNDS + 1):
            for ino, file in zip(inos, files, strict=True):
                os.pwrite(file, b"%d" % number * PAGE, 0)
                filesystem.files.fsync(ino)
        waits.set()

    writer = threading.Thread(target=write)

    def capture(folder: HotFolder, file: Descriptor, filled: Descriptor | None = None) -> Descriptor | None:
        """Between the copies of the two the writer gets as far as it can."""
        nonlocal captured
        if gate._closings:
            if captured == 1:
                writer.start()
                waits.wait()
            captured += 1
        copy = real(folder, file, filled)
        if not gate._closings:
            os.pwrite(file.fd, b"0", 0)  # so that there is something to copy when the gate is closed
        return copy

    monkeypatch.setattr(HotFolder, "capture", capture)
    monkeypatch.setattr(WriteGate, "enter", enter)
    filesystem.snapshots.create(ROOT_INO, b"s")
    writer.join()
    assert captured >= 2
    filesystem.commit()
    with filesystem.tree.committed() as view:
        (top,) = [child for _, child in view.entries(SNAPSHOTS_INO)]
        copies = dict(view.copies(top))
    log, tables = (int(sealed(filesystem, copies[ino])[:1]) for ino in inos)
    assert tables <= log <= tables + 1
    assert os.pread(files[1], 1, 0) == b"%d" % ROUNDS


@pytest.mark.parametrize("size", [0, BLOCK + 5])
@pytest.mark.parametrize("way", ["cloned", "in a snapshot", "sealed"])
def test_a_file_that_is_cut_while_it_is_sealed_has_no_holes_where_its_leaves_went(
    place: Path, way: str, size: int
) -> None:
    """What the leaves have is not stored again. They end where the file does as soon as a flush tells of a cut."""
    syncs: list[Callable[[], None]] = []

    def checkpoint(name: str) -> None:
        if name == "blocks.sync" and syncs:
            syncs.pop(0)()

    filesystem = Filesystem.open(make(place / "v"), config(checkpoint))
    ino = create(filesystem, b"f")
    descriptor = hot(filesystem, ino)
    data = bytearray(os.urandom(8 * BLOCK))
    os.pwrite(descriptor, data, 0)
    filesystem.files.flush()
    data[3 * BLOCK : 4 * BLOCK] = b"n" * BLOCK
    os.pwrite(descriptor, data[3 * BLOCK : 4 * BLOCK], 3 * BLOCK)

    def cut() -> None:
        os.ftruncate(descriptor, size)
        filesystem._flusher.publish_older(0.0)

    def write() -> None:
        """The seal before the one with all writers held has been made."""
        os.utime(descriptor)

    match way:
        case "cloned":
            syncs.append(cut)
            found = sealed(filesystem, filesystem.clone(ino, ROOT_INO, b"clone"))
        case "in a snapshot":
            syncs += [write, cut]
            filesystem.snapshots.create(ROOT_INO, b"s")
            found = sealed(filesystem, filesystem.namespace.resolve(b".snapshots/s/f").ino)
        case _:
            syncs.append(cut)
            filesystem.files.flush(ino)
            (row,) = filesystem.tree.hot(ino)
            assert row.state is HotState.SEALED
            found = sealed(filesystem, ino)
    assert not syncs
    assert [place for place in range(0, len(found), BLOCK) if found[place:][:BLOCK] != data[place:][:BLOCK]] == []
    assert len(found) == len(data)
    filesystem.files.flush()
    assert content(filesystem, b"f") == sealed(filesystem, ino) == data[:size]
    assert findings(filesystem) == []
    filesystem.abandon()


@pytest.mark.parametrize("way", ["cloned", "sealed"])
def test_a_file_that_is_cut_while_bytes_that_it_had_already_are_sealed_is_sealed_again(place: Path, way: str) -> None:
    """What the first attempt let the copy share is no change for the second one."""
    syncs: list[Callable[[], None]] = []

    def checkpoint(name: str) -> None:
        if name == "blocks.sync" and syncs:
            syncs.pop()()

    filesystem = Filesystem.open(make(place / "v"), config(checkpoint))
    ino = create(filesystem, b"f")
    descriptor = hot(filesystem, ino)
    data = os.urandom(4 * BLOCK)
    os.pwrite(descriptor, data, 0)
    filesystem.files.flush()
    os.pwrite(descriptor, data[:BLOCK], 0)  # it lies elsewhere now

    def cut() -> None:
        os.ftruncate(descriptor, 2 * BLOCK)
        filesystem._flusher.publish_older(0.0)

    syncs.append(cut)
    if way == "cloned":
        assert sealed(filesystem, filesystem.clone(ino, ROOT_INO, b"clone")) == data
    else:
        filesystem.files.flush(ino)
    assert not syncs
    filesystem.files.flush()
    assert content(filesystem, b"f") == sealed(filesystem, ino) == data[: 2 * BLOCK]
    assert findings(filesystem) == []
    filesystem.abandon()


@pytest.mark.parametrize("way", ["hole", "cut and grown", "copied back"])
def test_what_comes_back_while_it_is_hashed_is_not_taken_for_what_never_went(
    filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Where bytes lie tells that they are the copy's, but not that they were when they were hashed."""
    files = filesystem.files
    ino = create(filesystem, b"f")
    descriptor = hot(filesystem, ino)
    data = bytearray(os.urandom(8 * BLOCK))
    os.pwrite(descriptor, data, 0)
    files.flush()
    there = data[5 * BLOCK :] if way == "copied back" else bytearray(3 * BLOCK)
    if way == "copied back":
        there[:PAGE] = b"n" * PAGE
        os.pwrite(descriptor, there[:PAGE], 5 * BLOCK)
        os.fsync(descriptor)
        assert filesystem.copy_range(ino, 5 * BLOCK, ino, 0, 3 * BLOCK) == 3 * BLOCK
        data[: 3 * BLOCK] = there
    else:
        files.zero(ino, 5 * BLOCK, 3 * BLOCK, keeps_size=True)
    data[5 * BLOCK :] = there
    real, runs = naming.named, iter([True])

    def named(fd: int, *arguments: Any) -> dict[int, Named]:
        is_first = fd == descriptor and next(runs, False)
        if is_first:
            os.pwrite(descriptor, b"y" * 3 * BLOCK, 5 * BLOCK)
        found = real(fd, *arguments)
        if is_first and way == "hole":
            files.zero(ino, 5 * BLOCK, 3 * BLOCK, keeps_size=True)
        elif is_first and way == "cut and grown":
            files.truncate(ino, 5 * BLOCK, may_block=True)
            files.truncate(ino, 8 * BLOCK, may_block=True)
        elif is_first:
            assert filesystem.copy_range(ino, 0, ino, 5 * BLOCK, 3 * BLOCK) == 3 * BLOCK
        return found

    monkeypatch.setattr(seal, "named", named)
    files.flush()
    assert next(runs, False) is False
    assert sealed(filesystem, ino) == data
    assert scrub(filesystem.blocks).is_clean
    assert content(filesystem, b"f") == data
