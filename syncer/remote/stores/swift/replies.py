"""What Swift's replies mean. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Annotated, Final

import msgspec

from syncer.errors import (
    AuthError,
    ForbiddenError,
    NoSpaceError,
    NotFoundError,
    OverQuotaError,
    RemoteUnavailableError,
    SyncerError,
)
from syncer.protocol.jsontext import MALFORMED
from syncer.remote.http.transport import BadReplyError, Reply, ReplyLostError, Request
from syncer.remote.stores.port import Blob, is_name

_READ_ONLY: Final = frozenset({"GET", "HEAD"})
_REFUSED: Final = frozenset({408, 409, 422, 429, 498, 499})
"""Nothing was written: too slow, older than what is there, damaged on the way, too many requests (two numbers)."""
_MEANT: Final[dict[int, tuple[type[SyncerError], str]]] = {
    401: (AuthError, "; a new token did not help"),
    403: (ForbiddenError, "; see that the user may read and write the container"),
    404: (NotFoundError, "; is the container there?"),
    413: (OverQuotaError, "; make room there, or have the quota raised"),
    507: (NoSpaceError, "; its disks are full"),
}
_MAX_RETRY_AFTER_S: Final = 120.0
_TEXT_LIMIT: Final = 200
_MARKUP: Final = re.compile(r"<[^>]*>|[^\x20-\x7e]+")
_TIMESTAMP: Final = re.compile(r"(\d{1,11})(?:\.(\d{1,9}))?")
_MD5: Final = re.compile(r"[0-9a-f]{32}")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class Row(msgspec.Struct):
    """An object of a listing."""

    name: str
    bytes: Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
    last_modified: str
    hash: str = ""


_ROWS: Final = msgspec.json.Decoder(list[Row])


def failure(origin: str, request: Request, reply: Reply) -> SyncerError:
    """The error that a status is, if it is not one that was hoped for."""
    said = " ".join(_MARKUP.sub(" ", reply.body[:4096].decode("utf-8", "replace")).split())[:_TEXT_LIMIT]
    where = request.target.partition("?")[0]
    what = f"{origin} answered {reply.status} to {request.method} {where}{': ' if said else ''}{said}"
    status = reply.status
    if status in _MEANT:
        kind, advice = _MEANT[status]
        return kind(what + advice)
    if status in _REFUSED or (status >= 500 and request.method in _READ_ONLY):
        return _later(RemoteUnavailableError(what), reply)
    if status >= 500:
        # Also a 503: not enough of its servers said in time that they have it, but some may, and then it is there.
        return _later(ReplyLostError(what), reply)
    return BadReplyError(what)


def _later(error: RemoteUnavailableError, reply: Reply) -> RemoteUnavailableError:
    value = reply.headers.get("retry-after", "")
    if value.isascii() and value.isdigit():
        error.retry_after_s = min(float(value[:9]), _MAX_RETRY_AFTER_S)
    return error


def modified_ns(origin: str, value: str) -> int:
    """Read an X-Timestamp: seconds since the epoch with five decimals; Last-Modified is rounded up."""
    found = _TIMESTAMP.fullmatch(value)
    if found is None:
        raise BadReplyError(f"{origin} gives no X-Timestamp with an object but {value[:50]!r}: it is no Swift")
    return int(found[1]) * 10**9 + int((found[2] or "0").ljust(9, "0"))


def size_bytes(origin: str, value: str) -> int:
    """Read a Content-Length."""
    if not (value.isascii() and value.isdigit() and len(value) < 19):
        raise BadReplyError(f"{origin} gives no length with an object but {value[:50]!r}")
    return int(value)


def date_ns(origin: str, value: str) -> int:
    """Read a Date."""
    try:
        return int(parsedate_to_datetime(value).timestamp()) * 10**9
    except (ValueError, OverflowError, TypeError, IndexError):  # the library's parser trusts what it reads
        raise BadReplyError(f"{origin} gives no Date but {value[:50]!r}") from None


def rows(origin: str, reply: Reply, after: str) -> list[Row]:
    """A page of a listing.

    Args:
        origin: For messages.
        reply: 200, or 204 for an empty page.
        after: The last name of the page before.

    Raises:
        BadReplyError: It is none, or does not come after that name: what a server does that ignores the marker.
    """
    if reply.status == 204 or not reply.body:
        return []
    try:
        found = _ROWS.decode(reply.body)
    except MALFORMED as error:
        raise BadReplyError(f"{origin}: this is no listing: {error}") from None
    before = after.encode()
    for row in found:
        name = row.name.encode()
        if name <= before and before:
            raise BadReplyError(f"{origin} lists {row.name[:200]!r} after {after[:200]!r}")
        before = name
    return found


def blobs(origin: str, found: list[Row], prefix: str) -> list[Blob]:
    """Those of a page that have names of ours, without the store's prefix."""
    made = []
    for row in found:
        name = row.name.removeprefix(prefix)
        if row.name.startswith(prefix) and is_name(name):
            made.append(Blob(name, row.bytes, _iso_ns(origin, row.last_modified), md5_of(row.hash)))
    return made


def md5_of(text: str) -> bytes:
    """Read what a listing calls the hash, and a reply the ETag. Of large objects, which are not ours, it is no MD5."""
    return bytes.fromhex(text) if _MD5.fullmatch(text) else b""


def _iso_ns(origin: str, text: str) -> int:
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise BadReplyError(f"{origin} lists a time {text[:50]!r}") from None
    return (when.replace(tzinfo=when.tzinfo or UTC) - _EPOCH) // _MICROSECOND * 1000
