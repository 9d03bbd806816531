"""How much of the host filesystem writers may use: all but a reserve, so that metadata can still be committed.

Whatever needs new space asks first: staged pages, and names, which only become space when they are committed. Removing
asks for nothing.

Not every quota is seen before it is used up (`blockfs.runtime.space`): where it isn't, writers run against it. Then the
reserve is the ballast, which is thrown off at once, and nobody may use that room until the ballast is back.
"""

from __future__ import annotations

from typing import Final

from blockfs.engine.space.ballast import Ballast
from blockfs.engine.space.policy import RESERVE_QUOTA_SHARE, RESERVE_SHARE
from blockfs.errors import NoSpaceError, QuotaError
from blockfs.runtime.space import Space, host_space

_CHECK_BYTES: Final = 1 << 20  # a statvfs(2) costs as much as staging 16 KiB: one for each MiB


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
        self._reserve_bytes = reserve_bytes
        self._unchecked_bytes = _CHECK_BYTES

    def host(self) -> Space:
        """The room on the host."""
        return host_space(self._path)

    def reserve_bytes(self, host: Space) -> int:
        """What writers must leave of it."""
        return min(self._reserve_bytes, host.total_bytes // (RESERVE_QUOTA_SHARE if host.is_quota else RESERVE_SHARE))

    def check(self, length: int) -> int | None:
        """Refuse `length` more bytes if the host is nearly full. Room that somebody makes is seen by the next call.

        Returns:
            Bytes that are free, if it was time to look.

        Raises:
            NoSpaceError: The reserve has begun.
            QuotaError: It is that of a quota; or a write ran against one, and there is still no room for the ballast.
        """
        if self._ballast.quota_is_used_up:
            self._ballast.take_back()
        if self._unchecked_bytes < _CHECK_BYTES and length <= _CHECK_BYTES:
            return None
        host = self.host()
        if host.available_bytes < self.reserve_bytes(host) + length:
            if host.is_quota:
                raise QuotaError("the quota is nearly used up; the rest is kept for sealing and metadata")
            raise NoSpaceError("the host filesystem is nearly full; the rest is kept for sealing and metadata")
        self._unchecked_bytes = 0
        return host.available_bytes

    def met_quota(self, error: QuotaError) -> None:
        """A write ran against a quota: make room for what must go on; writers are refused until it is back."""
        self._ballast.throw_off(error)

    def used(self, length: int) -> None:
        """Note what a caller took after a `check`."""
        self._unchecked_bytes += length
