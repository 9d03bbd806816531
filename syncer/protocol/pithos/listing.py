"""Listings in JSON and text: rows of objects and containers, version lists. Pure.

Our rows have one key more than Synnefo's: `x_object_meta`, the object's metadata, so that a client needs no HEAD for
each file. `hash` is the MD5 where the server knows it, else empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec

from syncer.protocol.jsontext import MALFORMED
from syncer.protocol.pithos.headers import (
    FILE_TYPE,
    HeaderError,
    ObjectState,
    parse_object_hash,
    parse_timestamp,
    timestamp_text,
)

MAX_ROWS: Final = 10_000  # of one reply, as in Pithos; more are had by `marker`


class ListingError(ValueError):
    """A body that is not the listing it should be."""


class ObjectRow(msgspec.Struct, frozen=True, kw_only=True):
    """One object of a listing.

    Attributes:
        name: As the server wrote it: check it before use.
        state: Its current version.
        sharing: X-Object-Sharing, "" for an object that is not shared by itself.
        manifest: The mark of a static large object (`protocol.segments`); "" for any other.
    """

    name: str
    state: ObjectState
    sharing: str = ""
    manifest: str = ""


class SubdirectoryRow(msgspec.Struct, frozen=True, kw_only=True):
    """What a delimiter makes of all objects whose names begin so. The name ends with the delimiter; it is no object."""

    name: str


class ContainerRow(msgspec.Struct, frozen=True, kw_only=True):
    """One container of an account's listing.

    Attributes:
        name: As the server wrote it.
        count: Objects in it.
        size_bytes: Sum of their sizes.
        modified_us: Microseconds since the epoch of the last change in it.
    """

    name: str
    count: int
    size_bytes: int
    modified_us: int


class VersionRow(msgspec.Struct, frozen=True, kw_only=True):
    """One version in the history of a name."""

    version: int
    modified_us: int


class _ObjectWire(msgspec.Struct, omit_defaults=False):
    """A row as Pithos writes it, and `x_object_meta`."""

    name: str
    size_bytes: int = msgspec.field(name="bytes")
    object_hash: str = msgspec.field(name="x_object_hash")
    version: int = msgspec.field(name="x_object_version")
    timestamp: str = msgspec.field(name="x_object_version_timestamp", default="0")
    uuid: str = msgspec.field(name="x_object_uuid", default="")
    content_type: str = FILE_TYPE
    modified_by: str = msgspec.field(name="x_object_modified_by", default="")
    last_modified: str = ""
    md5: str = msgspec.field(name="hash", default="")
    available: int | str = 1
    meta: dict[str, str] | None = msgspec.field(name="x_object_meta", default=None)
    sharing: object = msgspec.field(name="x_object_sharing", default=msgspec.UNSET)


class _SubdirectoryWire(msgspec.Struct):
    """A `SubdirectoryRow` as Pithos writes it."""

    subdir: str


class _ContainerWire(msgspec.Struct):
    """A container as Pithos writes it."""

    name: str
    count: int
    size_bytes: int = msgspec.field(name="bytes")
    last_modified: str = ""


class _VersionsWire(msgspec.Struct):
    """`{"versions": [[serial, "seconds"], …]}`."""

    versions: list[tuple[int, str | float]]


_ROWS: Final = msgspec.json.Decoder(list[msgspec.Raw])
_OBJECT: Final = msgspec.json.Decoder(_ObjectWire)
_SUBDIRECTORY: Final = msgspec.json.Decoder(_SubdirectoryWire)
_VERSIONS: Final = msgspec.json.Decoder(_VersionsWire)


def encode_objects(rows: Iterable[ObjectRow | SubdirectoryRow]) -> bytes:
    """Write a container's listing."""
    return msgspec.json.encode(
        [_object_to_wire(row) if isinstance(row, ObjectRow) else _SubdirectoryWire(subdir=row.name) for row in rows]
    )


