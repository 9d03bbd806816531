"""Rows survive their codecs, and the stored form stays what it is."""

from __future__ import annotations

from typing import Final

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from blockfs.blocks.ids import ObjectHash
from syncer.protocol.swift import KEPT_FIELDS
from syncer.server.catalogue.schema import (
    ContainerRecord,
    Counters,
    Format,
    NameRecord,
    Settings,
    VersionRecord,
    decode_texts,
    encode_texts,
)

u64 = st.integers(0, (1 << 64) - 1)
digests = st.binary(min_size=32, max_size=32)
uuids = st.binary(min_size=16, max_size=16)
text = st.text(st.characters(blacklist_categories=["Cs"]), max_size=30)

versions = st.builds(
    VersionRecord,
    slot=u64,
    previous=u64,
    deleted=st.booleans(),
    uuid=uuids,
    size_bytes=u64,
    object_hash=digests.map(ObjectHash),
    content=digests,
    modified_us=u64,
    content_type=text,
    modified_by=text,
    meta=st.dictionaries(text, text, max_size=4),
    md5=st.none() | st.binary(min_size=16, max_size=16),
    manifest=text,
    fields=st.dictionaries(st.sampled_from(sorted(KEPT_FIELDS)), text, max_size=3),
)


@given(versions)
def test_a_version_survives(record: VersionRecord) -> None:
    assert VersionRecord.decode(record.encode()) == record


@given(st.builds(NameRecord, slot=u64, newest=u64, deleted=st.booleans()))
def test_a_name_survives(record: NameRecord) -> None:
    assert NameRecord.decode(record.encode()) == record


@given(
    st.builds(
        ContainerRecord,
        container_id=u64,
        uuid=uuids,
        object_count=u64,
        bytes_used=u64,
        version=u64,
        modified_us=u64,
        created_us=u64,
    )
)
def test_a_container_survives(record: ContainerRecord) -> None:
    assert ContainerRecord.decode(record.encode()) == record


@given(st.builds(Counters, serial=u64, node=u64, slot=u64, account=st.integers(0, (1 << 32) - 1), stamp_us=u64))
def test_counters_survive(counters: Counters) -> None:
    assert Counters.decode(counters.encode()) == counters


@given(st.builds(Settings, quota_bytes=u64, keeps_history=st.booleans(), meta=st.dictionaries(text, text, max_size=4)))
def test_settings_survive(settings: Settings) -> None:
    assert Settings.decode(settings.encode()) == settings


@given(st.lists(text, max_size=5), st.binary(max_size=5))
def test_texts_survive_behind_anything(texts: list[str], before: bytes) -> None:
    assert decode_texts(before + encode_texts(texts), len(before)) == texts


RECORD: Final = VersionRecord(
    slot=1,
    previous=2,
    deleted=False,
    uuid=b"u" * 16,
    size_bytes=3,
    object_hash=ObjectHash(b"h" * 32),
    content=b"c" * 32,
    modified_us=4,
    content_type="t",
    modified_by="a",
    meta={"k": "v"},
)


def test_the_stored_form_does_not_change() -> None:
    """Breaks when a byte moves: a server would misread its own folder after an upgrade. Raise the format number."""
    assert Format(block_size=65536).encode().hex() == "000000030000000000010000"
    assert RECORD.encode() == (
        b"\0"
        b"\0\0\0\0\0\0\0\1"
        b"\0\0\0\0\0\0\0\2"
        + b"u" * 16
        + b"\0\0\0\0\0\0\0\3"
        + b"h" * 32
        + b"c" * 32
        + b"\0\0\0\0\0\0\0\4"
        + b"\0\1t\0\1a\0\1k\0\1v"
    )


def test_kept_header_fields_stand_among_the_metadata_under_names_that_no_metadata_have() -> None:
    """Breaks when a release before could not read them: it takes them for metadata."""
    record = replace(RECORD, fields={"Content-Encoding": "gzip"})
    assert record.encode().endswith(b"\0\1t\0\1a\0\x10Content-Encoding\0\4gzip\0\1k\0\1v")
    assert not KEPT_FIELDS & {name.lower() for name in KEPT_FIELDS}
