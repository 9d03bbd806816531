"""Changing blocks of a file's leaf map. Under the engine's lock; each leaf is rewritten once per call."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby

from blockfs.blocks.hashing import LEAF_IDS
from blockfs.blocks.ids import ID_SIZE, ZERO_BLOCK, BlockId
from blockfs.tree.store import Tree


def set_blocks(tree: Tree, ino: int, changed: Mapping[int, BlockId]) -> None:
    """Set blocks of a file, by index."""
    for leaf_index, indices in groupby(sorted(changed), lambda index: index // LEAF_IDS):
        ids = bytearray(tree.leaf(ino, leaf_index) or b"")
        for index in indices:
            at = index % LEAF_IDS * ID_SIZE
            if len(ids) < at:
                ids += ZERO_BLOCK * ((at - len(ids)) // ID_SIZE)
            ids[at : at + ID_SIZE] = changed[index]
        tree.set_leaf(ino, leaf_index, bytes(ids))


def set_run(tree: Tree, ino: int, first: int, ids: bytes) -> None:
    """Set adjacent blocks of a file, from index `first` on, to concatenated ids."""
    at = 0
    while at < len(ids):
        leaf_index, within = divmod(first + at // ID_SIZE, LEAF_IDS)
        run = ids[at : at + (LEAF_IDS - within) * ID_SIZE]
        if len(run) < LEAF_IDS * ID_SIZE:
            old = tree.leaf(ino, leaf_index) or b""
            before = old[: within * ID_SIZE]
            before += ZERO_BLOCK * (within - len(before) // ID_SIZE)
            leaf = before + run + old[within * ID_SIZE + len(run) :]
        else:
            leaf = run
        tree.set_leaf(ino, leaf_index, leaf)
        at += len(run)
