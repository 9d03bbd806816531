"""The private folder `ROOT/.blocksync` of an ordinary directory.

```
.blocksync/        mode 0700
  root             which root this is (see identity.py)
  tmp/             files being assembled, named by their content: never a user's data
  trash/           what was deleted or displaced (see trash.py)
  park/            nodes on their way from one name to another
  twins/           copies of large files as they were hashed last (twins.py); made when the first one is
```
It lies in the root because a rename is atomic only within one filesystem.
"""

from __future__ import annotations

import contextlib
import os
from typing import Final

from syncer.core.model import RelPath
from syncer.core.paths import PARK_FOLDER, PRIVATE
from syncer.errors import UsageError
from syncer.local.safe_open import DIRECTORY_FLAGS, naming
from syncer.local.syscalls import cannot, rename_exchange, rename_noreplace, status

TMP: Final = b"tmp"
TRASH: Final = b"trash"
_PARK: Final = RelPath(PARK_FOLDER).rpartition(b"/")[2]
_PROBES: Final = (b"probe.1", b"probe.2")


class PrivateFolder:
    """Descriptors of the private folder and its subfolders, made if they are missing.

    Attributes:
        top: `.blocksync` itself.
        tmp: Its `tmp`.
        trash: Its `trash`.
    """

    def __init__(self, root: int) -> None:
        """Open below a root's descriptor.

        Raises:
            OSError: It can't be made or opened, or a symlink stands in its place.
        """
        self._open: list[int] = []
        try:
            with naming(root, PRIVATE):
                self.top = self._enter(root, PRIVATE)
            with naming(self.top):
                self.tmp = self._enter(self.top, TMP)
                self.trash = self._enter(self.top, TRASH)
                self._enter(self.top, _PARK)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the descriptors. Idempotent."""
        while self._open:
            os.close(self._open.pop())

    def clock_ns(self) -> int:
        """The filesystem's own clock: the time it gives to a file made now."""
        name = b"clock.%d" % os.getpid()
        with naming(self.tmp):
            descriptor = make_anew(name, self.tmp)
        try:
            os.utime(descriptor)
            return status(b"", descriptor).mtime_ns
        finally:
            os.close(descriptor)
            os.unlink(name, dir_fd=self.tmp)

    def probe_renames(self) -> None:
        """Check that the filesystem swaps names atomically; without that, no edit of a user is safe from us.

        Raises:
            UsageError: It can't (NFS, CIFS, old FUSE filesystems).
        """
        for name in _PROBES:
            os.close(make_anew(name, self.tmp))
        try:
            rename_exchange(_PROBES[0], self.tmp, _PROBES[1], self.tmp)
            os.unlink(_PROBES[1], dir_fd=self.tmp)
            rename_noreplace(_PROBES[0], self.tmp, _PROBES[1], self.tmp)
        except OSError as error:
            if cannot(error):
                raise UsageError(
                    "the folder's filesystem can't exchange two names atomically (renameat2 with RENAME_EXCHANGE), "
                    "which replacing files safely needs; use ext4, XFS, btrfs, tmpfs or a blockfs mount"
                ) from None
            raise
        finally:
            for name in _PROBES:
                _remove_if_there(name, self.tmp)

    def _enter(self, above: int, name: bytes) -> int:
        try:
            os.mkdir(name, 0o700, dir_fd=above)
        except FileExistsError:
            pass
        else:
            os.fsync(above)
        descriptor = os.open(name, DIRECTORY_FLAGS, dir_fd=above)
        self._open.append(descriptor)
        return descriptor


def make_anew(name: bytes, directory: int) -> int:
    """Make an empty file of ours. What a killed run left there goes; nothing is ever written through a link."""
    while True:
        try:
            return os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600, dir_fd=directory)
        except FileExistsError:
            _remove_if_there(name, directory)


def _remove_if_there(name: bytes, directory: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)
