"""Several small contents in one reply: POST `?bulk-read`, an extension. Pure.

The request names versions of objects: `{"objects": [["name", 17], …]}`. The reply is one line of JSON,
`{"sizes": [12, null, …]}`, a newline, and the contents one after the other, in the order of the request. Null: it can't
be had in this way (no such version, longer than a block, unreadable, no room left); a request of its own says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from syncer.protocol.jsontext import MALFORMED

MAX_OBJECTS: Final = 1024  # of one request
MAX_CONTENT_BYTES: Final = 8 << 20  # of one reply
MAX_REQUEST_BYTES: Final = 8 << 20
_MAX_SERIAL: Final = (1 << 63) - 1

Wanted = tuple[str, int]
"""Name and version."""


class BulkReadError(ValueError):
    """Not such a message. The text fits into a fault."""


class _Request(msgspec.Struct):
    objects: list[Wanted]


class _Head(msgspec.Struct):
    sizes: list[int | None]


_REQUEST: Final = msgspec.json.Decoder(_Request)
_HEAD: Final = msgspec.json.Decoder(_Head)


def encode_wanted(wanted: Sequence[Wanted]) -> bytes:
    """Write a request."""
    return msgspec.json.encode(_Request(objects=list(wanted)))


def decode_wanted(body: bytes) -> list[Wanted]:
    """Read a request.

    Raises:
        BulkReadError: Not one, or too many objects.
    """
    try:
        found = _REQUEST.decode(body).objects
    except MALFORMED as error:
        raise BulkReadError(f"Not a request for several contents: {error}") from None
    if not 0 < len(found) <= MAX_OBJECTS:
        raise BulkReadError(f"expected 1 to {MAX_OBJECTS} objects, got {len(found)}")
    if any(not 0 < version <= _MAX_SERIAL for _, version in found):
        raise BulkReadError("one of the versions is none")
    return found


def encode_contents(contents: Sequence[bytes | None]) -> bytes:
    """Write a reply."""
    head = msgspec.json.encode(_Head(sizes=[None if one is None else len(one) for one in contents]))
    return b"".join([head, b"\n", *(one for one in contents if one)])


def decode_contents(body: bytes, count: int) -> list[bytes | None]:
    """Read the reply to a request for `count` objects.

    Raises:
        BulkReadError: Not such a reply, or not as many.
    """
    head, _, rest = body.partition(b"\n")
    try:
        sizes = _HEAD.decode(head).sizes
    except MALFORMED as error:
        raise BulkReadError(f"not a reply with several contents: {error}") from None
    if len(sizes) != count or any(size is not None and size < 0 for size in sizes):
        raise BulkReadError(f"{len(sizes)} contents for {count} objects")
    if sum(size or 0 for size in sizes) != len(rest):
        raise BulkReadError(f"{len(rest)} bytes of content, announced were others")
    found: list[bytes | None] = []
    at = 0
    for size in sizes:
        found.append(None if size is None else rest[at : at + size])
        at += size or 0
    return found
