"""OpenStack's forms: what is written is read, what makes no sense is refused."""

from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockfs.blocks.ids import ObjectHash
from syncer.protocol import swift
from syncer.protocol.pithos.headers import HeaderError, ObjectState
from syncer.protocol.pithos.listing import ContainerRow, ObjectRow, SubdirectoryRow
from syncer.protocol.pithos.names import container_name_problem, object_name_problem

segment = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="/"), min_size=1, max_size=20)
containers = segment.filter(lambda name: container_name_problem(name) is None)
md5s = st.none() | st.binary(min_size=16, max_size=16)
times = st.integers(0, 4_000_000_000_000_000)


def state(md5: bytes | None, modified_us: int) -> ObjectState:
    return ObjectState(
        size_bytes=7,
        object_hash=ObjectHash(b"h" * 32),
        uuid="u",
        version=3,
        modified_us=modified_us,
        content_type="t/t",
        md5=md5,
        meta={},
    )


@given(containers, segment)
def test_a_manifest_survives(container: str, prefix: str) -> None:
    text = f"{container}/{prefix}"
    assert swift.parse_manifest(swift.manifest_fields(text, [])[swift.MANIFEST]) == text


@given(st.text(st.characters(max_codepoint=255), max_size=60))
def test_any_other_manifest_is_refused_or_names_a_container(value: str) -> None:
    try:
        container, _, prefix = swift.parse_manifest(value).partition("/")
    except HeaderError:
        return
    assert prefix
    assert container_name_problem(container) is None


@given(st.lists(md5s, max_size=4))
def test_the_etag_of_segments_is_that_of_their_etags(parts: list[bytes | None]) -> None:
    etags = "".join("" if part is None else part.hex() for part in parts)
    assert swift.manifest_fields("c/p", parts)["ETag"] == f'"{hashlib.md5(etags.encode()).hexdigest()}"'


@given(md5s, times)
def test_an_etag_is_the_md5_or_not_there(md5: bytes | None, modified_us: int) -> None:
    fields = swift.object_fields(state(md5, modified_us))
    assert fields.get("ETag") == (None if md5 is None else md5.hex())
    assert abs(float(fields[swift.TIMESTAMP]) - modified_us / 1e6) < 1e-4


@given(md5s, times, segment)
def test_rows_have_five_fields(md5: bytes | None, modified_us: int, name: str) -> None:
    rows = json.loads(
        swift.encode_objects([ObjectRow(name=name, state=state(md5, modified_us)), SubdirectoryRow(name="d/")])
    )
    assert rows[1] == {"subdir": "d/"}
    assert (rows[0]["name"], rows[0]["bytes"], rows[0]["hash"]) == (name, 7, "" if md5 is None else md5.hex())
    assert len(rows[0]["last_modified"]) == 26
    (row,) = json.loads(
        swift.encode_containers([ContainerRow(name=name, count=1, size_bytes=2, modified_us=modified_us)])
    )
    assert (row["name"], row["count"], row["bytes"]) == (name, 1, 2)


@given(st.lists(segment.filter(lambda name: object_name_problem(name) is None and name == name.strip()), max_size=9))
def test_paths_to_delete_are_read_line_by_line(names: list[str]) -> None:
    wanted = [
        f"c/{name}".encode()
        for name in names
        if len(name.splitlines()) == 1 and name.encode().split() == [name.encode()]
    ]
    assert swift.parse_bulk_delete(b"\n".join(wanted)) == wanted


def test_too_many_deletions_are_refused() -> None:
    with pytest.raises(HeaderError):
        swift.parse_bulk_delete(b"x\n" * (swift.MAX_BULK_DELETIONS + 1))
