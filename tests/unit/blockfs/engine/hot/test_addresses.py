"""Which blocks of a hot file are dirty, against a model of a disk: pages with addresses."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockfs.engine.hot.addresses import PAGE, Run, Stored, dirty_blocks, moved, runs
from blockfs.runtime.fiemap import UNKNOWN, Extent

PAGES = 4  # of a block
BLOCK = PAGES * PAGE

Pages = dict[int, int]
"""Page of a file → its place, in pages; UNKNOWN."""


def as_extents(pages: Pages) -> list[Extent]:
    """As a host tells them, as long as it can."""
    found: list[Extent] = []
    for page in sorted(pages):
        place = pages[page]
        if found:
            logical, physical, length = found[-1]
            follows = physical == place == UNKNOWN or (
                UNKNOWN not in (physical, place) and physical + length == place * PAGE
            )
            if logical + length == page * PAGE and follows:
                found[-1] = logical, physical, length + PAGE
                continue
        found.append((page * PAGE, place if place == UNKNOWN else place * PAGE, PAGE))
    return found


places = st.integers(0, 40) | st.just(UNKNOWN)
files = st.dictionaries(st.integers(0, 30), places, max_size=24)


@given(ours=files, theirs=files, size=st.integers(0, 30 * PAGE))
def test_a_block_is_clean_exactly_if_all_its_pages_lie_where_they_are_stored(
    ours: Pages, theirs: Pages, size: int
) -> None:
    def is_clean(page: int) -> bool:
        mine, its = ours.get(page), theirs.get(page)
        return mine == its and mine != UNKNOWN

    blocks = -(-size // BLOCK)
    dirty = [number for number in range(blocks) if not all(map(is_clean, range(number * PAGES, (number + 1) * PAGES)))]
    found = dirty_blocks(as_extents(ours), as_extents(theirs), size, BLOCK)
    assert [number for first, end in found for number in range(first, end)] == dirty
    assert all(end < first for (_, end), (first, _) in pairwise(found))


@given(
    stored=st.dictionaries(
        st.integers(0, 12), st.tuples(st.integers(0, 2), st.integers(0, 12), st.integers(1, BLOCK)), max_size=10
    ),
    segments=st.lists(files, min_size=3, max_size=3),
)
def test_runs_of_segments_become_extents_of_the_file(
    stored: dict[int, tuple[int, int, int]], segments: list[Pages]
) -> None:
    blocks = [Stored(number, segment, at * PAGE, length) for number, (segment, at, length) in sorted(stored.items())]
    expected: Pages = {}
    for block in blocks:
        for page in range(-(-block.length // PAGE)):
            place = segments[block.segment].get(block.offset // PAGE + page)
            if place is not None:
                expected[block.number * PAGES + page] = place
    made = list(runs(blocks, BLOCK))
    assert sum(run.length for run in made) == sum(-(-block.length // PAGE) * PAGE for block in blocks)
    found: Pages = {}
    for run in made:
        for logical, physical, length in moved(as_extents(segments[run.segment]), run):
            for page in range(length // PAGE):
                place = UNKNOWN if physical == UNKNOWN else physical // PAGE + page
                assert found.setdefault(logical // PAGE + page, place) == place
    assert found == expected


def test_blocks_that_follow_each_other_are_one_run() -> None:
    blocks = [Stored(3, 1, 0, BLOCK), Stored(4, 1, BLOCK, 100), Stored(5, 1, BLOCK + PAGE, BLOCK), Stored(6, 2, 0, 1)]
    assert list(runs(blocks, BLOCK)) == [
        Run(1, 0, 3 * BLOCK, BLOCK + PAGE),
        Run(1, BLOCK + PAGE, 5 * BLOCK, BLOCK),
        Run(2, 0, 6 * BLOCK, PAGE),
    ]


@pytest.mark.parametrize(
    ("ours", "theirs", "why"),
    [
        ({}, {0: 5}, "a hole over a block: it was punched"),
        ({0: 5}, {}, "bytes over a hole"),
        ({0: 5}, {0: 6}, "it was moved, or written"),
        ({0: UNKNOWN}, {0: UNKNOWN}, "nobody knows"),
        ({0: 5, 1: 6}, {0: 5}, "more bytes than were stored"),
        ({0: 5}, {0: 5, 1: 6}, "cut off at a page"),
    ],
)
def test_all_doubt_is_dirty(ours: Pages, theirs: Pages, why: str) -> None:
    assert dirty_blocks(as_extents(ours), as_extents(theirs), PAGE, BLOCK) == [(0, 1)], why
