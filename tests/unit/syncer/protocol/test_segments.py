"""Manifests that list segments: what is written is read, what makes no sense is refused."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncer.protocol import segments, swift
from syncer.protocol.pithos.headers import HeaderError
from syncer.protocol.segments import Segment

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
sizes = st.integers(0, 1 << 62)
found = st.builds(
    Segment,
    name=text.map(lambda name: f"/c/{name}"),
    hash=st.binary(max_size=8).map(lambda data: hashlib.md5(data).hexdigest()) | st.just(""),
    bytes=sizes,
    content_type=text,
    last_modified=text,
)


@given(st.lists(found, max_size=4))
def test_a_manifest_survives(listed: list[Segment]) -> None:
    assert segments.decode(segments.encode(listed)) == listed


@given(sizes, st.binary(min_size=16, max_size=16))
def test_a_mark_survives_and_is_no_dynamic_manifest(size_bytes: int, md5: bytes) -> None:
    mark = segments.mark(size_bytes, md5.hex())
    assert segments.read_mark(mark) == (size_bytes, md5.hex())
    with pytest.raises(HeaderError):
        swift.parse_manifest(f"/{mark}")


@given(st.from_regex(r"[a-z%/]{1,30}", fullmatch=True))
def test_no_dynamic_manifest_is_a_mark(value: str) -> None:
    try:
        manifest = swift.parse_manifest(value)
    except HeaderError:
        return
    assert segments.read_mark(manifest) is None


@given(st.binary(max_size=40))
def test_other_bytes_are_refused(body: bytes) -> None:
    assert segments.decode(body) in (None, [])
    with pytest.raises(HeaderError):
        segments.parse_wanted(body)


def test_what_is_wanted_of_a_segment() -> None:
    (one,) = segments.parse_wanted(b'[{"path":"/c/d/e","etag":null}]')
    assert (one.container, one.name, one.etag, one.size_bytes) == ("c", "d/e", None, None)
