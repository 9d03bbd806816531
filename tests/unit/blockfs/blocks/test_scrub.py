from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.hashing import block_id
from blockfs.blocks.ids import BlockId
from blockfs.blocks.maintenance.gc import collect
from blockfs.blocks.maintenance.rebuild import rebuild_index
from blockfs.blocks.maintenance.scrub import ScrubStopped, scrub
from blockfs.blocks.segment import Record, encode_record
from blockfs.errors import CorruptBlockError, CorruptionError, LockedError

BLOCK_SIZE = 4096
OWNER = "12345678-1234-5678-1234-567812345678"
DATAS = [random.Random(number).randbytes(BLOCK_SIZE - number) for number in range(6)]
IDS = [block_id(data) for data in DATAS]


def put_all(blocks: BlockDirectory, *datas: bytes) -> None:
    with blocks.hold() as hold:
        for data in datas:
            blocks.put(data, hold)
        blocks.sync()


def damage(blocks: BlockDirectory, known: BlockId, content: bytes = b"\xff\xfe") -> None:
    with blocks.index.reading() as txn:
        row = blocks.index.row(txn, known)
    assert row is not None
    with open(blocks.layout.segment(row.segment), "r+b") as file:
        file.seek(row.offset)
        file.write(content)


def all_sound(blocks: BlockDirectory) -> bool:
    return [blocks.get(known, verify=True) for known in IDS] == DATAS


# --- scrub


def test_a_scrub_of_sound_blocks_is_clean_and_reads_all(blocks: BlockDirectory) -> None:
    put_all(blocks, *DATAS)
    result = scrub(blocks)
    assert result.is_clean
    assert (result.blocks_checked, result.bytes_read) == (6, sum(map(len, DATAS)))


def test_a_scrub_tells_how_far_it_is(blocks: BlockDirectory) -> None:
    put_all(blocks, *DATAS)
    told: list[tuple[int, int]] = []
    scrub(blocks, step=lambda done, all_: told.append((done, all_)))
    assert told == [(done, 6) for done in range(1, 7)]


def test_a_scrub_quarantines_a_changed_block_and_a_put_replaces_it(blocks: BlockDirectory) -> None:
    put_all(blocks, *DATAS)
    damage(blocks, IDS[2])
    result = scrub(blocks)
    assert result.corrupt == (IDS[2],)
    assert not result.is_clean
    with pytest.raises(CorruptBlockError, match="quarantined"):
        blocks.get(IDS[2])
    with pytest.raises(CorruptBlockError, match="quarantined"):
        blocks.read(IDS[2], 0, 1)
    assert blocks.missing(IDS) == [IDS[2]]
    with blocks.hold() as hold:
        assert blocks.missing(IDS, hold) == [IDS[2]]
    assert scrub(blocks).corrupt == (IDS[2],)
    put_all(blocks, DATAS[2])
    assert all_sound(blocks)
    assert scrub(blocks).is_clean
    assert blocks.statistics().blocks == 6


def test_the_place_of_a_replaced_block_is_given_back(blocks: BlockDirectory) -> None:
    put_all(blocks, *DATAS)
    damage(blocks, IDS[2])
    scrub(blocks)
    put_all(blocks, DATAS[2])
    assert collect(blocks, lambda: IDS).bytes_freed == BLOCK_SIZE
    assert all_sound(blocks)


def test_a_block_that_reads_well_again_is_restored(blocks: BlockDirectory) -> None:
    put_all(blocks, *DATAS)
    damage(blocks, IDS[2])
    scrub(blocks)
    damage(blocks, IDS[2], DATAS[2])
    assert scrub(blocks).restored == (IDS[2],)
    assert all_sound(blocks)


@pytest.mark.parametrize("kept", [0, 100, 4096 + 2 * BLOCK_SIZE + 1])
def test_a_scrub_finds_what_a_truncated_segment_lost(blocks: BlockDirectory, kept: int) -> None:
    put_all(blocks, *DATAS)
    os.truncate(blocks.layout.segment(1), kept)
    blocks.reader.forget()
    expected = IDS if kept <= 4096 else IDS[2:]
    assert set(scrub(blocks).corrupt) == set(expected)
    blocks.close()
    with BlockDirectory.open(blocks.path) as again:
        assert set(again.missing(IDS)) == set(expected)
        put_all(again, *DATAS)
        assert all_sound(again)


def test_a_scrub_finds_a_missing_segment(blocks: BlockDirectory) -> None:
    put_all(blocks, *DATAS)
    os.unlink(blocks.layout.segment(1))
    assert set(scrub(blocks).corrupt) == set(IDS)


@pytest.mark.parametrize("kept", [None, 0, 10, 64, 64 + 2 * 64 + 7])
def test_a_scrub_repairs_a_damaged_sidecar(blocks: BlockDirectory, kept: int | None) -> None:
    """Without its records, a rebuild would lose the blocks."""
    put_all(blocks, *DATAS)
    blocks.close()
    sidecar = blocks.layout.sidecar(1)
    if kept is None:
        os.unlink(sidecar)
    else:
        os.truncate(sidecar, kept)
    with BlockDirectory.open(blocks.path) as again:
        result = scrub(again)
        assert (result.blocks_checked, result.corrupt) == (6, ())
        assert result.repaired_records == (4 if kept and kept > 64 else 6)
        assert scrub(again).is_clean
    assert rebuild_index(blocks.path).blocks == 6


def test_a_scrub_can_be_stopped(blocks: BlockDirectory) -> None:
    put_all(blocks, *DATAS)
    with pytest.raises(ScrubStopped):
        scrub(blocks, stop=lambda: True)


