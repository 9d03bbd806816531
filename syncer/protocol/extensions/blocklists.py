"""Block lists in binary, without their holes: our extension `block-lists`. Pure.

One line of JSON, a newline, and the splices behind each other:

| field | bytes | meaning |
| --- | --- | --- |
| head | one line | `{"bytes": N, "block_size": B, "block_hash": "sha256"}`, maybe `"hash"` and `"base_version"` |
| first | 8 | of each splice: index of its first block, big endian |
| count | 8 | how many ids follow, at least 1, big endian |
| ids | 32 x count | |

It stands for the block list of version V, cut or filled up with holes to the new size, with these runs of ids put in;
without `base_version` for holes with these runs put in. Splices ascend and don't overlap. `hash` is the object hash of
the result. A hashmap in JSON has 67 bytes for each block, hole or not: of a file of 50 GiB with 6.5 MB in it, in blocks
of 64 KiB, 55 MB. Here it is 4 KB.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.ids import ID_SIZE, BlockId, ObjectHash
from syncer.protocol.extensions.hashmap_delta import Delta, Splice, apply_delta
from syncer.protocol.jsontext import MALFORMED
from syncer.protocol.pithos.hashmap import BLOCK_HASH, MAX_BLOCKS, HashmapError, checked_count, checked_ids
from syncer.protocol.pithos.headers import HeaderError, parse_object_hash

FORMAT: Final = "binary"
"""Value of the parameter `format` beside `hashmap`."""

TYPE: Final = "application/vnd.blocksync.ids"
"""Content-Type of replies: such a block list, or with 409 the ids of missing blocks, one behind the other."""

SPLICE: Final = struct.Struct(">QQ")
HEAD_BYTES: Final = 4096
MAX_BYTES: Final = HEAD_BYTES + (SPLICE.size + ID_SIZE) * MAX_BLOCKS
"""Longest body that is read: every second block a hole would take half of it."""


class _Head(msgspec.Struct, omit_defaults=True):
    """Wire form."""

    size_bytes: int = msgspec.field(name="bytes")
    block_size: int
    block_hash: str
    object_hash: str | None = msgspec.field(name="hash", default=None)
    base_version: int | None = None


_HEAD: Final = msgspec.json.Decoder(_Head)


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """A block list as it came.

    Attributes:
        delta: What is put in.
        base_version: Into the block list of which version; None: into holes.
    """

    delta: Delta
    base_version: int | None


def chunks(
    block_size: int,
    size_bytes: int,
    splices: Iterable[Splice],
    object_hash: ObjectHash | None = None,
    base_version: int | None = None,
) -> Iterator[bytes]:
    """Write a block list piece by piece, one splice each."""
    head = _Head(
        size_bytes=size_bytes,
        block_size=block_size,
        block_hash=BLOCK_HASH,
        object_hash=None if object_hash is None else object_hash.hex(),
        base_version=base_version,
    )
    yield msgspec.json.encode(head) + b"\n"
    for first, run in splices:
        yield SPLICE.pack(first, len(run) // ID_SIZE) + run


def encode(delta: Delta, block_size: int, base_version: int | None = None) -> bytes:
    """Write a request."""
    return b"".join(chunks(block_size, delta.size_bytes, delta.splices, delta.object_hash, base_version))


def decode(body: bytes, block_size: int) -> Told:
    """Read a block list.

    Args:
        body: As it came.
        block_size: Bytes of a block on this server; a body that names another size is refused.

    Raises:
        HashmapError: Not such a list; splices that are empty, out of order, overlap or lie beyond the object; an
            invalid id; another block size or hash.
    """
    end = body.find(b"\n", 0, HEAD_BYTES)
    if end < 0:
        raise HashmapError("Invalid data formatting: expected one line of JSON before the ids")
    try:
        head = _HEAD.decode(body[:end])
        told = None if head.object_hash is None else parse_object_hash(head.object_hash)
    except (*MALFORMED, HeaderError) as error:
        raise HashmapError(f"Invalid data formatting: {error}") from None
    count = checked_count(head.size_bytes, head.block_size, head.block_hash, block_size)
    splices = tuple(_splices(body, end + 1, count))
    return Told(
        delta=Delta(size_bytes=head.size_bytes, splices=splices, object_hash=told), base_version=head.base_version
    )


def _splices(body: bytes, at: int, blocks: int) -> Iterator[Splice]:
    reached = 0
    while at < len(body):
        if at + SPLICE.size > len(body):
            raise HashmapError("the last splice is cut off")
        first, count = SPLICE.unpack_from(body, at)
        at += SPLICE.size
        if first < reached or count == 0:
            raise HashmapError(f"the splice at {first} is empty, overlaps the one before, or is out of order")
        reached = first + count
        if reached > blocks:
            raise HashmapError(f"the splice at {first} ends at {reached}, beyond an object of {blocks} blocks")
        run = body[at : at + count * ID_SIZE]
        if len(run) < count * ID_SIZE:
            raise HashmapError(f"the splice at {first} is cut off")
        yield first, checked_ids(run)
        at += len(run)


def decode_list(body: bytes, block_size: int, size_bytes: int, base: BlockList | None, base_version: int) -> BlockList:
    """Read the answer to a question for the block list of an object of a known size.

    Args:
        body: As it came.
        block_size: As for `decode`.
        size_bytes: Of the object; another one is refused before any memory is taken for it.
        base: The block list of `base_version`; None: it was not asked for.
        base_version: Of which differences were asked for.

    Raises:
        HashmapError: As `decode`; another size; differences from another version.
    """
    told = decode(body, block_size)
    if told.delta.size_bytes != size_bytes:
        raise HashmapError(f"it is of {told.delta.size_bytes} bytes, expected {size_bytes}")
    old = BlockList(block_size=block_size, size_bytes=0, ids=b"")
    if told.base_version is not None:
        if base is None or told.base_version != base_version:
            raise HashmapError(f"it tells what differs from version {told.base_version}, which was not asked for")
        old = base
    try:
        return apply_delta(old, told.delta)
    except ValueError as error:
        raise HashmapError(str(error)) from None


def split_ids(joined: bytes) -> list[BlockId]:
    """Cut ids that stand one behind the other.

    Raises:
        HashmapError: Not a whole number of them, or an invalid one.
    """
    checked_ids(joined)
    return [BlockId(joined[at : at + ID_SIZE]) for at in range(0, len(joined), ID_SIZE)]
