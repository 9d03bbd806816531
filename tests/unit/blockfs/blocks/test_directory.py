from __future__ import annotations

import errno
import os
import random
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockfs.blocks.codec import Compression
from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.hashing import block_id
from blockfs.blocks.ids import ZERO_BLOCK, BlockId
from blockfs.blocks.segments import reader
from blockfs.errors import (
    CorruptBlockError,
    CorruptionError,
    FormatTooNewError,
    MissingBlockError,
    NoSpaceError,
    NotFoundError,
    UsageError,
    WouldBlock,
)
from tests.unit.blockfs.blocks.disks import CountingDisk, io_error, no_space, room

BLOCK_SIZE = 4096
A, B, C = b"a" * BLOCK_SIZE, b"b" * 100, b"c" * BLOCK_SIZE


def put_all(blocks: BlockDirectory, *datas: bytes) -> list[BlockId]:
    with blocks.hold() as hold:
        ids = [blocks.put(data, hold) for data in datas]
        blocks.sync()
    return ids


def segment_of(blocks: BlockDirectory, block: BlockId) -> tuple[str, int]:
    with blocks.index.reading() as txn:
        row = blocks.index.row(txn, block)
    assert row is not None
    return blocks.layout.segment(row.segment), row.offset


def damage(blocks: BlockDirectory, block: BlockId) -> None:
    path, offset = segment_of(blocks, block)
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(b"\xff")


# --- create and open


def test_a_new_directory_is_empty_and_opens_again(tmp_path: Path) -> None:
    path = str(tmp_path / "blocks")
    with BlockDirectory.create(path, block_size=65536) as made:
        uuid = made.uuid
    with BlockDirectory.open(path) as blocks:
        assert (blocks.block_size, blocks.uuid, blocks.path) == (65536, uuid, path)
        assert blocks.statistics().blocks == 0
        assert list(blocks.ids()) == []


def test_create_refuses_an_existing_directory(blocks: BlockDirectory) -> None:
    with pytest.raises(UsageError, match="already"):
        BlockDirectory.create(blocks.path, block_size=BLOCK_SIZE)


def test_create_refuses_segments_that_lost_their_format_file(blocks: BlockDirectory) -> None:
    """Creating over them would give away blocks that can still be read."""
    put_all(blocks, A)
    os.unlink(blocks.layout.format_file)
    with pytest.raises(UsageError, match="restore"):
        BlockDirectory.create(blocks.path, block_size=BLOCK_SIZE)


def test_create_starts_over_where_a_create_was_interrupted(tmp_path: Path) -> None:
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "data.mdb").write_bytes(b"half")
    with BlockDirectory.create(str(tmp_path), block_size=BLOCK_SIZE) as blocks:
        assert blocks.get(put_all(blocks, A)[0]) == A


@pytest.mark.parametrize("block_size", [0, 1, 2048, 4097, 8 << 20])
def test_odd_block_sizes_are_refused(tmp_path: Path, block_size: int) -> None:
    with pytest.raises(UsageError, match="power of two"):
        BlockDirectory.create(str(tmp_path), block_size=block_size)


def test_open_without_a_block_directory_says_so(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no block directory"):
        BlockDirectory.open(str(tmp_path))


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"format = 1\n", b'format = "x"', b"format = 1\nuuid = 5\n"])
def test_a_damaged_format_file_is_corruption(blocks: BlockDirectory, content: bytes) -> None:
    Path(blocks.layout.format_file).write_bytes(content)
    with pytest.raises(CorruptionError, match=r"blocks\.toml"):
        BlockDirectory.open(blocks.path)


def test_a_newer_format_is_refused_as_such(blocks: BlockDirectory) -> None:
    Path(blocks.layout.format_file).write_bytes(b"format = 4\nnews = true\n")
    with pytest.raises(FormatTooNewError):
        BlockDirectory.open(blocks.path)


def test_a_garbage_index_is_corruption_and_names_the_repair(blocks: BlockDirectory) -> None:
    blocks.close()
    Path(blocks.layout.index, "data.mdb").write_bytes(random.Random(1).randbytes(100_000))
    with pytest.raises(CorruptionError, match="fsck --repair") as caught:
        BlockDirectory.open(blocks.path)
    assert caught.value.exit_code == 15


