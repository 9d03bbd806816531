"""What a stranger may answer: a value, or an error of ours, never another one."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncer.errors import RemoteUnavailableError, SyncerError
from syncer.remote.http.transport import BadReplyError, Reply, Request
from syncer.remote.stores.port import is_name
from syncer.remote.stores.swift.replies import blobs, date_ns, failure, modified_ns, rows, size_bytes
from tests import effort

TIMES = st.sampled_from(["2023-11-14T22:13:20.123450", "2023-11-14T22:13:20", "0001-01-01T00:00:00+23:59", "x", "2023"])
ROWS = st.fixed_dictionaries(
    {"name": st.text(max_size=8) | st.sampled_from(["p/a", "p/b/c", "p/.d", "p/\ud800"]), "bytes": st.integers()},
    optional={"last_modified": TIMES | st.text(max_size=30), "hash": st.text(max_size=3)},
)


@given(st.lists(ROWS, max_size=6) | st.recursive(st.integers() | st.text(), st.lists, max_leaves=5), st.booleans())
@settings(max_examples=effort.count("properties") * 10)
def test_a_listing_is_read_or_refused(value: object, is_sorted: bool) -> None:
    if is_sorted and isinstance(value, list) and all(isinstance(row, dict) for row in value):
        value = sorted(value, key=lambda row: row["name"].encode("utf-8", "surrogatepass"))
    reply = Reply(status=200, headers={}, body=json.dumps(value).encode())
    try:
        found = blobs("o", rows("o", reply, ""), "p/")
    except BadReplyError:
        return
    assert all(is_name(blob.name) and 0 <= blob.size_bytes < 1 << 63 for blob in found)


@given(st.binary(max_size=60))
@settings(max_examples=effort.count("properties"))
def test_any_bytes_are_a_listing_or_refused(body: bytes) -> None:
    try:
        rows("o", Reply(status=200, headers={}, body=body), "")
    except BadReplyError:
        return


@given(st.text(max_size=40) | st.sampled_from(["Tue, 24 Nov 2026 13:21:38 GMT", "Tue, 99 Nov 9999999 13:21:38 +9999"]))
@settings(max_examples=effort.count("properties") * 10)
def test_any_header_is_a_value_or_refused(text: str) -> None:
    for read in (date_ns, modified_ns, size_bytes):
        try:
            assert isinstance(read("o", text), int)
        except BadReplyError:
            continue


def test_a_time_is_exact() -> None:
    assert modified_ns("o", "1700000000.12345") == 1_700_000_000_123_450_000
    assert modified_ns("o", "1700000000") == 1_700_000_000_000_000_000
    assert date_ns("o", "Tue, 14 Nov 2023 22:13:20 GMT") == 1_700_000_000_000_000_000


@given(
    st.integers(100, 999),
    st.sampled_from(["GET", "HEAD", "PUT", "DELETE"]),
    st.binary(max_size=30),
    st.text(max_size=5),
)
@settings(max_examples=effort.count("properties") * 10)
def test_any_status_has_an_error_and_a_line_of_text(status: int, method: str, body: bytes, after: str) -> None:
    reply = Reply(status=status, headers={"retry-after": after}, body=body)
    error = failure("o", Request(method=method, target="/v1/a/box?marker=x"), reply)
    assert isinstance(error, SyncerError)
    assert str(error).isprintable()
    if isinstance(error, RemoteUnavailableError):
        assert 0 <= error.retry_after_s <= 120


def test_a_page_that_does_not_come_after_the_one_before_is_refused() -> None:
    page = json.dumps([{"name": "a", "bytes": 1, "last_modified": "2023-11-14T22:13:20"}]).encode()
    with pytest.raises(BadReplyError):
        rows("o", Reply(status=200, headers={}, body=page), "a")
