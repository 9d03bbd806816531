"""How a canonical block becomes the payload of a segment, and back.

The id is over the canonical bytes: the same block may be stored raw in one directory and compressed in another.
"""

from __future__ import annotations

import hashlib
import threading
from enum import Enum
from typing import Final, NamedTuple

import zstandard

from blockfs.blocks.segment import ADOPTED, RAW, ZSTD, align
from blockfs.errors import BlockfsError

ZSTD_LEVEL: Final = 1  # faster and smaller than -1 here; 3 saves 4 % more for 1.4 times the time (ADR 0006)
_MIN_SAVED_SHARE: Final = 20  # of the host's bytes: saving less than 1/20 isn't worth a decompression for each read


class Compression(Enum):
    """What a block directory does with new blocks; the value is the word in blocks.toml and volume.toml."""

    NONE = "none"
    ZSTD = "zstd"


class DecodeError(BlockfsError):
    """The payload is not what the codec makes of a block of this length."""


class Payload(NamedTuple):
    """A block as it is stored: its bytes in the segment, the length of the canonical block, the codec."""

    data: bytes
    length: int
    codec: int


class ZstdContexts(threading.local):
    """One pair of zstd contexts per thread: they are not to be shared, and cost more to make than to use."""

    def __init__(self, level: int) -> None:
        self.compressor = zstandard.ZstdCompressor(level=level)
        self.decompressor = zstandard.ZstdDecompressor()


_contexts = ZstdContexts(ZSTD_LEVEL)


def raw(canonical: bytes) -> Payload:
    """The block as it is."""
    return Payload(canonical, len(canonical), RAW)


def encode(canonical: bytes, compression: Compression) -> Payload:
    """The payload of a block: raw if compression saves less than 5 % of the bytes that the host allocates."""
    if compression is Compression.NONE:
        return raw(canonical)
    data = _contexts.compressor.compress(canonical)
    allocated = align(len(canonical))  # a raw payload owns its pages
    if (allocated - len(data)) * _MIN_SAVED_SHARE < allocated:
        return raw(canonical)
    return Payload(data, len(canonical), ZSTD)


def decode(payload: Payload) -> bytes:
    """The canonical block. Never allocates more than its length, whatever the payload says.

    Raises:
        DecodeError: Damaged.
    """
    data, length, codec = payload
    if codec in (RAW, ADOPTED):
        if len(data) != length:
            raise DecodeError(f"{len(data)} bytes stored of a block of {length}")
        return data
    if codec != ZSTD:
        raise DecodeError(f"unknown codec {codec}: damaged, or made by a newer blocksync")
    try:
        # The decompressor allocates what the frame claims: compare it with the truth first.
        claimed = zstandard.get_frame_parameters(data).content_size
        if claimed != length:
            raise DecodeError(f"its zstd frame is of {claimed} bytes, expected {length}")
        return _contexts.decompressor.decompress(data, max_output_size=length, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise DecodeError(f"not readable as zstd: {error}") from error


def holds(payload: Payload, block_id: bytes) -> bool:
    """Whether a payload is a sound one of this block."""
    try:
        return hashlib.sha256(decode(payload)).digest() == block_id
    except DecodeError:
        return False
