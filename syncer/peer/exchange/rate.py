"""How fast something comes while it is waited for. Pure."""

from __future__ import annotations

from typing import Final

_MEMORY_S: Final = 2.0  # an average of about so much time


class Rate:
    """Bytes a second over the time in which something was waited for, where older time counts less."""

    __slots__ = ("_bytes", "_last", "_seconds")

    def __init__(self) -> None:
        """Nothing came yet."""
        self._bytes = 0.0
        self._seconds = 0.0
        self._last: float | None = None

    def run(self, now: float) -> None:
        """Something is waited for from now on."""
        self._last = now

    def stop(self, now: float) -> None:
        """Nothing is, any more."""
        self.count(0, now)
        self._last = None

    def count(self, size: int, now: float) -> None:
        """So many bytes came."""
        self._bytes += size
        if self._last is not None:
            self._seconds += now - self._last
            self._last = now
        if self._seconds > 2 * _MEMORY_S:
            self._seconds /= 2
            self._bytes /= 2

    def per_s(self, now: float) -> float | None:
        """Bytes a second; None: nothing came yet."""
        seconds = self._seconds + (0.0 if self._last is None else now - self._last)
        return self._bytes / seconds if self._bytes and seconds > 0 else None
