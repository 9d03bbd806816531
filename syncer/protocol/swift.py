"""What OpenStack's object storage (Swift) says differently from Pithos: names and forms. Pure.

Pithos grew out of it, so that most of both is the same. The differences: an ETag is the MD5 of the content and stands
without quotes; listing rows have fewer fields, times without a zone; clients log in with a user and a key.
"""

from __future__ import annotations

import hashlib
import mimetypes
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from itertools import chain
from typing import Final
from xml.sax.saxutils import escape, quoteattr

import msgspec
from msgspec.structs import replace

from syncer.protocol import segments
from syncer.protocol.pithos.headers import (
    MAX_META_ITEMS,
    MAX_META_KEY_CHARACTERS,
    MAX_META_VALUE_CHARACTERS,
    HeaderError,
    ObjectState,
    meta_headers,
    object_headers,
)
from syncer.protocol.pithos.listing import MAX_ROWS, ContainerRow, ObjectRow, SubdirectoryRow
from syncer.protocol.pithos.names import (
    MAX_CONTAINER_CHARACTERS,
    MAX_OBJECT_CHARACTERS,
    container_name_problem,
    quote_name,
    unquote_name,
)

AUTH_USER: Final = ("X-Auth-User", "X-Storage-User")
AUTH_KEY: Final = ("X-Auth-Key", "X-Storage-Pass")
STORAGE_URL: Final = "X-Storage-Url"
STORAGE_TOKEN: Final = "X-Storage-Token"  # noqa: S105 - the name of a header
TIMESTAMP: Final = "X-Timestamp"
TRANSACTION: Final = "X-Trans-Id"
REQUEST_ID: Final = "X-Openstack-Request-Id"
COPIED_FROM: Final = "X-Copied-From"
COPIED_FROM_ACCOUNT: Final = "X-Copied-From-Account"
COPY_FROM_ACCOUNT: Final = "X-Copy-From-Account"
DESTINATION_ACCOUNT: Final = "Destination-Account"
FRESH_METADATA: Final = "X-Fresh-Metadata"
DETECT_CONTENT_TYPE: Final = "X-Detect-Content-Type"

KEPT_FIELDS: Final = frozenset(
    {"Cache-Control", "Content-Disposition", "Content-Encoding", "Content-Language", "Expires", "X-Robots-Tag"}
)
"""Header fields of a PUT or POST that a GET and a HEAD tell as they were sent."""

REFUSED_FIELDS: Final = ("X-Symlink-Target", "X-Versions-Location", "X-History-Location", "X-Versions-Enabled")
"""They make something else of an object or of a container. Ignored, something else would be stored than was meant."""

ACCESS_FIELDS: Final = ("X-Container-Read", "X-Container-Write", "X-Account-Access-Control")
"""Who else may. An empty one takes it from all, which is so already."""

TRUE: Final = frozenset({"true", "1", "yes", "on", "t", "y"})
MAX_FIELD_CHARACTERS: Final = 1024  # of one that is kept

STATIC: Final = "X-Static-Large-Object"
MANIFEST: Final = "X-Object-Manifest"
"""`CONTAINER/PREFIX`, percent-encoded: the object's content is that of the objects whose names begin so, in order."""

AUTH_PATHS: Final = frozenset({b"/auth/v1.0", b"/auth/v1", b"/auth", b"/v1.0", b"/v1", b"/v1/"})
"""Where a client may log in; the last three are old Pithos's."""
INFO_PATHS: Final = frozenset({b"/info", b"/swift/info"})
"""Where it is told what the server can; clients look beside the version of the storage URL."""
STORAGE_PATH: Final = "/swift/v1"
MAX_BULK_DELETIONS: Final = 10_000  # as in Swift
_JSON: Final = "application/json; charset=utf-8"
_MAX_BULK_LINES: Final = 4 * MAX_BULK_DELETIONS  # empty ones are free
_MAX_MANIFEST_CHARACTERS: Final = 1300  # a container and an object name


class Form(Enum):
    """In which form a list is told; the values are those of the parameter `format`."""

    PLAIN = "plain"
    JSON = "json"
    XML = "xml"


_FORMS: Final = {
    "application/json": Form.JSON,
    "application/*": Form.JSON,
    "application/xml": Form.XML,
    "text/xml": Form.XML,
    "text/plain": Form.PLAIN,
    "text/*": Form.PLAIN,
    "*/*": Form.PLAIN,
}
_QUALITY: Final = re.compile(r"q=(\d{1,3}(?:\.\d{0,3})?)", re.ASCII)
_LESS: Final = 1e-6
_TYPES: Final = mimetypes.MimeTypes()  # only what Python itself knows: hosts have different lists


def object_fields(state: ObjectState) -> dict[str, str]:
    """Describe a version in a reply. Without an MD5 there is no ETag: clients then check nothing, and get no error."""
    fields = {**object_headers(replace(state, meta={})), **meta_headers(state.meta or {}, quoted=False)}
    del fields["ETag"]
    if state.md5 is not None:
        fields["ETag"] = state.md5.hex()
    return {**fields, TIMESTAMP: timestamp(state.modified_us), "Accept-Ranges": "bytes"}


