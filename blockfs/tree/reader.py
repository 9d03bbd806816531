"""Typed reads of the tree, the same over the live overlay and over one committed snapshot."""

from __future__ import annotations

from collections.abc import Iterator

from blockfs.blocks.hashing import LEAF_IDS
from blockfs.blocks.ids import ID_SIZE, ZERO_BLOCK, LeafKey
from blockfs.errors import CorruptionError
from blockfs.tree.overlay import KeyValues
from blockfs.tree.schema import (
    META_JOURNAL_START,
    META_MOUNT,
    TOP_INOS,
    FailedFlush,
    Generation,
    Inode,
    MountRow,
    SnapshotRow,
    Table,
    copy_key,
    decode_failed_flush,
    decode_generation,
    decode_inode,
    decode_mount,
    decode_snapshot,
    decode_u64,
    failed_flush_key,
    ino_key,
    leaf_map_key,
    split_ino_key,
    split_parent_key,
    u64,
)


class TreeReader:
    """Reads rows. Iterators are lazy: over the live tree, each step sees the changes made since the last one."""

    def __init__(self, rows: KeyValues) -> None:
        self._rows = rows

    # --- inodes and names ---

    def inode(self, ino: int) -> Inode | None:
        """The inode row, or None if there is no such inode."""
        row = self._rows.get(Table.INODES, u64(ino))
        return None if row is None else decode_inode(ino, row)

    def lookup(self, parent: int, name: bytes) -> int | None:
        """The ino that a directory has under a name, or None."""
        row = self._rows.get(Table.DENTRIES, u64(parent) + name)
        return None if row is None else decode_u64(row)

    def entries(self, parent: int, after: bytes = b"") -> Iterator[tuple[bytes, int]]:
        """Names and inos of a directory in byte order of the names, from the first name greater than `after`."""
        prefix = u64(parent)
        for key, row in self._rows.scan(Table.DENTRIES, prefix, prefix + after):
            yield key[8:], decode_u64(row)

    def places(self, ino: int) -> Iterator[tuple[int, bytes]]:
        """Where an inode is: (parent ino, name) of each of its names."""
        for key, _ in self._rows.scan(Table.PARENTS, u64(ino)):
            _, parent, name = split_parent_key(key)
            yield parent, name

    def path_of(self, ino: int) -> bytes | None:
        """A path of an inode, relative to the root, or within `.snapshots`; None if it has no name."""
        names: list[bytes] = []
        while ino not in TOP_INOS:
            place = next(self.places(ino), None)
            if place is None:
                return None
            ino, name = place
            names.append(name)
        return b"/".join(reversed(names))

    def symlink_target(self, ino: int) -> bytes | None:
        """What a symlink points to; None if the inode is no symlink."""
        return self._rows.get(Table.SYMLINKS, u64(ino))

    def xattr(self, ino: int, name: bytes) -> bytes | None:
        """Value of an extended attribute, or None."""
        return self._rows.get(Table.XATTRS, ino_key(ino, name))

    def xattrs(self, ino: int) -> Iterator[tuple[bytes, bytes]]:
        """Extended attributes of an inode: (name, value), in byte order of the names."""
        for key, value in self._rows.scan(Table.XATTRS, u64(ino)):
            yield key[8:], value

    def orphans(self) -> Iterator[int]:
        """Inodes without a name that something still holds open (or held, before a crash)."""
        for key, _ in self._rows.scan(Table.ORPHANS):
            yield split_ino_key(key)[0]

    # --- content ---

    def leaf_key(self, ino: int, index: int) -> LeafKey | None:
        """Key of a file's leaf; None if it is all holes."""
        row = self._rows.get(Table.LEAF_MAP, leaf_map_key(ino, index))
        return None if row is None else LeafKey(row)

    def leaf_keys(self, ino: int, first: int = 0) -> Iterator[tuple[int, LeafKey]]:
        """(leaf index, leaf key) of a file's leaves that are not all holes, from leaf `first` on."""
        prefix = u64(ino)
        after = prefix + u64(first - 1) if first else prefix
        for key, row in self._rows.scan(Table.LEAF_MAP, prefix, after):
            yield split_ino_key(key[8:])[0], LeafKey(row)

    def leaf_ids(self, key: LeafKey) -> bytes:
        """The ids of a leaf, without trailing holes.

        Raises:
            CorruptionError: The tree has no such leaf.
        """
        ids = self._rows.get(Table.LEAVES, key)
        if ids is None:
            raise CorruptionError(f"tree: leaf {key.hex()} is missing; run `blocksync fsck`")
        return ids

    def leaf(self, ino: int, index: int) -> bytes | None:
        """The ids of a file's leaf; None if it is all holes.

        It may be shorter than 256 ids, also inside the file: ids past its end are holes.
        """
        key = self.leaf_key(ino, index)
        return None if key is None else self.leaf_ids(key)

    def block_ids(self, ino: int, first: int, count: int) -> bytes:
        """The ids of blocks `first` to `first + count - 1`, holes as `ZERO_BLOCK`; also past the file's end."""
        pieces = []
        end = first + count
        while first < end:
            index, start = divmod(first, LEAF_IDS)
            stop = min(LEAF_IDS, start + end - first)
            piece = (self.leaf(ino, index) or b"")[start * ID_SIZE : stop * ID_SIZE]
            pieces.append(piece + ZERO_BLOCK * (stop - start - len(piece) // ID_SIZE))
            first += stop - start
        return b"".join(pieces)

    def allocated_blocks(self, ino: int) -> int:
        """How many blocks in a file's leaves are no holes."""
        row = self._rows.get(Table.ALLOCATIONS, u64(ino))
        return 0 if row is None else decode_u64(row)

    def leaf_root(self, key: LeafKey) -> bytes | None:
        """Merkle root of the leaf padded with holes to 256 ids, if somebody has worked it out already."""
        return self._rows.get(Table.LEAF_ROOTS, key)

    def generations(self, ino: int) -> Iterator[Generation]:
        """Live staging generations of an inode, by range and then by age, the oldest first."""
        for key, row in self._rows.scan(Table.GENERATIONS, u64(ino)):
            yield decode_generation(key, row)

    def all_generations(self) -> Iterator[Generation]:
        """Live staging generations of all inodes."""
        for key, row in self._rows.scan(Table.GENERATIONS):
            yield decode_generation(key, row)

    def failed_flush(self, ino: int) -> FailedFlush | None:
        """What the host failed to write of a file, and nobody has written again; None: nothing."""
        key = failed_flush_key(ino)
        row = self._rows.get(Table.META, key)
        return None if row is None else decode_failed_flush(key, row)

    # --- snapshots ---

    def snapshot(self, top: int) -> SnapshotRow | None:
        """What is known of a complete snapshot, by the ino of its top."""
        row = self._rows.get(Table.SNAPSHOTS, u64(top))
        return None if row is None else decode_snapshot(row)

    def copy_of(self, top: int, origin: int) -> int | None:
        """The inode of a snapshot that is the copy of an original, or None."""
        row = self._rows.get(Table.COPIES, copy_key(top, origin))
        return None if row is None else decode_u64(row)

    # --- the tree itself ---

    def mount_row(self) -> MountRow:
        """State of the current or last mount.

        Raises:
            CorruptionError: There is none.
        """
        row = self._rows.get(Table.META, META_MOUNT)
        if row is None:
            raise CorruptionError("tree: the mount row is missing; this is no blocksync tree, or it is damaged")
        return decode_mount(row)

    def journal_start(self) -> int:
        """The latest journal sequence that was trimmed; 0 if none was."""
        row = self._rows.get(Table.META, META_JOURNAL_START)
        return 0 if row is None else decode_u64(row)
