"""How long ago something was looked at: by our own clock, and by the store's, which goes on while we are paused.

Source: docs/design/repository.md, section 15.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

import msgspec


class When(msgspec.Struct, frozen=True):
    """A moment.

    Attributes:
        own_s: By our own clock.
        store_ns: By the store's, or somewhat before; None: it was not told.
    """

    own_s: float
    store_ns: int | None

    def is_over(self, most_s: float, now: When) -> bool:
        """Whether more than that lies between it and now, by either clock. Pure."""
        if now.own_s - self.own_s > most_s:
            return True
        return self.store_ns is not None and now.store_ns is not None and now.store_ns - self.store_ns > most_s * 1e9

    def or_earlier(self, other: When) -> When:
        """By each clock the earlier one; what one of them does not tell, nobody knows. Pure."""
        known = self.store_ns is not None and other.store_ns is not None
        return When(
            min(self.own_s, other.own_s),
            min(self.store_ns or 0, other.store_ns or 0) if known else None,
        )


class Stopwatch:
    """Seconds that go on while the machine sleeps, and that nobody sets back. For any thread.

    CLOCK_BOOTTIME stands still while a virtual machine is paused from outside. The time of day is mostly put right
    afterwards, so of two steps the larger one counts.
    """

    def __init__(
        self,
        awake_or_asleep_s: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
        time_of_day_s: Callable[[], float] = time.time,
    ) -> None:
        self._clocks = awake_or_asleep_s, time_of_day_s
        self._lock = threading.Lock()
        self._seen = [clock() for clock in self._clocks]
        self._total_s = self._seen[0]

    def __call__(self) -> float:
        """Seconds since some moment."""
        with self._lock:
            now = [clock() for clock in self._clocks]
            self._total_s += max(0.0, *(after - before for before, after in zip(self._seen, now, strict=True)))
            self._seen = now
            return self._total_s


awake_or_asleep_s: Final = Stopwatch()
"""This process's."""
