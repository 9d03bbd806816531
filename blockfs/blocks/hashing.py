"""Block ids, leaf keys and the Pithos Merkle root. Pure.

Source of the rules: docs/design/blocks.md sections 2 and 3 (Pithos `hashmap`, agreed with every Pithos server).
"""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Final

from blockfs.blocks.ids import ID_SIZE, PADDING_ID, ZERO_BLOCK, BlockId, LeafKey, ObjectHash

LEAF_IDS: Final = 256
"""Ids per leaf: 8 KiB values, a power of two so that a leaf is a Merkle subtree. Reasons in ADR 0003."""

_LEAF_LEVELS: Final = 8  # 2**8 == LEAF_IDS
LEAF_BYTES: Final = LEAF_IDS * ID_SIZE
_LEAF_TAG: Final = b"blocksync-leaf-1\0"  # separates leaf keys from block ids and Merkle nodes


def canonical(data: bytes) -> bytes:
    """Drop the trailing NUL bytes of a block: what is hashed, stored and sent."""
    return data.rstrip(b"\0")


def block_id(data: bytes) -> BlockId:
    """Name a block by its content.

    Args:
        data: One block, 0 to block_size bytes. Trailing NUL bytes do not count.

    Returns:
        32-byte SHA-256 digest. Every all-zero block has the id of b"".
    """
    return BlockId(hashlib.sha256(data.rstrip(b"\0")).digest())


def leaf_key(ids: bytes) -> LeafKey:
    """Name a run of ids.

    Args:
        ids: 1 to 256 concatenated block ids.

    Returns:
        SHA-256 over a format tag, the count (2 bytes, big endian) and the ids. Not the Merkle subtree root: that one
        costs 15 times as much and collides under padding (architecture, blocks).
    """
    count = len(ids) // ID_SIZE
    assert 0 < count <= LEAF_IDS
    return LeafKey(hashlib.sha256(_LEAF_TAG + count.to_bytes(2, "big") + ids).digest())


def object_hash(ids: bytes) -> ObjectHash:
    """Merkle root of a block list.

    Args:
        ids: Concatenated block ids, holes as `ZERO_BLOCK`; empty for an empty file.

    Returns:
        No id: the id of b"". One id: that id. Else the root of the binary tree whose leaves are the ids, padded with
        `PADDING_ID` up to a power of two.
    """
    return root_of_level(ids, 0)


def leaf_root(ids: bytes) -> bytes:
    """Merkle subtree root of one full-width leaf (padded to 256 ids), for use with `root_of_level(…, 8)`.

    Only for files of more than one leaf: a file of a single leaf is padded to the next power of two, not to 256.
    """
    level = 0
    while level < _LEAF_LEVELS and len(ids) > ID_SIZE:
        if len(ids) // ID_SIZE % 2:
            ids += _padding_roots(_LEAF_LEVELS)[level]
        ids = _reduce(ids)
        level += 1
    for padding in _padding_roots(_LEAF_LEVELS)[level:]:  # of most files all levels: they have one block
        ids = hashlib.sha256(ids + padding).digest()
    return ids


def root_of_level(nodes: bytes, level: int) -> ObjectHash:
    """Merkle root over subtree roots of one level.

    Args:
        nodes: Concatenated 32-byte roots, each of a subtree with 2**level ids.
        level: 0 for block ids, 8 for `leaf_root` values.
    """
    if not nodes:
        return ObjectHash(ZERO_BLOCK)
    while len(nodes) > ID_SIZE:
        if len(nodes) // ID_SIZE % 2:
            nodes += _padding_roots(level + 1)[level]
        nodes = _reduce(nodes)
        level += 1
    return ObjectHash(nodes)


def _reduce(nodes: bytes) -> bytes:
    """Hash adjacent pairs of an even run of nodes; of a long hole, most of which is the same, once."""
    sha256 = hashlib.sha256
    parts: list[bytes] = []
    before = reduced = b""
    for start in range(0, len(nodes), LEAF_BYTES):
        some = nodes[start : start + LEAF_BYTES]
        if some != before:
            before, reduced = some, b"".join([sha256(some[at : at + 64]).digest() for at in range(0, len(some), 64)])
        parts.append(reduced)
    return b"".join(parts)


@cache
def _padding_roots(levels: int) -> tuple[bytes, ...]:
    """Roots of subtrees of 1, 2, 4, … ids that are all padding."""
    roots: list[bytes] = [PADDING_ID]
    while len(roots) < levels:
        roots.append(hashlib.sha256(roots[-1] * 2).digest())
    return tuple(roots)
