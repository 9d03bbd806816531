"""Compressed payloads share pages: layout, reads, and what goes back to the host when some of them die."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from blockfs.blocks.codec import Compression
from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.hashing import block_id
from blockfs.blocks.ids import BlockId
from blockfs.blocks.index import Row, SegmentState
from blockfs.blocks.maintenance.gc import collect
from blockfs.blocks.maintenance.rebuild import rebuild_index
from blockfs.blocks.maintenance.scrub import scrub
from blockfs.blocks.segment import PAGE, RAW, ZSTD
from blockfs.blocks.segments import reader as readers
from blockfs.errors import CorruptBlockError, WouldBlock
from tests.unit.blockfs.blocks.disks import CountingDisk, room

BLOCK_SIZE = 65536


@pytest.fixture(autouse=True)
def marks_that_tell_all_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """The marks of a collection are drawn: in one of a dozen runs two of 600 ids share one, and a dead block stays."""
    monkeypatch.setattr("blockfs.blocks.maintenance.gc.secrets.randbelow", lambda _: 0)


def half_full(number: int, size: int = BLOCK_SIZE) -> bytes:
    """A block that is compressed to about half."""
    return random.Random(number).randbytes(size // 2).hex().encode()


def put_all(blocks: BlockDirectory, *datas: bytes) -> list[BlockId]:
    with blocks.hold() as hold:
        ids = [blocks.put(data, hold) for data in datas]
        blocks.sync()
    return ids


def row_of(blocks: BlockDirectory, known: BlockId) -> Row:
    with blocks.index.reading() as txn:
        row = blocks.index.row(txn, known)
    assert row is not None
    return row


def allocated(blocks: BlockDirectory) -> int:
    """Bytes that the host allocates for all segments."""
    return sum(os.stat(blocks.layout.segment(number)).st_blocks * 512 for number in blocks.layout.segment_numbers())


def overwrite(blocks: BlockDirectory, row: Row, within: int, content: bytes) -> None:
    with open(blocks.layout.segment(row.segment), "r+b") as file:
        file.seek(row.offset + within)
        file.write(content)


def test_compressed_payloads_are_packed_and_raw_ones_start_on_pages(packed: BlockDirectory) -> None:
    noise = os.urandom(5000)
    first, second, third, fourth = (
        row_of(packed, known) for known in put_all(packed, half_full(1), half_full(2), noise * 13, os.urandom(65536))
    )
    assert (first.codec, second.codec, third.codec, fourth.codec) == (ZSTD, ZSTD, ZSTD, RAW)
    assert second.offset == first.offset + first.stored_length
    assert third.offset == second.offset + second.stored_length
    assert 0 <= fourth.offset - (third.offset + third.stored_length) < PAGE
    assert fourth.offset % PAGE == 0


def test_no_page_with_durable_payload_is_written_again(packed: BlockDirectory) -> None:
    """A write that is torn by a power cut could damage what was durable before."""
    (one,) = put_all(packed, half_full(1))
    (two,) = put_all(packed, half_full(2))
    row = row_of(packed, one)
    assert row_of(packed, two).offset == -(-(row.offset + row.stored_length) // PAGE) * PAGE


def test_the_same_block_has_the_same_id_raw_and_compressed(blocks: BlockDirectory, packed: BlockDirectory) -> None:
    data = half_full(1, 4096)
    assert put_all(blocks, data) == put_all(packed, data) == [block_id(data)]
    assert blocks.get(block_id(data), verify=True) == packed.get(block_id(data), verify=True) == data


def test_pages_of_a_block_are_decompressed_once(packed: BlockDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    data = half_full(1)
    (known,) = put_all(packed, data)
    calls: list[object] = []
    decode = readers.decode
    monkeypatch.setattr(readers, "decode", lambda payload: calls.append(payload) or decode(payload))
    pages = [packed.read(known, at, PAGE) for at in range(0, BLOCK_SIZE, PAGE)]
    assert b"".join(pages) == data
    assert len(calls) == 1
    assert packed.get(known, verify=True) == data, "the disk, not the memory, is what is verified"
    assert len(calls) == 2


def test_the_fast_path_leaves_long_decompressions_to_a_thread(
    packed: BlockDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = half_full(1)
    (known,) = put_all(packed, data)
    assert packed.read(known, 0, 1) == data[:1]
    packed.reader.forget()
    with pytest.raises(WouldBlock):
        packed.read(known, 0, PAGE, may_block=False)  # the segment isn't open
    packed.get(known)
    monkeypatch.setattr(readers, "_INLINE_BYTES", BLOCK_SIZE - 1)
    with pytest.raises(WouldBlock):
        packed.read(known, 0, PAGE, may_block=False)
    monkeypatch.setattr(readers, "_INLINE_BYTES", BLOCK_SIZE)
    assert packed.read(known, PAGE, PAGE, may_block=False) == data[PAGE : 2 * PAGE]


def test_after_a_failed_fdatasync_compressed_payloads_are_appended_to_another_segment(packed: BlockDirectory) -> None:
    disk = CountingDisk()
    datas = [half_full(1), half_full(2), os.urandom(BLOCK_SIZE)]
    with BlockDirectory.open(packed.path, disk=disk) as shaky, shaky.hold() as hold:
        ids = [shaky.put(data, hold) for data in datas]
        disk.fault = fail_at(disk.steps.count("fdatasync") + 1, "fdatasync", disk)
        shaky.sync()
        assert {row_of(shaky, known).segment for known in ids} == {2}
    assert [packed.get(known, verify=True) for known in ids] == datas


@pytest.mark.parametrize("within", [0, 3, 6, 2000])
def test_a_damaged_compressed_payload_is_an_error_and_a_scrub_finds_it(packed: BlockDirectory, within: int) -> None:
    known, sound = put_all(packed, half_full(1), half_full(2))
    overwrite(packed, row_of(packed, known), within, b"\xa5" * 500)
    with pytest.raises(CorruptBlockError):
        packed.get(known, verify=True)
    assert scrub(packed).corrupt == (known,)
    with pytest.raises(CorruptBlockError, match="quarantined"):
        packed.read(known, 0, 10)
    assert packed.get(sound, verify=True) == half_full(2)
    put_all(packed, half_full(1))
    assert packed.get(known, verify=True) == half_full(1)


def test_a_rebuild_tells_damaged_payload_from_what_was_collected(packed: BlockDirectory) -> None:
    datas = [half_full(number) for number in range(20)]
    ids = put_all(packed, *datas)
    live = ids[::3]
    collect(packed, lambda: live)
    overwrite(packed, row_of(packed, live[2]), 100, b"\xa5" * 500)
    packed.close()
    assert rebuild_index(packed.path).damaged == (live[2],)
    with BlockDirectory.open(packed.path) as again:
        for known in set(live) - {live[2]}:
            assert again.get(known, verify=True) == datas[ids.index(known)]


@pytest.mark.parametrize(("compression", "goal"), [(Compression.NONE, 0.95), (Compression.ZSTD, 0.80)])
@pytest.mark.parametrize("pattern", ["half at random", "whole files", "nine of ten", "in two runs"])
def test_dead_bytes_go_back_to_the_host(tmp_path: Path, compression: Compression, goal: float, pattern: str) -> None:
    """Measured in bytes that the host allocates, with real holes."""
    chance = random.Random(7)
    path = str(tmp_path / "blocks")
    with BlockDirectory.create(path, block_size=BLOCK_SIZE, compression=compression) as blocks:
        datas = [half_full(number) for number in range(400)]
        ids = put_all(blocks, *datas)
        full = allocated(blocks)
        stored = {known: row_of(blocks, known).stored_length for known in ids}
        match pattern:
            case "half at random" | "in two runs":
                live = [known for known in ids if chance.random() < 0.5]
            case "whole files":
                live = [known for number, known in enumerate(ids) if number // 40 % 2]
            case _:
                live = [known for known in ids if chance.random() < 0.1]
        if pattern == "in two runs":  # neighbours that die one after the other
            collect(blocks, lambda: live + ids[::2])
        result = collect(blocks, lambda: live)
        dead_bytes = sum(stored[known] for known in set(ids) - set(live))
        assert full - allocated(blocks) >= goal * dead_bytes
        assert pattern == "in two runs" or result.bytes_freed >= goal * dead_bytes
        for known in live:
            assert blocks.get(known, verify=True) == datas[ids.index(known)]
        assert scrub(blocks).is_clean


def test_a_settled_segment_is_looked_at_again_when_neighbours_of_dead_payloads_die(tmp_path: Path) -> None:
    """Payloads of 3 KB: one that dies frees no page, and neither do its neighbours by themselves."""
    path = str(tmp_path / "blocks")
    BlockDirectory.create(path, block_size=BLOCK_SIZE, compression=Compression.ZSTD).close()
    with BlockDirectory.open(path, segment_limit_bytes=1 << 20) as blocks:
        ids = [
            known
            for part in range(3)
            for known in put_all(blocks, *(half_full(part << 16 | n, 6000) for n in range(240)))
        ]
        stored = {known: row_of(blocks, known).stored_length for known in ids}
        full = allocated(blocks)
        collect(blocks, lambda: [known for number, known in enumerate(ids) if number % 12])
        with blocks.index.reading() as txn:
            assert SegmentState.SETTLED in {row.state for _, row in blocks.index.segments(txn)}
        live = [known for number, known in enumerate(ids) if number % 12 > 2]
        collect(blocks, lambda: live)
        dead_bytes = sum(stored.values()) - sum(stored[known] for known in live)
        assert full - allocated(blocks) >= 0.8 * dead_bytes


def test_what_stays_of_segments_full_of_small_payloads_is_moved(tmp_path: Path) -> None:
    """Half of the payloads of 700 bytes die: hardly a page is dead as a whole."""
    path = str(tmp_path / "blocks")
    with BlockDirectory.create(path, block_size=4096, compression=Compression.ZSTD) as blocks:
        datas = [half_full(number, 1200) for number in range(2000)]
        ids = put_all(blocks, *datas)
        full = allocated(blocks)
        stored = {known: row_of(blocks, known).stored_length for known in ids}
        live = [known for known in ids if random.Random(known).random() < 0.5]
        result = collect(blocks, lambda: live)
        assert result.segments_removed == 1
        dead_bytes = sum(stored.values()) - sum(stored[known] for known in live)
        assert full - allocated(blocks) >= 0.8 * dead_bytes
        assert result.bytes_freed >= 0.8 * dead_bytes
        assert [blocks.get(known, verify=True) for known in live] == [datas[ids.index(known)] for known in live]
        assert scrub(blocks).is_clean
        again = collect(blocks, lambda: live)
        assert (again.bytes_freed, again.segments_removed) == (0, 0), "moved once is enough"
    assert rebuild_index(path).damaged == ()
    with BlockDirectory.open(path) as blocks:
        assert set(live) <= set(blocks.ids())


def small_and_half_dead(path: str, disk: CountingDisk | None = None) -> tuple[BlockDirectory, list[BlockId]]:
    """A directory whose collection will move payloads, and what is live."""
    blocks = BlockDirectory.create(path, block_size=4096, compression=Compression.ZSTD, disk=disk)
    ids = put_all(blocks, *(half_full(number, 1200) for number in range(600)))
    return blocks, ids[::2]


def test_a_block_that_does_not_verify_is_not_moved(tmp_path: Path) -> None:
    blocks, live = small_and_half_dead(str(tmp_path / "blocks"))
    with blocks:
        before = row_of(blocks, live[3])
        overwrite(blocks, before, 200, b"\xa5" * 100)
        collect(blocks, lambda: live)
        assert row_of(blocks, live[3]).is_at(before)
        assert row_of(blocks, live[4]).segment != before.segment
        assert scrub(blocks).corrupt == (live[3],)


def test_a_reader_of_the_old_place_is_waited_for(tmp_path: Path) -> None:
    """It looked the row up before the payload was moved, and reads after."""
    blocks, live = small_and_half_dead(str(tmp_path / "blocks"))
    with blocks:
        old = row_of(blocks, live[0])
        content: list[bytes] = []
        done = threading.Event()

        def collect_all() -> None:
            collect(blocks, lambda: live)
            done.set()

        with blocks.index.begin():
            thread = threading.Thread(target=collect_all)
            thread.start()
            assert not done.wait(0.3), "the collection must not end before its reader"
            content.append(blocks.reader.read(live[0], old, 0, old.length))
        thread.join()
        assert content == [blocks.get(live[0], verify=True)]


def test_a_full_host_stops_the_moving_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks, live = small_and_half_dead(str(tmp_path / "blocks"))
    with blocks:
        places = [row_of(blocks, known) for known in live]
        monkeypatch.setattr(blocks.disk, "space", lambda _path: room(0))
        assert collect(blocks, lambda: live).blocks_removed == 300
        assert [row_of(blocks, known) for known in live] == places
        assert [len(blocks.get(known, verify=True)) for known in live] == [1200] * 300


@pytest.mark.parametrize("fails", ["write", "fdatasync", "commit"])
def test_a_host_that_fails_while_payload_is_moved_loses_none(tmp_path: Path, fails: str) -> None:
    """At step after step of a collection, until one gets through; there is a write for each payload."""
    disk = CountingDisk()
    blocks, live = small_and_half_dead(str(tmp_path / "blocks"), disk)
    with blocks:
        for at in range(1, 1000, 53 if fails == "write" else 1):
            disk.fault = fail_at(len([step for step in disk.steps if step == fails]) + at, fails, disk)
            try:
                collect(blocks, lambda: live)
            except OSError:
                assert [len(blocks.get(known, verify=True)) for known in live] == [1200] * 300
            else:
                break
        else:
            pytest.fail("no collection got to its end")
        disk.fault = lambda number, name: None
        collect(blocks, lambda: live)
        assert [len(blocks.get(known, verify=True)) for known in live] == [1200] * 300
        assert scrub(blocks).is_clean


def fail_at(count: int, name: str, disk: CountingDisk) -> Callable[[int, str], BaseException | None]:
    """A fault at the step of this name that is the `count`-th since the disk was made."""

    def fault(_number: int, step: str) -> BaseException | None:
        return OSError(5, "the test's error") if step == name and disk.steps.count(name) == count else None

    return fault
