"""The codec of changes: round trips, and replies of servers that lie."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from blockfs.blocks.ids import ID_SIZE, ObjectHash
from syncer.core.subtrees import Guard, SubtreeMove
from syncer.protocol.extensions.changes import (
    MAX_RANGES,
    ChangesPage,
    decode_changes,
    decode_ranges,
    encode_changes,
    encode_ranges,
    is_in,
)
from syncer.protocol.pithos.headers import HeaderError, ObjectState
from syncer.protocol.pithos.listing import ListingError, ObjectRow

TEXTS = st.text(st.characters(blacklist_categories=("Cs",)), max_size=20)
STATES = st.builds(
    ObjectState,
    size_bytes=st.integers(0, 1 << 50),
    object_hash=st.binary(min_size=ID_SIZE, max_size=ID_SIZE).map(ObjectHash),
    uuid=st.uuids().map(str),
    version=st.just(0),
    modified_us=st.integers(0, 1 << 52),
    content_type=st.just("application/octet-stream"),
    modified_by=TEXTS,
    meta=st.dictionaries(st.sampled_from(["mode", "mtime-ns"]), TEXTS),
)


@st.composite
def pages(draw: st.DrawFn) -> tuple[int, ChangesPage]:
    names = draw(st.lists(TEXTS, unique=True, max_size=8))
    exist = draw(st.integers(0, len(names)))
    since = draw(st.integers(0, 1 << 60))
    objects = [
        ObjectRow(name=name, state=replace(draw(STATES), version=since + 1 + at))
        for at, name in enumerate(names[:exist])
    ]
    page = ChangesPage(
        identity=str(draw(st.uuids())),
        version=since + len(names),
        modified_us=draw(st.integers(0, 1 << 52)),
        more=draw(st.booleans()) if names else False,
        object_count=draw(st.integers(0, 1 << 40)),
        bytes_used=draw(st.integers(0, 1 << 60)),
        objects=objects,
        deleted=names[exist:],
    )
    return since, page


def moved(first: int, count: int = 2, source: str = "a", target: str = "b") -> SubtreeMove:
    return SubtreeMove(source=source, target=target, first=first, guard=Guard(count=count, digest="0" * 64))


def page_of(version: int, *moves: SubtreeMove) -> ChangesPage:
    identity = str(uuid.UUID(int=1))
    return ChangesPage(
        identity=identity,
        version=version,
        modified_us=0,
        more=False,
        object_count=1,
        bytes_used=0,
        objects=[],
        deleted=[],
        moves=moves,
    )


def test_moves_survive_the_wire() -> None:
    page = page_of(20, moved(6), moved(11, 5, "c/d", "ü"))
    assert decode_changes(encode_changes(page), 5) == page
    assert b"moves" not in encode_changes(page_of(20))


@pytest.mark.parametrize(
    "moves",
    [
        (moved(5),),  # not behind what was asked about
        (moved(18),),  # behind what was answered
        (moved(10), moved(12)),  # one within the other
        (moved(10), moved(6)),
        (moved(6, 0),),
        (moved(6, source="a", target="a/b"),),
        (moved(6, source="a/b", target="a"),),
        (moved(6, source=""),),
    ],
)
def test_moves_that_can_not_be_are_an_error(moves: tuple[SubtreeMove, ...]) -> None:
    with pytest.raises(ListingError):
        decode_changes(encode_changes(page_of(20, *moves)), 5)


@given(pages())
def test_changes_survive_the_wire(example: tuple[int, ChangesPage]) -> None:
    since, page = example
    assert decode_changes(encode_changes(page), since) == page


@given(st.binary(max_size=200))
def test_any_other_bytes_are_an_error(body: bytes) -> None:
    with pytest.raises(ListingError):
        decode_changes(body, 0)


def row(name: str, version: int) -> ObjectRow:
    state = ObjectState(
        size_bytes=1,
        object_hash=ObjectHash(bytes(ID_SIZE)),
        uuid=str(uuid.UUID(int=1)),
        version=version,
        modified_us=0,
        content_type="t/t",
        meta={},
    )
    return ObjectRow(name=name, state=state)


HONEST = ChangesPage(
    identity="i",
    version=12,
    modified_us=0,
    more=False,
    object_count=1,
    bytes_used=1,
    objects=[row("a", 11)],
    deleted=["b"],
)


@pytest.mark.parametrize(
    "lie",
    [
        replace(HONEST, version=9, objects=[]),
        replace(HONEST, version=1 << 64),
        replace(HONEST, objects=[row("a", 10)]),
        replace(HONEST, objects=[row("a", 13)]),
        replace(HONEST, objects=[row("a", 11), row("a", 12)]),
        replace(HONEST, deleted=["b", "b"]),
        replace(HONEST, deleted=["a"]),
        replace(HONEST, version=10, objects=[], more=True),
        replace(HONEST, objects=[], deleted=[], more=True),
        replace(HONEST, object_count=-1),
        replace(HONEST, bytes_used=-1),
    ],
)
def test_a_reply_that_contradicts_itself_is_an_error(lie: ChangesPage) -> None:
    assert decode_changes(encode_changes(HONEST), 10) == HONEST
    with pytest.raises(ListingError):
        decode_changes(encode_changes(lie), 10)


# --- versions that are left out


@given(st.lists(st.integers(1, 1000), unique=True, max_size=2 * MAX_RANGES).map(sorted))
def test_ranges_of_versions_are_read_as_they_were_written(edges: list[int]) -> None:
    ranges = tuple(range(first, last) for first, last in zip(edges[::2], edges[1::2], strict=False))
    if ranges:
        assert decode_ranges(encode_ranges(ranges)) == ranges
    for version in range(1001):
        assert is_in(version, ranges) == any(version in one for one in ranges)


@pytest.mark.parametrize(
    "text", ["", "x", "5-", "-5", "7-5", "5-9,9", "5,5", "9,5", "5 6", "1,", "1-2-3", ",".join(["1"] * 300)]
)
def test_ranges_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(HeaderError):
        decode_ranges(text)
