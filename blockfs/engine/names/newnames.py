"""Where everything that takes a new name or makes an inode asks: is the name free, and is there room on the host?

Rows become space only when they are committed. Whoever makes many without asking uses up the reserve that commits,
sealing and removals need. Renaming and removing ask for nothing: they must go on.

All methods are called with the engine's lock held, in the hold that makes what was asked for.
"""

from __future__ import annotations

import errno
from typing import Final

from blockfs.blocks.hashing import LEAF_IDS
from blockfs.engine.names.inodes import Inodes, check_name
from blockfs.engine.space.room import Room
from blockfs.errors import FsError
from blockfs.runtime.output import shown
from blockfs.tree.schema import SNAPSHOTS_INO, Inode

NAME_BYTES: Final = 4096  # a new name with its inode changes a few database pages, which its neighbours share
LEAF_BYTES: Final = 128  # one more reference to a leaf: a row of 48 bytes, and a count of 42, on half full pages


class NewNames:
    """The one judge of new names in a mount."""

    def __init__(self, inodes: Inodes, room: Room) -> None:
        self._inodes = inodes
        self._room = room

    def check(self, parent: int, name: bytes, *, more_bytes: int = 0) -> Inode:
        """The directory, if it could take this new name now: asked before long work, so that a mistake costs nothing.

        Args:
            parent: A directory.
            name: The name.
            more_bytes: Beyond the name and its inode.

        Raises:
            FsError: ENOENT, ENOTDIR, EEXIST, ENAMETOOLONG, EINVAL; EROFS: in a snapshot.
            NoSpaceError: The host is nearly full.
        """
        directory = self._inodes.writable_directory(parent)
        check_name(name)
        if self._inodes.find(parent, name) is not None:
            raise FsError(errno.EEXIST, f"{shown(name)} in directory {parent}")
        self._room.check(NAME_BYTES + more_bytes)
        return directory

    def take(self, parent: int, name: bytes, *, more_bytes: int = 0) -> Inode:
        """The same, right before the name is given; counts what that takes."""
        directory = self.check(parent, name, more_bytes=more_bytes)
        self._room.used(NAME_BYTES + more_bytes)
        return directory

    def check_snapshot(self, name: bytes) -> None:
        """Whether a snapshot could have this name now.

        Raises:
            FsError: EEXIST, ENAMETOOLONG, EINVAL.
            NoSpaceError: The host is nearly full.
        """
        check_name(name)
        if self._inodes.tree.lookup(SNAPSHOTS_INO, name) is not None:
            raise FsError(errno.EEXIST, f"snapshot {shown(name)}")
        self._room.check(NAME_BYTES)

    def take_snapshot(self, name: bytes) -> None:
        """The same, right before it gets the name; counts what that takes."""
        self.check_snapshot(name)
        self._room.used(NAME_BYTES)

    def ask(self, length: int = NAME_BYTES) -> None:
        """Room for rows whose names nobody can look up yet, such as those of a copy that is being made.

        Raises:
            NoSpaceError: The host is nearly full.
        """
        self._room.check(length)
        self._room.used(length)

    def leaf_bytes(self, inode: Inode, block_size: int) -> int:
        """What referring to all leaves of a file once more takes, at most."""
        leaves = -(-inode.size_bytes // (LEAF_IDS * block_size))
        return min(leaves, self._inodes.tree.allocated_blocks(inode.ino)) * LEAF_BYTES
