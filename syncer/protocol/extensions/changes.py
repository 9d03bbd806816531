"""What changed in a container since one of its versions, in JSON: our extension `changes`. Pure.

`{"identity": UUID, "version": N, "timestamp": "seconds", "more": false, "count": OBJECTS, "bytes": BYTES, "objects":
[rows as in a listing], "deleted": ["name", …]}`. The first three are the cursor for the next question. `count` and
`bytes` are those of the whole container at that version: whoever adds the changes to what was there before can tell
whether it is complete. With `more`, the reply shows the changes up to its version only; ask again from there.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

import msgspec

from syncer.core.subtrees import SubtreeMove
from syncer.protocol.extensions.subtree import SubtreeError, checked_move
from syncer.protocol.jsontext import MALFORMED
from syncer.protocol.pithos.headers import HeaderError, parse_decimal, parse_timestamp, timestamp_text
from syncer.protocol.pithos.listing import ListingError, ObjectRow, decode_objects, encode_objects

MAX_SERIAL: Final = (1 << 64) - 1
MAX_RANGES: Final = 256
"""Of versions that a question leaves out: 10 KB of a URL."""

MAX_WAIT_S: Final = 300
"""Longest wait for a change; a request for more is cut to it. Proxies in between may allow less."""


class ChangesPage(msgspec.Struct, frozen=True, kw_only=True):
    """Changes of one container, up to a version.

    Attributes:
        identity: UUID text of the container's life.
        version: The changes up to here are told; the next question begins here.
        modified_us: Time of that version: proves that the serial was not given out twice (a restored backup).
        more: There are later ones already; nothing can be said of the whole yet.
        object_count: Objects in the container.
        bytes_used: Sum of their sizes.
        objects: What exists and is new or changed, each name once, in the order of the changes.
        deleted: Names that no longer exist, each once.
        moves: Subtrees that were moved as one, in order, if that was asked for: then their objects are not among the
            others, unless they changed again.
    """

    identity: str
    version: int
    modified_us: int
    more: bool
    object_count: int
    bytes_used: int
    objects: Sequence[ObjectRow]
    deleted: Sequence[str]
    moves: Sequence[SubtreeMove] = ()


class _Move(msgspec.Struct):
    """A moved subtree."""

    source: str = msgspec.field(name="from")
    target: str = msgspec.field(name="to")
    first: int
    guard: str


class _Wire(msgspec.Struct, omit_defaults=True):
    """The reply."""

    identity: str
    version: int
    timestamp: str
    more: bool
    count: int
    bytes_used: int = msgspec.field(name="bytes")
    objects: msgspec.Raw
    deleted: list[str]
    moves: list[_Move] = []


_DECODER: Final = msgspec.json.Decoder(_Wire)


def encode_changes(page: ChangesPage) -> bytes:
    """Write a reply."""
    return msgspec.json.encode(
        _Wire(
            identity=page.identity,
            version=page.version,
            timestamp=timestamp_text(page.modified_us),
            more=page.more,
            count=page.object_count,
            bytes_used=page.bytes_used,
            objects=msgspec.Raw(encode_objects(page.objects)),
            deleted=list(page.deleted),
            moves=[
                _Move(source=move.source, target=move.target, first=move.first, guard=move.guard.text)
                for move in page.moves
            ],
        )
    )


def decode_changes(body: bytes, since: int) -> ChangesPage:
    """Read a reply.

    Args:
        body: JSON text.
        since: The version that was asked about: whatever the reply tells is later.

    Raises:
        ListingError: Not such a reply, or one that contradicts itself. Never a part of it: it is evidence for
            deletions.
    """
    try:
        wire = _DECODER.decode(body)
        page = ChangesPage(
            identity=wire.identity,
            version=wire.version,
            modified_us=parse_timestamp(wire.timestamp),
            more=wire.more,
            object_count=wire.count,
            bytes_used=wire.bytes_used,
            objects=decode_objects(bytes(wire.objects)),
            deleted=wire.deleted,
            moves=tuple(checked_move(move.source, move.target, move.first, move.guard) for move in wire.moves),
        )
    except (*MALFORMED, HeaderError, SubtreeError) as error:
        raise ListingError(f"not an answer about changes: {error}") from None
    problem = _contradiction(page, since)
    if problem is not None:
        raise ListingError(f"an answer about changes that contradicts itself: {problem}")
    return page


def encode_ranges(ranges: Sequence[range]) -> str:
    """Write the versions that a question leaves out: `5-1028,2000`."""
    return ",".join(f"{one.start}-{one.stop - 1}" if len(one) > 1 else str(one.start) for one in ranges)


def decode_ranges(text: str) -> tuple[range, ...]:
    """Read them.

    Raises:
        HeaderError: Not such a text: too many ranges, or some that are empty, overlap or are out of order.
    """
    parts = text.split(",", MAX_RANGES)
    if len(parts) > MAX_RANGES:
        raise HeaderError(f"without: more than {MAX_RANGES} ranges")
    found: list[range] = []
    for part in parts:
        first, dash, last = part.partition("-")
        begin = parse_decimal("without", first)
        end = parse_decimal("without", last) if dash else begin
        if end < begin or (found and begin < found[-1].stop):
            raise HeaderError(f"without: expected ascending ranges of versions, got {part[:50]!r}")
        found.append(range(begin, end + 1))
    return tuple(found)


def is_in(version: int, ranges: Sequence[range]) -> bool:
    """Whether a version is in one of some ascending ranges."""
    at = bisect_right(ranges, version, key=lambda one: one.start)
    return at > 0 and version in ranges[at - 1]


def _contradiction(page: ChangesPage, since: int) -> str | None:
    """What can't be in an honest reply."""
    if not since <= page.version <= MAX_SERIAL:
        return f"version {page.version} is not later than {since}"
    names = [row.name for row in page.objects] + list(page.deleted)
    if page.more and (page.version == since or not names):  # asking on could go on for ever
        return "there is more, but nothing was told"
    if len(set(names)) != len(names):
        return "a name occurs twice"
    outside = [row.state.version for row in page.objects if not since < row.state.version <= page.version]
    if outside:
        return f"version {outside[0]} is not between {since} and {page.version}"
    if page.object_count < 0 or page.bytes_used < 0:
        return "the container has less than nothing"
    return _contradicting_move(page, since)


def _contradicting_move(page: ChangesPage, since: int) -> str | None:
    at = since
    for move in page.moves:
        if not at < move.first <= move.last <= page.version:
            return f"a move with the serials {move.first} to {move.last} behind {at}"
        at = move.last
    return None
