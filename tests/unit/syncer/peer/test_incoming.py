"""A block in parts: it comes whole and in its one form, or not at all, and never takes more memory than a block may."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncer.peer.wire.drops import Drop
from syncer.peer.wire.incoming import Incoming

SIZE = 4096
blocks = st.binary(max_size=SIZE).map(lambda block: block.rstrip(b"\0"))


@given(blocks, st.lists(st.integers(0, SIZE), max_size=5), st.integers(0, 5))
def test_a_block_comes_whole_in_whatever_parts_also_if_the_request_breaks_off(
    block: bytes, cuts: list[int], breaks: int
) -> None:
    incoming = Incoming(SIZE)
    places = [0, *sorted(cut % (len(block) + 1) for cut in cuts), len(block)]
    assert incoming.head(len(block)) is None
    for index, (begin, end) in enumerate(itertools.pairwise(places)):
        if index == breaks:
            assert incoming.received == begin
            assert incoming.head(len(block)) is None
        assert incoming.data(block[begin:end]) is None
    assert incoming.end() == block


@pytest.mark.parametrize("total", [SIZE + 1, (1 << 32) - 1])
def test_no_memory_is_taken_for_what_is_longer_than_a_block(total: int) -> None:
    incoming = Incoming(SIZE)
    assert incoming.head(total) is Drop.TRANSFER
    assert incoming.data(b"x") is Drop.TRANSFER


def test_more_bytes_than_were_announced_are_not_taken() -> None:
    incoming = Incoming(SIZE)
    incoming.head(3)
    assert incoming.data(b"four") is Drop.TRANSFER
    assert incoming.received == 0


def test_many_small_parts_are_kept_as_few() -> None:
    incoming = Incoming(SIZE)
    incoming.head(SIZE)
    for _ in range(SIZE):
        assert incoming.data(b"x") is None
        assert len(incoming._pieces) < 256
    assert incoming.end() == b"x" * SIZE


@given(st.binary(min_size=1, max_size=SIZE + 1))
def test_a_block_may_come_at_once(block: bytes) -> None:
    is_one = len(block) <= SIZE and not block.endswith(b"\0")
    assert Incoming(SIZE).whole(block) == (block if is_one else Drop.TRANSFER)


def test_a_block_does_not_begin_in_parts_and_come_at_once() -> None:
    incoming = Incoming(SIZE)
    incoming.head(3)
    assert incoming.whole(b"abc") is Drop.TRANSFER


def test_fewer_bytes_than_were_announced_are_no_block() -> None:
    incoming = Incoming(SIZE)
    incoming.head(3)
    incoming.data(b"ab")
    assert incoming.end() is Drop.TRANSFER


def test_a_block_has_no_trailing_zeros() -> None:
    incoming = Incoming(SIZE)
    incoming.head(3)
    incoming.data(b"ab\0")
    assert incoming.end() is Drop.TRANSFER


def test_data_before_it_was_announced_is_not_taken() -> None:
    assert Incoming(SIZE).data(b"a") is Drop.TRANSFER
    assert Incoming(SIZE).end() is Drop.TRANSFER


def test_a_block_does_not_change_its_length() -> None:
    incoming = Incoming(SIZE)
    incoming.head(3)
    assert incoming.head(4) is Drop.TRANSFER