def decode_objects(body: bytes) -> list[ObjectRow]:
    """Read a container's listing; rows of subdirectories are left out.

    Raises:
        ListingError: Not a listing. Never a part of it: a listing is evidence for deletions.
    """
    try:
        return [row for raw in _ROWS.decode(body) if (row := _object_from_wire(raw)) is not None]
    except (*MALFORMED, HeaderError) as error:
        raise ListingError(f"not a listing of objects: {error}") from None


def encode_accounts(rows: Iterable[tuple[str, int]]) -> bytes:
    """Write the listing of accounts that share: name and time of the last change (microseconds since the epoch)."""
    return msgspec.json.encode([{"name": name, "last_modified": _iso(modified_us)} for name, modified_us in rows])


def encode_containers(rows: Iterable[ContainerRow | SubdirectoryRow]) -> bytes:
    """Write an account's listing."""
    return msgspec.json.encode(
        [
            _ContainerWire(
                name=row.name, count=row.count, size_bytes=row.size_bytes, last_modified=_iso(row.modified_us)
            )
            if isinstance(row, ContainerRow)
            else _SubdirectoryWire(subdir=row.name)
            for row in rows
        ]
    )


def encode_versions(rows: Iterable[VersionRow]) -> bytes:
    """Write the answer to `?version=list`."""
    return msgspec.json.encode({"versions": [[row.version, timestamp_text(row.modified_us)] for row in rows]})


def decode_versions(body: bytes) -> list[VersionRow]:
    """Read the answer to `?version=list`, ascending.

    Raises:
        ListingError: Not such an answer.
    """
    try:
        return [
            VersionRow(version=version, modified_us=parse_timestamp(str(time)))
            for version, time in _VERSIONS.decode(body).versions
        ]
    except (*MALFORMED, HeaderError) as error:
        raise ListingError(f"not a list of versions: {error}") from None


def encode_names(names: Iterable[str]) -> bytes:
    """Write a listing in text form: one name a line (names hold no control characters)."""
    return "".join(f"{name}\n" for name in names).encode("utf-8")


def _object_to_wire(row: ObjectRow) -> _ObjectWire:
    state = row.state
    return _ObjectWire(
        name=row.name,
        size_bytes=state.size_bytes,
        object_hash=state.etag,
        version=state.version,
        timestamp=timestamp_text(state.modified_us),
        md5="" if state.md5 is None else state.md5.hex(),
        uuid=state.uuid,
        content_type=state.content_type,
        modified_by=state.modified_by,
        last_modified=_iso(state.modified_us),
        meta=None if state.meta is None else dict(state.meta),
        sharing=row.sharing or msgspec.UNSET,
    )


def _object_from_wire(raw: msgspec.Raw) -> ObjectRow | None:
    """One row; None for a subdirectory."""
    try:
        wire = _OBJECT.decode(raw)
    except msgspec.ValidationError:
        _SUBDIRECTORY.decode(raw)
        return None
    return ObjectRow(
        name=wire.name,
        sharing=wire.sharing if isinstance(wire.sharing, str) else "",
        state=ObjectState(
            size_bytes=wire.size_bytes,
            object_hash=parse_object_hash(wire.object_hash),
            uuid=wire.uuid,
            version=wire.version,
            modified_us=parse_timestamp(wire.timestamp),
            content_type=wire.content_type,
            modified_by=wire.modified_by,
            meta=_lower_keys(wire.meta),
        ),
    )


def _lower_keys(meta: Mapping[str, str] | None) -> dict[str, str] | None:
    return None if meta is None else {key.lower(): value for key, value in meta.items()}


def _iso(modified_us: int) -> str:
    """ISO 8601 in UTC with six decimals, as Pithos writes last_modified."""
    whole = datetime.fromtimestamp(modified_us // 1_000_000, UTC).replace(microsecond=modified_us % 1_000_000)
    return whole.isoformat(timespec="microseconds")
