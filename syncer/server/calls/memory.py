"""How much memory requests need, before they need it: what `calls.routes` charges their accounts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from syncer.protocol.extensions import bulk, bulk_read
from syncer.protocol.extensions.hashmap_delta import MAX_DELTA_BYTES
from syncer.protocol.pithos.listing import MAX_ROWS
from syncer.server.http.object_orders import SHORT_BYTES
from syncer.server.store.parts import MAX_PART_BLOCKS

WHOLE_BYTES: Final = 4 << 20
"""So much of a reply is read before its headers are sent."""

READ_BYTES: Final = 1 << 20
"""A piece of a reply, or a block if that is more."""

FEW_VERSIONS: Final = 800
"""In 256 KiB, of a list of versions."""

FEW_VERSIONS_BYTES: Final = 320 * FEW_VERSIONS
MANY_VERSIONS_BYTES: Final = 320 * 100_000
DELETION_BYTES: Final = 32 << 20  # names of what is to be deleted, twice
MANIFEST_BYTES: Final = 16 << 20  # a manifest that lists segments, as a text and taken apart
TREE_BYTES: Final = 192 << 20  # new rows of 10,000 objects with as long metadata as there may be: of 4096 75 MiB
HASHMAP_BYTES: Final = 4 << 20  # to send one, of any length
ROW_BYTES: Final = 4 << 10  # a row of a listing, and its text
HEAVY_ROW_BYTES: Final = 64 << 10  # with as many and as long metadata as there may be
SOURCE_BYTES: Final = 6 * 32 * MAX_PART_BLOCKS  # a part that comes from another object: ids of its blocks, six times
_LONG_LIST_BYTES: Final = 96 << 20  # to take a block list of any length, or a difference as a whole
_TIMES_LIST: Final = 8  # a short one while it is read, for each byte
_TIMES_BULK: Final = 3  # a bulk request's body while it is taken apart
_BODY_BYTES: Final = 8 << 20  # to take a content: pieces of 1 MiB, or of a block, in several states


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """What the need of a request depends on.

    Attributes:
        length: Bytes of its body; None if it does not say.
        block_size: Bytes.
        rows: At most so many are wanted.
    """

    length: int | None
    block_size: int
    rows: int = MAX_ROWS


Need = int | Callable[[Size], int]
"""Bytes, or how to find out."""


def content_in(size: Size) -> int:
    """A content, or blocks, on the way in."""
    most = _BODY_BYTES + 2 * size.block_size
    return most if size.length is None else min(most, 4 * size.length)


def copied(size: Size) -> int:
    """A content that is read and stored anew."""
    return _BODY_BYTES + 2 * size.block_size


def part(size: Size) -> int:
    """A part that comes as a body."""
    blocks = MAX_PART_BLOCKS
    if size.length is not None:
        blocks = min(blocks, size.length // size.block_size + 2)
    return content_in(size) + SOURCE_BYTES // MAX_PART_BLOCKS * blocks


def block_list_in(size: Size) -> int:
    """A whole block list on the way in."""
    return _LONG_LIST_BYTES if size.length is None or size.length > SHORT_BYTES else _TIMES_LIST * size.length


def difference_in(size: Size) -> int:
    """A difference of block lists on the way in."""
    return _TIMES_LIST * (MAX_DELTA_BYTES if size.length is None else size.length)


def content_out(size: Size) -> int:
    """A content on the way out."""
    return WHOLE_BYTES + rest_out(size)


def rest_out(size: Size) -> int:
    """The rest of a content, when its beginning is sent."""
    return 2 * max(READ_BYTES, size.block_size)


def rows(size: Size) -> int:
    """A listing with usual metadata."""
    return ROW_BYTES * size.rows


def heavy_rows(size: Size) -> int:
    """A listing with as many and as long metadata as there may be."""
    return HEAVY_ROW_BYTES * size.rows


def bulk_in(size: Size) -> int:
    """Small changes."""
    return _TIMES_BULK * (bulk.MAX_BODY_BYTES if size.length is None else size.length)


def bulk_out(size: Size) -> int:
    """Small contents."""
    asked = bulk_read.MAX_REQUEST_BYTES if size.length is None else size.length
    return _TIMES_BULK * (asked + bulk_read.MAX_CONTENT_BYTES)
