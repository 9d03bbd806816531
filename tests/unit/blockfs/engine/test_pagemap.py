from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockfs.engine.content.pagemap import BELOW, PAGE, ZEROS, Layer, PageMap, plan, staged_blocks

BLOCK_SIZES = st.sampled_from([4096, 8192, 65536])
PAGES = st.integers(0, 40)
RUNS = st.lists(st.tuples(PAGES, st.integers(1, 20)), max_size=5)


def filled(block_size: int, runs: Sequence[tuple[int, int]]) -> PageMap:
    pages = PageMap(block_size)
    for first, count in runs:
        pages.add(first, count)
    return pages


def members(runs: Sequence[tuple[int, int]]) -> set[int]:
    return {page for first, count in runs for page in range(first, first + count)}


@given(BLOCK_SIZES, RUNS)
def test_a_map_is_the_set_of_its_pages(block_size: int, runs: list[tuple[int, int]]) -> None:
    pages = PageMap(block_size)
    expected: set[int] = set()
    for first, count in runs:
        new = set(range(first, first + count)) - expected
        assert pages.add(first, count) == len(new)
        expected |= new
    assert {page for page in range(80) if pages.has(page)} == expected
    assert pages.count == len(expected)
    assert members(list(pages.extents())) == expected
    assert sum(count for _, count in pages.extents()) == len(expected)


@given(BLOCK_SIZES, RUNS)
def test_extents_are_maximal_and_ascending(block_size: int, runs: list[tuple[int, int]]) -> None:
    extents = list(filled(block_size, runs).extents())
    for (first, count), (following, _) in itertools.pairwise(extents):
        assert first + count < following


@given(BLOCK_SIZES, RUNS, st.integers(0, 70))
def test_a_cut_forgets_exactly_the_pages_from_there_on(block_size: int, runs: list[tuple[int, int]], page: int) -> None:
    pages = filled(block_size, runs)
    expected = members(runs)
    assert pages.cut(page) == len({at for at in expected if at >= page})
    assert {at for at in range(80) if pages.has(at)} == {at for at in expected if at < page}
    assert pages.count == len({at for at in expected if at < page})
    assert all(pages.masks.values())


LAYERS = st.lists(st.tuples(RUNS, st.one_of(st.just(2**63 - 1), st.integers(0, 70 * PAGE))), max_size=4)


@given(BLOCK_SIZES, LAYERS, st.integers(0, 50 * PAGE), st.integers(1, 20 * PAGE))
def test_the_newest_generation_that_has_a_page_supplies_it(
    block_size: int, generations: list[tuple[list[tuple[int, int]], int]], offset: int, length: int
) -> None:
    layers = [Layer(filled(block_size, runs), valid) for runs, valid in generations]
    pieces = plan(offset, length, layers, block_size)

    assert pieces[0].offset == offset
    at = offset
    for _layer, start, size in pieces:
        assert start == at
        assert size > 0
        at += size
    assert at == offset + length
    assert all(before.layer != after.layer for before, after in itertools.pairwise(pieces))

    samples = {offset, offset + length - 1} | {p.offset for p in pieces} | {p.offset + p.length - 1 for p in pieces}
    samples |= {min(max(valid + delta, offset), offset + length - 1) for _, valid in generations for delta in (-1, 0)}
    for byte in samples:
        owner = next(
            (number for number, layer in enumerate(layers) if layer.pages.has(byte // PAGE)),
            BELOW,
        )
        if owner != BELOW and byte >= layers[owner].valid_below:
            owner = ZEROS
        (found,) = [piece for piece in pieces if piece.offset <= byte < piece.offset + piece.length]
        assert found.layer == owner


def test_a_range_without_staged_data_is_one_piece() -> None:
    assert plan(5, 10**15, [], 65536) == [(BELOW, 5, 10**15)]


def test_contiguous_staged_blocks_are_one_piece() -> None:
    pages = filled(4096, [(0, 256)])
    assert plan(0, 256 * PAGE, [Layer(pages, 2**63 - 1)], 4096) == [(0, 0, 256 * PAGE)]


@pytest.mark.parametrize("page", [10**15 // PAGE, (2**63 - 1) // PAGE])
def test_a_page_far_out_costs_one_entry(page: int) -> None:
    pages = filled(65536, [(page, 1)])
    assert len(pages.masks) == 1
    assert pages.has(page)


def test_staged_blocks_are_the_union_in_order() -> None:
    assert staged_blocks([filled(8192, [(7, 2)]), filled(8192, [(0, 1), (6, 1)])]) == [0, 3, 4]
