"""Changing single blocks of a file's leaf map."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby

from blockfs.blocks.hashing import LEAF_IDS
from blockfs.blocks.ids import ID_SIZE, ZERO_BLOCK, BlockId
from blockfs.tree.store import Tree


def set_blocks(tree: Tree, ino: int, changed: Mapping[int, BlockId]) -> None:
    """Set blocks of a file, by index. Call under the engine's lock; each leaf is rewritten once."""
    for leaf_index, indices in groupby(sorted(changed), lambda index: index // LEAF_IDS):
        ids = bytearray(tree.leaf(ino, leaf_index) or b"")
        for index in indices:
            at = index % LEAF_IDS * ID_SIZE
            if len(ids) < at:
                ids += ZERO_BLOCK * ((at - len(ids)) // ID_SIZE)
            ids[at : at + ID_SIZE] = changed[index]
        tree.set_leaf(ino, leaf_index, bytes(ids))
