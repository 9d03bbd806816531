"""Extended attributes of files in an ordinary directory: read, set, kept when a file is replaced. Blocking.

What is synced of them is `core.xattrs`' matter. POSIX ACLs are never synced, since they name users by the numbers of
one machine; they and what does not travel stay with the name when its file is replaced by another version.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from blockfs.xattrs import PREFIX, to_change
from syncer.core.model import RelPath
from syncer.core.xattrs import Xattrs, fitting, too_large
from syncer.errors import UnholdableError

_ACCESS_ACL: Final = b"system.posix_acl_access"
_NONE_HERE: Final = frozenset({errno.EOPNOTSUPP, errno.ENOSYS})
_UNHOLDABLE: Final = frozenset(
    {errno.EOPNOTSUPP, errno.ENOSPC, errno.EDQUOT, errno.E2BIG, errno.ERANGE, errno.ENAMETOOLONG}
)
_OWNER_WRITES: Final = 0o200


def read_entry(directory: int, name: bytes) -> Xattrs | None:
    """What is synced of an entry's attributes; None where the filesystem has none. Never follows a symlink.

    Raises:
        OSError: As getxattr(2).
    """
    return _read(b"/proc/self/fd/%d/%s" % (directory, name))


def read_open(descriptor: int) -> Xattrs | None:
    """The same of an open file or directory."""
    return _read(descriptor)


def reason_left_out(xattrs: Xattrs | None) -> str | None:
    """Why not all of a node's attributes are synced; None if they are."""
    names = too_large(xattrs)
    if not names:
        return None
    shown = ", ".join(name.decode("utf-8", "backslashreplace") for name in names[:3])
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"extended attributes {shown}{more} are too large to travel: not synced, and left as they are"


def write(descriptor: int, path: RelPath, want: Xattrs, seen: Xattrs | None = None) -> bool:
    """Make an open node's attributes what is wanted; those that don't travel stay.

    Args:
        descriptor: Of the node; reading is enough.
        path: Its path, for the error.
        want: The whole set.
        seen: What they were when that was decided; see `to_change`.

    Returns:
        False if they were so already.

    Raises:
        UnholdableError: The filesystem can't hold them. Some may be set.
        OSError: As setxattr(2).
    """
    changes = to_change(read_open(descriptor) or (), want, seen)
    if not changes:
        return False
    try:
        with _writable(descriptor):
            for name, value in changes.items():
                if value is None:
                    os.removexattr(descriptor, name)
                else:
                    os.setxattr(descriptor, name, value)
    except OSError as error:
        if error.errno in _UNHOLDABLE:
            text = f"this filesystem can't hold its extended attributes ({error.strerror})"
            raise UnholdableError(path, text) from error
        raise
    return True


def keep(old: int, new: int, *, synced: bool) -> bool:
    """Give a file that replaces another one what the sync is not to change of it.

    Args:
        old: Descriptor of the file that is replaced.
        new: Of the one that replaces it.
        synced: The attributes that travel have been set: only the others are kept.

    Returns:
        Whether anything was set.
    """
    left_out = set(too_large(read_open(old)))
    names = [name for name in _names(old) if name == _ACCESS_ACL or name.startswith(PREFIX)]
    kept = [name for name in names if not synced or name == _ACCESS_ACL or name in left_out]
    if not kept:
        return False
    mode = os.fstat(new).st_mode & 0o7777
    with _writable(new):
        for name in kept:
            try:
                os.setxattr(new, name, os.getxattr(old, name))
            except OSError as error:
                if error.errno not in _NONE_HERE | {errno.ENODATA, errno.EPERM, errno.EACCES}:
                    raise
    os.fchmod(new, mode)  # an ACL sets the group's bits, and the mode is synced: its mask follows
    return True


def _read(place: int | bytes) -> Xattrs | None:
    try:
        names = [name for name in _names(place) if name.startswith(PREFIX)]
    except OSError as error:
        if error.errno in _NONE_HERE:
            return None
        raise
    found: list[tuple[bytes, bytes]] = []
    for name in names:
        try:
            found.append((name, os.getxattr(place, name, follow_symlinks=isinstance(place, int))))
        except OSError as error:
            if error.errno != errno.ENODATA:  # removed meanwhile
                raise
    return fitting(found)


def _names(place: int | bytes) -> list[bytes]:
    return [os.fsencode(name) for name in os.listxattr(place, follow_symlinks=isinstance(place, int))]


@contextmanager
def _writable(descriptor: int) -> Iterator[None]:
    """The owner's attributes can only be set while the owner may write."""
    mode = os.fstat(descriptor).st_mode & 0o7777
    if mode & _OWNER_WRITES or os.geteuid() == 0:
        yield
        return
    os.fchmod(descriptor, mode | _OWNER_WRITES)
    try:
        yield
    finally:
        os.fchmod(descriptor, mode)
