from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from syncer.core.model import BaseRow, Kind, LocalTag, Nid
from syncer.core.planner.outcome import Booking
from syncer.core.planner.overwrites import Overwrite
from syncer.state.schema import (
    RACY_NS,
    KnownContent,
    Problem,
    decode_bookings,
    decode_known,
    decode_overwrite,
    decode_problem,
    decode_row,
    encode_bookings,
    encode_known,
    encode_overwrite,
    encode_problem,
    encode_row,
    inode_key,
    slot_key,
    uuid_key,
)
from tests import strategies
from tests.unit.syncer.core.trees import content, file, local_tag, remote_tag

GOLDEN_ORDERS = (
    "929c07a1750000c40000c0c0c0c0c0c09c08a00100c4016101c4200101010101010101010101010101010101010101010101"
    "010101010101010101c0cd01a401c097010800000000c0"
)

_times = st.integers(-(2**63), 2**63 - 1)
_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)

knowns = st.builds(KnownContent, tag=strategies.local_tags, content=strategies.contents, observed_ns=_times)
_u64 = st.integers(0, 2**64 - 1)
overwrites = st.builds(
    Overwrite,
    path=strategies.paths,
    kind=st.sampled_from(Kind),
    size_bytes=_u64,
    etag=_text,
    known=_u64,
    replaced=st.none() | strategies.remote_tags,
    uuid=_text,
    number=_u64,
)
problems = st.builds(Problem, path=strategies.paths, kind=_text, text=_text, since_ns=_times)


@given(strategies.rows)
def test_a_base_row_comes_back(row: BaseRow) -> None:
    assert decode_row(row.nid, encode_row(row)) == row


@given(overwrites)
def test_a_booking_comes_back(write: Overwrite) -> None:
    assert decode_overwrite(write.number, encode_overwrite(write)) == write
    raw = encode_overwrite(write)
    for damaged in (raw[:-1], raw + b"x"):
        with pytest.raises(ValueError, match=r"record"):
            decode_overwrite(write.number, damaged)


bookings = st.builds(
    Booking,
    nid=strategies.nids,
    node=st.none() | strategies.nodes(),
    uuid=_text,
    local=st.none() | strategies.local_tags,
)


@given(st.lists(bookings))
def test_orders_come_back(booked: list[Booking]) -> None:
    """Evidence of what will be gone says nothing, and is not kept."""
    raw = encode_bookings(booked)
    assert decode_bookings(raw) == [each if each.node else replace(each, local=None) for each in booked]
    for damaged in (raw[:-1], raw + b"x"):
        with pytest.raises(ValueError, match=r"record"):
            decode_bookings(damaged)


def test_orders_are_written_as_the_first_release_with_them_did() -> None:
    """Golden: another layout needs another table, or an older state loses what its last cycle was never told."""
    booked = [Booking(nid=Nid(7), node=None, uuid="u"), Booking(nid=Nid(8), node=file("a", 1), local=local_tag(8))]
    assert encode_bookings(booked).hex() == GOLDEN_ORDERS
    assert decode_bookings(bytes.fromhex(GOLDEN_ORDERS)) == booked


@given(knowns, problems)
def test_other_records_come_back(known: KnownContent, problem: Problem) -> None:
    assert decode_known(encode_known(known)) == known
    assert decode_problem(encode_problem(problem)) == problem


@given(strategies.rows, st.data())
def test_a_record_of_another_length_is_refused(row: BaseRow, data: st.DataObject) -> None:
    raw = encode_row(row)
    cut = data.draw(st.integers(0, len(raw) - 1))
    for damaged in (raw[:cut], raw + b"x"):
        with pytest.raises(ValueError, match=r"record|kind"):
            decode_row(row.nid, damaged)


def test_an_unknown_kind_is_refused() -> None:
    raw = bytearray(encode_row(BaseRow(nid=Nid(1), node=file("a", 1), local=None, remote=None)))
    raw[1] = 9
    with pytest.raises(ValueError, match="unknown kind 9"):
        decode_row(Nid(1), bytes(raw))


def test_the_layout_of_a_base_row_is_as_documented() -> None:
    """docs/design/statedb.md: a change here needs a new format number."""
    row = BaseRow(nid=Nid(7), node=file("a", 1, parent=3), local=local_tag(5), remote=remote_tag(6, version=9))
    expected = (
        "1f 01 0000000000000003 0001 61"
        f" 000001a4 0000000000000001 0000000000000001 {'01' * 32}"
        f" 0000000000000001 0000000000000005 {'00' * 32}"
        " 0000000000000009 0000000000000000 0002 7536 0000"
    )
    assert encode_row(row) == bytes.fromhex(expected)


def test_keys_fit_into_lmdb() -> None:
    assert len(slot_key(file("n" * 255, 1))) <= 511
    assert len(inode_key(local_tag(2**64 - 1))) == 24
    assert len(uuid_key("u" * 5000)) <= 64


@pytest.mark.parametrize(
    ("mtime", "ctime", "version", "trusted"),
    [
        (0, 0, None, True),
        (10**18 - RACY_NS, 0, None, True),
        (10**18 - RACY_NS + 1, 0, None, False),
        (0, 10**18, None, False),
        (10**18 + 5, 10**18, None, False),  # from the future
        (10**18, 10**18, 4, True),  # a blockfs version counts every change
    ],
)
def test_racily_clean_evidence_is_not_trusted(mtime: int, ctime: int, version: int | None, trusted: bool) -> None:
    tag = LocalTag(device=1, ino=2, btime_ns=0, size_bytes=3, mtime_ns=mtime, ctime_ns=ctime, version=version)
    assert KnownContent(tag=tag, content=content(1), observed_ns=10**18).trustworthy == trusted
