"""Block lists as differences from an older version, on the leaves of the catalogue.

Only the leaves in which something differs are read, hashed or looked at for possession. What is left of O(file) is the
list of leaf keys (32 bytes for 256 blocks) and their Merkle roots: 640 of each for 10 GiB in blocks of 64 KiB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from blockfs.blocks.extents import block_count
from blockfs.blocks.hashing import LEAF_IDS, leaf_key, leaf_root
from blockfs.blocks.ids import ID_SIZE, ZERO_BLOCK, BlockId, LeafKey
from syncer.protocol.extensions.hashmap_delta import Delta, Splice, differing_runs, filled_runs
from syncer.server.catalogue.catalogue import Reading
from syncer.server.catalogue.contents import Prepared, lacks, leaf_keys, leaf_row, root_of_leaves
from syncer.server.catalogue.schema import VersionRecord

ReadLeaf = Callable[[bytes], bytes]
"""The ids of a leaf, by its key."""


@dataclass(slots=True)
class _Leaves:
    """The leaves of a list in the making."""

    view: Reading
    account: int | None
    roots: dict[LeafKey, bytes]
    new: dict[LeafKey, bytes]
    known: set[LeafKey]
    made: dict[bytes, LeafKey]

    def keep(self, key: LeafKey) -> LeafKey:
        """One of the older version."""
        if key not in self.roots:
            self.roots[key] = leaf_row(self.view, key)[:ID_SIZE]
        return key

    def make(self, ids: bytes) -> LeafKey:
        """One with these ids, which the account may have or not."""
        if ids in self.made:
            return self.made[ids]
        key = self.made[ids] = leaf_key(ids)
        row = self.view.get("leaves", key)
        self.roots[key] = row[:ID_SIZE] if row is not None else leaf_root(ids)
        if row is None or lacks(self.view, self.account, key):
            self.new[key] = self.roots[key] + ids
        else:
            self.known.add(key)
        return key


def prepare_delta(
    view: Reading, account: int | None, base: VersionRecord | None, delta: Delta, block_size: int
) -> Prepared:
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
    old_keys = b"" if base is None else leaf_keys(view, base, block_size)
    changed: dict[int, list[Splice]] = {}
    for first, run in delta.splices:
        for index, start, part in _by_leaf(first, run):
            changed.setdefault(index, []).append((start, part))
    leaves = _Leaves(view, account, {}, {}, set(), {})
    keys: list[LeafKey] = []
    for index in range(-(-count // LEAF_IDS)):
        wanted = min(LEAF_IDS, count - index * LEAF_IDS)
        had = max(0, min(LEAF_IDS, old_count - index * LEAF_IDS))
        old_key = LeafKey(old_keys[index * ID_SIZE : (index + 1) * ID_SIZE])
        if index not in changed and wanted == had:
            keys.append(leaves.keep(old_key))
            continue
        ids = bytearray(leaf_row(view, old_key)[ID_SIZE : (1 + wanted) * ID_SIZE] if had else b"")
        ids += ZERO_BLOCK * (wanted - len(ids) // ID_SIZE)
        for start, part in changed.get(index, ()):
            ids[start * ID_SIZE : start * ID_SIZE + len(part)] = part
        keys.append(leaves.make(bytes(ids)))
    roots = b"".join([leaves.roots[key] for key in keys])
    return Prepared(
        size_bytes=delta.size_bytes,
        object_hash=root_of_leaves(roots, lambda: _ids(view, keys[0], leaves.new) if keys else b""),
        keys=tuple(keys),
        new=leaves.new,
        known=frozenset(leaves.known),
    )


def last_id(view: Reading, prepared: Prepared) -> BlockId | None:
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
    return (new.get(key) or leaf_row(view, key))[ID_SIZE:]
