"""What a change for the syncer expects to find, what became of it, and why it is refused."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Final

import msgspec

from blockfs.errors import BlockfsError, FsError
from blockfs.tree.schema import Inode


class Reason(Enum):
    """Why a change was not made. The value is what the control socket says."""

    CHANGED = "changed"
    """Another inode, or other content."""
    OCCUPIED = "occupied"
    """The new name is taken."""
    BUSY = "busy"
    """Open for writing, or written since and not told of yet: try again later."""
    GONE = "gone"
    """No such name, inode or directory."""
    NOT_EMPTY = "not_empty"
    """A directory with names in it."""


class RefusedError(BlockfsError):
    """The world is not as expected; nothing was changed."""

    errno = errno.EBUSY

    def __init__(self, reason: Reason) -> None:
        self.reason = reason
        super().__init__(f"refused: {reason.value}")


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A name in a directory.

    Attributes:
        parent: Inode of the directory.
        name: The name.
    """

    parent: int
    name: bytes


class Expectation(msgspec.Struct, frozen=True, kw_only=True):
    """What a change expects to find.

    Attributes:
        ino: The inode, or None: the place must be free.
        content_version: Its content version, or None: any.
    """

    ino: int | None
    content_version: int | None = None


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """A change that was made.

    Attributes:
        ino: The inode that has the place now, or that was removed.
        version: Its version after the change; 0 if it is gone.
        content_version: Its content version; 0 if it is gone.
        displaced: The inode that was moved to the trash.
    """

    ino: int
    version: int
    content_version: int
    displaced: int | None = None


_REASONS: Final = {
    errno.ENOENT: Reason.GONE,
    errno.ENOTDIR: Reason.GONE,
    errno.EEXIST: Reason.OCCUPIED,
    errno.ENOTEMPTY: Reason.NOT_EMPTY,
}


def applied(inode: Inode, displaced: int | None = None) -> Applied:
    """A change that was made, by the inode that it was made to."""
    return Applied(ino=inode.ino, version=inode.version, content_version=inode.content_version, displaced=displaced)


def check_version(inode: Inode, expect: Expectation) -> None:
    """Refuse another content than the expected one."""
    if expect.content_version is not None and inode.content_version != expect.content_version:
        raise RefusedError(Reason.CHANGED)


@contextmanager
def refusing() -> Iterator[None]:
    """Answer what the namespace finds missing, taken or not empty as a refusal. It decides before it changes."""
    try:
        yield
    except FsError as error:
        reason = reason_of(error)
        if reason is None:
            raise
        raise RefusedError(reason) from error


def reason_of(error: FsError) -> Reason | None:
    """Which refusal an error of the namespace is; None: it is none."""
    return _REASONS.get(error.errno)
