"""Hashmaps and lists of block ids in JSON, as Pithos writes them. Pure.

A hashmap is a block list as JSON: `{"block_hash": "sha256", "block_size": 65536, "bytes": N, "hashes": [hex, …]}`.
An empty object is written with one hash, the id of b"", and read with none or that one. A request needs only `bytes`
and `hashes`. A 10 GiB file of 64 KiB blocks has 164 k ids, 11 MB of JSON: written in 50 ms and read in 60 to 120 ms.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.extents import block_count
from blockfs.blocks.ids import ID_SIZE, PADDING_ID, ZERO_BLOCK, BlockId, parse_block_id
from syncer.protocol.jsontext import MALFORMED

BLOCK_HASH: Final = "sha256"
MAX_BLOCKS: Final = 1 << 24  # of one object: 1 TiB in blocks of 64 KiB; a file with more is not synced
MAX_HASHMAP_BYTES: Final = 70 * MAX_BLOCKS + 4096
"""Longest hashmap body that is read: 66 bytes of quoted hex, a comma and some white space for each id."""

_HEX_DIGITS: Final = 2 * ID_SIZE
_CHUNK_IDS: Final = 4096  # encoded at a time: 270 KB


class HashmapError(ValueError):
    """A body that is not the hashmap or id list it should be. The message fits into a fault."""


class _Hashmap(msgspec.Struct):
    """Wire form."""

    size_bytes: int = msgspec.field(name="bytes")
    hashes: list[str]
    block_size: int | None = None
    block_hash: str | None = None


_HASHMAP: Final = msgspec.json.Decoder(_Hashmap)
_STRINGS: Final = msgspec.json.Decoder(list[str])


def encode_hashmap(blocks: BlockList) -> bytes:
    """Write a block list as a hashmap."""
    return b"".join(hashmap_chunks(blocks.block_size, blocks.size_bytes, [blocks.ids]))


def hashmap_chunks(block_size: int, size_bytes: int, runs: Iterable[bytes]) -> Iterator[bytes]:
    """Write a hashmap piece by piece.

    Args:
        block_size: Bytes of a block.
        size_bytes: Size of the object.
        runs: All its ids in order, as concatenations of any number of ids. None at all for an empty object.
    """
    yield b'{"block_hash":"%s","block_size":%d,"bytes":%d,"hashes":[' % (BLOCK_HASH.encode(), block_size, size_bytes)
    separator = b""
    for run in runs:
        for at in range(0, len(run), _CHUNK_IDS * ID_SIZE):
            yield separator + encode_items(run[at : at + _CHUNK_IDS * ID_SIZE])
            separator = b","
    if not separator:
        yield encode_items(ZERO_BLOCK)
    yield b"]}"


def decode_hashmap(body: bytes, block_size: int) -> BlockList:
    """Read a hashmap.

    Args:
        body: JSON text.
        block_size: Bytes of a block on this server; a body that names another size is refused.

    Raises:
        HashmapError: Not a hashmap; a length that does not fit the size; another block size or hash; an invalid id.
    """
    try:
        wire = _HASHMAP.decode(body)
    except MALFORMED as error:
        raise HashmapError(f"Invalid data formatting: {error}") from None
    count = checked_count(wire.size_bytes, wire.block_size, wire.block_hash, block_size)
    ids = joined_ids(wire.hashes)
    if wire.size_bytes == 0 and ids == ZERO_BLOCK:
        ids = b""
    if len(ids) // ID_SIZE != count:
        raise HashmapError("The object's size does not match with the object's hashmap length")
    try:
        return BlockList(block_size=block_size, size_bytes=wire.size_bytes, ids=ids)
    except ValueError as error:
        raise HashmapError(str(error)) from None


def checked_count(size_bytes: int, told_size: int | None, told_hash: str | None, block_size: int) -> int:
    """How many blocks an object has whose size and kind of blocks somebody told.

    Raises:
        HashmapError: Another block size or hash than the server's (None: not told), or an impossible size.
    """
    if told_size not in {None, block_size}:
        raise HashmapError(f"block size {told_size} given, {block_size} expected")
    if told_hash not in {None, BLOCK_HASH}:
        raise HashmapError(f"block hash {told_hash!r} given, {BLOCK_HASH!r} expected")
    if size_bytes < 0 or block_count(size_bytes, block_size) > MAX_BLOCKS:
        raise HashmapError(f"an object of {size_bytes} bytes is not acceptable: at most {MAX_BLOCKS} blocks")
    return block_count(size_bytes, block_size)


def encode_ids(ids: Iterable[BlockId]) -> bytes:
    """Write ids as a JSON list: the missing ones of a 409, or the stored ones of a block POST."""
    joined = b"".join(ids)
    return b"[%s]" % (encode_items(joined) if joined else b"")


def decode_ids(body: bytes) -> list[BlockId]:
    """Read a JSON list of ids.

    Raises:
        HashmapError: Not such a list (a 409 with a fault instead of a list is one, too: see `faults`).
    """
    try:
        joined = joined_ids(_STRINGS.decode(body))
    except MALFORMED as error:
        raise HashmapError(f"Invalid data formatting: {error}") from None
    return [BlockId(joined[at : at + ID_SIZE]) for at in range(0, len(joined), ID_SIZE)]


def padded_blocks(blocks: Sequence[bytes], block_size: int) -> list[bytes]:
    """The body of a block POST, one block after the other.

    All but the last are padded with NUL bytes to the block size; that changes no id. The last goes as it is, an empty
    one (a hole: some servers want it stored) as one NUL byte.
    """
    *head, last = blocks
    return [*(block.ljust(block_size, b"\0") for block in head), last or b"\0"]


def encode_items(ids: bytes) -> bytes:
    """One or more ids as quoted, comma-separated hex."""
    return b'"%s"' % ids.hex("|", ID_SIZE).encode().replace(b"|", b'","')


def checked_ids(joined: bytes) -> bytes:
    """Concatenated ids, which none is the padding of Merkle trees among.

    Raises:
        HashmapError: One is; or it is no whole number of ids.
    """
    if len(joined) % ID_SIZE:
        raise HashmapError(f"{len(joined)} bytes are no whole number of ids")
    if joined.find(PADDING_ID) >= 0:  # perhaps across two ids; which happens to nobody who does not mean it
        for at in range(0, len(joined), ID_SIZE):
            if joined[at : at + ID_SIZE] == PADDING_ID:
                raise HashmapError(f"Invalid hash: {PADDING_ID.hex()} names no block")
    return joined


def joined_ids(texts: list[str]) -> bytes:
    """Concatenated ids of their hex forms.

    All at once, 5 times as fast as one by one; only when something is wrong they are looked at singly, for the message.
    """
    if all(len(text) == _HEX_DIGITS for text in texts):
        try:
            ids = bytes.fromhex("".join(texts))
        except ValueError:
            ids = b""
        # fromhex skips white space, so only the right length proves that there were nothing but digits.
        if len(ids) == len(texts) * ID_SIZE and ids.find(PADDING_ID) < 0:
            return ids
    try:
        return b"".join([parse_block_id(text) for text in texts])
    except ValueError as error:
        raise HashmapError(f"Invalid hash: {error}") from None
