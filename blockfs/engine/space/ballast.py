"""Ballast: space that the volume occupies for no other reason than to throw it off when the host is full.

Writers leave a reserve, but other programs can fill the host to the last byte. Then not even the removal of a file
could be committed, and a volume could not be mounted to remove one. So `VOLUME/ballast` holds space that nobody else
can take. When a commit, a collection or a mount finds none, the ballast goes, and it is tried once more: with what it
then removes there is room again, and the ballast is taken back on board.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Final, TypeVar

from blockfs.engine.space.policy import BALLAST_BYTES, BALLAST_QUOTA_SHARE, BALLAST_SHARE, BALLAST_SPARE
from blockfs.errors import NoSpaceError, QuotaError
from blockfs.runtime.atomic import space_errors, sync_directory
from blockfs.runtime.linux import syncfs
from blockfs.runtime.logs import Log
from blockfs.runtime.space import host_space

_NAME: Final = b"ballast"
T = TypeVar("T")

log = Log()


class Ballast:
    """The ballast of one volume, whose lock the caller holds. Thread-safe.

    Args:
        volume: The volume's directory.
        size_bytes: What is wanted; 0: none.
    """

    def __init__(self, volume: bytes, size_bytes: int = BALLAST_BYTES) -> None:
        self._path = os.path.join(volume, _NAME)
        host = host_space(volume)
        self._size_bytes = min(
            size_bytes, host.total_bytes // (BALLAST_QUOTA_SHARE if host.is_quota else BALLAST_SHARE)
        )
        self._lock = threading.Lock()
        self._quota_is_used_up = False

    def spend(self, action: Callable[[], T]) -> T:
        """Do what a full host must not prevent: if it finds no room, throw the ballast off and do it again.

        Args:
            action: Leaves nothing half-done when it raises NoSpaceError.

        Raises:
            NoSpaceError: There was no ballast any more, or it was not enough.
        """
        try:
            return action()
        except NoSpaceError as error:
            if not self.throw_off(error):
                raise
        return action()

    @property
    def quota_is_used_up(self) -> bool:
        """Whether it was thrown off because of a quota, and is not back."""
        return self._quota_is_used_up

    def throw_off(self, reason: NoSpaceError) -> bool:
        """Give the space back to the host; returns whether there was any.

        By unlink(2), which every filesystem does also without room. On btrfs, cutting a file needs quota.
        """
        with self._lock:
            self._quota_is_used_up = isinstance(reason, QuotaError)
            try:
                os.unlink(self._path)
                # A host with a journal lets others have the space only once it is committed; btrfs the quota only once
                # the whole transaction is.
                (syncfs if self._quota_is_used_up else sync_directory)(os.path.dirname(self._path))
            except OSError:
                return False  # there is none, or the host fails: what found no room tells of that
            log.warning("ballast.thrown_off", reason=str(reason))
            return True

    def take_back(self) -> None:
        """Occupy the space again, if it was thrown off (or never was).

        Raises:
            NoSpaceError: There is not enough room yet; nothing is occupied.
            QuotaError: Likewise.
            OSError: The host failed.
        """
        with self._lock:
            if not self._size_bytes or self._is_there():
                self._quota_is_used_up = False
                return
            wanted = self._size_bytes * (1 + BALLAST_SPARE)
            if host_space(os.path.dirname(self._path)).available_bytes < wanted:
                raise NoSpaceError("the host filesystem is too full for the volume's ballast")
            with space_errors("ballast"):
                fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
                try:
                    os.posix_fallocate(fd, 0, wanted)  # the spare part, too: not all quotas are seen
                    os.ftruncate(fd, self._size_bytes)
                except BaseException:
                    os.unlink(self._path)
                    raise
                finally:
                    os.close(fd)
            self._quota_is_used_up = False

    def _is_there(self) -> bool:
        try:
            return os.stat(self._path).st_size >= self._size_bytes
        except FileNotFoundError:
            return False
