"""The list of what sweeps have deleted and nobody has punched yet."""

from __future__ import annotations

import random

import pytest

from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.hashing import block_id
from blockfs.blocks.index import Row, SegmentRow, SegmentState
from blockfs.blocks.segment import RAW
from blockfs.blocks.segments.freed import FreedPlaces
from blockfs.errors import CorruptionError


def row(segment: int, offset: int, *, epoch: int = 1, codec: int = RAW) -> Row:
    return Row(segment, offset, 4096, 4096, codec, False, epoch)


def listed(
    blocks: BlockDirectory, freed: FreedPlaces, limit: int = 1 << 20
) -> tuple[list[bytes], list[tuple[int, int, int]]]:
    with blocks.index.reading() as txn:
        found = freed.first(txn, limit)
    return found.keys, list(found.places())


@pytest.mark.parametrize("count", [0, 1, 167, 168, 169, 1000])
def test_all_that_was_added_is_listed_by_place(blocks: BlockDirectory, count: int) -> None:
    freed = FreedPlaces(blocks.index)
    rows = [row(number % 7, number * 4096) for number in range(count)]
    random.Random(count).shuffle(rows)
    for part in (rows[: count // 3], rows[count // 3 :]):
        with blocks.index.writing() as txn:
            freed.add(txn, part)
    assert listed(blocks, freed)[1] == sorted((one.segment, one.offset, 4096) for one in rows)


def test_entries_are_taken_some_at_a_time_from_the_first_on(blocks: BlockDirectory) -> None:
    freed = FreedPlaces(blocks.index)
    rows = [row(1, number * 4096) for number in range(1000)]
    with blocks.index.writing() as txn:
        freed.add(txn, rows)
    seen = []
    while True:
        keys, places = listed(blocks, freed, 400)
        if not keys:
            break
        assert len(places) <= 400
        seen += places
        with blocks.index.writing() as txn:
            freed.forget(txn, keys)
            freed.add(txn, [])
    assert seen == [(one.segment, one.offset, 4096) for one in rows]


def test_what_is_added_meanwhile_comes_behind(blocks: BlockDirectory) -> None:
    """Else dropping what was punched would drop what was not."""
    freed = FreedPlaces(blocks.index)
    with blocks.index.writing() as txn:
        freed.add(txn, [row(1, number * 4096) for number in range(500)])
    keys, _ = listed(blocks, freed, 1)
    with blocks.index.writing() as txn:
        freed.add(txn, [row(2, 0)])
        freed.forget(txn, keys)
    rest = listed(blocks, freed)[1]
    assert (2, 0, 4096) in rest
    assert len(rest) == 500 - 168 + 1


def test_a_damaged_list_is_told(blocks: BlockDirectory) -> None:
    freed = FreedPlaces(blocks.index)
    table = blocks.index.open_table(b"garbage")
    with blocks.index.writing() as txn:
        txn.put(bytes(8), b"x" * 13, db=table)
    with pytest.raises(CorruptionError, match="damaged list of garbage"):
        listed(blocks, freed)


def test_rows_of_an_epoch_and_newer_ones_stay_and_segments_are_counted(blocks: BlockDirectory) -> None:
    ids = sorted(block_id(b"%d" % number) for number in range(6))
    rows = [row(1 + number % 2, number * 4096, epoch=3 - number // 4) for number in range(6)]
    with blocks.index.writing() as txn:
        for known, one in zip(ids, rows, strict=True):
            blocks.index.put_row(txn, known, one)
            blocks.index.count(txn, one, 1)
    with blocks.index.writing() as txn:
        removed = blocks.index.remove_older(txn, [*ids[1:5], ids[5], block_id(b"unknown")], 3)
    assert removed == rows[4:]
    with blocks.index.reading() as txn:
        assert [blocks.index.row(txn, known) for known in ids] == [*rows[:4], None, None]
        assert dict(blocks.index.segments(txn)) == {
            number: SegmentRow(SegmentState.GROWING, 2, 2 * 4096) for number in (1, 2)
        }


@pytest.mark.parametrize("codec", [RAW, 1])
def test_a_settled_segment_is_looked_at_again_when_a_packed_row_goes(blocks: BlockDirectory, codec: int) -> None:
    ids = sorted(block_id(b"%d" % number) for number in range(2))
    with blocks.index.writing() as txn:
        blocks.index.set_segment(txn, 1, SegmentRow(SegmentState.SETTLED, 2, 2 * 4096))
        for number, known in enumerate(ids):
            blocks.index.put_row(txn, known, row(1, number * 4096, codec=codec if number else RAW))
        blocks.index.remove_older(txn, ids, 2)
    with blocks.index.reading() as txn:
        state = SegmentState.SETTLED if codec == RAW else SegmentState.SEALED
        assert blocks.index.segment(txn, 1) == SegmentRow(state, 0, 0)
