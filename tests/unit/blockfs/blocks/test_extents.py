from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from blockfs.blocks.extents import block_count, block_length, spans

block_sizes = st.sampled_from([1, 2, 4096, 65536])


@given(st.integers(0, 10**6), st.integers(0, 300), st.integers(1, 64))
def test_spans_cover_exactly_the_range_in_order(offset: int, length: int, block_size: int) -> None:
    covered = [
        span.index * block_size + span.start + at
        for span in spans(offset, length, block_size)
        for at in range(span.length)
    ]
    assert covered == list(range(offset, offset + length))


@given(st.integers(0, 10**15), st.integers(0, 10**6), block_sizes)
def test_no_span_leaves_its_block(offset: int, length: int, block_size: int) -> None:
    for span in list(spans(offset, min(length, 50 * block_size), block_size)):
        assert 0 <= span.start < block_size
        assert 1 <= span.length <= block_size - span.start


@given(st.integers(0, 10**15), block_sizes)
def test_block_lengths_add_up_to_the_size(size_bytes: int, block_size: int) -> None:
    count = block_count(size_bytes, block_size)
    last = block_length(count - 1, size_bytes, block_size) if count else 0
    assert max(0, count - 1) * block_size + last == size_bytes
    assert block_length(count, size_bytes, block_size) == 0
    assert count < 2 or block_length(0, size_bytes, block_size) == block_size
