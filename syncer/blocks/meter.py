"""How fast something comes while it is waited for. Pure."""

from __future__ import annotations

from typing import Final

LEAST_SEEN_S: Final = 0.25  # they are given this long before their rate is judged: connecting takes 1 to 100 ms
STALL_S: Final = 2.0  # nothing came from any of them for so long
_MEMORY_S: Final = 2.0  # rates are of about so much time


class Meter:
    """How fast something comes while it is waited for: an average of about the last two to four seconds.

    Attributes:
        total_s: Time in which it was waited for, until the last `stop`.
    """

    def __init__(self) -> None:
        self.total_s = 0.0
        self._since: float | None = None
        self._bytes = 0.0
        self._seconds = 0.0
        self._last = 0.0

    def run(self, now: float) -> None:
        """It is waited for from now on. Idempotent."""
        if self._since is None:
            self._since = self._last = now

    def stop(self, now: float) -> None:
        """It is not waited for any more. Idempotent."""
        if self._since is not None:
            self._seconds += now - self._since
            self.total_s += now - self._since
            self._since = None
            self._forget()

    def count(self, size_bytes: int, now: float) -> None:
        """So much came."""
        self._last = now
        self._bytes += size_bytes
        if self._since is not None:
            self.stop(now)
            self.run(now)

    def seconds(self, now: float) -> float:
        """All time in which it was waited for."""
        return self.total_s + self._waiting(now)

    def rate(self, now: float) -> float | None:
        """Bytes a second; None: nothing came yet."""
        seconds = self._seconds + self._waiting(now)
        return self._bytes / seconds if self._bytes and seconds > 0 else None

    def slower_than(self, rate: float, coming: int) -> float | None:
        """From when on the average is below `rate`, if nothing comes until then and `coming` bytes come just then.

        Returns:
            A time, which may be past; None: it is not waited for, so it can't be slow.
        """
        if self._since is None:
            return None
        least = max(LEAST_SEEN_S, (self._bytes + coming) / rate)
        return min(self._since + least - self._seconds, self._last + STALL_S)

    def stalls_at(self) -> float | None:
        """From when on it has stalled, if nothing comes; None: it is not waited for."""
        return None if self._since is None else self._last + STALL_S

    def _waiting(self, now: float) -> float:
        return 0.0 if self._since is None else now - self._since

    def _forget(self) -> None:
        while self._seconds > 2 * _MEMORY_S:
            self._seconds /= 2
            self._bytes /= 2
