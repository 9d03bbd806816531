"""Threads that answer requests which wait. The hop to one takes 20 µs; to one of trio's, with a task, 90."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final

from blockfs.engine.fatal import Fatal


class Workers:
    """Threads for one kind of waiting, started as they are needed. `submit` and `close` belong to one thread.

    Args:
        most: How many threads.
        name: Of each of them.
        fatal: Owns the errors of jobs, which tell their own.
    """

    def __init__(self, most: int, name: str, fatal: Fatal) -> None:
        self._most: Final = most
        self._name: Final = name
        self._fatal = fatal
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._unfinished = 0

    def submit(self, job: Callable[[], None]) -> None:
        """Have a thread do it, as soon as one is free."""
        with self._lock:
            self._unfinished += 1
            lacks_thread = self._unfinished > len(self._threads) < self._most
        self._jobs.put(job)
        if lacks_thread:
            thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def close(self) -> None:
        """Wait until all is done, and end the threads."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except BaseException as error:  # noqa: BLE001 - a job refuses what it meets: that failed, too
                self._fatal.strike(error, self._name)
            with self._lock:
                self._unfinished -= 1
