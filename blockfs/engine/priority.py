"""Whoever only works ahead gives way to a caller that waits for a disk.

Sealing keeps a processor and the disk busy for as long as somebody streams. An fsync needs little of both, but at many
points, one after the other; beside sealing threads each of them takes two or three times as long.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

_PATIENCE_S: Final = 0.02  # what takes longer waits for a disk, not for a processor


class Priority:
    """Who waits right now. Thread-safe.

    Args:
        patience_s: The longest pause.
        now_s: A monotonic clock.
    """

    def __init__(self, patience_s: float = _PATIENCE_S, now_s: Callable[[], float] = time.monotonic) -> None:
        self._patience_s = patience_s
        self._now_s = now_s
        self._lock = threading.Lock()
        self._waiting = 0
        self._calm = threading.Event()
        self._calm.set()
        self._paused_s = 0.0
        self._went_on_at_s = 0.0

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Somebody waits for what is done inside the block."""
        with self._lock:
            self._waiting += 1
            self._calm.clear()
        try:
            yield
        finally:
            with self._lock:
                self._waiting -= 1
                if not self._waiting:
                    self._calm.set()

    def give_way(self) -> None:
        """Pause while somebody waits, but never for more than half of the time: the work must get done, too."""
        if self._calm.is_set():
            return
        began_s = self._now_s()
        with self._lock:
            if began_s - self._went_on_at_s < self._paused_s:
                return
        self._calm.wait(self._patience_s)
        ended_s = self._now_s()
        with self._lock:
            self._paused_s = ended_s - began_s
            self._went_on_at_s = ended_s