@pytest.mark.parametrize("kept_pages", [0, 1, 2, 5, 20])
def test_a_truncated_index_is_corruption_and_kills_nobody(blocks: BlockDirectory, kept_pages: int) -> None:
    """LMDB maps the file and doesn't look at its size: without our check this is a SIGBUS."""
    put_all(blocks, *(b"%d" % number for number in range(2000)))
    blocks.close()
    os.truncate(os.path.join(blocks.layout.index, "data.mdb"), kept_pages * 4096)
    with pytest.raises(CorruptionError, match="fsck --repair"):
        BlockDirectory.open(blocks.path)


def test_a_missing_index_is_not_replaced_by_an_empty_one(blocks: BlockDirectory) -> None:
    blocks.close()
    shutil.rmtree(blocks.layout.index)
    with pytest.raises((CorruptionError, NotFoundError), match="fsck --repair"):
        BlockDirectory.open(blocks.path)
    os.mkdir(blocks.layout.index)
    with pytest.raises(CorruptionError, match="fsck --repair"):
        BlockDirectory.open(blocks.path)


def test_an_index_of_another_directory_is_refused(blocks: BlockDirectory, tmp_path: Path) -> None:
    with BlockDirectory.create(str(tmp_path / "other"), block_size=BLOCK_SIZE) as other:
        pass
    blocks.close()
    shutil.rmtree(blocks.layout.index)
    shutil.copytree(other.layout.index, blocks.layout.index)
    with pytest.raises(CorruptionError, match="belongs to"):
        BlockDirectory.open(blocks.path)


def test_one_process_may_open_a_path_twice(blocks: BlockDirectory) -> None:
    with BlockDirectory.open(blocks.path) as second:
        (known,) = put_all(second, A)
        assert blocks.get(known) == A
    assert blocks.get(known) == A


def test_a_directory_opened_for_reading_refuses_changes(blocks: BlockDirectory) -> None:
    (known,) = put_all(blocks, A)
    with BlockDirectory.open(blocks.path, read_only=True) as reading, reading.hold() as hold:
        assert reading.get(known) == A
        with pytest.raises(UsageError):
            reading.put(B, hold)
        with pytest.raises(UsageError):
            reading.pin(blocks.uuid, [known])


# --- put and get


def test_what_was_put_can_be_read_before_and_after_sync(blocks: BlockDirectory) -> None:
    with blocks.hold() as hold:
        known = blocks.put(A, hold)
        assert known == block_id(A)
        assert blocks.get(known, verify=True) == A
        blocks.sync()
    assert blocks.get(known, verify=True) == A


def test_trailing_null_bytes_are_not_stored(blocks: BlockDirectory) -> None:
    (known,) = put_all(blocks, B + bytes(50))
    assert known == block_id(B)
    assert blocks.get(known) == B
    assert blocks.read(known, 0, BLOCK_SIZE) == B.ljust(BLOCK_SIZE, b"\0")


@pytest.mark.parametrize("size", [0, 1, 100, BLOCK_SIZE])
def test_a_zero_block_is_a_hole_and_stored_nowhere(blocks: BlockDirectory, size: int) -> None:
    assert put_all(blocks, bytes(size)) == [ZERO_BLOCK]
    assert blocks.get(ZERO_BLOCK) == b""
    assert blocks.read(ZERO_BLOCK, 7, 9) == bytes(9)
    assert blocks.missing([ZERO_BLOCK]) == []
    assert blocks.statistics().blocks == 0
    assert blocks.layout.segment_numbers() == []


def test_put_of_a_known_id_stores_nothing(blocks: BlockDirectory) -> None:
    put_all(blocks, A)
    path, _ = segment_of(blocks, block_id(A))
    size = os.path.getsize(path)
    put_all(blocks, A, A)
    assert os.path.getsize(path) == size
    assert blocks.statistics().blocks == 1


def test_put_of_a_pending_id_stores_nothing(blocks: BlockDirectory) -> None:
    with blocks.hold() as hold:
        blocks.put(A, hold)
        blocks.put(A, hold)
        blocks.sync()
    assert os.path.getsize(segment_of(blocks, block_id(A))[0]) == 4096 + BLOCK_SIZE