def copied_fields(account: str, container: str, name: str) -> dict[str, str]:
    """What a reply to a copy tells of its source."""
    return {COPIED_FROM: quote_name(f"{container}/{name}"), COPIED_FROM_ACCOUNT: quote_name(account)}


def kept_fields(sent: Mapping[str, str]) -> dict[str, str]:
    """Which header fields of a request are to be kept, by their names of `KEPT_FIELDS`; empty ones are not.

    Args:
        sent: By lower-case name.

    Raises:
        HeaderError: A longer one than is kept.
    """
    found = {name: value for name in sorted(KEPT_FIELDS) if (value := sent.get(name.lower()))}
    for name, value in found.items():
        if len(value) > MAX_FIELD_CHARACTERS:
            raise HeaderError(f"{name}: at most {MAX_FIELD_CHARACTERS} characters, not {len(value)}")
    return found


def type_of_name(name: str) -> str | None:
    """The Content-Type that a name's ending tells, the same on every host."""
    return _TYPES.guess_type(name.rpartition("/")[2])[0]


def form_of(wanted: str | None, accept: str | None) -> Form:
    """In which form a list is wanted. What makes no sense is text.

    Args:
        wanted: The parameter `format`; it counts more than Accept.
        accept: The header.
    """
    if wanted is not None:
        return next((form for form in Form if form.value == wanted.lower()), Form.PLAIN)
    best, found = 0.0, Form.PLAIN
    for item in (accept or "").split(","):
        kind, *parameters = (part.strip().lower() for part in item.split(";"))
        if kind not in _FORMS:
            continue
        weight = next((_weight(one) for one in parameters if one.startswith("q=")), 1.0)
        weight -= _LESS * kind.count("*")  # what is named counts more than what is covered
        if weight > best:
            best, found = weight, _FORMS[kind]
    return found


def _weight(parameter: str) -> float:
    match = _QUALITY.fullmatch(parameter)
    return float(match[1]) if match else 0.0


def joined_md5(segment_md5s: Iterable[bytes | None]) -> bytes:
    """What stands for the MD5 of an object made of segments: that of their MD5s."""
    joined = b"".join(b"" if md5 is None else md5.hex().encode() for md5 in segment_md5s)
    return hashlib.md5(joined, usedforsecurity=False).digest()


def manifest_fields(manifest: str, md5: bytes | None) -> dict[str, str]:
    """What a reply tells of an object made of segments. Its ETag is no MD5 of the content, and quoted to say so.

    Args:
        manifest: Of its record: `CONTAINER/PREFIX`, or the mark of a static one.
        md5: Of the MD5s of all segments (`joined_md5`); None: the reply is of the manifest itself.
    """
    is_static = segments.read_mark(manifest) is not None
    told = {STATIC: "True"} if is_static else {MANIFEST: quote_name(manifest)}
    if md5 is not None:
        return {**told, "ETag": f'"{md5.hex()}"'}
    return {**told, "Content-Type": _JSON} if is_static else told


def parse_manifest(value: str) -> str:
    """Read where segments are.

    Raises:
        HeaderError: Not `CONTAINER/PREFIX`.
    """
    try:
        manifest = unquote_name(value.removeprefix("/").encode("latin-1"))
    except ValueError as error:
        raise HeaderError(f"{MANIFEST}: {error}") from None
    container, _, prefix = manifest.partition("/")
    if not prefix or len(manifest) > _MAX_MANIFEST_CHARACTERS or container_name_problem(container) is not None:
        raise HeaderError(f"{MANIFEST}: expected CONTAINER/PREFIX, got {value[:100]!r}")
    return manifest


def parse_bulk_delete(body: bytes) -> list[bytes]:
    """Read what is to be deleted: paths, one a line, percent-encoded, as they were sent.

    Raises:
        HeaderError: Too many.
    """
    if body.count(b"\n") > _MAX_BULK_LINES:
        raise HeaderError(f"at most {MAX_BULK_DELETIONS} deletions in one request")
    paths = [line.strip() for line in body.splitlines() if line.strip()]
    if len(paths) > MAX_BULK_DELETIONS:
        raise HeaderError(f"at most {MAX_BULK_DELETIONS} deletions in one request, not {len(paths)}")
    return paths


def encode_bulk_result(deleted: int, missing: int, errors: Sequence[tuple[str, str]], *, as_json: bool) -> bytes:
    """Write what became of it. The reply's own status is always 200; the true one is in the body.

    Args:
        deleted: How many are gone now.
        missing: How many there were not.
        errors: Paths and statuses of those that could not be deleted.
        as_json: JSON rather than text.
    """
    status = "400 Bad Request" if errors else "200 OK"
    if as_json:
        body = {
            "Number Deleted": deleted,
            "Number Not Found": missing,
            "Errors": [list(one) for one in errors],
            "Response Status": status,
            "Response Body": "",
        }
        return msgspec.json.encode(body)
    lines = [
        f"Number Deleted: {deleted}",
        f"Number Not Found: {missing}",
        "Response Body: ",
        f"Response Status: {status}",
    ]
    return "\n".join([*lines, "Errors:", *(f"{path}, {code}" for path, code in errors), ""]).encode()


