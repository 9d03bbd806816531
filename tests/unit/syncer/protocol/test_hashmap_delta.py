"""Deltas: what makes one block list of another; bodies that nobody honest would send."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.hashing import block_id
from blockfs.blocks.ids import PADDING_ID, ZERO_BLOCK
from syncer.protocol.extensions.hashmap_delta import (
    Delta,
    apply_delta,
    decode_delta,
    decode_either,
    delta_between,
    encode_delta,
)
from syncer.protocol.pithos.hashmap import MAX_BLOCKS, HashmapError, encode_hashmap

BLOCK = 4096
IDS = [ZERO_BLOCK, *(block_id(b"%d" % number) for number in range(3))]
ID = IDS[1].hex()


def of(ids: list[bytes], cut: int = 0) -> BlockList:
    return BlockList(block_size=BLOCK, size_bytes=max(0, len(ids) * BLOCK - cut), ids=b"".join(ids))


@st.composite
def lists(draw: st.DrawFn) -> BlockList:
    """Long ones, in which leaves differ, and short ones."""
    base = [IDS[1]] * draw(st.sampled_from([0, 1, 5, 255, 256, 257, 700]))
    for at in draw(st.lists(st.integers(0, 800), max_size=6)):
        if at < len(base):
            base[at] = draw(st.sampled_from(IDS))
    return of(base, draw(st.integers(0, BLOCK - 1)) if base else 0)


@given(lists(), lists())
@example(of([]), of([ZERO_BLOCK] * 3))
@example(of([IDS[1]] * 3), of([]))
def test_a_delta_makes_the_new_list_of_the_old(old: BlockList, new: BlockList) -> None:
    delta = delta_between(old, new, new.object_hash)
    read = decode_delta(encode_delta(delta, BLOCK), BLOCK)
    assert read == delta
    assert apply_delta(old, read) == new
    assert decode_either(encode_delta(delta, BLOCK), BLOCK, old) == new
    assert decode_either(encode_hashmap(new), BLOCK, old) == new


@given(lists(), lists())
def test_a_delta_brings_only_what_differs(old: BlockList, new: BlockList) -> None:
    padded = list(old) + [ZERO_BLOCK] * len(new)
    runs = [run for _, run in delta_between(old, new).splices]
    brought = [run[at : at + 32] for run in runs for at in range(0, len(run), 32)]
    assert brought == [name for at, name in enumerate(new) if padded[at] != name]


def test_a_change_of_a_long_list_is_short() -> None:
    old = of([IDS[1]] * 200_000)
    new = old.splice(old.size_bytes, {123_456: IDS[2]})
    assert len(encode_delta(delta_between(old, new, new.object_hash), BLOCK)) < 300


@given(st.binary(max_size=100))
def test_any_other_bytes_are_an_error(body: bytes) -> None:
    for read in (lambda: decode_delta(body, BLOCK), lambda: decode_either(body, BLOCK, of([]))):
        with pytest.raises(HashmapError):
            read()


@pytest.mark.parametrize(
    "form",
    [
        {"bytes": 10 * BLOCK},
        {"bytes": 10 * BLOCK, "splices": {}},
        {"bytes": 10 * BLOCK, "splices": [[0]]},
        {"bytes": 10 * BLOCK, "splices": [[0, []]]},
        {"bytes": 10 * BLOCK, "splices": [[-1, [ID]]]},
        {"bytes": 10 * BLOCK, "splices": [[0.5, [ID]]]},
        {"bytes": 10 * BLOCK, "splices": [[5, [ID]], [4, [ID]]]},
        {"bytes": 10 * BLOCK, "splices": [[5, [ID]], [5, [ID]]]},
        {"bytes": 10 * BLOCK, "splices": [[5, [ID, ID]], [6, [ID]]]},
        {"bytes": 10 * BLOCK, "splices": [[10, [ID]]]},
        {"bytes": 10 * BLOCK, "splices": [[9, [ID, ID]]]},
        {"bytes": 10 * BLOCK, "splices": [[1 << 62, [ID]]]},
        {"bytes": 10 * BLOCK, "splices": [[1 << 90, [ID]]]},
        {"bytes": 10 * BLOCK, "splices": [[0, ["zz" * 32]]]},
        {"bytes": 10 * BLOCK, "splices": [[0, [ID[:-1]]]]},
        {"bytes": 10 * BLOCK, "splices": [[0, [PADDING_ID.hex()]]]},
        {"bytes": 10 * BLOCK, "splices": [], "hash": "zz"},
        {"bytes": 10 * BLOCK, "splices": [], "block_size": 2 * BLOCK},
        {"bytes": 10 * BLOCK, "splices": [], "block_hash": "md5"},
        {"bytes": -1, "splices": []},
        {"bytes": MAX_BLOCKS * BLOCK + 1, "splices": []},
        {"bytes": 1 << 90, "splices": []},
        {"bytes": 0, "splices": [[0, [ID]]]},
    ],
    ids=json.dumps,
)
def test_splices_that_make_no_sense_are_refused(form: object) -> None:
    body = json.dumps(form).encode()
    with pytest.raises(HashmapError):
        decode_delta(body, BLOCK)
    with pytest.raises(HashmapError):
        decode_either(body, BLOCK, of([IDS[1]] * 10))


def test_growth_without_splices_is_holes() -> None:
    assert apply_delta(of([IDS[1]]), Delta(size_bytes=3 * BLOCK, splices=())) == of([IDS[1], ZERO_BLOCK, ZERO_BLOCK])
