"""Block lists and chunk lists: they come back, whatever they were made of, and equal ones are equal bytes."""

from __future__ import annotations

import hashlib
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.ids import ZERO_BLOCK
from syncer.errors import DamagedObjectError
from syncer.remote.repository.format.entries import Bytes, Listed
from syncer.remote.repository.format.keys import ChunkId
from syncer.remote.repository.format.lists import (
    PART_BYTES,
    ChunkList,
    Located,
    blocks_of,
    blocks_shape,
    chunks_of,
    chunks_shape,
    listed_blocks,
)
from syncer.remote.repository.format.packs import PackRef
from tests import effort
from tests.unit.syncer.remote.repository.nodes import KEYS, MemoryNodes

GRID = 4096
BLOCKS = blocks_shape(KEYS.split)
CHUNKS = chunks_shape(KEYS.split)
WINDOW = 4 << 20
PACKS = [PackRef(bytes([number]) * 32, bytes([number]) * 16) for number in range(3)]
SETTINGS = settings(max_examples=effort.count("repository trees"), deadline=None)
IDS = st.lists(st.sampled_from([ZERO_BLOCK, *(hashlib.sha256(bytes([n])).digest() for n in range(3))]), max_size=700)


def block_list(ids: list[bytes]) -> BlockList:
    return BlockList(block_size=GRID, size_bytes=len(ids) * GRID, ids=b"".join(ids))


def file_of(blocks: BlockList, listed: Listed) -> Bytes:
    return Bytes(size_bytes=blocks.size_bytes, object_hash=blocks.object_hash, blocks=listed, chunks=b"")


@given(before=IDS, after=IDS)
@SETTINGS
def test_a_block_list_comes_back_and_is_the_same_whatever_it_was_before(
    before: list[bytes], after: list[bytes]
) -> None:
    nodes = MemoryNodes()
    old, new = block_list(before), block_list(after)
    was = listed_blocks(nodes, BLOCKS, old)
    now = listed_blocks(nodes, BLOCKS, new, (was, old))
    assert blocks_of(nodes, file_of(new, now), GRID) == new
    assert now == listed_blocks(MemoryNodes(), BLOCKS, new)


def test_a_block_list_of_another_file_is_damage() -> None:
    nodes = MemoryNodes()
    one, other = block_list([b"1" * 32] * 40), block_list([b"2" * 32] * 40)
    with pytest.raises(DamagedObjectError):
        blocks_of(nodes, file_of(one, listed_blocks(nodes, BLOCKS, other)), GRID)
    with pytest.raises(DamagedObjectError):
        blocks_of(nodes, file_of(one, b"1" * 32 * 39), GRID)


@st.composite
def windows(draw: st.DrawFn) -> tuple[int, dict[int, list[Located]]]:
    size = draw(st.integers(0, 3 * WINDOW))
    cuts = sorted(draw(st.sets(st.integers(0, size), max_size=40)) | {0, size})
    made: dict[int, list[Located]] = {start: [] for start in range(0, size, WINDOW)}
    for start, end in pairwise(cuts):
        stop = min(end, start + (1 << 16), start // WINDOW * WINDOW + WINDOW)
        if draw(st.booleans()):
            chunk = ChunkId(hashlib.sha256(b"%d" % draw(st.integers(0, 9))).digest())
            made[start // WINDOW * WINDOW].append(
                Located(start, stop - start, chunk, draw(st.sampled_from(PACKS)), draw(st.integers(0, 99)), 7)
            )
    return size, made


def listed(nodes: MemoryNodes, size: int, made: dict[int, list[Located]], older: Bytes | None = None) -> Bytes:
    chunks = ChunkList(nodes, CHUNKS, older)
    for start, inside in made.items():
        chunks.window(start, WINDOW, inside)
    return Bytes(size_bytes=size, object_hash=bytes(32), blocks=b"", chunks=chunks.finish(size))


@given(one=windows(), other=windows(), kept=st.sets(st.integers(0, 2)))
@SETTINGS
def test_a_chunk_list_comes_back_and_is_the_same_whatever_it_was_before(
    one: tuple[int, dict[int, list[Located]]], other: tuple[int, dict[int, list[Located]]], kept: set[int]
) -> None:
    nodes = MemoryNodes()
    old_size, old = one
    size, new = other
    before = listed(nodes, old_size, old)
    both = min(old_size, size) // WINDOW * WINDOW  # whole windows of both may stay as they were
    new = {at: old[at] if at < both and at // WINDOW in kept else inside for at, inside in new.items()}
    edits = {at: inside for at, inside in new.items() if not (at < both and at // WINDOW in kept)}
    after = listed(nodes, size, edits, before)
    assert list(chunks_of(nodes, after)) == [chunk for _, inside in sorted(new.items()) for chunk in inside]
    assert after == listed(MemoryNodes(), size, new)


@given(made=windows(), start=st.integers(0, 3 * WINDOW), length=st.integers(0, WINDOW))
@SETTINGS
def test_the_chunks_of_a_range_are_those_that_reach_into_it(
    made: tuple[int, dict[int, list[Located]]], start: int, length: int
) -> None:
    nodes = MemoryNodes()
    size, inside = made
    file = listed(nodes, size, inside)
    wanted = [
        chunk
        for _, chunks in sorted(inside.items())
        for chunk in chunks
        if chunk.start < start + length and chunk.end > start
    ]
    assert list(chunks_of(nodes, file, start, start + length)) == (wanted if length else [])


def test_a_change_of_a_long_list_writes_a_few_nodes() -> None:
    nodes = MemoryNodes()
    size = 256 * WINDOW
    made = {
        at: [Located(at + n * 16384, 16384, ChunkId(b"%032d" % (at + n)), PACKS[0], n, 9) for n in range(256)]
        for at in range(0, size, WINDOW)
    }
    before = listed(nodes, size, made)
    nodes.forget()
    chunk = msgspec.structs.replace(made[WINDOW][7], id=ChunkId(b"x" * 32), pack=PACKS[1])
    after = listed(nodes, size, {WINDOW: [*made[WINDOW][:7], chunk, *made[WINDOW][8:]]}, before)
    assert sum(len(nodes.kept[node]) for node in set(nodes.written)) <= 100_000
    assert len(set(nodes.read_ids)) <= 12
    assert len(list(chunks_of(nodes, after))) == 256 * 256


@pytest.mark.parametrize(
    "raw",
    [b"\0", b"\0\1" + bytes(48), b"\0\1" + bytes(48 + 49), b"\0\0" + bytes(50), b"\0\1" + bytes(48) + b"\xff" * 50],
)
def test_a_chunk_list_that_is_none_is_damage(raw: bytes) -> None:
    file = Bytes(size_bytes=PART_BYTES, object_hash=bytes(32), blocks=b"", chunks=raw)
    with pytest.raises(DamagedObjectError):
        list(chunks_of(MemoryNodes(), file))
