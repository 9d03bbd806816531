"""Range headers, and replies of several parts as a MIME reader sees them."""

from __future__ import annotations

from email.parser import BytesParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncer.protocol.pithos.byteranges import (
    MAX_RANGES,
    Multipart,
    RangeError,
    parse_content_range,
    parse_parts,
    parse_ranges,
    parse_ranges_or_none,
    range_header,
    ranges_header,
)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("bytes=0-0", range(1)),
        ("bytes=0-", range(10)),
        ("bytes=3-99", range(3, 10)),
        ("bytes=9-9", range(9, 10)),
        ("bytes=-4", range(6, 10)),
        ("bytes=-99", range(10)),
        (" bytes=1-2 ", range(1, 3)),
        ("BYTES=1-2", range(1, 3)),
        (f"bytes=2-{5000 * '9'}", range(2, 10)),
        (f"bytes=-{5000 * '9'}", range(10)),
        (f"bytes={5000 * '0'}1-2", range(1, 3)),
    ],
)
def test_a_range_is_cut_at_the_end(value: str, found: range) -> None:
    assert parse_ranges(value, 10) == parse_ranges_or_none(value, 10) == [found]


@pytest.mark.parametrize(
    "value",
    [
        "bytes=10-",
        "bytes=10-12",
        "bytes=5-4",
        "bytes=-0",
        "bytes=-",
        "bytes=0-1,10-",
        "bytes=0-1,,3-4",
        "bytes=0-9,0-9,0-9",
        "items=0-1",
        "bytes=a-b",
        "",
    ],
)
def test_a_bad_range_is_refused(value: str) -> None:
    with pytest.raises(RangeError):
        parse_ranges(value, 10)


@given(st.integers(0, 1000), st.integers(1, 1000))
def test_a_range_header_is_read_as_it_was_meant(start: int, length: int) -> None:
    assert parse_ranges(range_header(start, length), 2000) == [range(start, start + length)]


def test_several_ranges_keep_their_order() -> None:
    assert parse_ranges("bytes=8-, 0-1 ,-3", 10) == [range(8, 10), range(2), range(7, 10)]


def test_more_ranges_than_anybody_needs_are_refused() -> None:
    assert len(parse_ranges("bytes=" + ",".join(["0-0"] * MAX_RANGES), MAX_RANGES)) == MAX_RANGES
    with pytest.raises(RangeError):
        parse_ranges("bytes=" + ",".join(["0-0"] * (MAX_RANGES + 1)), 10**6)


@pytest.mark.parametrize(
    "value", ["", "x", "bytes=", "bytes=x", "bytes=3-1", "bytes=0-1,x", "lines=0-1", "0-1", "bytes=-"]
)
def test_openstacks_clients_get_the_whole_for_a_range_that_is_none(value: str) -> None:
    assert parse_ranges_or_none(value, 10) is None


def test_openstacks_clients_get_what_there_is_of_several_ranges() -> None:
    assert parse_ranges_or_none("bytes = 0-1, 100-, 8-200", 10) == [range(2), range(8, 10)]
    assert parse_ranges_or_none("bytes=-20", 10) == [range(10)]
    assert parse_ranges_or_none("bytes=-5", 0) is None
    for value, size in (("bytes=10-", 10), ("bytes=-0", 10), ("bytes=0-", 0), ("bytes=0-9,0-9,0-9", 10)):
        with pytest.raises(RangeError):
            parse_ranges_or_none(value, size)


@given(st.binary(min_size=1, max_size=50), st.data())
def test_a_multipart_body_is_read_back_part_by_part(data: bytes, draw: st.DataObject) -> None:
    starts = draw.draw(st.lists(st.integers(0, len(data) - 1), min_size=2, max_size=4))
    parts = [range(start, draw.draw(st.integers(start + 1, len(data)))) for start in starts]
    multipart = Multipart(parts, len(data), "text/x", "0123456789abcdef")
    body = b"".join(multipart.body(lambda part: [data[part.start : part.stop]]))
    assert len(body) == multipart.length
    message = BytesParser().parsebytes(b"Content-Type: " + multipart.content_type.encode() + b"\r\n\r\n" + body)
    found = message.get_payload()
    assert isinstance(found, list)
    assert [one["Content-Range"] for one in found] == [f"bytes {p.start}-{p.stop - 1}/{len(data)}" for p in parts]
    if b"\r" not in data and b"\n" not in data:  # the parser of mail takes line ends for its own
        assert [one.get_payload(decode=True) for one in found] == [data[p.start : p.stop] for p in parts]


@given(st.integers(0, 10**18), st.integers(1, 10**18), st.none() | st.integers(0, 10**18))
def test_a_content_range_survives(start: int, length: int, size: int | None) -> None:
    text = f"bytes {start}-{start + length - 1}/{'*' if size is None else size}"
    assert parse_content_range(text) == (start, length, size)


def test_a_content_range_may_leave_things_out() -> None:
    assert parse_content_range("bytes */*") == (None, None, None)
    assert parse_content_range("bytes 7-/*") == (7, None, None)
    for bad in ("", "bytes", "bytes 3-2/*", "bytes -2/*", "bytes 1-2", "bits 0-1/*", "bytes 0-1/x"):
        with pytest.raises(RangeError):
            parse_content_range(bad)


@given(st.binary(min_size=1, max_size=300), st.data())
def test_several_parts_are_read_back(content: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(0, len(content)), min_size=2)))
    parts = [range(first, last) for first, last in zip(cuts[::2], cuts[1::2], strict=False)]
    assert parse_ranges(ranges_header(parts), len(content)) == parts
    boundary = data.draw(st.sampled_from(["x", "0123456789abcdef", "-"]))
    reply = Multipart(parts, len(content), "application/octet-stream", boundary)
    body = b"".join(reply.body(lambda part: [content[part.start : part.stop]]))
    assert parse_parts(body, reply.content_type) == {part.start: content[part.start : part.stop] for part in parts}


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"", "multipart/byteranges; boundary=x"),
        (b"abc", "application/octet-stream"),
        (b"--x\r\nContent-Range: bytes 0-1/2\r\n\r\nab", "multipart/byteranges; boundary=x"),
        (b"--x\r\nContent-Type: a/b\r\n\r\nab\r\n--x--", "multipart/byteranges; boundary=x"),
        (b"--x", "multipart/byteranges; boundary=x"),
        (b"--x--", "multipart/byteranges"),
    ],
)
def test_what_is_no_reply_of_several_parts_is_refused(body: bytes, content_type: str) -> None:
    with pytest.raises(RangeError):
        parse_parts(body, content_type)
