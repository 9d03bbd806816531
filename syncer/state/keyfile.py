"""The file in which a device keeps what it knows of a share's key. Nobody else may read it.

A cycle and a command may come to change it at the same moment, so a writer says what it goes out from: what a person
has set is not overwritten by a cycle that began before.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from blockfs.runtime.atomic import write_atomically

_LIMIT = 1 << 16  # bytes; ours has some 500


_FORMAT = 1  # of `peer.sharekey`, which is beside this and not below it


class _Kept(msgspec.Struct, frozen=True, kw_only=True):
    format: int = _FORMAT
    off: str = ""
    passphrase: bool = False


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What `status` needs of it (`peer.sharekey` has all).

    Attributes:
        off: Why the LAN is off for the share; empty: it is not.
        passphrase: The key is made from a passphrase.
    """

    off: str = ""
    passphrase: bool = False


class KeyFile:
    """One root's. Blocking."""

    def __init__(self, path: str) -> None:
        """Keep the path; the folder exists."""
        self.path = path

    def read(self) -> bytes | None:
        """What was kept; None if nothing was.

        Raises:
            OSError: It can't be read.
        """
        try:
            with open(self.path, "rb") as file:
                return file.read(_LIMIT)
        except FileNotFoundError:
            return None

    def told(self) -> Told:
        """What there is to tell of it; never an error."""
        try:
            found = msgspec.json.decode(self.read() or b"{}", type=_Kept)
        except OSError as error:
            return Told(off=f"{self.path} can't be read: {error.strerror}")
        except ValueError:
            return Told()  # damaged: the next cycle asks the server again
        if found.format > _FORMAT:
            return Told(off=f"{self.path} is of a newer blocksync: use that, or remove the file")
        return Told(off=found.off, passphrase=found.passphrase)

    def write(self, raw: bytes) -> None:
        """Keep this instead, durably.

        Raises:
            NoSpaceError, OSError: It is as it was.
        """
        with self._alone():
            write_atomically(self.path, raw, mode=0o600)

    def swap(self, before: bytes | None, raw: bytes) -> bool:
        """Keep this instead, durably, if what is kept still is `before` (None: nothing). Returns whether it was.

        Raises:
            NoSpaceError, OSError: It is as it was.
        """
        with self._alone():
            if self.read() != before:
                return False
            write_atomically(self.path, raw, mode=0o600)
            return True

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One writer at a time. The lock is the folder's own: a file for it would be one more to explain."""
        folder = os.open(os.path.dirname(self.path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)
