"""The hashmap codec against plain json, in both directions, and everything it must refuse."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.ids import PADDING_ID, ZERO_BLOCK, BlockId
from syncer.protocol.pithos import hashmap
from syncer.protocol.pithos.hashmap import HashmapError

BLOCK = 4096
some_ids = st.binary(min_size=32, max_size=32).filter(lambda raw: raw != PADDING_ID).map(BlockId)
id_lists = st.lists(some_ids | st.just(ZERO_BLOCK), max_size=8)
A = "aa" * 32


def block_list(ids: list[BlockId], short: int = 0) -> BlockList:
    size = max(0, len(ids) * BLOCK - short) if ids else 0
    return BlockList(block_size=BLOCK, size_bytes=size, ids=b"".join(ids))


@given(id_lists, st.integers(0, BLOCK - 1))
def test_a_block_list_survives_the_wire(ids: list[BlockId], short: int) -> None:
    blocks = block_list(ids, short)
    body = hashmap.encode_hashmap(blocks)
    assert hashmap.decode_hashmap(body, BLOCK) == blocks
    wire = json.loads(body)
    assert wire["hashes"] == ([block.hex() for block in ids] or [ZERO_BLOCK.hex()])
    assert (wire["bytes"], wire["block_size"], wire["block_hash"]) == (blocks.size_bytes, BLOCK, "sha256")


@given(id_lists, st.sampled_from([None, 0, 2]), st.booleans())
def test_any_spelling_of_the_json_is_read_alike(ids: list[BlockId], indent: int | None, upper: bool) -> None:
    hexes = [block.hex().upper() if upper else block.hex() for block in ids]
    body = json.dumps({"hashes": hexes, "bytes": len(ids) * BLOCK, "extra": [1]}, indent=indent).encode()
    assert hashmap.decode_hashmap(body, BLOCK) == block_list(ids)


@given(id_lists)
def test_id_lists_survive_the_wire(ids: list[BlockId]) -> None:
    assert hashmap.decode_ids(hashmap.encode_ids(ids)) == ids
    assert hashmap.decode_ids(json.dumps([block.hex() for block in ids]).encode()) == ids


def test_runs_are_written_as_one_list_however_they_are_cut() -> None:
    ids = b"".join(bytes([index % 251 + 1]) * 32 for index in range(5000))
    whole = BlockList(block_size=BLOCK, size_bytes=5000 * BLOCK, ids=ids)
    runs = iter([ids[:32], b"", ids[32 : 4500 * 32], ids[4500 * 32 :]])
    assert b"".join(hashmap.hashmap_chunks(BLOCK, 5000 * BLOCK, runs)) == hashmap.encode_hashmap(whole)


@pytest.mark.parametrize("hashes", [[], [ZERO_BLOCK.hex()]])
def test_an_empty_object_has_one_hash_or_none(hashes: list[str]) -> None:
    body = json.dumps({"bytes": 0, "hashes": hashes}).encode()
    assert hashmap.decode_hashmap(body, BLOCK).ids == b""


@pytest.mark.parametrize(
    "wire",
    [
        {"bytes": BLOCK, "hashes": []},
        {"bytes": BLOCK, "hashes": [A, A]},
        {"bytes": 0, "hashes": [A]},
        {"bytes": -1, "hashes": []},
        {"bytes": 1 << 70, "hashes": []},
        {"bytes": (hashmap.MAX_BLOCKS + 1) * BLOCK, "hashes": []},
        {"bytes": 1.5, "hashes": [A]},
        {"bytes": True, "hashes": [A]},
        {"bytes": 1, "hashes": ["zz"]},
        {"bytes": 1, "hashes": ["zz" * 32]},
        {"bytes": 1, "hashes": ["é" * 32]},
        {"bytes": 1, "hashes": [" " * 64]},
        {"bytes": 1, "hashes": ["a " * 32]},
        {"bytes": 2 * BLOCK, "hashes": [A[:63], A + "a"]},
        {"bytes": 1, "hashes": [PADDING_ID.hex()]},
        {"bytes": 1, "hashes": [7]},
        {"bytes": 1, "hashes": {"a": A}},
        {"bytes": 1, "hashes": A},
        {"bytes": 1, "hashes": None},
        {"bytes": 1},
        {"hashes": [A]},
        {"bytes": 1, "hashes": [A], "block_size": 2 * BLOCK},
        {"bytes": 1, "hashes": [A], "block_hash": "md5"},
        [],
        "text",
    ],
)
def test_a_body_that_is_no_hashmap_is_refused(wire: Any) -> None:
    for separators in (None, (",", ":")):
        with pytest.raises(HashmapError):
            hashmap.decode_hashmap(json.dumps(wire, separators=separators, ensure_ascii=False).encode(), BLOCK)


@given(st.binary(max_size=200))
def test_garbage_is_refused_with_our_own_error(body: bytes) -> None:
    for decode in (hashmap.decode_ids, lambda text: hashmap.decode_hashmap(text, BLOCK)):
        try:
            decode(body)
        except HashmapError:
            continue


def test_a_fault_is_not_a_list_of_missing_ids() -> None:
    with pytest.raises(HashmapError):
        hashmap.decode_ids(b'{"conflict":{"code":409,"message":"Container is not empty"}}')


@given(st.lists(st.binary(max_size=8), min_size=1, max_size=5))
def test_padded_blocks_are_split_into_the_same_blocks(blocks: list[bytes]) -> None:
    body = b"".join(hashmap.padded_blocks(blocks, 8))
    split = [body[at : at + 8] for at in range(0, len(body), 8)]
    assert [block.rstrip(b"\0") for block in split] == [block.rstrip(b"\0") for block in blocks]