def test_put_checks_the_id_it_is_given(blocks: BlockDirectory) -> None:
    with blocks.hold() as hold:
        assert blocks.put(A, hold, block_id=block_id(A)) == block_id(A)
        with pytest.raises(CorruptBlockError):
            blocks.put(C, hold, block_id=block_id(B))
    assert blocks.missing([block_id(C), block_id(B)]) == [block_id(C), block_id(B)]


def test_a_block_longer_than_the_block_size_is_refused(blocks: BlockDirectory) -> None:
    with blocks.hold() as hold, pytest.raises(UsageError):
        blocks.put(bytes(BLOCK_SIZE + 1), hold)


@pytest.mark.parametrize("harm", ["changed", "gone"])
def test_a_put_does_not_rely_on_a_stored_copy_that_is_damaged(blocks: BlockDirectory, harm: str) -> None:
    (known,) = put_all(blocks, A)
    damage(blocks, known)
    if harm == "gone":
        os.truncate(segment_of(blocks, known)[0], 4096)
    put_all(blocks, A)
    assert blocks.get(known, verify=True) == A
    with BlockDirectory.open(blocks.path) as again:
        assert again.get(known, verify=True) == A


def test_unknown_blocks_are_missing(blocks: BlockDirectory) -> None:
    with pytest.raises(MissingBlockError) as caught:
        blocks.get(block_id(A))
    assert caught.value.block_id == block_id(A)
    with pytest.raises(MissingBlockError):
        blocks.read(block_id(A), 0, 1)


def test_missing_lists_distinct_unknown_ids_in_order(blocks: BlockDirectory) -> None:
    put_all(blocks, A)
    ids = [block_id(C), ZERO_BLOCK, block_id(A), block_id(B), block_id(C)]
    assert blocks.missing(ids) == [block_id(C), block_id(B)]


def test_pending_blocks_are_not_missing_here_but_elsewhere(blocks: BlockDirectory) -> None:
    with BlockDirectory.open(blocks.path) as other, blocks.hold() as hold:
        known = blocks.put(A, hold)
        assert blocks.missing([known]) == []
        assert other.missing([known]) == [known]
        blocks.sync()
        assert other.missing([known]) == []


def test_what_was_not_synced_is_gone_after_a_reopen(blocks: BlockDirectory) -> None:
    with blocks.hold() as hold:
        known = blocks.put(A, hold)
        blocks.close()
    with BlockDirectory.open(blocks.path) as again:
        assert again.missing([known]) == [known]


@pytest.mark.parametrize(("start", "length"), [(0, 10), (90, 20), (99, 1), (100, 5), (0, BLOCK_SIZE), (4000, 96)])
@pytest.mark.parametrize("may_block", [True, False])
def test_reads_of_a_part_are_padded_with_null_bytes(
    blocks: BlockDirectory, start: int, length: int, may_block: bool
) -> None:
    (known,) = put_all(blocks, B)
    blocks.get(known)  # opens the segment: the fast path doesn't
    expected = B.ljust(BLOCK_SIZE, b"\0")[start : start + length]
    assert blocks.read(known, start, length, may_block=may_block) == expected


