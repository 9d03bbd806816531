"""Exceptions → errno: the only place where that is decided."""

from __future__ import annotations

import errno

from blockfs.errors import BlockfsError


def errno_of(error: BlockfsError | OSError) -> int:
    """The errno that the caller of a filesystem call sees.

    An error of the host below the volume keeps its number where it means the same to our caller (no space, quota,
    read-only, I/O error). Numbers that speak of our own files and descriptors (ENOENT of a segment, EMFILE) would
    mislead: they become EIO.
    """
    if isinstance(error, BlockfsError):
        return error.errno
    return error.errno if error.errno in _PASSED_ON else errno.EIO


_PASSED_ON = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ENOMEM})
