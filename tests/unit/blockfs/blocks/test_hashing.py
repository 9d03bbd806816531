from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockfs.blocks.hashing import LEAF_IDS, block_id, canonical, leaf_key, leaf_root, object_hash, root_of_level
from blockfs.blocks.ids import ID_SIZE, PADDING_ID, ZERO_BLOCK, BlockId, checked_block_id, parse_block_id


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def naive_root(ids: list[bytes]) -> bytes:
    """The definition, independent of the code: pad to a power of two, hash pairs until one is left."""
    if not ids:
        return sha256(b"")
    width = 1
    while width < len(ids):
        width *= 2
    level = ids + [bytes(32)] * (width - len(ids))
    while len(level) > 1:
        level = [sha256(level[at] + level[at + 1]) for at in range(0, len(level), 2)]
    return level[0]


def numbered(count: int) -> list[bytes]:
    return [sha256(b"block %d" % number) for number in range(count)]


def test_object_hash_of_an_empty_file_is_the_hash_of_nothing() -> None:
    assert object_hash(b"").hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_object_hash_of_one_block_is_its_id() -> None:
    assert object_hash(block_id(b"a")).hex() == "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"


def test_object_hash_of_two_blocks_is_the_hash_of_both_ids() -> None:
    expected = sha256(sha256(b"a") + sha256(b"b"))
    assert expected.hex() == "e5a01fee14e0ed5c48714f22180f25ad8365b53f9779f79dc4a3d7e93963f94a"
    assert object_hash(block_id(b"a") + block_id(b"b")) == expected


def test_object_hash_of_three_blocks_is_padded_with_null_bytes_to_four() -> None:
    left = sha256(sha256(b"a") + sha256(b"b"))
    right = sha256(sha256(b"c") + bytes(32))
    assert object_hash(block_id(b"a") + block_id(b"b") + block_id(b"c")) == sha256(left + right)


@given(st.lists(st.binary(min_size=32, max_size=32), max_size=70))
def test_object_hash_agrees_with_the_definition(ids: list[bytes]) -> None:
    assert object_hash(b"".join(ids)) == naive_root(ids)


@given(st.lists(st.tuples(st.integers(1, 700), st.integers(0, 2)), min_size=1, max_size=4))
def test_object_hash_of_long_runs_agrees_with_the_definition(runs: list[tuple[int, int]]) -> None:
    """What is the same is hashed once: breaks when it is taken for the same and is not."""
    ids = [sha256(b"%d" % number) for count, number in runs for _ in range(count)]
    assert object_hash(b"".join(ids)) == naive_root(ids)


@pytest.mark.parametrize("count", [257, 511, 512, 513, 768, 1025, 2500])
def test_roots_of_leaves_give_the_object_hash(count: int) -> None:
    """The side table of leaf roots must never change what a file is called."""
    ids = b"".join(numbered(count))
    step = LEAF_IDS * ID_SIZE
    roots = b"".join(leaf_root(ids[at : at + step]) for at in range(0, len(ids), step))
    assert root_of_level(roots, 8) == object_hash(ids) == naive_root(numbered(count))


@given(st.binary(max_size=100), st.integers(0, 50))
def test_trailing_null_bytes_do_not_change_a_block_id(data: bytes, zeros: int) -> None:
    assert block_id(data + bytes(zeros)) == block_id(data) == sha256(canonical(data))


@given(st.integers(0, 10000))
def test_all_zero_blocks_have_one_id(size: int) -> None:
    assert block_id(bytes(size)) == ZERO_BLOCK


def test_leaf_keys_are_a_domain_of_their_own() -> None:
    ids = b"".join(numbered(2))
    keys = {leaf_key(ids), leaf_key(ids[:32]), leaf_key(ids + PADDING_ID), block_id(ids), ids[:32]}
    assert len(keys) == 5


def test_a_leaf_key_is_fixed_for_ever() -> None:
    assert leaf_key(ZERO_BLOCK) == sha256(b"blocksync-leaf-1\0" + b"\x00\x01" + sha256(b""))


@pytest.mark.parametrize("text", ["", "00", "00" * 31, "zz" * 32, "00" * 33, " " + "0" * 63, "00" * 32, "é" * 64])
def test_bad_block_ids_from_outside_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="invalid block id"):
        parse_block_id(text)


@given(st.binary(min_size=32, max_size=32).filter(any))
def test_block_ids_round_trip_through_hex(raw: bytes) -> None:
    assert parse_block_id(raw.hex()) == checked_block_id(raw) == BlockId(raw)


@pytest.mark.parametrize("raw", [b"", bytes(32), bytes(31), b"x" * 33])
def test_bad_raw_block_ids_are_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match="invalid block id"):
        checked_block_id(raw)
