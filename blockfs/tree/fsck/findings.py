"""What fsck says: broken invariants, what repair does about each, and what is lost."""

from __future__ import annotations

from enum import Enum

import msgspec


class Problem(Enum):
    """What can be wrong. The value is the name in fsck's output."""

    META = "meta"
    """A row about the tree itself is missing or makes no sense."""
    BAD_ROW = "bad-row"
    """A row whose key or value can't be what its table holds."""
    LOST_INODE = "lost-inode"
    """Content, or names in a directory, of an inode that is not there."""
    DANGLING_NAME = "dangling-name"
    """A directory entry leads to no inode, or is in no directory."""
    REVERSE = "reverse-row"
    """dentries and parents disagree."""
    LINK_COUNT = "link-count"
    """nlink is not the number of names, or not 2 + subdirectories; a directory with several names."""
    UNREACHABLE = "unreachable"
    """An inode that no path from the root leads to and that is no orphan."""
    ORPHAN = "orphan"
    """An orphan row without an inode, or of one that has names."""
    LEAF_MISSING = "leaf-missing"
    """A leaf_map row names a leaf that is not there."""
    LEAF_CONTENT = "leaf-content"
    """A leaf's ids are not those its key was made from, or are not canonical."""
    LEAF_COUNT = "leaf-count"
    """A leaf's reference or block count is wrong, or it has no references."""
    LEAF_ROOT = "leaf-root"
    """A remembered Merkle root is wrong or of no leaf."""
    BEYOND_SIZE = "beyond-size"
    """A file has leaves past its end, or something that is no file has leaves."""
    ALLOCATION = "allocation"
    """A file's count of blocks that are no holes is wrong."""
    MISSING_BLOCK = "missing-block"
    """A leaf names blocks that the block directory lacks."""
    MISSING_STAGING = "missing-staging"
    """Staged data that the tree names are gone."""
    FAILED_FLUSH = "failed-flush"
    """Something that was written to a file could not be written to the host's disk, and was not written again."""
    STRAY_STAGING = "stray-staging"
    """Staged data that the tree does not name, on a volume that was unmounted cleanly or is damaged."""
    STRAY_ROW = "stray-row"
    """A symlink target, xattr or staging generation of no inode, or of the wrong kind of inode."""
    SNAPSHOT = "snapshot"
    """An inode in a snapshot that could be changed or is not recorded as a copy, or a read-only one outside."""
    SYMLINK = "symlink"
    """A symlink without a target, or whose size is not the target's length."""
    JOURNAL = "journal"
    """The journal does not have exactly one row per inode at its version, or goes past the reserved numbers."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One broken invariant.

    Attributes:
        problem: Which.
        ino: Of which inode; None if of none.
        detail: What was found and what was expected.
        remedy: What repair does about it; "" if it can do nothing.
    """

    problem: Problem
    ino: int | None
    detail: str
    remedy: str = ""


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a user stored and that is gone.

    Attributes:
        ino: Whose; it may not exist any more.
        what: What is gone, in words.
        start: First lost byte of the file; None if it is not about a range of bytes.
        end: The byte after the last one; None likewise.
        path: Where the inode was, if it has no name any more.
    """

    ino: int
    what: str
    start: int | None = None
    end: int | None = None
    path: bytes | None = None
