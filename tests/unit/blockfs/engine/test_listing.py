"""Positions of a listing, whatever a reader asks for: a model of the names that it met."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockfs.engine.filesystem import Filesystem
from blockfs.engine.names.listing import Readers
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


def test_a_reader_who_renames_what_it_finds_comes_to_an_end(filesystem: Filesystem) -> None:
    """Each new name is behind the old one, so it would be met, and renamed, again and again."""
    folder = furnished(filesystem)
    listing = filesystem.namespace.listing(folder)
    met = []
    for entry in islice(listing.read(), 100):
        met.append(entry.name)
        filesystem.namespace.rename(folder, entry.name, folder, b"z" + entry.name)
    assert met == NAMES
    assert [entry.name for entry in listing.read()] == [b"z" + name for name in NAMES]


def test_a_name_that_is_replaced_meanwhile_is_met(filesystem: Filesystem) -> None:
    folder = furnished(filesystem)
    listing = filesystem.namespace.listing(folder)
    first = next(iter(listing.read()))
    filesystem.namespace.rename(folder, first.name, folder, NAMES[-1])
    assert [entry.name for entry in listing.read(first.next_position)] == NAMES[1:]


def test_a_name_that_comes_while_one_reads_is_there_for_the_next_reader(filesystem: Filesystem) -> None:
    folder = furnished(filesystem)
    early, late = filesystem.namespace.listing(folder), filesystem.namespace.listing(folder)
    first = next(iter(early.read()))
    filesystem.namespace.mkdir(folder, b"zz", mode=0o755, caller=USER)
    assert [entry.name for entry in late.read()] == [*NAMES, b"zz"]
    assert [entry.name for entry in early.read(first.next_position)] == NAMES[1:]
    assert [entry.name for entry in early.read()] == [*NAMES, b"zz"]


def test_readers_of_one_directory_hold_its_names_once() -> None:
    """Else who opens a large directory a thousand times takes the memory of the mount."""
    readers = Readers()
    met = [readers.begin(5) for _ in range(3)]
    assert all(each is met[0] for each in met)
    assert readers.begin(6) is not met[0]


def test_names_that_are_gone_are_forgotten() -> None:
    """By who begins to read: a directory through which names pass may be held open for years."""
    readers = Readers()
    held = readers.begin(5)
    for number in range(3000):
        name = b"%d" % number
        readers.changed(5, name, True)
        held.number(name)
        readers.changed(5, name, False)
    fresh = readers.begin(5)
    assert fresh is not held
    assert not fresh.names
