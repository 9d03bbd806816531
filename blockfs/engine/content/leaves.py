"""Changing blocks of a file's leaf map. Under the engine's lock; each leaf is rewritten once per call."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import groupby, takewhile

from blockfs.blocks.hashing import LEAF_IDS
from blockfs.blocks.ids import ID_SIZE, ZERO_BLOCK, BlockId, LeafKey
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


def void_blocks(tree: Tree, ino: int, first: int, stop: int) -> None:
    """Make blocks from index `first` up to `stop` holes. Costs time for the leaves that are there only."""
    for leaf_index, _ in _leaves(tree, ino, first, stop):
        base = leaf_index * LEAF_IDS
        start, end = max(first - base, 0) * ID_SIZE, min(stop - base, LEAF_IDS) * ID_SIZE
        ids = tree.leaf(ino, leaf_index) or b""
        holes = ZERO_BLOCK * max(0, (min(end, len(ids)) - start) // ID_SIZE)
        tree.set_leaf(ino, leaf_index, ids[:start] + holes + ids[end:])


def copy_blocks(tree: Tree, source: int, first: int, ino: int, to: int, count: int) -> None:
    """Give a file blocks of another one, or of its own: blocks from `first` on to where `to` is; holes are holes.

    The two ranges don't overlap.
    """
    taken = _leaves(tree, source, first, first + count)
    void_blocks(tree, ino, to, to + count)
    for leaf_index, key in taken:
        base = leaf_index * LEAF_IDS
        start, end = max(first, base), min(first + count, base + LEAF_IDS)
        there = to + start - first
        if end - start == LEAF_IDS and there % LEAF_IDS == 0:
            tree.take_leaf(ino, there // LEAF_IDS, key, partial(tree.leaf_ids, key))
        else:
            # Not by its key: making room may have changed the leaf, in another part.
            ids = tree.leaf(source, leaf_index) or b""
            set_run(tree, ino, there, ids[(start - base) * ID_SIZE : (end - base) * ID_SIZE])


def _leaves(tree: Tree, ino: int, first: int, stop: int) -> list[tuple[int, LeafKey]]:
    """Leaves with some of the blocks from `first` up to `stop`."""
    there = tree.leaf_keys(ino, first // LEAF_IDS)
    return list(takewhile(lambda leaf: leaf[0] * LEAF_IDS < stop, there))


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
