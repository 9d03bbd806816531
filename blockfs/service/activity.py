"""Tells who waits that users have changed something: the syncer's wake-up, so that it need not poll the journal."""

from __future__ import annotations

import threading


class Activity:
    """Counts changes of one mount that came through the kernel. From any thread.

    Attributes:
        writers: Handles that are open for writing now; changed under the engine's lock only.
    """

    def __init__(self) -> None:
        self.writers = 0
        self._count = 0
        self._is_over = False
        self._moved = threading.Condition()

    def note(self) -> None:
        """Something was changed."""
        with self._moved:
            self._count += 1
            self._moved.notify_all()

    def wait(self, seen: int | None, timeout_s: float) -> int:
        """Return the count as soon as it is not `seen`, the time is over, or the mount ends. None: at once."""
        with self._moved:
            if seen is not None:
                self._moved.wait_for(lambda: self._count != seen or self._is_over, timeout_s)
            return self._count

    def end(self) -> None:
        """The mount ends: nobody waits any more."""
        with self._moved:
            self._is_over = True
            self._moved.notify_all()
