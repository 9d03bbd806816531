"""Hot files: what is written to their descriptors is the file, before and after it is sealed."""

from __future__ import annotations

import mmap
import os
import random
from pathlib import Path
from types import SimpleNamespace

import pytest

from blockfs.engine import volume
from blockfs.engine.durable import seal_queue
from blockfs.engine.filesystem import Filesystem
from blockfs.engine.hot import capture, hotfile, hotfiles, seal
from blockfs.engine.hot.compare import changed_blocks
from blockfs.engine.hot.folder import Descriptor, HotFolder
from blockfs.engine.hot.hotfile import HotFile
from blockfs.engine.names.attributes import AttributeChanges
from blockfs.engine.space import policy
from blockfs.errors import FsError, WouldBlock
from blockfs.service import maintenance
from blockfs.service.changes import sealed_file
from blockfs.tree.schema import FORMAT, PLAIN_FORMAT, ROOT_INO, SNAPSHOTS_INO
from tests.unit.blockfs.engine.hot.hosts import (
    BLOCK,
    PAGE,
    config,
    content,
    create,
    find,
    format_of,
    hot,
    killed,
    make,
    sealed,
    segment_bytes,
)
from tests.unit.blockfs.engine.volumes import findings


def noise(count: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(count)


def test_a_native_mount_says_that_it_is_one(filesystem: Filesystem) -> None:
    assert filesystem.hot.why_not is None


def test_files_beyond_the_most_go_through_us_and_what_there_is_stays(filesystem: Filesystem) -> None:
    filesystem.hot.most = 1
    first, second = create(filesystem, b"first"), create(filesystem, b"second")
    written = hot(filesystem, first)
    assert filesystem.hot.open(second, may_block=True) is None
    filesystem.files.write(second, 0, b"through us", may_block=True)
    assert hot(filesystem, first) == written
    assert not filesystem.hot.is_hot(second)
    assert content(filesystem, b"second") == b"through us"


def test_a_mount_says_why_it_is_none(place: Path, tmp_path: Path) -> None:
    path = volume.init(os.fsencode(place / "z"), block_size=BLOCK, compression="zstd").path
    for where, native, why in (
        (path, True, "compressed"),
        (make(place / "n"), False, "asked"),
        (make(tmp_path / "e"), True, "reflinks"),
    ):
        opened = Filesystem.open(where, config(native=native))
        assert why in (opened.hot.why_not or "")
        ino = create(opened, b"f")
        assert opened.hot.open(ino, may_block=True) is None
        opened.close()


def test_what_the_kernel_writes_is_the_file_at_once_and_after_a_seal(filesystem: Filesystem) -> None:
    data = noise(3 * BLOCK + 700)
    ino = create(filesystem, b"f")
    fd = hot(filesystem, ino)
    os.pwrite(fd, data, 0)
    assert filesystem.namespace.getattr(ino).size_bytes == len(data)
    assert content(filesystem, b"f") == data
    buffer = bytearray(len(data) + 10)
    assert filesystem.files.read_into(ino, 0, memoryview(buffer)) == len(data)
    assert filesystem.files.read(ino, 5, 10) == data[5:15] == buffer[5:15]
    filesystem.files.write(ino, 2, b"by us", may_block=True)
    data = data[:2] + b"by us" + data[7:]
    assert os.pread(fd, len(data), 0) == data
    filesystem.files.flush(ino)
    assert sealed(filesystem, ino) == data
    assert findings(filesystem) == []


def test_sealing_writes_no_bytes_a_second_time(filesystem: Filesystem) -> None:
    """Breaks if payload is copied: the host's free space shows it."""
    data = noise(64 * BLOCK)
    ino = create(filesystem, b"f")
    fd = hot(filesystem, ino)
    os.pwrite(fd, data, 0)
    os.fsync(fd)
    os.sync()
    before = os.statvfs(filesystem.volume.path).f_bfree
    filesystem.files.flush(ino)
    os.sync()
    after = os.statvfs(filesystem.volume.path).f_bfree
    assert sealed(filesystem, ino) == data
    assert (before - after) * 4096 < len(data) // 2


def test_a_seal_takes_only_what_was_written(filesystem: Filesystem) -> None:
    data = bytearray(noise(32 * BLOCK))
    ino = create(filesystem, b"f")
    fd = hot(filesystem, ino)
    os.pwrite(fd, data, 0)
    filesystem.files.flush(ino)
    before = segment_bytes(filesystem)
    data[5 * BLOCK + PAGE : 5 * BLOCK + 2 * PAGE] = noise(PAGE, 1)
    os.pwrite(fd, noise(PAGE, 1), 5 * BLOCK + PAGE)
    filesystem.files.flush(ino)
    assert segment_bytes(filesystem) - before == BLOCK
    assert sealed(filesystem, ino) == data


def test_a_sealed_file_is_assembled_again_and_nothing_of_it_is_dirty(filesystem: Filesystem) -> None:
    data = noise(8 * BLOCK)
    ino = create(filesystem, b"f")
    filesystem.files.write(ino, 0, data, may_block=True)
    with pytest.raises(WouldBlock):
        filesystem.hot.open(ino)
    before = filesystem.namespace.getattr(ino)
    fd = hot(filesystem, ino)
    assert filesystem.hot.is_hot(ino)
    assert os.pread(fd, len(data), 0) == data
    after = filesystem.namespace.getattr(ino)
    assert (after.size_bytes, after.mtime_ns, after.ctime_ns) == (before.size_bytes, before.mtime_ns, before.ctime_ns)
    version = filesystem.tree.inode(ino)
    steps = segment_bytes(filesystem)
    filesystem.files.flush(ino)
    assert filesystem.tree.inode(ino) == version
    assert segment_bytes(filesystem) == steps


def test_a_second_open_gets_the_same_descriptor(filesystem: Filesystem) -> None:
    ino = create(filesystem, b"f")
    assert hot(filesystem, ino) == filesystem.hot.open(ino)
    filesystem.hot.release(ino)
    assert filesystem.hot.is_hot(ino)


def test_a_new_file_that_is_closed_is_sealed_and_its_hot_file_goes(filesystem: Filesystem) -> None:
    ino = create(filesystem, b"f")
    os.pwrite(hot(filesystem, ino), b"short", 0)
    filesystem.hot.release(ino)
    filesystem.files.flush()
    filesystem.hot.tidy()
    assert not filesystem.hot.is_hot(ino)
    filesystem.commit()
    filesystem.hot.tidy()
    assert os.listdir(filesystem.volume.hot_path) == []
    assert content(filesystem, b"f") == sealed(filesystem, ino) == b"short"
    assert format_of(filesystem) == PLAIN_FORMAT


def test_a_flush_gives_up_what_nobody_needs(filesystem: Filesystem) -> None:
    """Breaks if a small file stays hot after a flush: each stat(2) of it is two requests."""
    closed, opened = create(filesystem, b"closed"), create(filesystem, b"open")
    for ino in (closed, opened):
        os.pwrite(hot(filesystem, ino), b"x" * 100, 0)
    filesystem.hot.release(closed)
    filesystem.flush()
    assert [filesystem.hot.is_hot(ino) for ino in (closed, opened)] == [False, True]
    assert content(filesystem, b"closed") == b"x" * 100


def test_a_large_clean_file_is_kept_for_the_next_open(filesystem: Filesystem) -> None:
    ino = create(filesystem, b"f")
    fd = hot(filesystem, ino)
    os.pwrite(fd, noise(2 << 20), 0)
    filesystem.hot.release(ino)
    filesystem.files.flush()
    filesystem.hot.tidy()
    assert filesystem.hot.open(ino) == fd


def test_only_so_many_clean_files_are_kept_those_that_were_used_last(
    filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaks if each image that was ever opened costs a descriptor for ever."""
    monkeypatch.setattr(hotfiles, "_KEPT", 2)
    inodes = [create(filesystem, name) for name in (b"a", b"b", b"c", b"d")]
    for number, ino in enumerate(inodes):
        os.pwrite(hot(filesystem, ino), noise(2 << 20, number), 0)
        filesystem.hot.release(ino)
    filesystem.files.flush()
    filesystem.hot.tidy()
    assert [filesystem.hot.is_hot(ino) for ino in inodes] == [False, False, True, True]


def test_on_a_nearly_full_host_the_oldest_clean_files_go(
    filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaks if only their number bounds them: one whose blocks were moved holds the room that these had."""
    inodes = [create(filesystem, name) for name in (b"a", b"b", b"c", b"open")]
    for number, ino in enumerate(inodes):
        os.pwrite(hot(filesystem, ino), noise(2 << 20, number), 0)
    for ino in inodes[:3]:
        filesystem.hot.release(ino)
    filesystem.files.flush()

    def are_hot() -> list[bool]:
        filesystem.hot.tidy()
        return [filesystem.hot.is_hot(ino) for ino in inodes]

    assert are_hot() == [True, True, True, True]
    monkeypatch.setattr(policy, "LOW_SHARE", 0)
    assert are_hot() == [False, False, True, True]
    monkeypatch.undo()
    assert are_hot() == [False, False, True, True]
    monkeypatch.setattr(policy, "LOW_SHARE", 0)
    assert are_hot() == [False, False, False, True]
    filesystem.commit()
    filesystem.hot.tidy()
    assert len(os.listdir(filesystem.volume.hot_path)) == 1
    assert [content(filesystem, name) for name in (b"a", b"c", b"open")] == [noise(2 << 20, n) for n in (0, 2, 3)]


def test_on_a_nearly_full_host_a_file_that_is_written_all_the_time_is_sealed_soon(
    filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaks if a guest fills the host with blocks that the volume has, though sealing would share them."""
    ino = create(filesystem, b"f")
    fd = hot(filesystem, ino)
    os.pwrite(fd, noise(8 * BLOCK), 0)
    filesystem.files.flush(ino)
    state = filesystem._table.peek(ino)
    assert state is not None
    assert state.hot is not None
    sealed_s = state.hot.sealed_at_s
    os.pwrite(fd, noise(PAGE, 1), 0)
    filesystem._table.look()

    def is_due(after_s: float) -> bool:
        """Whether it is, though somebody goes on writing."""
        monkeypatch.setattr(seal_queue, "time", SimpleNamespace(monotonic=lambda: sealed_s + after_s))
        state.written_at_s = sealed_s + after_s + 1  # `quiet_s` is 0 here
        return state in filesystem._seal_queue._choose()

    assert (is_due(60), is_due(301)) == (False, True)
    monkeypatch.setattr(policy, "LOW_SHARE", 0)
    assert (is_due(5), is_due(11)) == (False, True)


def test_what_is_to_be_sealed_of_a_hot_file_is_told(filesystem: Filesystem) -> None:
    ino = create(filesystem, b"f")
    fd = hot(filesystem, ino)
    os.pwrite(fd, noise(8 * BLOCK), 0)
    filesystem.files.fsync(ino)
    assert filesystem.files.unsealed_bytes() == 8 * BLOCK
    filesystem.files.flush(ino)
    assert filesystem.files.unsealed_bytes() == 0
    os.pwrite(fd, noise(PAGE, 1), 3 * BLOCK)
    filesystem.files.fsync(ino)
    assert filesystem.files.unsealed_bytes() == PAGE


def test_the_format_is_raised_while_one_lives_and_lowered_by_sealing_all(filesystem: Filesystem) -> None:
    ino = create(filesystem, b"f")
    fd = hot(filesystem, ino)
    os.pwrite(fd, b"x" * PAGE, 0)
    assert format_of(filesystem) == PLAIN_FORMAT  # it promises nothing yet
    filesystem.files.fsync(ino)
    assert format_of(filesystem) == FORMAT
    filesystem.hot.release(ino)
    path = filesystem.volume.path
    filesystem.close(seal=True)
    again = Filesystem.open(path, config(native=False))
    assert format_of(again) == PLAIN_FORMAT
    assert content(again, b"f") == b"x" * PAGE
    again.close()


def test_a_file_whose_rest_is_cut_off_seals_what_is_left(filesystem: Filesystem) -> None:
    data = noise(4 * BLOCK)
    ino = create(filesystem, b"f")
    fd = hot(filesystem, ino)
    os.pwrite(fd, data, 0)
    filesystem.files.flush(ino)
    for size in (2 * BLOCK + PAGE, BLOCK + 100, 3 * BLOCK, 0):
        filesystem.files.truncate(ino, size, may_block=True)
        data = data[:size].ljust(size, b"\0")
        assert content(filesystem, b"f") == data
        filesystem.files.flush(ino)
        assert sealed(filesystem, ino) == data
        assert findings(filesystem) == []


def test_holes_are_made_found_and_sealed(filesystem: Filesystem) -> None:
    data = bytearray(noise(4 * BLOCK))
    ino = create(filesystem, b"f")
    os.pwrite(hot(filesystem, ino), data, 0)
    filesystem.files.flush(ino)
    filesystem.files.zero(ino, BLOCK, BLOCK + PAGE, keeps_size=True)
    data[BLOCK : 2 * BLOCK + PAGE] = bytes(BLOCK + PAGE)
    assert filesystem.files.next_hole(ino, 0) == BLOCK
    assert filesystem.files.next_data(ino, BLOCK) == 2 * BLOCK + PAGE
    assert filesystem.namespace.getattr(ino).allocated_bytes == 4 * BLOCK - BLOCK - PAGE
    filesystem.files.zero(ino, 5 * BLOCK, PAGE, keeps_size=False)
    data += bytes(BLOCK + PAGE)
    filesystem.files.allocate(ino, 0, 6 * BLOCK, keeps_size=True)
    filesystem.files.flush(ino)
    assert content(filesystem, b"f") == sealed(filesystem, ino) == data
    assert filesystem.files.next_data(ino, 7 * BLOCK) is None
    with pytest.raises(FsError):
        filesystem.files.zero(ino, 0, 0, keeps_size=True)


def test_zeros_become_holes_and_are_clean_then(filesystem: Filesystem) -> None:
    """Breaks if blocks of NUL bytes are dirty for ever."""
    ino = create(filesystem, b"f")
    fd = hot(filesystem, ino)
    os.pwrite(fd, bytes(8 * BLOCK) + noise(PAGE) + bytes(BLOCK - PAGE), 0)
    filesystem.files.flush(ino)
    assert os.lseek(fd, 0, os.SEEK_DATA) == 8 * BLOCK
    assert filesystem.files.next_hole(ino, 8 * BLOCK) == 8 * BLOCK + PAGE
    assert content(filesystem, b"f") == sealed(filesystem, ino)


def test_what_is_stored_already_is_shared_and_not_stored_twice(filesystem: Filesystem) -> None:
    data = noise(16 * BLOCK)
    first, second = create(filesystem, b"a"), create(filesystem, b"b")
    os.pwrite(hot(filesystem, first), data, 0)
    filesystem.files.flush(first)
    before = segment_bytes(filesystem)
    os.pwrite(hot(filesystem, second), data, 0)
    filesystem.files.flush(second)
    assert segment_bytes(filesystem) == before
    assert sealed(filesystem, second) == data
    filesystem.hot.release(second)
    state = filesystem._table.peek(second)
    assert state is not None
    assert state.hot is not None
    assert changed_blocks(filesystem._stores, second, state.hot.file.fd, len(data)) == []


def test_stores_into_a_mapping_are_told_and_sealed(filesystem: Filesystem) -> None:
    """Breaks if a store that came after a flush, into a page that was mapped before, is not seen by anybody."""
    ino = create(filesystem, b"f")
    fd = hot(filesystem, ino)
    os.pwrite(fd, bytes(4 * PAGE), 0)
    with mmap.mmap(fd, 4 * PAGE) as mapped:
        for number in range(1, 6):
            mapped[PAGE + number] = number
            filesystem.files.fsync(ino)
            mapped[2 * PAGE + number] = number
            filesystem.files.flush()
            assert sealed(filesystem, ino) == bytes(mapped)


def test_a_mapping_keeps_the_hot_file_after_the_last_release(filesystem: Filesystem) -> None:
    """The kernel sends RELEASE when a mapped file is closed, and stores go on: breaks if these go nowhere."""
    ino = create(filesystem, b"f")
    fd = hot(filesystem, ino)
    os.pwrite(fd, noise(4 * PAGE), 0)
    other = os.open(f"/proc/self/fd/{fd}", os.O_RDWR)
    mapped = mmap.mmap(other, 4 * PAGE)
    os.close(other)
    filesystem.hot.release(ino)
    for number in range(3):
        filesystem.files.flush()
        filesystem.hot.tidy()
        assert filesystem.hot.is_hot(ino)
        mapped[PAGE + number] = number
        assert content(filesystem, b"f") == bytes(mapped)
        filesystem.hot.give_up_all()
        assert sealed(filesystem, ino) == bytes(mapped)
        mapped[2 * PAGE + number] = number
    found = bytes(mapped)
    mapped.close()
    filesystem.hot.give_up_all()
    assert not filesystem.hot.is_hot(ino)
    assert content(filesystem, b"f") == found


def test_the_syncer_is_told_of_what_the_kernel_wrote(filesystem: Filesystem) -> None:
    ino = create(filesystem, b"f")
    fd = hot(filesystem, ino)
    filesystem.files.flush(ino)
    filesystem.commit()
    with filesystem.tree.committed() as view:
        cursor = view.cursor
    os.pwrite(fd, noise(PAGE), 0)
    filesystem.sync()
    with filesystem.tree.committed() as view:
        told = view.changes(cursor)
        assert told is not None
        assert told[0] == [ino]
        row = view.inode(ino)
        assert row is not None
        assert row.size_bytes == PAGE


def test_times_that_a_program_sets_stay(filesystem: Filesystem) -> None:
    ino = create(filesystem, b"f")
    fd = hot(filesystem, ino)
    os.pwrite(fd, noise(PAGE), 0)
    filesystem.namespace.setattr(ino, AttributeChanges(mtime_ns=10**18))
    assert filesystem.namespace.getattr(ino).mtime_ns == 10**18
    filesystem.files.flush(ino)
    filesystem.hot.release(ino)
    filesystem.files.flush()
    assert sealed(filesystem, ino) == noise(PAGE)
    filesystem.hot.give_up_all()
    assert not filesystem.hot.is_hot(ino)
    assert filesystem.namespace.getattr(ino).mtime_ns == 10**18


def test_clones_snapshots_and_copies_of_a_hot_file_are_its_content(filesystem: Filesystem) -> None:
    data = noise(4 * BLOCK + 10)
    ino = create(filesystem, b"f")
    fd = hot(filesystem, ino)
    os.pwrite(fd, data, 0)
    clone = filesystem.clone(ino, ROOT_INO, b"clone")
    filesystem.snapshots.create(ROOT_INO, b"s")
    os.pwrite(fd, b"later", 0)
    assert sealed(filesystem, clone) == data
    filesystem.commit()
    with filesystem.tree.committed() as view:
        (top,) = [child for _, child in view.entries(SNAPSHOTS_INO)]
        copies = dict(view.copies(top))
    assert sealed(filesystem, copies[ino]) == data
    assert content(filesystem, b"f") == b"later" + data[5:]
    assert findings(filesystem) == []


def test_what_is_written_between_the_copy_and_its_hashing_is_the_next_seals(
    filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaks if a block gets the id of what the page cache has now, and the bytes of the moment of the copy."""
    data = noise(8 * BLOCK)
    ino = create(filesystem, b"f")
    fd = hot(filesystem, ino)
    os.pwrite(fd, data, 0)
    real = HotFolder.capture

    def capture_and_write(folder: HotFolder, file: Descriptor, filled: Descriptor | None = None) -> Descriptor | None:
        copy = real(folder, file, filled)
        os.pwrite(fd, b"later", 3 * BLOCK)
        os.ftruncate(fd, 7 * BLOCK + 10)
        return copy

    monkeypatch.setattr(HotFolder, "capture", capture_and_write)
    filesystem.files.flush(ino)
    assert sealed(filesystem, ino) == data
    assert content(filesystem, b"f") == data[: 3 * BLOCK] + b"later" + data[3 * BLOCK + 5 : 7 * BLOCK + 10]


@pytest.mark.parametrize("writes", [False, True])
def test_a_seal_that_nobody_asked_for_holds_writers_shortly_and_claims_no_mixture(
    filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch, *, writes: bool
) -> None:
    """Breaks if what it finds at several moments is told as the file's content of one."""
    data = bytearray(noise(200 * BLOCK + 99))
    ino = create(filesystem, b"f")
    fd = hot(filesystem, ino)
    os.pwrite(fd, data, 0)
    filesystem.files.flush(ino)
    data[BLOCK : BLOCK + 4] = data[150 * BLOCK : 150 * BLOCK + 4] = b"both"
    os.pwrite(fd, b"both", BLOCK)
    os.pwrite(fd, b"both", 150 * BLOCK)
    filesystem.files.fsync(ino)
    state = filesystem._table.peek(ino)
    assert state is not None
    assert state.hot is not None
    settled(state.hot)
    real, calls = capture.clone_range, []

    def clone_range(source: int, target: int, start: int, length: int) -> bool:
        calls.append(length)
        done = real(source, target, start, length)
        if writes and start:
            os.pwrite(fd, b"late", start)
        return done

    monkeypatch.setattr(capture, "clone_range", clone_range)
    assert filesystem._seal_queue.seal_due()
    assert max(calls) <= 4 << 20
    row = filesystem.tree.inode(ino)
    assert row is not None
    assert state.is_sealed != writes
    filesystem.commit()
    with filesystem.tree.committed() as view:
        assert (sealed_file(view, ino, row.content_version) is None) == writes
    assert sealed(filesystem, ino) == data
    assert findings(filesystem) == []
    filesystem.files.flush(ino)
    assert state.is_sealed or state.hot.seen is None
    assert sealed(filesystem, ino) == content(filesystem, b"f")
    assert content(filesystem, b"f").count(b"late") == (2 if writes else 0)


def test_a_flush_holds_writers_shortly(filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks if it has the host share all of a file that somebody writes: as long as that takes, nobody can."""
    ino = create(filesystem, b"f")
    fd = hot(filesystem, ino)
    os.pwrite(fd, noise(200 * BLOCK), 0)
    filesystem.files.fsync(ino)
    filesystem.commit()
    data = noise(200 * BLOCK, 1)
    os.pwrite(fd, data, 0)
    real, calls = capture.clone_range, []

    def clone_range(source: int, target: int, start: int, length: int) -> bool:
        calls.append(length)
        return real(source, target, start, length)

    monkeypatch.setattr(capture, "clone_range", clone_range)
    monkeypatch.setattr(HotFolder, "capture", lambda *_: pytest.fail("all of it"))
    filesystem.files.flush()
    assert max(calls) <= 4 << 20
    assert sealed(filesystem, ino) == data
    assert findings(filesystem) == []


def settled(file: HotFile) -> None:
    """Let its last change be one of long ago."""
    while file.has_changed_since(file.status()):
        os.sched_yield()


def test_a_copy_between_hot_files_is_shared(filesystem: Filesystem) -> None:
    data = noise(4 * BLOCK + 100)
    source, destination = create(filesystem, b"a"), create(filesystem, b"b")
    os.pwrite(hot(filesystem, source), data, 0)
    hot(filesystem, destination)
    assert filesystem.copy_range(source, 0, destination, 0, 1 << 30) == len(data)
    assert content(filesystem, b"b") == data
    assert filesystem.copy_range(source, 10, destination, 0, 100) == 100
    assert content(filesystem, b"b") == data[10:110] + data[100:]
    cold = create(filesystem, b"c")
    assert filesystem.copy_range(source, 0, cold, 0, PAGE) == PAGE
    filesystem.files.flush()
    assert sealed(filesystem, cold) == data[:PAGE]


def test_a_file_that_is_removed_while_it_is_looked_at_is_no_failure(
    filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaks when `flush` fails with ENOENT beside programs that remove their files."""
    monkeypatch.setattr(hotfile, "_YOUNG_NS", 0)  # it counts as sealed at once
    ino = create(filesystem, b"f")
    fd = hot(filesystem, ino)
    os.pwrite(fd, noise(3 * BLOCK), 0)
    filesystem.files.flush(ino)  # somebody has it open: what it is after the last close is not known
    filesystem.hot.release(ino)

    def removing(*_asked: object) -> list[tuple[int, int]]:
        filesystem.namespace.unlink(ROOT_INO, b"f")
        return []

    with monkeypatch.context() as patch:
        patch.setattr(hotfiles, "changed_blocks", removing)
        filesystem.hot.tidy()
    assert filesystem.tree.lookup(ROOT_INO, b"f") is None
    filesystem.commit()
    filesystem.hot.tidy()
    assert not os.listdir(filesystem.volume.hot_path)
    assert findings(filesystem) == []


def test_an_unlinked_file_goes_with_its_hot_file(filesystem: Filesystem) -> None:
    ino = create(filesystem, b"f")
    os.pwrite(hot(filesystem, ino), noise(PAGE), 0)
    filesystem.files.fsync(ino)
    filesystem.namespace.unlink(ROOT_INO, b"f")
    filesystem.hot.release(ino)
    filesystem.commit()
    filesystem.hot.tidy()
    assert os.listdir(filesystem.volume.hot_path) == []
    assert format_of(filesystem) == PLAIN_FORMAT


@pytest.mark.parametrize("size", [0, 3 * BLOCK + 5])
def test_a_file_that_was_cut_before_a_kill_has_no_leaf_beyond_its_end(filesystem: Filesystem, size: int) -> None:
    """Breaks if the tree is told of the size alone: a repair then makes the file as long as its leaves."""
    data = noise(600 * BLOCK)
    ino = create(filesystem, b"f")
    os.pwrite(hot(filesystem, ino), data, 0)
    filesystem.files.fsync(ino)
    filesystem.files.flush(ino)
    filesystem.files.truncate(ino, size, may_block=True)
    again = Filesystem.open(killed(filesystem), config())
    again.commit()
    assert findings(again) == []
    assert content(again, b"f") == data[:size]
    again.files.flush()
    assert sealed(again, ino) == data[:size]
    again.close()


def test_a_killed_mount_leaves_what_was_synced(filesystem: Filesystem) -> None:
    data = noise(2 * BLOCK)
    ino = create(filesystem, b"f")
    fd = hot(filesystem, ino)
    os.pwrite(fd, data, 0)
    filesystem.files.fsync(ino)
    os.pwrite(fd, b"more", len(data))
    again = Filesystem.open(killed(filesystem), config())
    assert content(again, b"f") == data + b"more"
    again.files.flush()
    assert sealed(again, find(again, b"f")) == data + b"more"
    assert findings(again) == []
    again.close()


@pytest.mark.parametrize("blocks", [1, 20], ids=["small", "large"])
def test_no_block_gets_the_id_of_what_was_there_before_somebody_came_to_write(
    filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch, blocks: int
) -> None:
    """Nobody has it open when it is hashed. Breaks if what is stored then is what somebody has written since."""
    data = noise(blocks * BLOCK)
    ino = create(filesystem, b"f")
    os.pwrite(hot(filesystem, ino), data, 0)
    filesystem.hot.release(ino)
    real = seal.named
    late = [b"late"]

    def named(*arguments: object) -> object:
        found = real(*arguments)  # type: ignore[arg-type]
        if late:
            os.pwrite(hot(filesystem, ino), late.pop(), 10)
        return found

    monkeypatch.setattr(seal, "named", named)
    filesystem.files.flush(ino)
    filesystem.hot.release(ino)
    filesystem.files.flush(ino)
    assert sealed(filesystem, ino) == content(filesystem, b"f") == data[:10] + b"late" + data[14:]
    assert maintenance.scrub(filesystem.blocks, filesystem.tree).clean
    assert findings(filesystem) == []
