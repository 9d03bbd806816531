"""Listings and faults: round trips, Synnefo's own rows, and that a part is never taken for the whole."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncer.protocol.pithos import faults, listing
from syncer.protocol.pithos.faults import Fault
from syncer.protocol.pithos.listing import ContainerRow, ListingError, ObjectRow, VersionRow
from tests.strategies import object_names, object_states

SYNNEFO_ROW = (
    b'{"available":1,"hash":"","name":"f1","bytes":4195304,"x_object_version_timestamp":"1795169379.316454",'
    b'"x_object_uuid":"c5cf93da-0000","last_modified":"2026-11-20T04:09:39.316454+00:00",'
    b'"content_type":"application/octet-stream","x_object_hash":"%s","map_check_timestamp":null,'
    b'"x_object_version":3,"x_object_modified_by":"alice"}' % (b"82" * 32)
)


@given(st.lists(st.builds(ObjectRow, name=object_names, state=object_states), max_size=3))
def test_object_rows_survive(rows: list[ObjectRow]) -> None:
    assert listing.decode_objects(listing.encode_objects(rows)) == rows


@given(
    st.lists(
        st.builds(
            ContainerRow,
            name=object_names,
            count=st.integers(0, 1 << 50),
            size_bytes=st.integers(0, 1 << 60),
            modified_us=st.integers(1, 1 << 52),
        )
    )
)
def test_containers_are_told_as_pithos_tells_them(rows: list[ContainerRow]) -> None:
    told = json.loads(listing.encode_containers(rows))
    assert [(row["name"], row["count"], row["bytes"]) for row in told] == [
        (row.name, row.count, row.size_bytes) for row in rows
    ]
    for row, one in zip(rows, told, strict=True):
        moment = datetime.fromisoformat(one["last_modified"])
        assert moment - datetime(1970, 1, 1, tzinfo=UTC) == timedelta(microseconds=row.modified_us)


@given(st.lists(st.builds(VersionRow, version=st.integers(1, 1 << 60), modified_us=st.integers(0, 1 << 52))))
def test_version_rows_survive(rows: list[VersionRow]) -> None:
    assert listing.decode_versions(listing.encode_versions(rows)) == rows


def test_a_row_of_synnefo_is_read_and_says_nothing_about_metadata() -> None:
    (row,) = listing.decode_objects(b"[" + SYNNEFO_ROW + b',{"subdir":"d/"}]')
    assert (row.name, row.state.version, row.state.size_bytes, row.state.meta) == ("f1", 3, 4195304, None)
    assert row.state.modified_us == 1795169379316454


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[",
        b"{}",
        b"[{}]",
        b'[{"name":"x"}]',
        b"<html>",
        b"[" + SYNNEFO_ROW.replace(b"82", b"xx") + b"]",
        b"[" + SYNNEFO_ROW.replace(b"f1", b"\xff") + b"]",
        50_000 * b"[",
        b"[" + 50_000 * b"[" + 50_000 * b"]" + b"]",
    ],
)
def test_a_damaged_listing_is_refused_as_a_whole(body: bytes) -> None:
    with pytest.raises(ListingError):
        listing.decode_objects(body)


@pytest.mark.parametrize("body", [b"", b"[]", b'{"versions":[["a",1]]}', b'{"versions":[[1,"x"]]}'])
def test_a_damaged_version_list_is_refused(body: bytes) -> None:
    with pytest.raises(ListingError):
        listing.decode_versions(body)


@given(st.sampled_from([400, 401, 404, 409, 412, 418]), object_names, object_names)
def test_faults_survive(code: int, message: str, details: str) -> None:
    fault = Fault(code=code, message=message, details=details)
    assert faults.decode_fault(code, faults.encode_fault(fault)) == fault


@pytest.mark.parametrize("body", [b"", b"<html>", b'["aa"]', b"[]", b"{}", b'{"x":1}', b"\xff"])
def test_what_is_no_fault_is_none(body: bytes) -> None:
    assert faults.decode_fault(409, body) is None


def test_a_listing_as_text_has_a_name_a_line() -> None:
    assert listing.encode_names(["a", "é/b"]) == "a\né/b\n".encode()
    assert listing.encode_names([]) == b""
