"""Moments and versions of servers that number them. What is wrong here deletes what is newer, or trusts a backup."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncer.core.model import Position, RemoteTag, latest
from syncer.remote.serials import SERIALS, Cursor, cursor_of, ranges_of


def tag(version: int, uuid: str = "u") -> RemoteTag:
    return RemoteTag(uuid=uuid, version=version, etag="", size_bytes=0)


def at(version: int) -> Position:
    return Cursor(identity="", version=version, modified_us=0).position


@given(st.lists(st.integers(1, 60)))
def test_ranges_hold_exactly_the_versions(versions: list[int]) -> None:
    found = ranges_of(map(tag, versions))
    assert [version for one in found for version in one] == sorted(set(versions))
    assert all(one.stop < two.start for one, two in pairwise(found))


@pytest.mark.parametrize(
    ("one", "than"), [(tag(2), tag(1)), (at(2), at(1)), (tag(2), at(1)), (at(2), tag(1)), (at(1), at(0))]
)
def test_what_has_the_higher_serial_is_later(one: RemoteTag | Position, than: RemoteTag | Position) -> None:
    assert SERIALS.is_later(one, than)
    assert not SERIALS.is_later(than, one)
    assert not SERIALS.is_later(one, one)


def test_no_version_is_known_to_be_later_than_a_moment_without_a_serial() -> None:
    """Plain Pithos tells none: else every listing of it would be from before each of its objects."""
    assert not SERIALS.is_later(tag(5), at(0))
    assert not SERIALS.is_later(at(0), tag(5))
    assert SERIALS.is_later(tag(5), Cursor(identity="a life that has just begun", version=0, modified_us=0).position)


def test_a_moment_is_kept_as_releases_before_wrote_it() -> None:
    now = Cursor(identity="5" * 32, version=7, modified_us=1_700_000_000_123_456)
    raw = b'{"identity":"%s","version":7,"modified_us":1700000000123456,"evidence":[]}' % (b"5" * 32)
    assert now.position.raw == raw
    assert cursor_of(Position(raw=raw)) == now
    without = Position(raw=raw.replace(b',"evidence":[]', b""))
    assert cursor_of(without) == now


def test_the_latest_of_some() -> None:
    assert latest([], SERIALS) is None
    assert latest([tag(3), tag(9, "v"), tag(5)], SERIALS) == tag(9, "v")


def test_a_person_reads_the_serial() -> None:
    assert (SERIALS.name(tag(7)), SERIALS.name(at(8))) == ("version 7", "version 8")


def test_a_moment_has_what_was_written_after_it() -> None:
    after = SERIALS.after(at(5), [tag(3), tag(8, "v"), tag(7)])
    assert SERIALS.name(after) == "version 8"
    assert SERIALS.last_written(after, at(7)) == "v"
    assert SERIALS.last_written(after, at(8)) == ""
    assert SERIALS.last_written(at(9), at(8)) == ""
    assert SERIALS.after(at(5), [tag(3)]) == at(5)
    assert SERIALS.after(at(0), [tag(8)]) == at(0)  # plain Pithos: every later moment would be from before that
