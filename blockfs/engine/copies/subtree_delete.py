"""Removing a whole subtree that nobody can look up any more, in portions.

Each step leaves a consistent tree: children go before their directory, and link counts go with the names. What the
kernel still uses becomes an orphan and stays readable until it is closed.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from msgspec.structs import replace

from blockfs.blocks.hashing import LEAF_IDS
from blockfs.engine.context import Stores
from blockfs.engine.names.inodes import Inodes
from blockfs.engine.portions import LEAVES_PER_STEP
from blockfs.tree.schema import SNAPSHOTS_INO, Inode, Kind


class SubtreeRemoval:
    """The removal of what the directory of snapshots has under an unfinished name.

    Args:
        stores: Of the mount.
        inodes: Of the mount.
        top: The inode of that name.
        name: The name.

    Attributes:
        in_use: Directory and name of what the kernel used when it went; children before their directory.
    """

    def __init__(self, stores: Stores, inodes: Inodes, top: int, name: bytes) -> None:
        self._tree = stores.tree
        self._inodes = inodes
        self._top = top
        self._name = name
        self.in_use: list[tuple[int, bytes]] = []

    def steps(self) -> Iterator[None]:
        """Do it, for `work_through`."""
        if self._inodes.inode(self._top).kind is Kind.DIRECTORY:
            yield from self._empty(self._top)
        self._tree.drop_snapshot(self._top)
        yield from self._drop(SNAPSHOTS_INO, self._name, self._top)

    def _empty(self, directory: int) -> Iterator[None]:
        """Remove everything below a directory."""
        folders = [(directory, b"", self._tree.entries(directory))]
        while folders:
            folder, name, entries = folders[-1]
            entry = next(entries, None)
            if entry is None:
                folders.pop()
                if folders:
                    yield from self._drop(folders[-1][0], name, folder)
            elif self._inodes.inode(entry[1]).kind is Kind.DIRECTORY:
                folders.append((entry[1], entry[0], self._tree.entries(entry[1])))
            else:
                yield from self._drop(folder, entry[0], entry[1])

    def _drop(self, folder: int, name: bytes, ino: int) -> Iterator[None]:
        """Remove one name, and the inode with its last one."""
        inode = self._inodes.inode(ino)
        if self._inodes.references(ino):
            self.in_use.append((folder, name))
        is_large = inode.kind is Kind.FILE and inode.nlink == 1 and self._has_many_leaves(ino)
        if is_large:
            self._inodes.remember(ino)  # so that it only becomes an orphan, and its leaves can go in portions
        self._tree.unlink(folder, name)
        if inode.kind is Kind.DIRECTORY:
            parent = self._inodes.inode(folder)
            self._tree.put_inode(replace(parent, nlink=parent.nlink - 1))
        if inode.is_frozen and (inode.kind is Kind.DIRECTORY or inode.nlink == 1):
            self._tree.drop_copy(self._top, inode.origin)
        self._inodes.drop_name(inode, inode.ctime_ns)
        yield
        if is_large:
            yield from self._cut(inode)
            self._inodes.forget(ino)

    def _has_many_leaves(self, ino: int) -> bool:
        return sum(1 for _ in islice(self._tree.leaf_keys(ino), LEAVES_PER_STEP + 1)) > LEAVES_PER_STEP

    def _cut(self, inode: Inode) -> Iterator[None]:
        """Take the leaves of an orphan from the end, unless somebody reads it."""
        indices = [index for index, _ in self._tree.leaf_keys(inode.ino)]
        while len(indices) > LEAVES_PER_STEP and self._inodes.references(inode.ino) == 1:
            self._tree.truncate_leaves(inode.ino, indices[-LEAVES_PER_STEP] * LEAF_IDS)
            del indices[-LEAVES_PER_STEP:]
            yield
