"""OpenStack's forms: what is written is read, what makes no sense is refused."""

from __future__ import annotations

import hashlib
import json
from xml.etree import ElementTree as ET

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
    assert swift.parse_manifest(swift.manifest_fields(text, None)[swift.MANIFEST]) == text


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
    assert (
        swift.manifest_fields("c/p", swift.joined_md5(parts))["ETag"] == f'"{hashlib.md5(etags.encode()).hexdigest()}"'
    )


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
        f"{slash}c/{name}".encode()
        for slash in ("", "/")
        for name in names
        if len(name.splitlines()) == 1 and name.encode().split() == [name.encode()]
    ]
    assert swift.parse_bulk_delete(b"\n".join(wanted)) == wanted


def test_too_many_deletions_are_refused() -> None:
    with pytest.raises(HeaderError):
        swift.parse_bulk_delete(b"x\n" * (swift.MAX_BULK_DELETIONS + 1))


@pytest.mark.parametrize(
    ("wanted", "accept", "form"),
    [
        (None, None, "plain"),
        ("json", "text/plain", "json"),
        ("XML", None, "xml"),
        ("plain", "application/json", "plain"),
        ("foo", "application/json", "plain"),
        (None, "*/*", "plain"),
        (None, "application/json, */*", "json"),
        (None, "*/*, application/json", "json"),
        (None, "text/plain;q=0.5, application/json", "json"),
        (None, "application/json;q=0.2, text/xml;q=0.3", "xml"),
        (None, "application/json;q=x", "plain"),
        (None, "text/html", "plain"),
    ],
)
def test_the_form_of_a_list(wanted: str | None, accept: str | None, form: str) -> None:
    assert swift.form_of(wanted, accept).value == form


def test_xml_holds_any_name() -> None:
    name = "<&\"'> é"
    rows = [ObjectRow(name=name, state=state(None, 0)), SubdirectoryRow(name="<d>/")]
    root = ET.fromstring(swift.objects_xml(name, rows))
    assert (root.tag, root.get("name")) == ("container", name)
    assert [element.findtext("name") for element in root] == [name, "<d>/"]
    assert root[0].findtext("bytes") == "7"
    assert root[1].get("name") == "<d>/"
    row = ContainerRow(name=name, count=1, size_bytes=2, modified_us=0)
    account = ET.fromstring(swift.containers_xml("a", [row, SubdirectoryRow(name="<d>-")]))
    assert (account[0].findtext("name"), account[1].tag, account[1].get("name")) == (name, "subdir", "<d>-")


@pytest.mark.parametrize("name", ["a", "&" * 100, '"' * 100, "<é\U0001f600" * 100])
def test_a_name_takes_no_more_memory_in_xml_than_is_said(name: str) -> None:
    group, thing = swift.objects_xml("", [SubdirectoryRow(name=name)]), [ObjectRow(name=name, state=state(None, 0))]
    shortest = swift.objects_xml("", [SubdirectoryRow(name="")])
    assert 2 * (len(group) - len(shortest)) <= swift.xml_bytes(name)
    assert len(swift.objects_xml("", thing)) < 1024 + swift.xml_bytes(name) // 2


def test_a_name_that_xml_cannot_hold_leaves_the_list_readable() -> None:
    rows = [ObjectRow(name="a\ufffe\uffff", state=state(None, 0)), ObjectRow(name="b", state=state(None, 0))]
    root = ET.fromstring(swift.objects_xml("c\uffff", rows))
    assert [element.findtext("name") for element in root] == ["a\ufffd\ufffd", "b"]


def test_what_is_kept_of_header_fields() -> None:
    sent = {"content-encoding": "gzip", "expires": "", "x-other": "1"}
    assert swift.kept_fields(sent) == {"Content-Encoding": "gzip"}
    with pytest.raises(HeaderError):
        swift.kept_fields({"cache-control": "x" * 1025})


@pytest.mark.parametrize(
    ("name", "kind"), [("d/a.txt", "text/plain"), ("a.tar.gz", "application/x-tar"), ("a", None), ("a.b/c", None)]
)
def test_a_names_ending_tells_its_type(name: str, kind: str | None) -> None:
    assert swift.type_of_name(name) == kind
