"""Positions of a listing, whatever a reader asks for: a model of the names that it met."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockfs.engine.filesystem import Filesystem
from blockfs.tree.schema import ROOT_INO
from tests.unit.blockfs.engine.volumes import USER, config, make

NAMES = [b"%02d" % number for number in range(12)]
FIRST = 2  # positions 0 and 1 are the dots
POSITIONS = st.one_of(st.integers(0, len(NAMES) + 4), st.just(2**62))
READS = st.lists(st.tuples(POSITIONS, st.integers(0, len(NAMES) + 2)), max_size=12)

_folders = count()


@pytest.fixture
def filesystem(tmp_path: Path) -> Iterator[Filesystem]:
    opened = Filesystem.open(make(tmp_path / "volume"), config())
    yield opened
    opened.abandon()


def furnished(filesystem: Filesystem) -> int:
    """A new directory with all names; returns its inode."""
    names = filesystem.namespace
    folder = names.mkdir(ROOT_INO, b"%d" % next(_folders), mode=0o755, caller=USER).ino
    for name in NAMES:
        names.mkdir(folder, name, mode=0o755, caller=USER)
    return folder


def test_a_position_is_the_same_entry_from_wherever_a_reader_comes(filesystem: Filesystem) -> None:
    folder = furnished(filesystem)

    @given(READS)
    def check(reads: list[tuple[int, int]]) -> None:
        listing = filesystem.namespace.listing(folder)
        for position, most in reads:
            expected = NAMES[max(0, position - FIRST) :][:most]
            assert [entry.name for entry in islice(listing.read(position), most)] == expected

    check()


def test_names_that_go_meanwhile_are_left_out_and_all_others_are_met(filesystem: Filesystem) -> None:
    @given(READS, st.sets(st.sampled_from(NAMES)))
    def check(reads: list[tuple[int, int]], removed: set[bytes]) -> None:
        folder = furnished(filesystem)
        listing = filesystem.namespace.listing(folder)
        gone = sorted(removed)
        for position, most in reads:
            list(islice(listing.read(position), most))
            if gone:
                filesystem.namespace.rmdir(folder, gone.pop())
        left = [name for name in NAMES if name not in removed or name in gone]
        assert [entry.name for entry in listing.read(0)] == left

    check()


def test_a_seek_far_ahead_is_done_in_portions(filesystem: Filesystem) -> None:
    """Each under the engine's lock: others go in between."""
    listing = filesystem.namespace.listing(furnished(filesystem))
    assert [listing.reach(FIRST + len(NAMES), most=5) for _ in range(3)] == [False, False, True]
    assert listing.reach(2**62, most=5)
    assert list(listing.read(2**62)) == []
