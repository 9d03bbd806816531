"""Values that the engine's parts and its front-ends exchange about inodes."""

from __future__ import annotations

from enum import IntFlag
from typing import Final, Protocol

import msgspec

from blockfs.tree.schema import Inode, Kind

S_ISUID: Final = 0o4000
S_ISGID: Final = 0o2000
S_IXGRP: Final = 0o0010
MODE_BITS: Final = 0o7777
SPECIAL_BITS: Final = 0o7000  # setuid, setgid, sticky

_TIME_MIN_NS: Final = -(2**63)
_TIME_MAX_NS: Final = 2**63 - 1


class Attributes(msgspec.Struct, frozen=True, kw_only=True):
    """What stat(2) tells about an inode.

    Attributes:
        ino: Inode number, 1 for the root.
        kind: File, directory, …
        mode: Permission bits with setuid, setgid and sticky.
        nlink: Names; directories: 2 plus subdirectories; 0 when unlinked but in use.
        uid: Owner.
        gid: Group.
        rdev: Device number of a special file.
        size_bytes: Size as readers see it, also before it is published.
        allocated_bytes: Blocks that are no holes plus staged data; st_blocks is this / 512.
        atime_ns: Last access.
        mtime_ns: Last change of content.
        ctime_ns: Last change of anything.
        btime_ns: Creation.
    """

    ino: int
    kind: Kind
    mode: int
    nlink: int
    uid: int
    gid: int
    rdev: int
    size_bytes: int
    allocated_bytes: int
    atime_ns: int
    mtime_ns: int
    ctime_ns: int
    btime_ns: int

    @property
    def st_mode(self) -> int:
        """Kind and permission bits in one, as stat(2) has them."""
        return self.kind.value | self.mode


class AttributeChanges(msgspec.Struct, frozen=True, kw_only=True):
    """What chmod, chown and utimens change; None keeps a value. Size is not here: see `Files.truncate`.

    Attributes:
        mode: Permission bits with setuid, setgid and sticky; other bits are ignored.
        uid: New owner.
        gid: New group.
        atime_ns: New time of access.
        mtime_ns: New time of change.
        ctime_ns: Only a kernel with a writeback cache sets it; else it becomes the present.
    """

    mode: int | None = None
    uid: int | None = None
    gid: int | None = None
    atime_ns: int | None = None
    mtime_ns: int | None = None
    ctime_ns: int | None = None


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who makes a file: what the kernel says about the calling process.

    Attributes:
        umask: Permissions that what it makes does not get, unless a default ACL says which it gets.
    """

    uid: int
    gid: int
    umask: int = 0


SUPERUSER: Final = Caller(uid=0, gid=0)


class FilesystemNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """What statvfs(3) tells.

    Attributes:
        fragment_bytes: Unit of the next three.
        blocks: Size of the host filesystem.
        blocks_free: Free there.
        blocks_available: Free there for ordinary users, less what writers must leave.
        files: Inodes in use plus `files_free`.
        files_free: Inodes that can still be made.
        name_max: Longest name in bytes.
    """

    fragment_bytes: int
    blocks: int
    blocks_free: int
    blocks_available: int
    files: int
    files_free: int
    name_max: int


class RenameFlags(IntFlag):
    """Flags of renameat2(2), with Linux's values."""

    NONE = 0
    NOREPLACE = 1
    EXCHANGE = 2
    WHITEOUT = 4


class XattrFlags(IntFlag):
    """Flags of setxattr(2), with Linux's values."""

    NONE = 0
    CREATE = 1
    REPLACE = 2


class FileSizes(Protocol):
    """What the namespace needs from `Files`: open and unpublished files. Called under the engine's lock."""

    def live(self, inode: Inode) -> Inode:
        """The inode as readers see it: unpublished size and mtime, and the later of both ctimes."""

    def staged_bytes(self, ino: int) -> int:
        """Bytes that are staged and not sealed yet; for st_blocks only."""

    def host_bytes(self, ino: int) -> int | None:
        """What a hot file occupies on the host: st_blocks is that. None: it has none."""

    def forget_times(self, ino: int, atime_ns: int | None, mtime_ns: int | None) -> None:
        """The namespace sets explicit times in the tree: an unpublished mtime is void if there is one."""

    def discard(self, ino: int) -> None:
        """The inode is being removed: drop its staged data and state. Comes before `Tree.remove_inode`."""

    def writers(self, ino: int) -> int:
        """Handles that are open for writing."""

    def publish_before_replace(self, ino: int, *, may_block: bool) -> None:
        """Make sure that the size in the tree is the present one, its data being flushed.

        With `may_block` it is called without the engine's lock.

        Raises:
            WouldBlock: Data must be flushed first, and `may_block` is False.
        """


def clamp_time(time_ns: int) -> int:
    """The nearest time that an inode row can hold (years 1677 to 2262)."""
    return max(_TIME_MIN_NS, min(_TIME_MAX_NS, time_ns))


def attributes_of(inode: Inode, allocated_bytes: int) -> Attributes:
    """Attributes of a live inode."""
    return Attributes(
        ino=inode.ino,
        kind=inode.kind,
        mode=inode.mode,
        nlink=inode.nlink,
        uid=inode.uid,
        gid=inode.gid,
        rdev=inode.rdev,
        size_bytes=inode.size_bytes,
        allocated_bytes=allocated_bytes,
        atime_ns=inode.atime_ns,
        mtime_ns=inode.mtime_ns,
        ctime_ns=inode.ctime_ns,
        btime_ns=inode.btime_ns,
    )