@given(data=st.data())
def test_what_is_read_together_is_what_is_read_one_by_one(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    compression = data.draw(st.sampled_from(Compression))
    contents = data.draw(st.lists(st.integers(1, BLOCK_SIZE), min_size=1, max_size=6, unique=True))
    path = str(tmp_path_factory.mktemp("together") / "blocks")
    with BlockDirectory.create(path, block_size=BLOCK_SIZE, compression=compression) as blocks:
        ids = [*put_all(blocks, *(random.Random(size).randbytes(size - 1) + b"x" for size in contents)), ZERO_BLOCK]
        part = st.tuples(st.sampled_from(ids), st.integers(0, BLOCK_SIZE - 1), st.integers(1, BLOCK_SIZE))
        whole = st.sampled_from(ids).map(lambda known: (known, 0, BLOCK_SIZE))
        asked = [
            (known, start, min(length, BLOCK_SIZE - start))
            for known, start, length in data.draw(st.lists(whole | part, min_size=1, max_size=12))
        ] + [(known, 0, BLOCK_SIZE) for known in data.draw(st.sampled_from([[], ids]))]
        expected = b"".join(blocks.read(*each) for each in asked)  # opens the segment: the fast path doesn't
        assert blocks.read_all(asked) == expected
        assert blocks.read_all(asked, may_block=False) == expected
        parts = [each for each in asked if each[0] != ZERO_BLOCK]
        buffer = memoryview(bytearray(b"?" * sum(length for _, _, length in parts)))
        blocks.read_into(parts, buffer)
        assert buffer == b"".join(blocks.read(*each) for each in parts)


def test_what_lies_together_is_read_at_once(blocks: BlockDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    datas = [bytes([number]) * BLOCK_SIZE for number in range(1, 5)]
    ids = put_all(blocks, *datas)
    reads: list[int] = []

    def noted(descriptor: int, length: int, offset: int) -> bytes:
        reads.append(length)
        return pread(descriptor, length, offset)

    blocks.get(ids[0])
    pread = os.pread
    monkeypatch.setattr(reader.os, "pread", noted)
    assert blocks.read_all([(known, 0, BLOCK_SIZE) for known in ids]) == b"".join(datas)
    assert reads == [4 * BLOCK_SIZE]


def test_of_blocks_that_are_read_at_once_the_damaged_one_is_named(blocks: BlockDirectory) -> None:
    first, second = put_all(blocks, A, C)
    path, offset = segment_of(blocks, second)
    os.truncate(path, offset + 100)
    with pytest.raises(CorruptBlockError) as met:
        blocks.read_all([(first, 0, BLOCK_SIZE), (second, 0, BLOCK_SIZE)])
    assert met.value.block_id == second
    with pytest.raises(WouldBlock):
        blocks.read_all([(first, 0, BLOCK_SIZE), (second, 0, BLOCK_SIZE)], may_block=False)


def read_until_cold(blocks: BlockDirectory, known: BlockId, path: str) -> None:
    """Have the kernel drop a segment's pages before each read; it may hold one a moment longer."""
    with open(path, "rb") as file:
        for _ in range(10_000):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            blocks.read(known, 0, 10, may_block=False)


def test_the_fast_path_refuses_to_wait_for_the_disk(blocks: BlockDirectory) -> None:
    (known,) = put_all(blocks, A)
    with pytest.raises(WouldBlock):
        blocks.read(known, 0, 10, may_block=False)  # the segment is not open yet
    assert blocks.read(known, 0, 10) == A[:10]
    path, _ = segment_of(blocks, known)
    with pytest.raises(WouldBlock):
        read_until_cold(blocks, known, path)
    assert blocks.read(known, 0, 10) == A[:10]


def test_the_fast_path_takes_any_failure_to_the_slow_one(
    blocks: BlockDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host filesystem without RWF_NOWAIT must still be readable."""
    (known,) = put_all(blocks, A)
    blocks.get(known)

    def unsupported(*_: object) -> int:
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(reader.os, "preadv", unsupported)
    with pytest.raises(WouldBlock):
        blocks.read(known, 0, 10, may_block=False)
    assert blocks.read(known, 0, 10) == A[:10]


def test_stored_lengths_follow_the_ids(blocks: BlockDirectory) -> None:
    a, b = put_all(blocks, A, B)
    assert list(blocks.stored_lengths([b, ZERO_BLOCK, a, block_id(C), b])) == [100, 0, BLOCK_SIZE, 0, 100]


def test_statistics_count_canonical_bytes(blocks: BlockDirectory) -> None:
    put_all(blocks, A, B + bytes(9), bytes(10))
    found = blocks.statistics()
    assert (found.blocks, found.unique_bytes) == (2, BLOCK_SIZE + 100)
    assert found.stored_bytes >= BLOCK_SIZE + 100
    assert sorted(blocks.ids()) == sorted([block_id(A), block_id(B)])


# --- segments


def test_payloads_start_on_pages(blocks: BlockDirectory) -> None:
    for known in put_all(blocks, A, B, C):
        assert segment_of(blocks, known)[1] % 4096 == 0


def test_full_segments_are_followed_by_new_ones(blocks: BlockDirectory) -> None:
    datas = [b"%d" % number for number in range(20)]
    with BlockDirectory.open(blocks.path, segment_limit_bytes=5 * 4096) as small:
        ids = put_all(small, *datas)
        assert [small.get(known, verify=True) for known in ids] == datas
        assert small.layout.segment_numbers() == [1, 2, 3, 4, 5]
    assert [blocks.get(known, verify=True) for known in ids] == datas


def test_a_segment_that_nobody_appends_to_is_taken_over(blocks: BlockDirectory) -> None:
    """Else every short run of the syncer would leave a file."""
    put_all(blocks, A)
    with BlockDirectory.open(blocks.path) as second:
        put_all(second, B)
        assert second.layout.segment_numbers() == [1, 2]
    blocks.close()
    for data in (C, b"d"):
        with BlockDirectory.open(blocks.path) as later:
            put_all(later, data)
            assert later.layout.segment_numbers() == [1, 2]
            assert [later.get(block_id(each)) for each in (A, B)] == [A, B]


def test_a_truncated_segment_is_never_appended_to(blocks: BlockDirectory) -> None:
    """Else rows would point to bytes of other blocks."""
    a, c = put_all(blocks, A, C)
    path, offset = segment_of(blocks, c)
    blocks.close()
    os.truncate(path, offset)
    with BlockDirectory.open(blocks.path) as again:
        put_all(again, B)
        assert again.layout.segment_numbers() == [1, 2]
        assert again.get(a, verify=True) == A
        with pytest.raises(CorruptBlockError):
            again.get(c)


def test_a_truncated_segment_gives_an_error_and_never_short_data(blocks: BlockDirectory) -> None:
    (known,) = put_all(blocks, A)
    path, offset = segment_of(blocks, known)
    blocks.get(known)
    os.truncate(path, offset + 100)
    for start, length in ((0, BLOCK_SIZE), (50, 51), (100, 1)):
        with pytest.raises(CorruptBlockError, match="cut off"):
            blocks.read(known, start, length)
        with pytest.raises(WouldBlock):
            blocks.read(known, start, length, may_block=False)
    with pytest.raises(CorruptBlockError):
        blocks.get(known)
    assert blocks.read(known, 0, 100) == A[:100]


def test_a_missing_segment_is_a_corrupt_block(blocks: BlockDirectory) -> None:
    (known,) = put_all(blocks, A)
    os.unlink(segment_of(blocks, known)[0])
    with pytest.raises(CorruptBlockError, match="No such file"):
        blocks.get(known)


def test_a_segment_of_another_directory_is_a_corrupt_block(blocks: BlockDirectory, tmp_path: Path) -> None:
    (known,) = put_all(blocks, A)
    with BlockDirectory.create(str(tmp_path / "other"), block_size=BLOCK_SIZE) as other:
        put_all(other, A)
    shutil.copy(other.layout.segment(1), blocks.layout.segment(1))
    with pytest.raises(CorruptBlockError, match="block directory"):
        blocks.get(known)


def test_verification_finds_a_changed_byte(blocks: BlockDirectory) -> None:
    (known,) = put_all(blocks, A)
    damage(blocks, known)
    with pytest.raises(CorruptBlockError):
        blocks.get(known, verify=True)


def test_descriptors_of_many_segments_are_bounded(blocks: BlockDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_OPEN_SEGMENTS", 3)
    datas = [b"%d" % number for number in range(12)]
    with BlockDirectory.open(blocks.path, segment_limit_bytes=2 * 4096) as small:
        ids = put_all(small, *datas)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(2):
        assert [blocks.get(known) for known in ids] == datas
    assert len(os.listdir("/proc/self/fd")) <= before + 3


# --- several writers


def test_the_same_block_put_by_two_is_stored_once_and_the_second_copy_is_punched(blocks: BlockDirectory) -> None:
    data = random.Random(1).randbytes(BLOCK_SIZE)
    with BlockDirectory.open(blocks.path) as other, blocks.hold() as hold, other.hold() as other_hold:
        known = blocks.put(data, hold)
        other.put(data, other_hold)
        other.sync()
        winner = segment_of(blocks, known)
        blocks.sync()
        assert segment_of(blocks, known) == winner
        assert blocks.get(known, verify=True) == other.get(known, verify=True) == data
    loser = blocks.layout.segment(1)
    assert winner[0] != loser
    with open(loser, "rb") as file:
        assert os.lseek(file.fileno(), 4096, os.SEEK_HOLE) == 4096
    assert blocks.statistics().blocks == 1


def test_threads_that_put_and_read_the_same_blocks_agree(blocks: BlockDirectory) -> None:
    source = random.Random(2)
    datas = [source.randbytes(50) for _ in range(60)]
    orders = [source.sample(datas, len(datas)) for _ in range(4)]
    ready = threading.Barrier(len(orders))

    def work(order: list[bytes]) -> None:
        ready.wait()
        for start in range(0, len(order), 10):
            with blocks.hold() as hold:
                ids = [blocks.put(data, hold) for data in order[start : start + 10]]
                assert [blocks.get(known, verify=True) for known in ids] == order[start : start + 10]
                blocks.sync()
                assert [blocks.get(known, verify=True) for known in ids] == order[start : start + 10]
                assert blocks.missing(ids) == []

    with ThreadPoolExecutor(len(orders)) as pool:
        list(pool.map(work, orders))
    assert blocks.statistics().blocks == len(datas)


def test_concurrent_syncs_share_a_group(blocks: BlockDirectory) -> None:
    """A group commit is what makes many small fsyncs cheap."""
    entered, proceed = threading.Event(), threading.Event()

    def wait_in_the_first_group(number: int, name: str) -> None:
        if name == "fdatasync" and armed and not entered.is_set():
            entered.set()
            proceed.wait()

    armed = False
    disk = CountingDisk(wait_in_the_first_group)
    with BlockDirectory.open(blocks.path, disk=disk) as slow, slow.hold() as hold, ThreadPoolExecutor(5) as pool:
        slow.put(A, hold)
        armed = True
        first = pool.submit(slow.sync)
        entered.wait()
        slow.put(B, hold)
        disk.steps.clear()
        rest = [pool.submit(slow.sync) for _ in range(4)]
        proceed.set()
        for done in (first, *rest):
            done.result()
    assert disk.steps.count("commit") <= 2  # the first group's and the one that the four share
    assert blocks.missing([block_id(A), block_id(B)]) == []


# --- a host that fails


@pytest.mark.parametrize("at", range(1, 14))
def test_a_full_disk_loses_nothing_and_freed_space_is_usable_at_once(blocks: BlockDirectory, at: int) -> None:
    (before,) = put_all(blocks, A)
    full = False
    disk = CountingDisk(lambda number, name: no_space() if full and number >= at else None)
    with BlockDirectory.open(blocks.path, disk=disk) as small:
        with small.hold() as hold:
            full = True
            try:
                for data in (B, C):
                    small.put(data, hold)
                small.sync()
            except NoSpaceError:
                pass
            full = False
            ids = [small.put(data, hold) for data in (B, C)]
            small.sync()
        assert [small.get(known, verify=True) for known in (before, *ids)] == [A, B, C]
    assert [blocks.get(known, verify=True) for known in (before, *ids)] == [A, B, C]


def test_payload_stops_before_the_disk_is_quite_full(blocks: BlockDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The collector needs room to get out of a full disk."""
    monkeypatch.setattr(blocks.disk, "space", lambda _path: room(15 << 20))
    with blocks.hold() as hold, pytest.raises(NoSpaceError):
        blocks.put(A, hold)
    monkeypatch.undo()
    assert blocks.get(put_all(blocks, A)[0]) == A


@pytest.mark.parametrize("at", [1, 2])
def test_after_a_failed_fdatasync_payloads_are_appended_to_another_segment(blocks: BlockDirectory, at: int) -> None:
    """A second fdatasync of the same file would succeed and mean nothing."""
    syncs = 0

    def fail_once(number: int, name: str) -> OSError | None:
        nonlocal syncs
        if name == "fdatasync" and armed:
            syncs += 1
            return io_error() if syncs == at else None
        return None

    armed = False
    with BlockDirectory.open(blocks.path, disk=CountingDisk(fail_once)) as shaky, shaky.hold() as hold:
        ids = [shaky.put(data, hold) for data in (A, B)]
        armed = True
        shaky.sync()
        assert {os.path.basename(segment_of(shaky, known)[0]) for known in ids} == {"00000002.seg"}
        assert [shaky.get(known, verify=True) for known in ids] == [A, B]
        shaky.put(C, hold)
        shaky.sync()
    assert [blocks.get(known, verify=True) for known in (*ids, block_id(C))] == [A, B, C]


def test_a_host_that_keeps_failing_fails_the_sync_and_keeps_the_blocks(blocks: BlockDirectory) -> None:
    broken = False
    disk = CountingDisk(lambda number, name: io_error() if broken and name == "fdatasync" else None)
    with BlockDirectory.open(blocks.path, disk=disk) as shaky, shaky.hold() as hold:
        known = shaky.put(A, hold)
        broken = True
        for _ in range(2):
            with pytest.raises(OSError, match="Input/output"):
                shaky.sync()
        assert shaky.get(known) == A
        broken = False
        shaky.sync()
    assert blocks.get(known, verify=True) == A


def test_a_payload_that_the_host_lost_must_be_put_again(blocks: BlockDirectory) -> None:
    """Every sync whose blocks it may be among has to fail: silence would be a dangling reference."""

    def lose(number: int, name: str) -> OSError | None:
        if name == "fdatasync" and armed:
            os.truncate(blocks.layout.segment(1), 4096)
            return io_error()
        return None

    armed = False
    with BlockDirectory.open(blocks.path, disk=CountingDisk(lose)) as shaky:
        hold = shaky.hold()
        known = shaky.put(A, hold)
        armed = True
        with pytest.raises((OSError, CorruptBlockError)):
            shaky.sync()
        armed = False
        with pytest.raises(CorruptBlockError, match="put again"):
            shaky.sync()
        assert shaky.missing([known]) == [known]
        assert shaky.put(A, hold) == known
        shaky.sync()
        assert shaky.get(known, verify=True) == A
        hold.release()


def test_a_lost_payload_that_nobody_waits_for_is_forgotten(blocks: BlockDirectory) -> None:
    def lose(number: int, name: str) -> OSError | None:
        if name == "fdatasync" and armed:
            os.truncate(blocks.layout.segment(1), 4096)
            return io_error()
        return None

    armed = False
    with BlockDirectory.open(blocks.path, disk=CountingDisk(lose)) as shaky:
        with shaky.hold() as hold:
            shaky.put(A, hold)
            armed = True
            with pytest.raises((OSError, CorruptBlockError)):
                shaky.sync()
            armed = False
        shaky.sync()
        assert shaky.get(put_all(shaky, B)[0]) == B


# --- pins


def test_pins_are_durable_and_belong_to_their_owner(blocks: BlockDirectory) -> None:
    mine, other = "00000000-0000-0000-0000-0000000000aa", "ffffffff-ffff-ffff-ffff-ffffffffffff"
    ids = [block_id(A), block_id(B)]
    blocks.pin(mine, [*ids, ZERO_BLOCK])
    blocks.pin(other, ids[:1])
    blocks.unpin(mine, ids[:1])
    blocks.close()
    with BlockDirectory.open(blocks.path) as again:
        assert list(again.pinned(mine)) == ids[1:]
        assert list(again.pinned(other)) == ids[:1]
        assert list(again.pins.owners()) == [mine, other]
        again.unpin(other)
        assert list(again.pinned(other)) == []


def test_many_pins_are_listed_completely(blocks: BlockDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blockfs.blocks.pins.SCAN_ROWS", 7)
    monkeypatch.setattr("blockfs.blocks.pins.BATCH_ROWS", 5)
    ids = sorted(block_id(b"%d" % number) for number in range(50))
    blocks.pin(blocks.uuid, ids)
    assert list(blocks.pinned(blocks.uuid)) == ids
    blocks.unpin(blocks.uuid)
    assert list(blocks.pinned(blocks.uuid)) == []


def test_pins_need_a_uuid(blocks: BlockDirectory) -> None:
    with pytest.raises(UsageError, match="UUID"):
        blocks.pin("me", [])


def test_many_ids_are_listed_completely(blocks: BlockDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blockfs.blocks.index.SCAN_ROWS", 7)
    ids = put_all(blocks, *(b"%d" % number for number in range(50)))
    assert list(blocks.ids()) == sorted(ids)
