"""Object hash of a file in the tree: O(changed leaves) with the remembered leaf roots, never O(size) for holes."""

from __future__ import annotations

from dataclasses import dataclass, field

from blockfs.blocks.extents import block_count
from blockfs.blocks.hashing import LEAF_IDS, leaf_root, object_hash, root_of_level
from blockfs.blocks.ids import ID_SIZE, PADDING_ID, ZERO_BLOCK, LeafKey, ObjectHash
from blockfs.tree.reader import TreeReader


@dataclass(slots=True, kw_only=True)
class HashedFile:
    """An object hash and what was worked out on the way.

    Attributes:
        object_hash: Merkle root over all block ids.
        computed: Roots of leaves that the tree did not remember, for `Tree.remember_leaf_roots`.
    """

    object_hash: ObjectHash
    computed: dict[LeafKey, bytes] = field(default_factory=dict)


def hash_file(tree: TreeReader, ino: int, size_bytes: int, block_size: int) -> HashedFile:
    """Merkle root of a file's sealed content.

    Args:
        tree: Where its leaves are.
        ino: A regular file without staged data (else the leaves are not its content).
        size_bytes: Its size.
        block_size: The volume's.
    """
    blocks = block_count(size_bytes, block_size)
    if blocks <= LEAF_IDS:
        return HashedFile(object_hash=object_hash(tree.block_ids(ino, 0, blocks)))
    leaves = -(-blocks // LEAF_IDS)
    computed: dict[LeafKey, bytes] = {}
    roots: dict[int, bytes] = {}
    for index, key in tree.leaf_keys(ino):
        if index < leaves - 1:
            roots[index] = _remembered_root(tree, key, computed)
    # The last leaf ends with padding, not holes, where the file ends: its root depends on the size, so it is not kept.
    roots[leaves - 1] = leaf_root(tree.block_ids(ino, (leaves - 1) * LEAF_IDS, blocks - (leaves - 1) * LEAF_IDS))
    return HashedFile(object_hash=sparse_root(roots, leaves), computed=computed)


def sparse_root(roots: dict[int, bytes], count: int) -> ObjectHash:
    """Merkle root over `count` leaf roots, those that are missing being all holes.

    Args:
        roots: By leaf index; the last one, `count - 1`, must be there.
        count: At least 1.
    """
    assert count - 1 in roots
    hole, padding = _HOLE_LEAF, _PADDING_LEAF
    while count > 1:
        pairs = {index >> 1 for index in roots}
        # Only the right node of the last pair can lie beyond the end.
        roots = {
            pair: root_of_level(
                roots.get(2 * pair, hole) + (roots.get(2 * pair + 1, hole) if 2 * pair + 1 < count else padding), 0
            )
            for pair in pairs
        }
        hole, padding = root_of_level(hole * 2, 0), root_of_level(padding * 2, 0)
        count = -(-count // 2)
    return ObjectHash(roots[0])


def _remembered_root(tree: TreeReader, key: LeafKey, computed: dict[LeafKey, bytes]) -> bytes:
    root = computed.get(key) or tree.leaf_root(key)
    if root is None:
        ids = tree.leaf_ids(key)
        root = leaf_root(ids + ZERO_BLOCK * (LEAF_IDS - len(ids) // ID_SIZE))
        computed[key] = root
    return root


_HOLE_LEAF = leaf_root(ZERO_BLOCK * LEAF_IDS)
_PADDING_LEAF = leaf_root(PADDING_ID * LEAF_IDS)
