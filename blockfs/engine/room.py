"""How much of the host filesystem writers may use: all but a reserve, so that metadata can still be committed.

Whatever needs new space asks first: staged pages, and names, which only become space when they are committed. Removing
asks for nothing.

A quota is not seen in statvfs(3): writers run against it. Then the reserve is the ballast, which is thrown off at once:
LMDB writes to mapped pages, and on btrfs a mapped page that finds no quota is a SIGBUS. Nobody may use that room until
the ballast is back.
"""

from __future__ import annotations

import os
from typing import Final

from blockfs.engine.ballast import Ballast
from blockfs.errors import NoSpaceError, QuotaError

NAME_BYTES: Final = 4096  # a new name with its inode changes a few database pages, which its neighbours share
_CHECK_BYTES: Final = 1 << 20  # a statvfs(2) costs as much as staging 16 KiB: one for each MiB
_RESERVE_SHARE: Final = 64  # of a small host, the reserve is never more than this part


class Room:
    """The host filesystem below one mount. Called under the engine's lock, or where a lost update does no harm.

    Args:
        path: Any path on it.
        ballast: The volume's.
        reserve_bytes: What writers must leave.
    """

    def __init__(self, path: bytes, ballast: Ballast, *, reserve_bytes: int) -> None:
        self._path = path
        self._ballast = ballast
        host = self.host()
        self.reserve_bytes: Final = min(reserve_bytes, host.f_blocks * host.f_frsize // _RESERVE_SHARE)
        self._unchecked_bytes = _CHECK_BYTES

    def host(self) -> os.statvfs_result:
        """statvfs(3) of the host."""
        return os.statvfs(self._path)

    def check(self, length: int) -> int | None:
        """Refuse `length` more bytes if the host is nearly full. Room that somebody makes is seen by the next call.

        Returns:
            Bytes that are free, if it was time to look.

        Raises:
            NoSpaceError: The reserve has begun.
            QuotaError: A write ran against a quota, and there is still no room for the ballast.
        """
        if self._ballast.quota_is_used_up:
            self._ballast.take_back()
        if self._unchecked_bytes < _CHECK_BYTES:
            return None
        host = self.host()
        free_bytes = host.f_bavail * host.f_frsize
        if free_bytes < self.reserve_bytes + length:
            raise NoSpaceError("the host filesystem is nearly full; the rest is kept for sealing and metadata")
        self._unchecked_bytes = 0
        return free_bytes

    def met_quota(self, error: QuotaError) -> None:
        """A write ran against a quota: make room for what must go on; writers are refused until it is back."""
        self._ballast.throw_off(error)

    def used(self, length: int) -> None:
        """Note what a caller took after a `check`."""
        self._unchecked_bytes += length
