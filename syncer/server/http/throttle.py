"""What strangers make us log, bounded: so many lines a minute of one address, and so many in all. Time is an argument.

Each line has the address, so that a tool like fail2ban can act on it; the bound of one address is above what such tools
wait for. Lines of other addresses are not lost because one of them is loud.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from blockfs.runtime.logs import Log

WINDOW_S: Final = 60.0
LINES_OF_ADDRESS: Final = 10
LINES: Final = 600
_ADDRESSES: Final = 10_000  # that are counted; further ones share one count

_log = Log()


class Throttle:
    """Decides which lines are written. Pure."""

    def __init__(self) -> None:
        self._window = 0.0
        self._counts: Counter[str] = Counter()
        self._lines = 0
        self._dropped = 0

    def admit(self, address: str, now: float) -> tuple[bool, int]:
        """Whether a line about an address may be written now.

        Returns:
            That, and how many were dropped in the window before, told once.
        """
        told = 0
        if now - self._window >= WINDOW_S:
            told, self._dropped = self._dropped, 0
            self._window, self._lines = now, 0
            self._counts.clear()
        key = address if address in self._counts or len(self._counts) < _ADDRESSES else ""
        if self._counts[key] >= LINES_OF_ADDRESS or self._lines >= LINES:
            self._dropped += 1
            return False, told
        self._counts[key] += 1
        self._lines += 1
        return True, told


class Journal:
    """The log, for what anybody can cause."""

    def __init__(self) -> None:
        self._throttle = Throttle()

    def warn(self, event: str, address: str, now: float, **fields: object) -> None:
        """Write a line about an address, or drop it."""
        admitted, dropped = self._throttle.admit(address, now)
        if dropped:
            _log.warning("lines.dropped", count=dropped, within_seconds=WINDOW_S)
        if admitted:
            _log.warning(event, client=address, **fields)
