"""Errors of blockfs: one root, typed fields, an exit code for the command line and an errno for the kernel.

Only `service/errnos.py` turns them into errno values and only `cli/` turns them into exit codes; everybody else raises.
Messages name the thing, what was expected and what to do.
"""

from __future__ import annotations

import errno as _errno
import os
from typing import Final

from blockfs.exitcodes import ExitCode


class ExpectedError(Exception):
    """Root of all expected failures of this program.

    Attributes:
        exit_code: What a command that meets this ends with: an `ExitCode`, or as another process told it.
    """

    exit_code: int = ExitCode.UNEXPECTED


class BlockfsError(ExpectedError):
    """Root of all expected failures of blockfs.

    Attributes:
        errno: What a filesystem call that meets this error returns.
    """

    errno: int = _errno.EIO


EXPECTED: Final = (BlockfsError, OSError)
"""What may go wrong without a fault of the program. Anything else is a broken invariant: `blockfs.engine.fatal`."""


class UsageError(BlockfsError):
    """An argument's value is not acceptable: says which, what was expected, and what to do."""

    exit_code = ExitCode.USAGE
    errno = _errno.EINVAL


class NotFoundError(BlockfsError):
    """A volume, mount or file that a command names does not exist."""

    exit_code = ExitCode.NOT_FOUND
    errno = _errno.ENOENT


class LockedError(BlockfsError):
    """Another process holds the volume."""

    exit_code = ExitCode.LOCKED
    errno = _errno.EBUSY

    def __init__(self, what: str, holder_pid: int | None, *, mounted_at: str | None = None) -> None:
        self.what = what
        self.holder_pid = holder_pid
        holder = f"process {holder_pid}" if holder_pid else "another process"
        if mounted_at is None:
            super().__init__(f"{what} is in use by {holder}; unmount it or stop that process first")
        else:
            super().__init__(f"{what} is mounted at {mounted_at}, by {holder}; `blocksync umount {mounted_at}` first")


class ReadOnlyError(BlockfsError):
    """The volume is mounted read-only."""

    exit_code = ExitCode.USAGE
    errno = _errno.EROFS


class FormatTooNewError(BlockfsError):
    """The volume was made by a newer blocksync."""

    exit_code = ExitCode.FORMAT_TOO_NEW

    def __init__(self, path: str, found: int, supported: int) -> None:
        self.path = path
        self.found = found
        self.supported = supported
        super().__init__(
            f"{path}: format {found} is newer than this blocksync reads (up to {supported}); upgrade blocksync"
        )


class CorruptionError(BlockfsError):
    """Stored data or metadata are not what they must be. Nothing is overwritten when this is raised."""

    exit_code = ExitCode.CORRUPTION


class CorruptBlockError(CorruptionError):
    """A stored block's content does not have the id it is stored under."""

    def __init__(self, block_id: bytes, reason: str) -> None:
        self.block_id = block_id
        self.reason = reason
        super().__init__(f"block {block_id.hex()} is corrupt: {reason}; run `blocksync scrub`")


class MissingBlockError(BlockfsError):
    """A block that a file refers to is not in the block directory (the seam for on-demand files)."""

    exit_code = ExitCode.CORRUPTION

    def __init__(self, block_id: bytes) -> None:
        self.block_id = block_id
        super().__init__(f"block {block_id.hex()} is not in the block directory")


class NoSpaceError(BlockfsError):
    """The host filesystem is full; the quota, where it is a `QuotaError`."""

    exit_code = ExitCode.NO_SPACE
    errno = _errno.ENOSPC


class QuotaError(NoSpaceError):
    """A quota of the host is used up: the disk may have room, but not for us."""

    errno = _errno.EDQUOT


FULL: Final = {_errno.ENOSPC: NoSpaceError, _errno.EDQUOT: QuotaError}
"""Errors of the host that say that there is no room, and what they are called here."""


class DatabaseStoppedError(BlockfsError):
    """A database of metadata could not be written and commits nothing any more until another process opens it.

    Also one on a host that has become read-only: ext4 does so when its journal can't be written.
    """

    errno = _errno.EIO

    exit_code = ExitCode.CHANGES_LOST


class ChangesLostError(BlockfsError):
    """The mount has ended, and something that was written to it did not get to the host's disk."""

    exit_code = ExitCode.CHANGES_LOST


class AbandonedError(BlockfsError):
    """The mount met an error that nobody expected, commits nothing any more, and ends as if it had been killed."""

    exit_code = ExitCode.CHANGES_LOST

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(
            f"the mount has ended because of a bug ({reason}): changes that were not fsynced are lost, all others are "
            "safe; mount again, and please report what mount.log in the volume says"
        )


class FsError(BlockfsError):
    """A filesystem call that fails as POSIX says: carries only the errno."""

    def __init__(self, code: int, what: str = "") -> None:
        self.errno = code
        super().__init__(f"{what}: {os.strerror(code)}" if what else os.strerror(code))


class WouldBlock(BlockfsError):  # noqa: N818 - a control-flow signal of the fast path, named like BlockingIOError's idea
    """The fast path can't finish without waiting for a disk: call again in a thread with `may_block=True`."""

    errno = _errno.EAGAIN


class MountError(BlockfsError):
    """The kernel or fusermount3 refused to mount or unmount."""


class KernelTooOldError(MountError):
    """This kernel lacks what blocksync's own front-end relies on."""
