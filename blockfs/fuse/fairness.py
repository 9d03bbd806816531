"""Notices that an fsync of one file waits beside somebody's stream to another, and makes the stream give way.

The stream's pages come in requests of up to 1 MiB, and everything that a small fsync needs, three or four requests one
after the other, waits behind them. While there are such fsyncs, the stream may have little dirty in the kernel, and its
requests are not answered in the event loop. A file that is written and fsynced by itself goes at full speed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

MAX_BACKGROUND: Final = 32  # each holds up to 1 MiB of memory here
CONGESTION_THRESHOLD: Final = 3  # an fsync beside a stream took 6.6 ms, with 1 7.6 ms, with the kernel's 12 and 9 11 ms
"""How many requests that nobody waits for the kernel may send at once, and beyond how many it lets pages lie: see
`blockfs.mount.connection_limits`."""

_REMEMBERED_S: Final = 1.0  # how long an fsync, or a large write, is remembered


class Fairness:
    """Belongs to the event loop: not thread-safe.

    Args:
        now_s: A monotonic clock.

    Attributes:
        tell: Called with each fsync that makes a stream give way.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._until_s = 0.0
        self._stream: int | None = None
        self._streamed_at_s = 0.0
        self.tell: Callable[[], None] = lambda: None

    @property
    def left_s(self) -> float:
        """How long streams have to give way yet, unless more fsyncs come."""
        return self._until_s - self._now_s()

    @property
    def is_on(self) -> bool:
        """Whether fsyncs of one file come while another one is streamed."""
        return self.left_s > 0

    def streams(self, ino: int) -> None:
        """Note a large write."""
        self._stream = ino
        self._streamed_at_s = self._now_s()

    def waits(self, ino: int) -> None:
        """Note an fsync."""
        now_s = self._now_s()
        if self._stream != ino and now_s < self._streamed_at_s + _REMEMBERED_S:
            self._until_s = now_s + _REMEMBERED_S
            self.tell()
