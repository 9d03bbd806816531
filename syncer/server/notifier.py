"""Waking those that wait for a change of a container.

The catalogue's writer rings after each commit; whoever waits is a coroutine, not a thread. A ring says only that it may
be worth looking: nothing is carried with it, so none can be missed by looking between `listening` and the wait.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Iterator

Wake = Callable[[], None]
"""Called in any thread; must neither wait nor fail."""


class Notifier:
    """Who waits for which container. Thread-safe.

    Attributes:
        closed: Nobody is to wait any more: the server stops.
    """

    def __init__(self) -> None:
        self.closed = False
        self._lock = threading.Lock()
        self._waiting: dict[int, set[Wake]] = {}

    @contextlib.contextmanager
    def listening(self, container_id: int, wake: Wake) -> Iterator[None]:
        """Have `wake` called after each change of a container that is committed inside the block.

        Args:
            container_id: Which container.
            wake: One object for each listener.
        """
        with self._lock:
            self._waiting.setdefault(container_id, set()).add(wake)
        try:
            yield
        finally:
            with self._lock:
                listeners = self._waiting[container_id]
                listeners.discard(wake)
                if not listeners:
                    del self._waiting[container_id]

    def ring(self, container_ids: Collection[int]) -> None:
        """These containers changed."""
        with self._lock:
            for container_id in container_ids:
                for wake in self._waiting.get(container_id, ()):
                    wake()

    def close(self) -> None:
        """Wake everybody, for good."""
        with self._lock:
            self.closed = True
            for listeners in self._waiting.values():
                for wake in listeners:
                    wake()
