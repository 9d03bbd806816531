"""Names and attributes: what a POSIX filesystem does with directories, links, symlinks, special files and xattrs.

Permission checks are the kernel's (`default_permissions`); existence, types, link counts, times and setgid directories
are decided here. Every method takes the engine's lock itself. A caller that must do two things at once, such as a
lookup and its `remember`, takes the same (re-entrant) lock around both.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from threading import RLock
from typing import Final

from msgspec.structs import replace

from blockfs.engine.content.pagemap import PAGE
from blockfs.engine.names import xattrs
from blockfs.engine.names.attributes import (
    MODE_BITS,
    S_ISGID,
    S_ISUID,
    S_IXGRP,
    SUPERUSER,
    AttributeChanges,
    Attributes,
    Caller,
    FileSizes,
    FilesystemNumbers,
    RenameFlags,
    XattrFlags,
    clamp_time,
)
from blockfs.engine.names.inodes import LINKS_MAX, Inodes
from blockfs.engine.names.listing import Listing, Readers, parent_of
from blockfs.engine.names.newnames import NewNames
from blockfs.engine.names.rename import Moved, Rename, apply_rename, check_rename
from blockfs.engine.space.room import Room
from blockfs.errors import FsError, WouldBlock
from blockfs.runtime.output import shown
from blockfs.tree.schema import NAME_MAX, ROOT_INO, SYMLINK_TARGET_MAX, Inode, Kind
from blockfs.tree.store import Tree

CAPABILITY: Final = b"security.capability"

_INODES_FREE: Final = 1 << 32  # inos are 64-bit and rows cost bytes, not slots: there is no real limit to report


class Namespace:
    """All operations of a filesystem that do not touch file content.

    What adds a name or an attribute raises NoSpaceError when the host is nearly full.

    Args:
        tree: With a mount begun.
        files: Live sizes and staged data.
        lock: The engine's.
        now_ns: The clock, nanoseconds since 1970.
        block_size: The volume's.
        room: On the host filesystem.

    Attributes:
        take_pages: Has the kernel hand over, as far as it can, what it keeps of an inode that is open for writing, and
            waits for it. Called in a thread, without any lock, before the inode replaces another. The kernel keeps it,
            and directories, locked until that has an answer. None: the kernel keeps no pages.
    """

    def __init__(
        self,
        tree: Tree,
        files: FileSizes,
        *,
        lock: RLock,
        now_ns: Callable[[], int],
        block_size: int,
        room: Room,
    ) -> None:
        self._tree = tree
        self._files = files
        self.take_pages: Callable[[int], None] | None = None
        self._lock = lock
        self._room = room
        self.inodes = Inodes(tree, files, now_ns, block_size)
        self.new_names = NewNames(self.inodes, room)
        self._readers = Readers()
        tree.on_name = self._readers.changed

    # --- looking ---

    def lookup(self, parent: int, name: bytes) -> Attributes:
        """What a directory has under a name; "." and ".." work too.

        "." is also answered of what is no directory: so the kernel looks for the inode of a file handle that it has
        forgotten (open_by_handle_at(2)).

        Raises:
            FsError: ENOENT, ENOTDIR, ENAMETOOLONG.
        """
        with self._lock:
            if name == b".":
                return self.getattr(parent)
            if name == b"..":
                return self.getattr(self.parent(parent))
            return self.inodes.attributes(self.inodes.child(parent, name))

    def getattr(self, ino: int) -> Attributes:
        """Attributes of an inode.

        Raises:
            FsError: ENOENT.
        """
        with self._lock:
            return self.inodes.attributes(self.inodes.inode(ino))

    def parent(self, ino: int) -> int:
        """The directory that contains a directory; the root contains itself.

        Raises:
            FsError: ENOENT, ENOTDIR.
        """
        with self._lock:
            self.inodes.directory(ino)
            return parent_of(self.inodes, ino)

    def resolve(self, path: bytes) -> Attributes:
        """Follow a path from the root; symlinks on it are not followed.

        Raises:
            FsError: ENOENT, ENOTDIR, ENAMETOOLONG.
        """
        with self._lock:
            ino = ROOT_INO
            for name in path.split(b"/"):
                if name not in {b"", b"."}:
                    ino = self.lookup(ino, name).ino
            return self.getattr(ino)

    def readlink(self, ino: int) -> bytes:
        """Target of a symlink.

        Raises:
            FsError: ENOENT; EINVAL if it is none.
        """
        with self._lock:
            self.inodes.inode(ino)
            target = self._tree.symlink_target(ino)
            if target is None:
                raise FsError(errno.EINVAL, f"inode {ino} is no symlink")
            return target

    def listing(self, ino: int) -> Listing:
        """Open a directory for reading. Read it with the lock held.

        Raises:
            FsError: ENOENT, ENOTDIR.
        """
        with self._lock:
            self.inodes.directory(ino)
            return Listing(self.inodes, self._readers, ino)

    def statfs(self) -> FilesystemNumbers:
        """Room on the host or of its quota, less the reserve, and inodes."""
        host = self._room.host()
        available_bytes = max(0, host.available_bytes - self._room.reserve_bytes(host))
        with self._lock:
            used = self._tree.inode_count()
        return FilesystemNumbers(
            fragment_bytes=PAGE,
            blocks=host.total_bytes // PAGE,
            blocks_free=host.free_bytes // PAGE,
            blocks_available=available_bytes // PAGE,
            files=used + _INODES_FREE,
            files_free=_INODES_FREE,
            name_max=NAME_MAX,
        )

    # --- making ---

    def create(self, parent: int, name: bytes, *, mode: int, caller: Caller) -> Attributes:
        """Make an empty regular file.

        Raises:
            FsError: EEXIST, ENOENT, ENOTDIR, ENAMETOOLONG.
        """
        return self.mknod(parent, name, kind=Kind.FILE, mode=mode, caller=caller)

    def mknod(self, parent: int, name: bytes, *, kind: Kind, mode: int, caller: Caller, rdev: int = 0) -> Attributes:
        """Make a regular file, fifo, socket or device.

        Raises:
            FsError: EEXIST, ENOENT, ENOTDIR, ENAMETOOLONG; EINVAL for a directory or symlink.
        """
        if kind in {Kind.DIRECTORY, Kind.SYMLINK}:
            raise FsError(errno.EINVAL, f"mknod of a {kind.name.lower()}")
        with self._lock:
            directory = self.new_names.take(parent, name)
            device = rdev if kind in {Kind.CHARACTER, Kind.BLOCK} else 0
            inode = replace(self._new_inode(directory, kind, mode, caller), rdev=device)
            return self._add(directory, name, inode, umask=caller.umask)

    def tmpfile(self, parent: int, *, mode: int, caller: Caller, may_get_name: bool) -> Attributes:
        """Make an empty regular file without a name: O_TMPFILE. It goes with its last reference, unless `link`ed.

        Args:
            parent: The directory that it inherits from, as if it were in it.
            mode: Permission bits.
            caller: Whose it is.
            may_get_name: Whether it can be `link`ed, once: not with O_EXCL.

        Raises:
            FsError: ENOENT, ENOTDIR; EROFS: in a snapshot.
        """
        with self._lock:
            directory = self.inodes.writable_directory(parent)
            self.new_names.ask()
            inode = replace(self._new_inode(directory, Kind.FILE, mode, caller), nlink=0)
            inode = xattrs.inherit_acl(self.inodes, directory, inode, caller.umask)
            return self.inodes.attributes(self.inodes.add_nameless(inode, may_get_name=may_get_name))

    def mkdir(self, parent: int, name: bytes, *, mode: int, caller: Caller) -> Attributes:
        """Make a directory. In a setgid directory it becomes one too.

        Raises:
            FsError: EEXIST, ENOENT, ENOTDIR, ENAMETOOLONG, EMLINK.
        """
        with self._lock:
            directory = self.new_names.take(parent, name)
            if directory.nlink >= LINKS_MAX:
                raise FsError(errno.EMLINK, f"directory {parent}")
            inherited = directory.mode & S_ISGID
            inode = self._new_inode(directory, Kind.DIRECTORY, mode | inherited, caller)
            return self._add(directory, name, replace(inode, nlink=2), links=1, umask=caller.umask)

    def symlink(self, parent: int, name: bytes, *, target: bytes, caller: Caller) -> Attributes:
        """Make a symlink. The target is any bytes but NUL; it is not looked at.

        Raises:
            FsError: EEXIST, ENOENT (also for an empty target), ENOTDIR, ENAMETOOLONG; EINVAL for a NUL in the target.
        """
        if not target:
            raise FsError(errno.ENOENT, "an empty symlink target")
        if len(target) > SYMLINK_TARGET_MAX:
            raise FsError(errno.ENAMETOOLONG, f"a symlink target of {len(target)} bytes")
        if b"\0" in target:  # no kernel sends one, but the control socket can
            raise FsError(errno.EINVAL, "a NUL byte in a symlink target")
        with self._lock:
            directory = self.new_names.take(parent, name)
            inode = self._new_inode(directory, Kind.SYMLINK, 0o777, caller)
            self._tree.set_symlink_target(inode.ino, target)
            return self._add(directory, name, replace(inode, size_bytes=len(target)))

    def link(self, ino: int, new_parent: int, new_name: bytes) -> Attributes:
        """Give a file one more name.

        Raises:
            FsError: EPERM for a directory; EEXIST; ENOENT (also when it has lost all its names, and for a file that was
                made without one to stay so); ENOTDIR; EMLINK;
                ENAMETOOLONG.
        """
        with self._lock:
            inode = self.inodes.inode(ino)
            directory = self.new_names.take(new_parent, new_name)
            if inode.kind is Kind.DIRECTORY:
                raise FsError(errno.EPERM, f"inode {ino} is a directory")
            if inode.is_frozen:
                raise FsError(errno.EXDEV, f"inode {ino} is in a snapshot")
            if inode.nlink >= LINKS_MAX:
                raise FsError(errno.EMLINK, f"inode {ino}")
            if inode.nlink == 0:
                self.inodes.take_nameless(ino)
            now_ns = self.inodes.now_ns()
            self._tree.link(new_parent, new_name, ino)
            self.inodes.touch_directory(directory, now_ns)
            return self.inodes.attributes(self.inodes.put(replace(inode, nlink=inode.nlink + 1, ctime_ns=now_ns)))

    def _new_inode(self, directory: Inode, kind: Kind, mode: int, caller: Caller) -> Inode:
        now_ns = self.inodes.now_ns()
        return Inode(
            ino=self._tree.new_ino(),
            kind=kind,
            mode=mode & MODE_BITS,
            uid=caller.uid,
            gid=directory.gid if directory.mode & S_ISGID else caller.gid,
            nlink=1,
            atime_ns=now_ns,
            mtime_ns=now_ns,
            ctime_ns=now_ns,
            btime_ns=now_ns,
        )

    def _add(self, directory: Inode, name: bytes, inode: Inode, *, links: int = 0, umask: int = 0) -> Attributes:
        inode = xattrs.inherit_acl(self.inodes, directory, inode, umask)
        stored = self._tree.put_inode(inode, content_changed=True)
        self._tree.link(directory.ino, name, inode.ino)
        self.inodes.touch_directory(directory, inode.btime_ns, links=links)
        return self.inodes.attributes(stored)

    # --- removing and renaming ---

    def unlink(self, parent: int, name: bytes) -> int:
        """Remove a name of anything but a directory. The inode goes with its last name and reference.

        Returns:
            The ino that had the name.

        Raises:
            FsError: ENOENT, ENOTDIR, EISDIR, ENAMETOOLONG.
        """
        with self._lock:
            inode = self.inodes.child(parent, name)
            if inode.kind is Kind.DIRECTORY:
                raise FsError(errno.EISDIR, f"{shown(name)} in directory {parent}")
            self.inodes.check_movable(inode)
            self._drop(parent, name, inode, links=0)
            return inode.ino

    def rmdir(self, parent: int, name: bytes) -> int:
        """Remove an empty directory.

        Returns:
            The ino that had the name.

        Raises:
            FsError: ENOENT, ENOTDIR, ENOTEMPTY, ENAMETOOLONG.
        """
        with self._lock:
            inode = self.inodes.child(parent, name)
            if inode.kind is not Kind.DIRECTORY:
                raise FsError(errno.ENOTDIR, f"{shown(name)} in directory {parent}")
            self.inodes.check_movable(inode)
            if next(self._tree.entries(inode.ino), None) is not None:
                raise FsError(errno.ENOTEMPTY, f"{shown(name)} in directory {parent}")
            self._drop(parent, name, inode, links=-1)
            return inode.ino

    def _drop(self, parent: int, name: bytes, inode: Inode, *, links: int) -> None:
        now_ns = self.inodes.now_ns()
        self._tree.unlink(parent, name)
        self.inodes.touch_directory(self.inodes.directory(parent), now_ns, links=links)
        self.inodes.drop_name(inode, now_ns)

    def rename(
        self,
        parent: int,
        name: bytes,
        new_parent: int,
        new_name: bytes,
        *,
        flags: RenameFlags = RenameFlags.NONE,
        caller: Caller = SUPERUSER,
        may_block: bool = False,
    ) -> None:
        """Move or exchange names.

        When a regular file replaces another, its data are flushed and its size published first, so that a crash leaves
        the old or the new content and never an empty file.

        Args:
            parent: Directory of the source.
            name: Its name there.
            new_parent: Directory of the destination.
            new_name: Name there.
            flags: NOREPLACE, EXCHANGE, WHITEOUT. The last one leaves a character device 0:0 under the old name.
            caller: Whose that device is.
            may_block: Flush if need be: call from a thread, without the engine's lock.

        Raises:
            WouldBlock: Data must be flushed first, and `may_block` is False. Nothing has happened.
            FsError: EINVAL unknown flags, or a directory into itself; ENOENT; ENOTDIR; EISDIR; EEXIST; ENOTEMPTY;
                EMLINK; ENAMETOOLONG.
            NoSpaceError: For the device, the host is nearly full.
        """
        request = Rename(parent=parent, name=name, new_parent=new_parent, new_name=new_name, flags=flags)
        flushed: int | None = None
        while True:
            with self._lock:
                moved = check_rename(self.inodes, request)
                if moved.is_nothing:
                    return
                try:
                    # A write that came after the flush came after the rename was asked for: no second one.
                    if _replaces_content(request, moved) and moved.source.ino != flushed:
                        self._publish_before_replace(moved.source.ino, may_block=False)
                    if RenameFlags.WHITEOUT in flags:
                        self.new_names.ask()
                    apply_rename(self.inodes, request, moved)
                    if RenameFlags.WHITEOUT in flags:
                        self._leave_whiteout(parent, name, caller)
                    return
                except WouldBlock:
                    if not may_block:
                        raise
            # The lock is free while the disk works, so everything is looked up again afterwards.
            flushed = moved.source.ino
            self._publish_before_replace(flushed, may_block=True)

    def _publish_before_replace(self, ino: int, *, may_block: bool) -> None:
        """See `FileSizes`: with what only the kernel has."""
        if self.take_pages is not None and self._files.writers(ino):
            if not may_block:
                raise WouldBlock("pages that only the kernel has")
            self.take_pages(ino)
        self._files.publish_before_replace(ino, may_block=may_block)

    def _leave_whiteout(self, parent: int, name: bytes, caller: Caller) -> None:
        """What overlayfs takes for "there is nothing here, whatever is below": in the hold that took the name away."""
        directory = self.inodes.directory(parent)
        self._add(directory, name, self._new_inode(directory, Kind.CHARACTER, 0, caller))

    # --- attributes ---

    def setattr(self, ino: int, changes: AttributeChanges) -> Attributes:
        """chmod, chown and utimens; ctime becomes the present unless given.

        chown of anything but a directory clears setuid, and setgid if the group may execute, as ext4 does.

        Raises:
            FsError: ENOENT.
        """
        with self._lock:
            inode = self.inodes.inode(ino)
            self.inodes.check_changeable(inode)
            mode = inode.mode if changes.mode is None else changes.mode & MODE_BITS
            if changes.mode is None and not (changes.uid is None and changes.gid is None):
                mode = _without_set_id(inode)
            changed = replace(
                inode,
                mode=mode,
                uid=inode.uid if changes.uid is None else changes.uid,
                gid=inode.gid if changes.gid is None else changes.gid,
                atime_ns=inode.atime_ns if changes.atime_ns is None else clamp_time(changes.atime_ns),
                mtime_ns=inode.mtime_ns if changes.mtime_ns is None else clamp_time(changes.mtime_ns),
                ctime_ns=self.inodes.now_ns() if changes.ctime_ns is None else clamp_time(changes.ctime_ns),
            )
            if not (changes.mtime_ns is None and changes.atime_ns is None) and inode.kind is Kind.FILE:
                atime_ns = None if changes.atime_ns is None else changed.atime_ns
                self._files.forget_times(ino, atime_ns, None if changes.mtime_ns is None else changed.mtime_ns)
            stored = self.inodes.put(changed) if changes.atime_ns is None else self.inodes.put_times(changed)
            if changes.mode is not None:
                xattrs.follow_chmod(self.inodes, stored)
            return self.inodes.attributes(stored)

    def kill_privileges(self, ino: int) -> bool:
        """An unprivileged process is about to change the content: end what the file grants whoever runs it.

        That is setuid, setgid if the group may execute, and security.capability: in one change set, and that is no
        later than the one with the new content if this is called first. For front-ends that negotiated
        FUSE_HANDLE_KILLPRIV_V2; otherwise the kernel sends a chmod and a removexattr.

        Returns:
            There was something to end.

        Raises:
            FsError: ENOENT; EROFS: it is in a snapshot.
        """
        with self._lock:
            inode = self.inodes.inode(ino)
            self.inodes.check_changeable(inode)
            mode = _without_set_id(inode)
            has_capabilities = self._tree.xattr(ino, CAPABILITY) is not None
            if has_capabilities:
                self._tree.remove_xattr(ino, CAPABILITY)
            ends = has_capabilities or mode != inode.mode
            if ends:
                self.inodes.put(replace(inode, mode=mode, ctime_ns=self.inodes.now_ns()))
        return ends

    def accessed(self, ino: int) -> None:
        """Content was read: atime by relatime's rule, in memory.

        Raises:
            FsError: ENOENT.
        """
        with self._lock:
            self.inodes.accessed(ino)

    def store_atimes(self) -> None:
        """Put the access times that are only in memory into the tree; before the mount's last commit."""
        with self._lock:
            self.inodes.store_atimes()

    def getxattr(self, ino: int, name: bytes) -> bytes:
        """Value of an extended attribute.

        Raises:
            FsError: ENOENT, ENODATA, EOPNOTSUPP, ERANGE.
        """
        with self._lock:
            return xattrs.get_xattr(self.inodes, ino, name)

    def listxattr(self, ino: int) -> list[bytes]:
        """Names of the extended attributes.

        Raises:
            FsError: ENOENT.
        """
        with self._lock:
            return xattrs.list_xattrs(self.inodes, ino)

    def setxattr(
        self,
        ino: int,
        name: bytes,
        value: bytes,
        flags: XattrFlags = XattrFlags.NONE,
        *,
        keeps_setgid: bool = True,
    ) -> None:
        """Set an extended attribute, or a POSIX ACL; see `xattrs.set_xattr`.

        Raises:
            FsError: ENOENT, EEXIST, ENODATA, EINVAL, E2BIG, ENOSPC, EOPNOTSUPP, ERANGE, EACCES.
            NoSpaceError: The host is nearly full.
        """
        self._room.check(len(value))
        with self._lock:
            self._room.used(len(value))
            xattrs.set_xattr(self.inodes, ino, name, value, flags, keeps_setgid=keeps_setgid)

    def removexattr(self, ino: int, name: bytes) -> None:
        """Remove an extended attribute.

        Raises:
            FsError: ENOENT, ENODATA, EOPNOTSUPP, ERANGE.
        """
        with self._lock:
            xattrs.remove_xattr(self.inodes, ino, name)

    # --- lifetime ---

    def remember(self, ino: int, count: int = 1) -> None:
        """The kernel, a handle or a running task uses an inode: it outlives its names until as many `forget`s."""
        with self._lock:
            self.inodes.remember(ino, count)

    def forget(self, ino: int, count: int = 1) -> None:
        """Take back `remember`s. The last one removes an inode without names."""
        with self._lock:
            self.inodes.forget(ino, count)


def _replaces_content(request: Rename, moved: Moved) -> bool:
    return (
        request.flags is not RenameFlags.EXCHANGE
        and moved.source.kind is Kind.FILE
        and moved.target is not None
        and moved.target.kind is Kind.FILE
    )


def _without_set_id(inode: Inode) -> int:
    """Mode after a change by somebody else: ext4's (and the VFS's) rule. Directories keep theirs."""
    if inode.kind is Kind.DIRECTORY:
        return inode.mode
    mode = inode.mode & ~S_ISUID
    return mode & ~S_ISGID if mode & S_IXGRP else mode
