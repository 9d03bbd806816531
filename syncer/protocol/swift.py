"""What OpenStack's object storage (Swift) says differently from Pithos: names and forms. Pure.

Pithos grew out of it, so that most of both is the same. The differences: an ETag is the MD5 of the content and stands
without quotes; listing rows have fewer fields, times without a zone; clients log in with a user and a key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from syncer.protocol.pithos.headers import HeaderError, ObjectState, http_date, object_headers
from syncer.protocol.pithos.listing import MAX_ROWS, ContainerRow, ObjectRow, SubdirectoryRow
from syncer.protocol.pithos.names import container_name_problem, quote_name, unquote_name

AUTH_USER: Final = ("X-Auth-User", "X-Storage-User")
AUTH_KEY: Final = ("X-Auth-Key", "X-Storage-Pass")
STORAGE_URL: Final = "X-Storage-Url"
STORAGE_TOKEN: Final = "X-Storage-Token"  # noqa: S105 - the name of a header
TIMESTAMP: Final = "X-Timestamp"
TRANSACTION: Final = "X-Trans-Id"

MANIFEST: Final = "X-Object-Manifest"
"""`CONTAINER/PREFIX`, percent-encoded: the object's content is that of the objects whose names begin so, in order."""

AUTH_PATHS: Final = frozenset({b"/auth/v1.0", b"/auth/v1", b"/auth", b"/v1.0", b"/v1", b"/v1/"})
"""Where a client may log in; the last three are old Pithos's."""
INFO_PATH: Final = b"/info"
STORAGE_PATH: Final = "/swift/v1"
MAX_BULK_DELETIONS: Final = 10_000  # as in Swift
_MAX_BULK_LINES: Final = 4 * MAX_BULK_DELETIONS  # empty ones are free
_MAX_MANIFEST_CHARACTERS: Final = 1300  # a container and an object name


def object_fields(state: ObjectState) -> dict[str, str]:
    """Describe a version in a reply. Without an MD5 there is no ETag: clients then check nothing, and get no error."""
    fields = object_headers(state)
    del fields["ETag"]
    if state.md5 is not None:
        fields["ETag"] = state.md5.hex()
    return {**fields, "Last-Modified": http_date(state.modified_us), TIMESTAMP: timestamp(state.modified_us)}


def manifest_fields(manifest: str, segment_md5s: Iterable[bytes | None]) -> dict[str, str]:
    """What a reply tells of an object made of segments. Its ETag is no MD5 of the content, and quoted to say so."""
    joined = b"".join(b"" if md5 is None else md5.hex().encode() for md5 in segment_md5s)
    return {MANIFEST: quote_name(manifest), "ETag": f'"{hashlib.md5(joined, usedforsecurity=False).hexdigest()}"'}


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
    """Read what is to be deleted: paths, one a line, percent-encoded, without the slash at the beginning.

    Raises:
        HeaderError: Too many.
    """
    if body.count(b"\n") > _MAX_BULK_LINES:
        raise HeaderError(f"at most {MAX_BULK_DELETIONS} deletions in one request")
    paths = [line.strip().removeprefix(b"/") for line in body.splitlines() if line.strip()]
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


def encode_containers(rows: Iterable[ContainerRow]) -> bytes:
    """Write an account's listing."""
    return msgspec.json.encode(
        [
            {"name": row.name, "count": row.count, "bytes": row.size_bytes, "last_modified": _iso(row.modified_us)}
            for row in rows
        ]
    )


def encode_info(max_file_bytes: int) -> bytes:
    """Write what the server can: the core, and bulk deletion."""
    limits = {
        "max_file_size": max_file_bytes,
        "container_listing_limit": MAX_ROWS,
        "account_listing_limit": MAX_ROWS,
    }
    bulk = {"max_deletes_per_request": MAX_BULK_DELETIONS}
    return msgspec.json.encode({"swift": limits, "bulk_delete": bulk})


def _object(row: ObjectRow | SubdirectoryRow) -> dict[str, str | int]:
    if isinstance(row, SubdirectoryRow):
        return {"subdir": row.name}
    state = row.state
    return {
        "name": row.name,
        "hash": "" if state.md5 is None else state.md5.hex(),
        "bytes": state.size_bytes,
        "content_type": state.content_type,
        "last_modified": _iso(state.modified_us),
    }


def _iso(modified_us: int) -> str:
    whole = datetime.fromtimestamp(modified_us // 1_000_000, UTC).replace(tzinfo=None)
    return whole.replace(microsecond=modified_us % 1_000_000).isoformat(timespec="microseconds")
