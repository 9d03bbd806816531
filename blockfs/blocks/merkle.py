"""Merkle root of a sparse block list, in time for what is there, not for the holes. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from blockfs.blocks.hashing import LEAF_IDS, leaf_root, root_of_level
from blockfs.blocks.ids import PADDING_ID, ZERO_BLOCK, ObjectHash


def sparse_root(roots: Mapping[int, bytes], count: int) -> ObjectHash:
    """Merkle root over `count` leaf roots, those that are missing being all holes.

    Takes about len(roots) * log2(count) hashes at most.

    Args:
        roots: `leaf_root` by leaf index; the last one, `count - 1`, must be there, because padding follows it.
        count: Leaves of the file, at least 1.
    """
    assert count - 1 in roots
    nodes, hole, padding = dict(roots), _HOLE_LEAF, _PADDING_LEAF
    while count > 1:
        # Only the right node of the last pair can lie beyond the end.
        beyond = count if count % 2 else None
        nodes = {
            left >> 1: _parent(nodes.get(left, hole), padding if left + 1 == beyond else nodes.get(left + 1, hole))
            for left in {index & ~1 for index in nodes}
        }
        hole, padding = _parent(hole, hole), _parent(padding, padding)
        count = (count + 1) // 2
    return ObjectHash(nodes[0])


def _parent(left: bytes, right: bytes) -> bytes:
    return root_of_level(left + right, 0)


_HOLE_LEAF = leaf_root(ZERO_BLOCK * LEAF_IDS)
_PADDING_LEAF = leaf_root(PADDING_ID * LEAF_IDS)
