"""Which errno a program sees for which failure."""

from __future__ import annotations

import errno

import pytest

from blockfs.errors import (
    BlockfsError,
    CorruptBlockError,
    FsError,
    LockedError,
    MissingBlockError,
    NoSpaceError,
    UsageError,
)
from blockfs.service.errnos import errno_of


@pytest.mark.parametrize(
    ("error", "number"),
    [
        (FsError(errno.ENOTEMPTY), errno.ENOTEMPTY),
        (NoSpaceError("full"), errno.ENOSPC),
        (CorruptBlockError(bytes(32), "wrong"), errno.EIO),
        (MissingBlockError(bytes(32)), errno.EIO),
        (LockedError("x", None), errno.EBUSY),
        (UsageError("x"), errno.EINVAL),
        (OSError(errno.ENOSPC, ""), errno.ENOSPC),
        (OSError(errno.EDQUOT, ""), errno.EDQUOT),
        (OSError(errno.EROFS, ""), errno.EROFS),
        (FileNotFoundError(errno.ENOENT, ""), errno.EIO),
        (OSError(errno.EMFILE, ""), errno.EIO),
        (OSError(), errno.EIO),
    ],
)
def test_failures_keep_their_meaning_and_ours_do_not_pose_as_the_callers(
    error: BlockfsError | OSError, number: int
) -> None:
    assert errno_of(error) == number