def timestamp(modified_us: int) -> str:
    """Seconds since the epoch with five decimals."""
    return f"{modified_us // 1_000_000}.{modified_us % 1_000_000 // 10:05d}"


def encode_objects(rows: Iterable[ObjectRow | SubdirectoryRow]) -> bytes:
    """Write a container's listing."""
    return msgspec.json.encode([_object(row) for row in rows])


def encode_containers(rows: Iterable[ContainerRow | SubdirectoryRow]) -> bytes:
    """Write an account's listing."""
    return msgspec.json.encode([_container(row) for row in rows])


def _container(row: ContainerRow | SubdirectoryRow) -> dict[str, str | int]:
    if isinstance(row, SubdirectoryRow):
        return {"subdir": row.name}
    return {"name": row.name, "count": row.count, "bytes": row.size_bytes, "last_modified": iso(row.modified_us)}


def objects_xml(container: str, rows: Iterable[ObjectRow | SubdirectoryRow]) -> bytes:
    """Write a container's listing in XML."""
    return _xml("container", container, (_object_xml(row) for row in rows))


def containers_xml(account: str, rows: Iterable[ContainerRow | SubdirectoryRow]) -> bytes:
    """Write an account's listing in XML."""
    return _xml("account", account, (_container_xml(row) for row in rows))


def _xml(kind: str, name: str, rows: Iterable[str]) -> bytes:
    head = f'<?xml version="1.0" encoding="UTF-8"?>\n<{kind} name={quoteattr(name)}>'
    # Row by row: as a text of its own, all of it would take four bytes a character if one name has an emoji.
    return b"".join(map(_xml_text, chain((head,), rows, (f"</{kind}>",))))


def _xml_text(text: str) -> bytes:
    """Names may have two characters that XML can't: one such name must not make the whole list unreadable."""
    return text.replace("\ufffe", "\ufffd").replace("\uffff", "\ufffd").encode()


def xml_bytes(name: str) -> int:
    """Memory that a name takes at the most while a list is written in XML: twice in its row, and all rows twice."""
    return 4 * len(quoteattr(name).encode())


def _container_xml(row: ContainerRow | SubdirectoryRow) -> str:
    if isinstance(row, SubdirectoryRow):
        return f"<subdir name={quoteattr(row.name)} />"
    return _elements("container", _container(row))


def _object_xml(row: ObjectRow | SubdirectoryRow) -> str:
    if isinstance(row, SubdirectoryRow):
        return f"<subdir name={quoteattr(row.name)}><name>{escape(row.name)}</name></subdir>"
    told = _object(row)
    return _elements("object", {key: told[key] for key in ("name", "hash", "bytes", "content_type", "last_modified")})


def _elements(kind: str, items: Mapping[str, str | int]) -> str:
    inside = "".join(f"<{key}>{escape(str(value))}</{key}>" for key, value in items.items())
    return f"<{kind}>{inside}</{kind}>"


def encode_info(max_file_bytes: int) -> bytes:
    """Write what the server can: the core, bulk deletion, and static large objects."""
    limits = {
        "max_file_size": max_file_bytes,
        "container_listing_limit": MAX_ROWS,
        "account_listing_limit": MAX_ROWS,
        "max_container_name_length": MAX_CONTAINER_CHARACTERS,
        "max_object_name_length": MAX_OBJECT_CHARACTERS,
        "max_meta_count": MAX_META_ITEMS,
        "max_meta_name_length": MAX_META_KEY_CHARACTERS,
        "max_meta_value_length": MAX_META_VALUE_CHARACTERS,
    }
    bulk = {"max_deletes_per_request": MAX_BULK_DELETIONS}
    static = {
        "max_manifest_segments": segments.MAX_SEGMENTS,
        "max_manifest_size": segments.MAX_BYTES,
        "min_segment_size": 1,
    }
    return msgspec.json.encode({"swift": limits, "bulk_delete": bulk, "slo": static})


def _object(row: ObjectRow | SubdirectoryRow) -> dict[str, str | int]:
    if isinstance(row, SubdirectoryRow):
        return {"subdir": row.name}
    state, static = row.state, segments.read_mark(row.manifest)
    told: dict[str, str | int] = {
        "name": row.name,
        "hash": "" if state.md5 is None else state.md5.hex(),
        "bytes": state.size_bytes,
        "content_type": state.content_type,
        "last_modified": iso(state.modified_us),
    }
    if static is not None:  # its size is that of its segments
        told["bytes"], told["slo_etag"] = static[0], f'"{static[1]}"'
    return told


def iso(modified_us: int) -> str:
    """A time as listings tell it."""
    whole = datetime.fromtimestamp(modified_us // 1_000_000, UTC).replace(tzinfo=None)
    return whole.replace(microsecond=modified_us % 1_000_000).isoformat(timespec="microseconds")
