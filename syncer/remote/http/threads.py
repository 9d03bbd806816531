"""Blocking calls of trio tasks, so many at a time, by threads that go from one call to the next on their own.

`trio.to_thread` brings every result to the event loop before the next call that waits for a place may begin: the
connection lies idle meanwhile, 0.9 ms of each request by 16 at once (docs/adr, client transport).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import trio

T = TypeVar("T")


@dataclass(slots=True, eq=False, kw_only=True)
class _Job:
    """A call.

    Attributes:
        call: Does it.
        token: Of the event loop that waits.
        done: Set there when there is an outcome.
        result: What the call returned.
        error: What it raised.
    """

    call: Callable[[], Any]
    token: trio.lowlevel.TrioToken
    done: trio.Event = field(default_factory=trio.Event)
    result: Any = None
    error: BaseException | None = None


class Threads:
    """Runs calls. Threads end when there is nothing to do: there is nothing to close."""

    def __init__(self, size: int) -> None:
        """Begin with none.

        Args:
            size: Calls at a time, at least 1.
        """
        self._size = size
        self._running = 0
        self._ready: deque[_Job] = deque()
        self._lock = threading.Lock()  # of the three above

    @property
    def waiting(self) -> int:
        """Calls that wait for a place."""
        return len(self._ready)

    def resize(self, size: int) -> None:
        """From now on so many at a time; what is under way stays."""
        if size == self._size:
            return
        with self._lock:
            self._size = size
            starting = max(0, min(size - self._running, len(self._ready)))
            self._running += starting
        self._start(starting)

    async def run(self, call: Callable[[], T]) -> T:
        """Run a call when there is a place.

        Cancelled while it waits, it is never made. Cancelled later, its thread is abandoned: it should end by itself.

        Raises:
            Exception: As the call.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        job = _Job(call=call, token=trio.lowlevel.current_trio_token())
        with self._lock:
            self._ready.append(job)
            starting = int(self._running < self._size)
            self._running += starting
        self._start(starting)
        try:
            await job.done.wait()
        except trio.Cancelled:
            with self._lock, suppress(ValueError):  # it is under way
                self._ready.remove(job)
            raise
        if job.error is not None:
            raise job.error
        result: T = job.result
        return result

    def _start(self, count: int) -> None:
        for _ in range(count):
            trio.lowlevel.start_thread_soon(self._work, lambda _outcome: None)

    def _work(self) -> None:
        """One call after the other, in a thread."""
        while True:
            with self._lock:
                if not self._ready or self._running > self._size:
                    self._running -= 1
                    return
                job = self._ready.popleft()
            try:
                job.result = job.call()
            except BaseException as error:  # noqa: BLE001 - it is raised where the call is waited for
                job.error = error
            with suppress(trio.RunFinishedError):  # nobody waits any more
                job.token.run_sync_soon(job.done.set)
