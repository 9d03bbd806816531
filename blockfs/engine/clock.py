"""The clock of times of access and change: the one from which the kernel stamps what it writes back.

With the writeback cache the kernel sets the times of files that are written, from its coarse clock, which stands still
between ticks (1 to 4 ms). Were ours a finer one, a file that is written right after it was made would look as if it had
been changed before it was born.
"""

from __future__ import annotations

import time
from typing import Final

_CLOCK_REALTIME_COARSE: Final = 5  # linux/time.h; Python's time module doesn't name it
_AHEAD_NS: Final = 10_000_000
"""How far a stamp of the kernel may be ahead of the coarse clock: a tick, as file systems with fine stamps (ext4) take
all others along. What is further ahead was set by a user."""


class Clock:
    """Nanoseconds since 1970-01-01 UTC. Only as fine as the kernel's stamps, and never behind one that was `seen`."""

    def __init__(self) -> None:
        self._seen_ns = 0

    def now_ns(self) -> int:
        """The present."""
        now_ns = time.clock_gettime_ns(_CLOCK_REALTIME_COARSE)
        return self._seen_ns if now_ns < self._seen_ns < now_ns + _AHEAD_NS else now_ns

    def seen(self, stamp_ns: int) -> None:
        """The kernel has stamped a change with this time: what comes now is not before it."""
        if stamp_ns > self.now_ns():
            self._seen_ns = stamp_ns
