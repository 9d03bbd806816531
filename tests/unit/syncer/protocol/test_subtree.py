"""Guards of subtrees: round trips, and what no guard is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncer.core.subtrees import Guard, guard_of
from syncer.protocol.extensions.subtree import MAX_OBJECTS, SubtreeError, disjoint, inside, parse_guard

ENTRIES = st.lists(st.tuples(st.binary(max_size=8), st.integers(0, (1 << 64) - 1)), max_size=6)
NAMES = st.text("ab/-", min_size=1, max_size=5)


@given(ENTRIES, ENTRIES)
def test_two_subtrees_have_one_guard_only_if_they_are_equal(
    one: list[tuple[bytes, int]], other: list[tuple[bytes, int]]
) -> None:
    assert (guard_of(one) == guard_of(other)) == (one == other)


def test_the_digest_does_not_change() -> None:
    """Breaks when client and server of different versions would no longer understand each other."""
    assert guard_of([(b"", 1), (b"/a", 2)]).text == (
        "2-afdd247ca9e5176b302c8606253a60a6df5e9b71273716d4cc9f509fb8b5cac7"
    )


@given(ENTRIES.filter(bool))
def test_a_guard_survives_the_wire(entries: list[tuple[bytes, int]]) -> None:
    assert parse_guard(guard_of(entries).text) == guard_of(entries)


@pytest.mark.parametrize(
    "text",
    ["", "1", "1-", "1-ab", "-" + "0" * 64, "x-" + "0" * 64, "0-" + "0" * 64, "1-" + "G" * 64, "1-" + "A" * 64,
     f"{MAX_OBJECTS + 1}-" + "0" * 64, "9" * 5000 + "-" + "0" * 64, "٣-" + "0" * 64],
)  # fmt: skip
def test_anything_else_is_an_error(text: str) -> None:
    with pytest.raises(SubtreeError):
        parse_guard(text)


def test_the_largest_is_fine() -> None:
    largest = Guard(count=MAX_OBJECTS, digest="0" * 64)
    assert parse_guard(largest.text) == largest


@given(st.lists(NAMES, max_size=5))
def test_disjoint_is_what_it_says(roots: list[str]) -> None:
    plainly = not any(
        inside(one, other) for at, one in enumerate(roots) for place, other in enumerate(roots) if at != place
    )
    assert disjoint(roots) == plainly
