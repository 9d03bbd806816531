"""Inodes as the namespace's operations need them: found or refused, touched, referenced, dropped.

All functions are called with the engine's lock held.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from blockfs.engine.names.attributes import Attributes, FileSizes, attributes_of
from blockfs.errors import FsError
from blockfs.runtime.output import shown
from blockfs.tree.schema import NAME_MAX, ROOT_INO, SNAPSHOTS_INO, SNAPSHOTS_NAME, Inode, Kind
from blockfs.tree.store import Tree

LINKS_MAX: Final = 2**31 - 1  # nlink is unsigned 32-bit in the row and in FUSE; half of it is far from wrapping
_ATIMES_MAX: Final = 65536  # accessed inodes whose atime is only in memory
_DAY_NS: Final = 86_400 * 10**9


def check_name(name: bytes) -> None:
    """Refuse what cannot name a directory entry.

    Raises:
        FsError: ENAMETOOLONG over 255 bytes; EINVAL for "", ".", ".." and names with "/" or NUL, which the kernel never
            sends but other callers might.
    """
    if len(name) > NAME_MAX:
        raise FsError(errno.ENAMETOOLONG, f"a name of {len(name)} bytes")
    if name in {b"", b".", b".."} or b"/" in name or b"\0" in name:
        raise FsError(errno.EINVAL, f"{shown(name)} names no directory entry")


class Inodes:
    """The inodes of a mounted tree, with the references that keep unlinked ones alive.

    Args:
        tree: With a mount begun.
        files: Live sizes.
        now_ns: The clock, nanoseconds since 1970.
        block_size: The volume's.
    """

    def __init__(self, tree: Tree, files: FileSizes, now_ns: Callable[[], int], block_size: int) -> None:
        self.tree = tree
        self.files = files
        self.now_ns = now_ns
        self._block_size = block_size
        self._references: dict[int, int] = {}
        self._linkable: set[int] = set()  # never had a name, and may get one
        self._atimes: dict[int, int] = {}

    # --- finding ---

    def inode(self, ino: int) -> Inode:
        """The row of an inode.

        Raises:
            FsError: ENOENT.
        """
        found = self.tree.inode(ino)
        if found is None:
            raise FsError(errno.ENOENT, f"inode {ino}")
        return found

    def directory(self, ino: int) -> Inode:
        """The row of a directory.

        Raises:
            FsError: ENOENT, ENOTDIR.
        """
        found = self.inode(ino)
        if found.kind is not Kind.DIRECTORY:
            raise FsError(errno.ENOTDIR, f"inode {ino}")
        return found

    def writable_directory(self, ino: int) -> Inode:
        """The row of a directory that can take a new name.

        Raises:
            FsError: ENOENT (also when it was removed and is only kept open), ENOTDIR; EROFS: it is in a snapshot.
        """
        found = self.directory(ino)
        self.check_changeable(found)
        if found.nlink == 0:
            raise FsError(errno.ENOENT, f"directory {ino} was removed")
        return found

    def child(self, parent: int, name: bytes) -> Inode:
        """What a directory has under a name.

        Raises:
            FsError: ENOENT, ENOTDIR, ENAMETOOLONG.
        """
        found = self.find(parent, name)
        if found is None:
            raise FsError(errno.ENOENT, f"{shown(name)} in directory {parent}")
        return found

    def find(self, parent: int, name: bytes) -> Inode | None:
        """What a directory has under a name, or None.

        Raises:
            FsError: The directory: ENOENT, ENOTDIR. The name: ENAMETOOLONG, EINVAL.
        """
        self.directory(parent)
        check_name(name)
        ino = SNAPSHOTS_INO if name == SNAPSHOTS_NAME and parent == ROOT_INO else self.tree.lookup(parent, name)
        return None if ino is None else self.inode(ino)

    def check_changeable(self, inode: Inode) -> None:
        """Refuse to change what never changes.

        Raises:
            FsError: EROFS: it is in a snapshot, or the directory of snapshots.
        """
        if inode.is_frozen:
            raise FsError(errno.EROFS, f"inode {inode.ino} is in a snapshot")

    def check_movable(self, inode: Inode) -> None:
        """Refuse to move, replace or remove what keeps its name.

        Raises:
            FsError: EBUSY: the directory of snapshots; EROFS: it is in a snapshot.
        """
        if inode.ino == SNAPSHOTS_INO:
            raise FsError(errno.EBUSY, f"{shown(SNAPSHOTS_NAME)} is the directory of snapshots")
        self.check_changeable(inode)

    def attributes(self, inode: Inode) -> Attributes:
        """Attributes as readers see them now."""
        atime_ns = self._atimes.get(inode.ino)
        if atime_ns is not None:
            inode = replace(inode, atime_ns=atime_ns)
        if inode.kind is not Kind.FILE:
            return attributes_of(inode, 0)
        inode = self.files.live(inode)
        occupied = self.files.host_bytes(inode.ino)
        if occupied is not None:
            return attributes_of(inode, occupied)
        stored = self.tree.allocated_blocks(inode.ino) * self._block_size
        # A staged page may also be in a sealed block: never claim more than the size, in st_blocks' unit.
        most = -(-inode.size_bytes // 512) * 512
        return attributes_of(inode, min(most, stored + self.files.staged_bytes(inode.ino)))

    # --- changing ---

    def put(self, inode: Inode, *, content_changed: bool = False) -> Inode:
        """Store a changed row, with the atime that is only in memory so far."""
        atime_ns = self._atimes.pop(inode.ino, None) if self._atimes else None
        if atime_ns is not None:
            inode = replace(inode, atime_ns=atime_ns)
        return self.tree.put_inode(inode, content_changed=content_changed)

    def put_times(self, inode: Inode) -> Inode:
        """Store a row whose atime was set explicitly."""
        self._atimes.pop(inode.ino, None)
        return self.tree.put_inode(inode)

    def touch_directory(self, inode: Inode, now_ns: int, *, links: int = 0) -> Inode:
        """A directory's names changed: new mtime and ctime, and `links` more subdirectories."""
        return self.put(replace(inode, mtime_ns=now_ns, ctime_ns=now_ns, nlink=inode.nlink + links))

    def drop_name(self, inode: Inode, now_ns: int) -> None:
        """An inode has lost a name (its dentry is gone already). Without names and references it is removed."""
        left = 0 if inode.kind is Kind.DIRECTORY else inode.nlink - 1
        if left or inode.ino in self._references:
            self.put(replace(inode, nlink=left, ctime_ns=now_ns))
            if not left:
                self.tree.add_orphan(inode.ino)
        else:
            self.remove(inode.ino)

    def remove(self, ino: int) -> None:
        """Remove an inode without names, and its staged data."""
        self._atimes.pop(ino, None)
        self._linkable.discard(ino)
        self.files.discard(ino)
        self.tree.remove_inode(ino)

    # --- references ---

    def remember(self, ino: int, count: int = 1) -> None:
        """Somebody uses an inode: it outlives its names until as many `forget`s."""
        self._references[ino] = self._references.get(ino, 0) + count

    def forget(self, ino: int, count: int = 1) -> None:
        """Take back `remember`s. The last one removes an inode without names."""
        left = self._references.get(ino, 0) - count
        assert left >= 0
        if left:
            self._references[ino] = left
            return
        del self._references[ino]
        inode = self.tree.inode(ino)
        if inode is not None and inode.nlink == 0:
            self.remove(ino)

    def add_nameless(self, inode: Inode, *, may_get_name: bool) -> Inode:
        """Store a new inode that no name leads to. It goes with the last reference to it, and never outlives the mount.

        Args:
            inode: Its link count is 0.
            may_get_name: Whether `take_nameless` will do.
        """
        stored = self.put(inode, content_changed=True)
        self.tree.add_orphan(inode.ino)
        if may_get_name:
            self._linkable.add(inode.ino)
        return stored

    def take_nameless(self, ino: int) -> None:
        """A nameless inode gets its first name: under the same hold of the lock.

        Raises:
            FsError: ENOENT: it must not, or had one and has lost it.
        """
        if ino not in self._linkable:
            raise FsError(errno.ENOENT, f"inode {ino} has no name, and must not get one")
        self._linkable.discard(ino)
        self.tree.remove_orphan(ino)

    def references(self, ino: int) -> int:
        """How many `remember`s an inode has."""
        return self._references.get(ino, 0)

    # --- access times ---

    def accessed(self, ino: int) -> None:
        """Content was read: relatime's rule. In memory, until the row is written anyway or the mount ends."""
        inode = self.inode(ino)
        if inode.is_frozen:
            return
        if inode.kind is Kind.FILE:
            inode = self.files.live(inode)
        atime_ns = self._atimes.get(ino, inode.atime_ns)
        now_ns = self.now_ns()
        if atime_ns > max(inode.mtime_ns, inode.ctime_ns) and now_ns - atime_ns < _DAY_NS:
            return
        if len(self._atimes) >= _ATIMES_MAX:
            self.store_atimes()
        self._atimes[ino] = now_ns

    def store_atimes(self) -> None:
        """Put the access times that are only in memory into the tree. No version changes: nothing else did."""
        for ino, atime_ns in self._atimes.items():
            self.tree.put_inode(replace(self.inode(ino), atime_ns=atime_ns), journal=False)
        self._atimes.clear()
