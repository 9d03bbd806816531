"""What FIEMAP answers, and where two files do not share, against a model of one cell per byte."""

from __future__ import annotations

import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockfs.runtime.fiemap import UNKNOWN, Extent, OddMapError, differing, overlap, parse, request

HEADER, EXTENT = struct.Struct("=QQIIIxxxx"), struct.Struct("=QQQ16xI12x")
LAST, UNWRITTEN, SHARED = 0x1, 0x800, 0x2000
END = 40


def answer(*extents: tuple[int, int, int, int]) -> bytes:
    """A buffer as the kernel fills it: logical, physical, length, flags of each extent."""
    return HEADER.pack(0, END, 1, len(extents), len(extents)) + b"".join(EXTENT.pack(*each) for each in extents)


@st.composite
def maps(draw: st.DrawFn) -> list[Extent]:
    """Extents of one file; their places are few, so that files often share, also with an offset."""
    found: list[Extent] = []
    at = 0
    while at < END + 5:
        at += draw(st.sampled_from((0, 0, 1, 4)))
        length = draw(st.integers(1, 12))
        found.append((at, draw(st.sampled_from((UNKNOWN, 1000 + at, 1000 + at, 1001 + at, 2000))), length))
        at += length
        if not draw(st.integers(0, 6)):
            break
    return found


def cells(extents: list[Extent]) -> list[object]:
    """Where each byte of a file lies; for a byte of which that is not known something that equals nothing."""
    found: list[object] = ["hole"] * END
    for logical, physical, length in extents:
        for at in range(logical, min(logical + length, END)):
            found[at] = object() if physical == UNKNOWN else physical + at - logical
    return found


@given(maps(), maps())
def test_two_files_share_where_each_byte_is_known_to_lie_at_the_same_place(a: list[Extent], b: list[Extent]) -> None:
    """A byte that is told to be shared and is not is an edit that nobody sees."""
    expect = {at for at, (one, other) in enumerate(zip(cells(a), cells(b), strict=True)) if one != other}
    ranges = list(differing(a, b, END))
    assert {at for first, end in ranges for at in range(first, end)} == expect
    assert all(end < following for (_, end), (following, _) in pairwise(ranges))


@given(maps())
def test_a_file_shares_all_with_itself_but_what_is_not_known(a: list[Extent]) -> None:
    assert list(differing([each for each in a if each[1] != UNKNOWN], [e for e in a if e[1] != UNKNOWN], END)) == []


@given(maps(), maps())
def test_the_bytes_of_a_file_in_some_ranges_are_counted_without_its_holes(a: list[Extent], b: list[Extent]) -> None:
    ranges = list(differing(a, b, END))
    places = cells(a)
    assert overlap(a, ranges) == sum(places[at] != "hole" for first, end in ranges for at in range(first, end))


def test_a_shared_extent_counts_by_its_place() -> None:
    """The flag SHARED says that anybody shares it, and its absence nothing at all."""
    found, is_last = parse(answer((0, 4096, 10, SHARED), (12, 8192, 5, SHARED | LAST)))
    assert (found, is_last) == ([(0, 4096, 10), (12, 8192, 5)], True)


@pytest.mark.parametrize("flag", [1 << bit for bit in range(1, 32) if 1 << bit != SHARED])
def test_an_extent_with_any_other_flag_lies_nowhere(flag: int) -> None:
    """Delayed, unwritten, encoded, inline, or unknown to us: its place says nothing about its bytes."""
    assert parse(answer((0, 4096, 10, flag))) == ([(0, UNKNOWN, 10)], False)


@pytest.mark.parametrize(
    "buffer",
    [
        b"",
        answer((0, 4096, 0, 0)),
        answer((8, 4096, 4, 0), (4, 8192, 4, 0)),
        answer((0, 4096, 8, 0), (4, 8192, 8, LAST)),
        HEADER.pack(0, END, 1, 3, 3),
    ],
)
def test_an_answer_that_can_not_be_is_refused(buffer: bytes) -> None:
    with pytest.raises(OddMapError):
        parse(buffer)


@given(st.binary(max_size=300))
def test_no_answer_does_worse_than_being_refused(noise: bytes) -> None:
    try:
        found, _ = parse(noise)
    except OddMapError:
        return
    assert all(one[0] + one[2] <= other[0] for one, other in pairwise(found))


def test_a_request_asks_for_pages_to_be_written_back_first() -> None:
    buffer = request(4096, 8192, 3)
    assert HEADER.unpack_from(buffer) == (4096, 8192, 1, 0, 3)
    assert len(buffer) == HEADER.size + 3 * EXTENT.size
