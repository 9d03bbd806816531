"""What OpenStack's object storage (Swift) says differently from Pithos: names and forms. Pure.

Pithos grew out of it, so that most of both is the same. The differences: an ETag is the MD5 of the content and stands
without quotes; listing rows have fewer fields, times without a zone; clients log in with a user and a key.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

import msgspec

from syncer.protocol.headers import ObjectState, http_date, object_headers
from syncer.protocol.listing import MAX_ROWS, ContainerRow, ObjectRow, SubdirectoryRow

AUTH_USER: Final = ("X-Auth-User", "X-Storage-User")
AUTH_KEY: Final = ("X-Auth-Key", "X-Storage-Pass")
STORAGE_URL: Final = "X-Storage-Url"
STORAGE_TOKEN: Final = "X-Storage-Token"  # noqa: S105 - the name of a header
TIMESTAMP: Final = "X-Timestamp"
TRANSACTION: Final = "X-Trans-Id"

AUTH_PATHS: Final = frozenset({b"/auth/v1.0", b"/auth/v1", b"/auth", b"/v1.0", b"/v1", b"/v1/"})
"""Where a client may log in; the last three are old Pithos's."""
INFO_PATH: Final = b"/info"
STORAGE_PATH: Final = "/swift/v1"


def object_fields(state: ObjectState) -> dict[str, str]:
    """Describe a version in a reply. Without an MD5 there is no ETag: clients then check nothing, and get no error."""
    fields = object_headers(state)
    del fields["ETag"]
    if state.md5 is not None:
        fields["ETag"] = state.md5.hex()
    return {**fields, "Last-Modified": http_date(state.modified_us), TIMESTAMP: timestamp(state.modified_us)}


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
    """Write what the server can: nothing but the core."""
    limits = {
        "max_file_size": max_file_bytes,
        "container_listing_limit": MAX_ROWS,
        "account_listing_limit": MAX_ROWS,
    }
    return msgspec.json.encode({"swift": limits})


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
