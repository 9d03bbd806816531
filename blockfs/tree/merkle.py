"""Object hash of a file in the tree.

Costs a few hashes per leaf that is not all holes, a Merkle subtree (130 µs) only for leaves whose root nobody has
remembered, and nothing for holes: a sparse file of 10^15 bytes takes as long as what was written into it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from blockfs.blocks.extents import block_count
from blockfs.blocks.hashing import LEAF_IDS, leaf_root, object_hash
from blockfs.blocks.ids import ID_SIZE, ZERO_BLOCK, LeafKey, ObjectHash
from blockfs.blocks.merkle import sparse_root
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


def _remembered_root(tree: TreeReader, key: LeafKey, computed: dict[LeafKey, bytes]) -> bytes:
    root = computed.get(key) or tree.leaf_root(key)
    if root is None:
        ids = tree.leaf_ids(key)
        root = leaf_root(ids + ZERO_BLOCK * (LEAF_IDS - len(ids) // ID_SIZE))
        computed[key] = root
    return root
