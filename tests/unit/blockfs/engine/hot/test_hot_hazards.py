"""What others do to the host's filesystem under a live hot file: all of it only makes work, and loses nothing."""

from __future__ import annotations

import errno
import gc
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.ids import BlockId
from blockfs.blocks.maintenance.gc import collect
from blockfs.blocks.maintenance.repack import Repacker
from blockfs.blocks.segments.reader import Located
from blockfs.engine.content.hostfile import HostIoError
from blockfs.engine.filesystem import Filesystem
from blockfs.engine.hot.compare import changed_blocks
from blockfs.engine.hot.naming import block_id_of
from blockfs.errors import CorruptionError, NoSpaceError
from blockfs.runtime.linux import punch_hole
from blockfs.runtime.reflink import share_equal
from blockfs.tree.schema import ROOT_INO, HotState
from tests.kit.hostfs import reflinking, run
from tests.unit.blockfs.engine.hot.hosts import (
    BLOCK,
    PAGE,
    config,
    content,
    create,
    find,
    hot,
    killed,
    make,
    sealed,
    segment_bytes,
)
from tests.unit.blockfs.engine.volumes import copy, findings

BLOCKS = 24


def noise(count: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(count)


class Live:
    """A sealed hot file of `BLOCKS` blocks, and what it must hold."""

    def __init__(self, filesystem: Filesystem) -> None:
        self.filesystem = filesystem
        self.data = bytearray(noise(BLOCKS * BLOCK))
        self.ino = create(filesystem, b"f")
        self.fd = hot(filesystem, self.ino)
        os.pwrite(self.fd, self.data, 0)
        filesystem.files.flush(self.ino)
        filesystem.commit()
        self.path = os.path.join(filesystem.volume.hot_path, os.listdir(filesystem.volume.hot_path)[0])

    def write(self, seed: int) -> None:
        """Write single pages here and there."""
        chance = random.Random(seed)
        for _ in range(20):
            at, page = chance.randrange(BLOCKS * BLOCK // PAGE) * PAGE, chance.randbytes(PAGE)
            os.pwrite(self.fd, page, at)
            self.data[at : at + PAGE] = page

    def dirty(self) -> list[tuple[int, int]]:
        return changed_blocks(self.filesystem._stores, self.ino, self.fd, len(self.data))

    def check(self) -> None:
        """Nothing is lost, neither where it is nor when it is sealed."""
        assert content(self.filesystem, b"f") == self.data
        self.filesystem.files.flush()
        assert sealed(self.filesystem, self.ino) == self.data
        assert findings(self.filesystem) == []


@pytest.fixture
def live(filesystem: Filesystem) -> Live:
    return Live(filesystem)


def test_what_is_shared_with_others_is_dirty_all_the_same(live: Live) -> None:
    """Breaks if the flag SHARED is believed: a reflink copy of the hot file hides every page that was written."""
    live.write(1)
    os.fsync(live.fd)
    run("cp", "--reflink=always", os.fsdecode(live.path), os.fsdecode(live.path) + "-copy")
    assert live.dirty()
    live.check()


def test_a_snapshot_of_the_subvolume_hides_nothing(tmp_path: Path) -> None:
    with reflinking(tmp_path, "btrfs") as host:
        live = Live(Filesystem.open(make(host / "v"), config()))
        for seed in range(3):
            live.write(seed)
            run("btrfs", "subvolume", "snapshot", host, host / f"snapshot{seed}")
            live.check()
            run("btrfs", "subvolume", "snapshot", host, host / f"again{seed}")
        live.filesystem.close()
        del live
        gc.collect()


def test_deduplication_by_somebody_else_hides_nothing(live: Live) -> None:
    """A block that was overwritten with what another block of the file has comes to lie where that lies."""
    live.data[3 * BLOCK : 4 * BLOCK] = live.data[9 * BLOCK : 10 * BLOCK]
    os.pwrite(live.fd, live.data[9 * BLOCK : 10 * BLOCK], 3 * BLOCK)
    os.fsync(live.fd)
    assert share_equal(live.fd, 9 * BLOCK, BLOCK, live.fd, 3 * BLOCK)
    assert live.dirty() == [(3, 4)]
    live.check()


def defragment(host: Path, path: str) -> None:
    if shutil.which("xfs_fsr") and b"xfs" in subprocess.check_output(["stat", "-f", "-c", "%T", host]):
        subprocess.run(["xfs_fsr", "-v", path], check=False, capture_output=True)
    else:
        run("btrfs", "filesystem", "defragment", "-f", path)


def test_defragmentation_only_makes_work(live: Live, host: Path) -> None:
    for seed in range(3):
        live.write(seed)
        defragment(host, os.fsdecode(live.path))
        live.write(seed + 10)
        live.check()


def test_a_balance_of_the_host_only_makes_work(tmp_path: Path) -> None:
    with reflinking(tmp_path, "btrfs") as host:
        live = Live(Filesystem.open(make(host / "v"), config()))
        live.write(1)
        run("btrfs", "balance", "start", "--full-balance", host)
        live.write(2)
        live.check()
        run("btrfs", "balance", "start", "--full-balance", host)
        live.check()
        live.filesystem.close()
        del live
        gc.collect()


def test_a_segment_that_loses_blocks_takes_nothing_from_a_hot_file(live: Live) -> None:
    """Breaks if places that were noted at assembly are compared: what is punched may be given to other bytes."""
    filesystem = live.filesystem
    live.write(1)
    folder = filesystem.blocks.layout.segments
    for name in os.listdir(folder):
        if name.endswith(".seg"):
            fd = os.open(os.path.join(folder, name), os.O_RDWR)
            punch_hole(fd, 2 * PAGE, 8 * BLOCK)
            os.close(fd)
    assert content(filesystem, b"f") == live.data
    first = [number for start, end in live.dirty() for number in range(start, end)]
    assert set(range(7)) <= set(first)


def test_a_stored_block_that_has_rotted_is_not_taken_for_what_was_written(live: Live) -> None:
    """Breaks if a known id is believed, or if it is enough that the kernel was asked to share."""
    block = 5
    data = bytes(live.data[block * BLOCK : (block + 1) * BLOCK])
    blocks = live.filesystem.blocks
    with blocks.places([block_id_of(data)]) as (place,):
        assert place is not None
    segment = os.fsdecode(blocks.layout.segment(place.segment))
    with open(segment, "r+b") as file:
        os.pwrite(file.fileno(), b"rot", place.offset + 3 * PAGE)
        os.fsync(file.fileno())
    other = create(live.filesystem, b"other")
    fd = hot(live.filesystem, other)
    written = bytes(live.data[(block - 1) * BLOCK : (block + 3) * BLOCK])
    os.pwrite(fd, written, 0)
    live.filesystem.files.flush()
    assert sealed(live.filesystem, other) == written
    assert content(live.filesystem, b"other") == written


def test_blocks_that_come_again_in_one_file_are_stored_once(filesystem: Filesystem) -> None:
    ino = create(filesystem, b"f")
    fd = hot(filesystem, ino)
    one, two, three = (random.Random(seed).randbytes(BLOCK) for seed in range(3))
    short = b"x" * (2 * PAGE + 5) + bytes(BLOCK - 2 * PAGE - 5)
    data = one + two + two + one + short + three + short + bytes(BLOCK) + two + one[:100]
    os.pwrite(fd, data, 0)
    before = segment_bytes(filesystem)
    filesystem.files.flush()
    assert sealed(filesystem, ino) == data
    assert findings(filesystem) == []
    assert segment_bytes(filesystem) - before <= 3 * BLOCK + 4 * PAGE + PAGE
    assert changed_blocks(filesystem._stores, ino, fd, len(data)) in ([], [(9, 10)])  # its end shares no page


def test_collection_takes_nothing_that_is_needed(live: Live) -> None:
    filesystem = live.filesystem
    for seed in range(3):
        live.write(seed)
        filesystem.files.flush()
        filesystem.commit()
        filesystem.blocks.release_segments()
        done = collect(filesystem.blocks, filesystem.tree.view_for_marking().live_ids)
        assert done.blocks_removed
        live.check()
        filesystem.hot.release(live.ino)
        filesystem.hot.give_up_all()
        live.fd = hot(filesystem, live.ino)
        assert content(filesystem, b"f") == live.data


def test_a_look_at_what_was_looked_at_before_asks_for_no_block(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cost of sealing goes by what changed. Leaves that changed are new ones."""
    asked: list[int] = []
    real = BlockDirectory.places

    def places(blocks: BlockDirectory, ids: Sequence[BlockId]) -> AbstractContextManager[list[Located | None]]:
        asked.append(len(ids))
        return real(blocks, ids)

    live.dirty()
    monkeypatch.setattr(BlockDirectory, "places", places)
    assert live.dirty() == []
    assert asked == []
    live.write(1)
    assert live.dirty()
    assert asked == []
    live.check()
    assert live.dirty() == []


def test_blocks_that_were_moved_are_found_again(live: Live) -> None:
    """Breaks if a place that was known before is believed, or asked for ever."""
    filesystem = live.filesystem
    live.dirty()
    filesystem.commit()
    filesystem.blocks.release_segments()
    blocks = filesystem.blocks
    with blocks.index.reading() as txn:
        numbers = [number for number, _ in blocks.index.segments(txn)]
    Repacker(blocks).repack(numbers, lambda: None)
    blocks.release_segments()
    collect(blocks, filesystem.tree.view_for_marking().live_ids)
    live.write(1)
    assert live.dirty() == [(0, BLOCKS)]
    live.check()
    settle(live)
    assert live.dirty() == []


def settle(live: Live) -> None:
    """Seal what the last seal could not know to be old."""
    live.filesystem.files.flush()
    live.filesystem.commit()


def test_a_volume_copied_without_its_reflinks_is_only_dirty(live: Live, tmp_path: Path) -> None:
    live.write(1)
    live.filesystem.files.fsync(live.ino)
    live.write(2)
    path = copy(killed(live.filesystem), tmp_path / "copy")
    for native in (True, False):
        again = Filesystem.open(path, config(native=native))  # on a host without reflinks
        assert content(again, b"f") == live.data
        assert sealed(again, live.ino) == live.data
        assert not again.tree.all_hot()
        again.close()


def test_a_hot_file_that_is_gone_is_corruption_until_it_is_given_up(live: Live) -> None:
    live.write(1)
    live.filesystem.files.fsync(live.ino)
    path = killed(live.filesystem)
    os.unlink(live.path)
    with pytest.raises(CorruptionError):
        Filesystem.open(path, config())


def test_a_full_host_fails_writers_and_loses_nothing(tmp_path: Path) -> None:
    with reflinking(tmp_path, "xfs") as host:
        filesystem = Filesystem.open(make(host / "v"), config())
        ino = create(filesystem, b"f")
        fd = hot(filesystem, ino)
        data = noise(4 * BLOCK)
        os.pwrite(fd, data, 0)
        filesystem.files.flush(ino)
        filler = os.open(host / "filler", os.O_RDWR | os.O_CREAT)
        assert fill(filler, 0) > 0
        os.fsync(filler)
        assert fill(fd, len(data)) < 1000 * BLOCK
        held = content(filesystem, b"f")
        assert held[: len(data)] == data
        try:
            filesystem.files.flush(ino)
        except NoSpaceError:
            assert sealed(filesystem, ino) == data
        os.ftruncate(filler, 0)
        os.close(filler)
        filesystem.files.flush(ino)
        assert sealed(filesystem, ino) == content(filesystem, b"f") == held
        filesystem.close()
        del filesystem
        gc.collect()


def test_the_room_of_a_removed_file_is_there_for_who_needs_it(filesystem: Filesystem) -> None:
    """Breaks if the host has it only once a second has gone by."""
    ino = create(filesystem, b"f")
    os.pwrite(hot(filesystem, ino), noise(4 * BLOCK), 0)
    filesystem.files.flush()
    filesystem.hot.release(ino)
    filesystem.namespace.unlink(ROOT_INO, b"f")
    left: list[int] = []

    def make() -> None:
        left.append(len(os.listdir(filesystem.volume.hot_path)))
        if len(left) == 1:
            raise NoSpaceError("full")

    filesystem.with_room(make)
    assert left == [1, 0]


def fill(fd: int, at: int) -> int:
    """Write until the host is full; returns where that was."""
    chance = random.Random(at)
    while True:
        try:
            at += os.pwrite(fd, chance.randbytes(BLOCK), at)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            return at


WRITER = """
import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
mapped = mmap.mmap(fd, 0)
os.close(fd)
print("ready", flush=True)
for line in sys.stdin:
    at, _, text = line.strip().partition(" ")
    mapped[int(at) : int(at) + len(text)] = text.encode()
    print("done", flush=True)
"""


class Writer:
    """A program that has a hot file mapped, whatever becomes of the mount."""

    def __init__(self, path: bytes) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", WRITER, os.fsdecode(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._answer("ready")

    def _answer(self, expected: str) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline().strip() == expected

    def write(self, at: int, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{at} {text}\n")
        self._process.stdin.flush()
        self._answer("done")

    def end(self) -> None:
        self._process.communicate()


@pytest.fixture
def writer(live: Live) -> Iterator[Writer]:
    made = Writer(live.path)
    yield made
    made.end()


def names(filesystem: Filesystem) -> list[bytes]:
    return sorted(name for name, _ in filesystem.tree.entries(1))


def test_writers_that_outlive_the_mount_go_on_beside_it_and_lose_nothing(live: Live, writer: Writer) -> None:
    """Breaks if the next mount's file changes under it, or if what they write then is thrown away."""
    writer.write(10, "before")
    live.data[10:16] = b"before"
    live.filesystem.files.fsync(live.ino)
    path = killed(live.filesystem)
    again = Filesystem.open(path, config())
    states = sorted(row.state for row in again.tree.hot(live.ino))
    assert states == [HotState.BEHIND, HotState.LEFT]
    writer.write(PAGE, "after")
    assert content(again, b"f") == live.data
    os.pwrite(hot(again, live.ino), b"new mount", 5 * PAGE)
    again._left_files.look()
    assert len(again.tree.hot(live.ino)) == 2, "somebody may still write"
    again.close()
    del again
    gc.collect()
    writer.end()
    last = Filesystem.open(path, config())
    last._left_files.look()
    last.files.flush()
    kept = bytes(live.data[:PAGE] + b"after" + live.data[PAGE + 5 :])
    live.data[5 * PAGE : 5 * PAGE + 9] = b"new mount"
    assert names(last) == [b"f", b"f.written-after-crash"]
    assert sealed(last, find(last, b"f")) == content(last, b"f") == live.data
    assert sealed(last, find(last, b"f.written-after-crash")) == content(last, b"f.written-after-crash") == kept
    assert findings(last) == []
    last.close(seal=True)
    assert os.listdir(os.path.join(path, b"hot")) == []


def test_a_file_that_is_removed_leaves_nothing_of_what_was_left_to_writers(live: Live, writer: Writer) -> None:
    live.filesystem.files.fsync(live.ino)
    path = killed(live.filesystem)
    again = Filesystem.open(path, config())
    writer.write(PAGE, "after")
    again.namespace.unlink(ROOT_INO, b"f")
    again.close(seal=True)
    assert os.listdir(os.path.join(path, b"hot")) == []


def test_writers_that_outlived_the_mount_and_wrote_nothing_leave_nothing(live: Live, writer: Writer) -> None:
    live.filesystem.files.fsync(live.ino)
    path = killed(live.filesystem)
    again = Filesystem.open(path, config())
    assert len(again.tree.hot(live.ino)) == 2
    writer.end()
    again._left_files.look()
    assert names(again) == [b"f"]
    assert content(again, b"f") == live.data
    again.close(seal=True)
    assert os.listdir(os.path.join(path, b"hot")) == []


def test_a_failed_write_back_is_told_and_nothing_of_the_file_is_sealed(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fdatasync

    def fails(fd: int) -> None:
        if fd == live.fd:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(fd)

    before = sealed(live.filesystem, live.ino)
    live.write(1)
    monkeypatch.setattr(os, "fdatasync", fails)
    for _ in range(2):
        with pytest.raises(HostIoError):
            live.filesystem.files.fsync(live.ino)
        monkeypatch.setattr(os, "fdatasync", real)
    with pytest.raises(HostIoError):
        live.filesystem.files.flush(live.ino)
    assert sealed(live.filesystem, live.ino) == before
    assert content(live.filesystem, b"f") == live.data