# --- rebuild


def test_a_rebuild_needs_the_directory_for_itself(blocks: BlockDirectory) -> None:
    with pytest.raises(LockedError):
        rebuild_index(blocks.path)


def test_a_rebuilt_index_has_all_blocks(blocks: BlockDirectory) -> None:
    put_all(blocks, *DATAS)
    blocks.pin(OWNER, IDS[:2])
    blocks.close()
    result = rebuild_index(blocks.path)
    assert (result.blocks, result.damaged, result.pins, result.findings) == (6, (), 2, ())
    with BlockDirectory.open(blocks.path) as again:
        assert all_sound(again)
        assert again.uuid == blocks.uuid
        assert set(again.pinned(OWNER)) == set(IDS[:2])
        assert again.statistics().unique_bytes == sum(map(len, DATAS))
        put_all(again, b"new")
        assert again.get(block_id(b"new"), verify=True) == b"new"
        assert again.layout.segment_numbers() == [1, 2]


@pytest.mark.parametrize("how", ["garbage", "empty", "gone", "truncated", "other"])
def test_any_damaged_index_can_be_rebuilt(blocks: BlockDirectory, tmp_path: Path, how: str) -> None:
    put_all(blocks, *DATAS)
    blocks.pin(OWNER, IDS[:2])
    blocks.close()
    data = Path(blocks.layout.index, "data.mdb")
    if how == "garbage":
        data.write_bytes(random.Random(1).randbytes(50_000))
    elif how == "empty":
        data.write_bytes(b"")
    elif how == "gone":
        data.unlink()
    elif how == "truncated":
        os.truncate(data, 3 * 4096)
    else:
        with BlockDirectory.create(str(tmp_path / "other"), block_size=BLOCK_SIZE) as other:
            pass
        data.write_bytes(Path(other.layout.index, "data.mdb").read_bytes())
    with pytest.raises(CorruptionError):
        BlockDirectory.open(blocks.path)
    result = rebuild_index(blocks.path)
    assert (result.blocks, result.damaged, result.pins) == (6, (), None)
    with BlockDirectory.open(blocks.path) as again:
        assert all_sound(again)
        assert scrub(again).is_clean


def test_a_rebuild_leaves_out_damaged_payload_and_names_it(blocks: BlockDirectory) -> None:
    put_all(blocks, *DATAS)
    damage(blocks, IDS[3])
    blocks.close()
    assert rebuild_index(blocks.path).damaged == (IDS[3],)
    with BlockDirectory.open(blocks.path) as again:
        assert again.missing(IDS) == [IDS[3]]
        put_all(again, DATAS[3])
        assert all_sound(again)
    assert rebuild_index(blocks.path).damaged == ()  # a sound copy is there now


def test_collected_blocks_are_neither_damaged_nor_back_after_a_rebuild(blocks: BlockDirectory) -> None:
    put_all(blocks, *DATAS)
    collect(blocks, lambda: IDS[:2])
    blocks.close()
    result = rebuild_index(blocks.path)
    assert (result.blocks, result.damaged) == (2, ())


def test_blocks_stored_twice_are_indexed_once_after_a_rebuild(blocks: BlockDirectory) -> None:
    with BlockDirectory.open(blocks.path) as other, blocks.hold() as hold, other.hold() as second:
        for directory, held in ((blocks, hold), (other, second)):
            directory.put(DATAS[0], held)
        blocks.sync()
        with other.index.begin():  # a reader keeps the loser's copy from being punched
            other.sync()
    blocks.close()
    assert rebuild_index(blocks.path).blocks == 1
    with BlockDirectory.open(blocks.path) as again:
        assert again.get(IDS[0], verify=True) == DATAS[0]
        collect(again, lambda: IDS)
        assert again.get(IDS[0], verify=True) == DATAS[0]
        assert again.statistics().blocks == 1


def test_foreign_and_headless_segments_are_reported_and_left_alone(blocks: BlockDirectory, tmp_path: Path) -> None:
    put_all(blocks, *DATAS[:3])
    with BlockDirectory.create(str(tmp_path / "other"), block_size=BLOCK_SIZE) as other:
        put_all(other, DATAS[4])
    for suffix in (".seg", ".idx"):
        Path(blocks.layout.segments, "00000005" + suffix).write_bytes(
            Path(other.layout.segments, "00000001" + suffix).read_bytes()
        )
    Path(blocks.layout.segment(6)).write_bytes(b"x" * 9999)
    Path(blocks.layout.sidecar(7)).write_bytes(Path(blocks.layout.sidecar(1)).read_bytes())
    blocks.close()
    result = rebuild_index(blocks.path)
    assert (result.blocks, len(result.findings)) == (3, 3)
    with BlockDirectory.open(blocks.path) as again:
        put_all(again, *DATAS)
        assert all_sound(again)
        assert again.layout.segment_numbers()[-1] == 8


def test_records_that_make_no_sense_are_damage(blocks: BlockDirectory) -> None:
    put_all(blocks, *DATAS)
    blocks.close()
    absurd = Record(BlockId(b"x" * 32), 2**63 - 1, BLOCK_SIZE, BLOCK_SIZE, 0)
    with open(blocks.layout.sidecar(1), "ab") as file:
        file.write(encode_record(absurd) + encode_record(absurd._replace(offset=4096, length=2**31)))
    assert rebuild_index(blocks.path).damaged == (absurd.block_id,)
    with BlockDirectory.open(blocks.path) as again:
        assert all_sound(again)
