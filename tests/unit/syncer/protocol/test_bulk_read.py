"""Several contents in one reply: round trips, and nothing else is taken for one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncer.protocol.extensions.bulk_read import (
    MAX_OBJECTS,
    BulkReadError,
    decode_contents,
    decode_wanted,
    encode_contents,
    encode_wanted,
)

wanted = st.lists(st.tuples(st.text(st.characters(exclude_categories=["Cs"])), st.integers(1, 2**63 - 1)), min_size=1)
contents = st.lists(st.none() | st.binary(max_size=50), min_size=1)


@given(wanted)
def test_a_request_survives(some: list[tuple[str, int]]) -> None:
    assert decode_wanted(encode_wanted(some)) == some


@given(contents)
def test_a_reply_survives(some: list[bytes | None]) -> None:
    assert decode_contents(encode_contents(some), len(some)) == some


@given(contents, st.binary(min_size=1, max_size=3))
def test_a_reply_of_another_length_is_refused(some: list[bytes | None], more: bytes) -> None:
    with pytest.raises(BulkReadError):
        decode_contents(encode_contents(some) + more, len(some))
    with pytest.raises(BulkReadError):
        decode_contents(encode_contents(some), len(some) + 1)


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b'{"objects": []}', b'{"objects": [["x", 0]]}', b'{"objects": [["x"]]}', b'{"objects": [[1, 1]]}'],
)
def test_anything_else_is_no_request(body: bytes) -> None:
    with pytest.raises(BulkReadError):
        decode_wanted(body)


def test_too_many_objects_are_refused() -> None:
    with pytest.raises(BulkReadError, match=str(MAX_OBJECTS)):
        decode_wanted(encode_wanted([("x", 1)] * (MAX_OBJECTS + 1)))


@pytest.mark.parametrize("body", [b"", b"[]\n", b'{"sizes": [-1]}\n', b'{"sizes": [true]}\nx', b'{"sizes": [2]}\nx'])
def test_anything_else_is_no_reply(body: bytes) -> None:
    with pytest.raises(BulkReadError):
        decode_contents(body, 1)
