"""Headers: round trips of what we write, and tolerance and limits for what comes in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from blockfs.blocks.ids import ObjectHash
from syncer.core.model import Kind, Meta, meta_of
from syncer.core.xattrs import MAX_BYTES
from syncer.protocol.pithos import headers
from syncer.protocol.pithos.headers import HeaderError, ObjectState
from tests import strategies
from tests.golden.recorded import exchanges

int64 = st.integers(-(1 << 63), (1 << 63) - 1)


@given(strategies.object_states)
def test_an_object_survives_its_headers(state: ObjectState) -> None:
    fields = headers.object_headers(state) | {"Content-Length": str(state.size_bytes)}
    assert headers.object_state(fields.items()) == state
    lowered = [(name.lower(), value) for name, value in fields.items()]
    assert headers.object_state(lowered) == state
    assert all(value.isascii() and value.isprintable() for value in fields.values())
    assert headers.parse_etags(fields["ETag"]).matches(state.etag)


@given(strategies.metas)
def test_file_metadata_survive_object_metadata(meta: Meta) -> None:
    assert headers.decode_meta(headers.encode_meta(meta)) == meta


def test_of_which_device_a_content_is_travels_beside_the_metadata() -> None:
    state = ObjectState(
        size_bytes=1, object_hash=ObjectHash(b"\xab" * 32), uuid="", version=1, modified_us=0, content_type="x"
    )
    items = headers.encode_device("desk", state.etag)
    assert items == {"device": "abababab desk"}
    assert headers.device_of(replace(state, meta={**items, **headers.encode_meta(meta_of(0o644))})) == "desk"
    assert headers.decode_meta(items) == Meta()
    assert headers.foreign_meta({**items, "colour": "red"}) == {"colour": "red"}
    assert headers.encode_device("", state.etag) == {}
    long = headers.encode_device("x" * 1000, state.etag)["device"]
    assert len(long) <= headers.MAX_META_VALUE_CHARACTERS


@pytest.mark.parametrize("value", ["", "desk", "cdcdcdcd desk", "abababab", "abababab "])
def test_a_device_that_was_told_of_another_content_is_none(value: str) -> None:
    state = ObjectState(
        size_bytes=1, object_hash=ObjectHash(b"\xab" * 32), uuid="", version=1, modified_us=0, content_type="x"
    )
    assert headers.device_of(replace(state, meta={"device": value})) == ""
    assert headers.device_of(replace(state, meta={})) == ""
    assert headers.device_of(state) is None


def test_as_many_extended_attributes_as_travel_fit_into_object_metadata() -> None:
    meta = meta_of(0o7777, mtime_ns=-1, xattrs=((b"a", bytes(range(256)) * 20 + b"z" * (MAX_BYTES - 5124)),))
    items = headers.encode_meta(meta)
    assert len(items) <= headers.MAX_META_ITEMS - 2  # of which one tells the device
    assert all(len(value) <= headers.MAX_META_VALUE_CHARACTERS for value in items.values())
    assert all(headers.quote_value(value) == value for value in items.values())
    assert headers.decode_meta(items) == meta
    fewer = Meta(xattrs=((b"a", b"1"),))
    assert headers.decode_meta({**items, **headers.encode_meta(fewer)}).xattrs == fewer.xattrs
    none = headers.encode_meta(Meta(xattrs=()))
    assert headers.decode_meta({**items, **none}).xattrs == ()


@pytest.mark.parametrize(
    "items",
    [
        {"mode": "9"},
        {"xattrs-0": "AQ"},
        {"xattrs-0": "?"},
        {"xattrs-0": "AQAFAAAA"},
        {"xattrs-1": "AA"},
        {"mode": "17777"},
        {"mode": "-1"},
        {"mode": ""},
        {"mtime-ns": "soon"},
        {"mtime-ns": "9" * 20},
        {},
    ],
)
def test_senseless_file_metadata_are_no_opinion(items: dict[str, str]) -> None:
    assert headers.decode_meta(items) == Meta(mode=None, mtime_ns=None)


def test_etags_are_quoted_or_bare_weak_or_a_star() -> None:
    tags = headers.parse_etags('"aa", bb ,W/"cc",')
    assert tags.tags == {"aa", "bb", "cc"}
    assert not tags.any
    assert headers.parse_etags("*").matches("x")
    assert not headers.parse_etags("*").matches(None)
    assert not headers.parse_etags("").matches("x")


@given(st.integers(0, 1 << 52))
def test_times_survive(modified_us: int) -> None:
    assert headers.parse_timestamp(headers.timestamp_text(modified_us)) == modified_us
    assert headers.parse_http_date(headers.http_date(modified_us)) == modified_us // 1_000_000


@pytest.mark.parametrize(
    "value", ["", "yesterday", "Mon, 99 Foo 2020 00:00:00 GMT", "Mon, 01 Jan 99999999999 00:00:00 GMT"]
)
def test_a_date_that_is_none_counts_as_absent(value: str) -> None:
    assert headers.parse_http_date(value) is None


@pytest.mark.parametrize(
    "meta",
    [{f"k{index}": "v" for index in range(33)}, {"k": "v" * 257}, {"k" * 129: "v"}],
)
def test_too_much_metadata_is_refused(meta: dict[str, str]) -> None:
    with pytest.raises(HeaderError):
        headers.meta_from_headers(headers.meta_headers(meta).items())


@given(
    st.dictionaries(
        st.from_regex(r"[a-z0-9!#$%&'*+^`|.~-]{1,20}", fullmatch=True),
        st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=40).filter(
            lambda text: text.strip() == text
        ),
        max_size=8,
    )
)
def test_openstacks_metadata_are_told_in_the_bytes_in_which_they_came(meta: dict[str, str]) -> None:
    told = headers.meta_headers(meta, quoted=False)
    assert headers.meta_from_headers(told.items(), quoted=False) == meta
    assert [value.encode("latin-1") for value in told.values()] == [value.encode() for value in meta.values()]


def test_no_value_of_metadata_ends_a_header() -> None:
    assert headers.meta_headers({"k": "a\r\nX: y"}, quoted=False) == {"X-Object-Meta-K": "a%0D%0AX:%20y"}
    with pytest.raises(HeaderError):
        headers.meta_from_headers([("X-Object-Meta-K", "\xff")], quoted=False)


def test_every_object_that_a_real_pithos_describes_is_read() -> None:
    """It was not: X-Object-Version-Timestamp is an HTTP date there, and no cycle with a file went through (12.23)."""
    described = [
        one
        for one in exchanges()
        if one.method in {"HEAD", "GET"} and one.status in {200, 206} and one.reply.header("X-Object-Version")
    ]
    assert len(described) > 70
    for one in described:
        length = int(one.reply.header("Content-Length") or len(one.reply.body))
        state = headers.object_state(one.reply.headers, length)
        assert headers.http_date(state.modified_us) == one.reply.header("X-Object-Version-Timestamp"), one.name
        assert str(state.version) == one.reply.header("X-Object-Version")


@pytest.mark.parametrize(
    "value", ["", "yesterday, noon", "Sun, 99 Nov 2026 21:33:45 GMT", "-1", "Thu, 01 Jan 1960 00:00:00 GMT"]
)
def test_a_version_whose_time_makes_no_sense_is_refused(value: str) -> None:
    fields = {"X-Object-Hash": "ab" * 32, "X-Object-Version": "7", "Content-Length": "5"}
    with pytest.raises(HeaderError):
        headers.object_state([*fields.items(), ("X-Object-Version-Timestamp", value)])


@pytest.mark.parametrize("fields", [{"X-Object-Meta-": "v"}, {"X-Object-Meta-K": "%FF"}, {"X-Object-Meta-%FF": "v"}])
def test_broken_metadata_headers_are_refused(fields: dict[str, str]) -> None:
    with pytest.raises(HeaderError):
        headers.meta_from_headers(fields.items())


@pytest.mark.parametrize("change", ["X-Object-Hash", "X-Object-Version", "Content-Length"])
@pytest.mark.parametrize("value", [None, "", "abc", "-1", "²"])
def test_a_reply_without_sense_is_refused(change: str, value: str | None) -> None:
    fields = {"X-Object-Hash": "ab" * 32, "X-Object-Version": "7", "Content-Length": "5"}
    assert headers.object_state(fields.items()).uuid == ""
    del fields[change]
    if value is not None:
        fields[change] = value
    with pytest.raises(HeaderError):
        headers.object_state(fields.items())


def test_kinds_are_read_from_content_types() -> None:
    assert headers.kind_of("application/Folder; x=y") is Kind.DIRECTORY
    for kind in Kind:
        assert headers.kind_of(headers.content_type_of(kind)) is kind
    assert headers.kind_of("text/html") is Kind.FILE
