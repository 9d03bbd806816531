"""Block lists as differences from an older version, on the leaves of the catalogue.

Only the leaves in which something differs are read, hashed or looked at for possession. What is left of O(file) is the
list of leaf keys (32 bytes for 256 blocks) and their Merkle roots: 640 of each for 10 GiB in blocks of 64 KiB.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

from blockfs.blocks.extents import block_count
from blockfs.blocks.hashing import LEAF_IDS
from blockfs.blocks.ids import ID_SIZE, ZERO_BLOCK, BlockId, LeafKey
from syncer.protocol.extensions.hashmap_delta import Delta, Splice, differing_runs, filled_runs
from syncer.server.catalogue import contents
from syncer.server.catalogue.catalogue import Reading
from syncer.server.catalogue.schema import VersionRecord

ReadLeaf = Callable[[bytes], bytes]
"""The ids of a leaf, by its key."""

_HOLES: Final = ZERO_BLOCK * LEAF_IDS
_PACE_LEAVES: Final = 1024
"""Looked at in one go: some milliseconds. A request of 100 bytes may be about 65,536 leaves."""


def prepare_delta(
    view: Reading, account: int | None, base: VersionRecord | None, delta: Delta, block_size: int
) -> contents.Prepared:
    """What a delta makes of a version, ready to be committed: see `contents.prepare`.

    The leaves that it leaves alone are not among the known ones: they stay as long as `base` is the current version of
    its name, which the commit must require.

    Args:
        view: A snapshot.
        account: Whose version it is; None for an account that has never written.
        base: The version; None: holes.
        delta: What is to be changed in it.
        block_size: Bytes of a block.
    """
    count = block_count(delta.size_bytes, block_size)
    old_count = 0 if base is None else block_count(base.size_bytes, block_size)
    old_keys = b"" if base is None else contents.leaf_keys(view, base, block_size)
    changed: dict[int, list[Splice]] = {}
    for first, run in delta.splices:
        for index, start, part in _by_leaf(first, run):
            changed.setdefault(index, []).append((start, part))
    made: dict[int, bytes] = {}  # by index: the ids of leaves in which something differs
    distinct: dict[bytes, bytes] = {}  # of those: a list of nothing but holes may have 65,536 equal ones
    leaf_count = -(-count // LEAF_IDS)
    for index in _paced(leaf_count):
        wanted = min(LEAF_IDS, count - index * LEAF_IDS)
        had = max(0, min(LEAF_IDS, old_count - index * LEAF_IDS))
        if index not in changed and wanted == had:
            continue
        if index not in changed and not had and wanted == LEAF_IDS:  # not made: 8 KiB to fill, to hash, to compare
            made[index] = distinct.setdefault(_HOLES, _HOLES)
            continue
        old_key = old_keys[index * ID_SIZE : (index + 1) * ID_SIZE]
        ids = bytearray(contents.leaf_row(view, old_key)[ID_SIZE : (1 + wanted) * ID_SIZE] if had else b"")
        ids += ZERO_BLOCK * (wanted - len(ids) // ID_SIZE)
        for start, part in changed.get(index, ()):
            ids[start * ID_SIZE : start * ID_SIZE + len(part)] = part
        leaf = bytes(ids)
        made[index] = distinct.setdefault(leaf, leaf)
    found = contents.look_at_leaves(view, account, distinct)
    key_of, roots, keys = dict(zip(distinct, found.keys, strict=True)), found.roots, []
    for index in _paced(leaf_count):
        key = key_of[made[index]] if index in made else LeafKey(old_keys[index * ID_SIZE : (index + 1) * ID_SIZE])
        if key not in roots:
            roots[key] = contents.leaf_row(view, key)[:ID_SIZE]
        keys.append(key)
    joined = b"".join([roots[key] for key in keys])
    return contents.Prepared(
        size_bytes=delta.size_bytes,
        object_hash=contents.root_of_leaves(joined, lambda: _ids(view, keys[0], found.new) if keys else b""),
        keys=tuple(keys),
        new=found.new,
        known=frozenset(found.keys) - found.new.keys(),
    )


def last_id(view: Reading, prepared: contents.Prepared) -> BlockId | None:
    """Id of the last block of what was prepared; None for an empty object."""
    return BlockId(_ids(view, prepared.keys[-1], prepared.new)[-ID_SIZE:]) if prepared.keys else None


def splices(old_keys: bytes, new_keys: bytes, read: ReadLeaf) -> Iterator[Splice]:
    """What differs between two block lists, leaf by leaf.

    Args:
        old_keys: Concatenated leaf keys of the older one; b"": holes.
        new_keys: Of the newer one.
        read: Called for leaves that differ; each `next` calls it at most twice.
    """
    for at in range(0, len(new_keys), ID_SIZE):
        old, new = old_keys[at : at + ID_SIZE], new_keys[at : at + ID_SIZE]
        first = at // ID_SIZE * LEAF_IDS
        if not old:  # what it lacks, it is filled up with holes
            yield from filled_runs(read(new), first)
        elif old != new:
            yield from differing_runs(read(old), read(new), first)


def _paced(count: int) -> Iterator[int]:
    """Indexes of leaves, with a pause after some of them, as long as those took: others come first."""
    for first in range(0, count, _PACE_LEAVES):
        began = time.thread_time()
        yield from range(first, min(first + _PACE_LEAVES, count))
        if count > _PACE_LEAVES:
            time.sleep(min(0.05, time.thread_time() - began))


def _by_leaf(first: int, run: bytes) -> Iterator[tuple[int, int, bytes]]:
    """A splice cut at the borders of leaves: index of the leaf, first id in it, ids."""
    at = 0
    while at < len(run):
        index, start = divmod(first + at // ID_SIZE, LEAF_IDS)
        part = run[at : at + (LEAF_IDS - start) * ID_SIZE]
        yield index, start, part
        at += len(part)


def _ids(view: Reading, key: LeafKey, new: dict[LeafKey, bytes]) -> bytes:
    """The ids of a leaf, stored or about to be."""
    return (new.get(key) or contents.leaf_row(view, key))[ID_SIZE:]
