"""Cloning a file: a new inode with the same leaves. No block is read or written beyond what was staged.

The source is sealed first. The clone takes its leaves in the very step in which the seal puts them into the tree, so it
is the source's content at one moment, also while others go on writing to it.
"""

from __future__ import annotations

import errno

from msgspec.structs import replace

from blockfs.engine.content.filestate import FileState
from blockfs.engine.content.filetable import FileTable
from blockfs.engine.context import Stores
from blockfs.engine.durable.failing import check_sound
from blockfs.engine.durable.sealer import Sealer
from blockfs.engine.names.namespace import Namespace
from blockfs.engine.names.xattrs import OWN_MODE
from blockfs.errors import BlockfsError, FsError


class Cloner:
    """Clones files of one mount."""

    def __init__(self, stores: Stores, table: FileTable, sealer: Sealer, namespace: Namespace) -> None:
        self._stores = stores
        self._table = table
        self._sealer = sealer
        self._namespace = namespace

    def clone(self, source: int, parent: int, name: bytes) -> int:
        """Make a file that shares the content of `source`, with its mode, owner, mtime and xattrs. Waits for disks.

        The clone is durable after the next commit, and then whole.

        Args:
            source: A regular file.
            parent: Directory of the clone.
            name: Its name; must be free.

        Returns:
            The clone's inode.

        Raises:
            FsError: ENOENT, ENOTDIR, ENAMETOOLONG, EEXIST; EISDIR or EINVAL if the source is no regular file.
            FlushFailedError: Something that was written to the source is lost.
            NoSpaceError: The host is full.
            BlockfsError: A block below staged data is missing or corrupt.
        """
        made: list[int] = []
        refused: list[BlockfsError] = []

        def take_leaves(state: FileState, size_bytes: int) -> None:
            # An error must not leave the seal, which is half done just now: it is ours alone.
            try:
                check_sound(self._stores, state)
                made.append(self._make(state.ino, size_bytes, parent, name))
            except BlockfsError as error:
                refused.append(error)

        with self._stores.lock:
            self._table.row(source)
            check_sound(self._stores, self._table.peek(source))
            # Before the work, so that a mistake costs nothing.
            self._namespace.new_names.check(parent, name, more_bytes=self._leaf_bytes(source))
        self._sealer.seal([source], take_leaves)
        if refused:
            raise refused[0]
        if not made:
            raise FsError(errno.ENOENT, f"inode {source} was removed")
        return made[0]

    def _leaf_bytes(self, source: int) -> int:
        return self._namespace.new_names.leaf_bytes(self._table.row(source), self._stores.block_size)

    def _make(self, source: int, size_bytes: int, parent: int, name: bytes) -> int:
        tree = self._stores.tree
        self._namespace.new_names.take(parent, name, more_bytes=self._leaf_bytes(source))
        row = self._table.row(source)
        now_ns = self._stores.clock.now_ns()
        clone = tree.put_inode(
            replace(
                row,
                ino=tree.new_ino(),
                nlink=1,
                size_bytes=size_bytes,
                atime_ns=now_ns,
                ctime_ns=now_ns,
                btime_ns=now_ns,
                origin=0,
            ),
            content_changed=True,
        )
        tree.clone_leaves(source, clone.ino)
        for xattr, value in [one for one in tree.xattrs(source) if one[0] != OWN_MODE]:
            tree.set_xattr(clone.ino, xattr, value)
        tree.link(parent, name, clone.ino)
        self._namespace.inodes.touch_directory(self._namespace.inodes.directory(parent), now_ns)
        return clone.ino
