"""A gate in front of all writes: closed for the moment in which a snapshot's instant is fixed.

The kernel's own writes to hot files don't come through it. There their fsyncs do: they return when it is open again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from blockfs.errors import WouldBlock


class WriteGate:
    """Open unless somebody holds it closed: then no page becomes staged, no fsync begins and no hot file is opened.

    Args:
        lock: The engine's.
    """

    def __init__(self, lock: threading.RLock) -> None:
        self._opened = threading.Condition(lock)
        self._closings = 0

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Hold it closed. Enter without the engine's lock."""
        with self._opened:
            self._closings += 1
        try:
            yield
        finally:
            with self._opened:
                self._closings -= 1
                self._opened.notify_all()

    def enter(self, *, may_block: bool) -> None:
        """Go through: under the engine's lock, in the hold that covers the write.

        Raises:
            WouldBlock: It is closed, and `may_block` is false.
        """
        while self._closings:
            if not may_block:
                raise WouldBlock("a snapshot is being taken")
            self._opened.wait()
