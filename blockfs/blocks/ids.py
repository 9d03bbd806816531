"""Names of content: block ids and object hashes. Pure."""

from __future__ import annotations

import hashlib
from typing import Final, NewType

BlockId = NewType("BlockId", bytes)
"""32 bytes: SHA-256 of the canonical block (without trailing NUL bytes). Hex only in file names, logs and JSON."""

ObjectHash = NewType("ObjectHash", bytes)
"""32 bytes: Merkle root over a block list's ids. Names content only together with (block size, size in bytes)."""

LeafKey = NewType("LeafKey", bytes)
"""32 bytes: names a leaf, a run of up to 256 ids. Its own hash domain; see `hashing.leaf_key`."""

ID_SIZE: Final = 32  # bytes of a SHA-256 digest

ZERO_BLOCK: Final = BlockId(hashlib.sha256(b"").digest())
"""The id of every all-NUL block, of any length. Never stored: it is a hole."""

PADDING_ID: Final = BlockId(bytes(ID_SIZE))
"""32 NUL bytes: the Merkle padding. Never the id of a block; refused at every edge."""

LOST_BLOCK: Final = BlockId(b"\xff" * ID_SIZE)
"""Stands for content that is lost: fsck puts it where a leaf was. No block has it (nobody knows data with this
digest), so it is missing for ever and reading it fails, as reading a missing block does."""


def parse_block_id(text: str) -> BlockId:
    """Read a block id from its hex form, as it comes from outside.

    Raises:
        ValueError: Not 64 hex digits, or the Merkle padding, which names no block.
    """
    if len(text) != 2 * ID_SIZE:
        raise ValueError(f"invalid block id {text[:80]!r}: expected {2 * ID_SIZE} hex digits")
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        raise ValueError(f"invalid block id {text[:80]!r}: expected {2 * ID_SIZE} hex digits") from None
    return checked_block_id(raw)


def checked_block_id(raw: bytes) -> BlockId:
    """Accept 32 bytes from outside as a block id.

    Raises:
        ValueError: Wrong length, or the Merkle padding, which names no block.
    """
    if len(raw) != ID_SIZE:
        raise ValueError(f"invalid block id of {len(raw)} bytes: expected {ID_SIZE}")
    if raw == PADDING_ID:
        raise ValueError("invalid block id: 32 NUL bytes are the Merkle padding and name no block")
    return BlockId(raw)
