"""Threads that take turns with the event loop, so that a seed of what needs them is one history, too.

A function that trio would run in a thread runs in one here, but the loop waits for it; and when it asks the loop for
something, as a pack's reader does for nodes of a tree, it waits for the loop. So one of them all runs at a time.
"""

from __future__ import annotations

import os
import queue
import random
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import outcome
import trio
from trio.testing import MockClock

T = TypeVar("T")
_here = threading.local()


class _Worker:
    """A thread that waits for functions."""

    def __init__(self) -> None:
        self.jobs: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()
        self.told: queue.SimpleQueue[tuple[bool, Any]] = queue.SimpleQueue()
        self.answers: queue.SimpleQueue[outcome.Outcome[Any]] = queue.SimpleQueue()
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        _here.worker = self
        while (job := self.jobs.get()) is not None:
            self.told.put((True, outcome.capture(job)))

    async def run(self, function: Callable[[], T]) -> T:
        """The loop waits until it is done, but for what it asks."""
        self.jobs.put(function)
        while True:
            is_done, told = self.told.get()
            if is_done:
                return told.unwrap()  # type: ignore[no-any-return]
            self.answers.put(await outcome.acapture(told))

    def ask(self, work: Callable[[], Awaitable[T]]) -> T:
        """In the thread: have the loop do something."""
        self.told.put((False, work))
        return self.answers.get().unwrap()  # type: ignore[return-value]


@contextmanager
def by_turns(seed: int) -> Iterator[None]:
    """Threads take turns, and what the system draws comes from the seed: salts and ids, by which things are sorted."""
    idle: list[_Worker] = []
    real = trio.to_thread.run_sync, trio.from_thread.run, os.urandom

    async def in_turn(function: Callable[..., Any], *args: Any, **_more: Any) -> Any:
        await trio.lowlevel.checkpoint()
        worker = idle.pop() if idle else _Worker()
        try:
            return await worker.run(partial(function, *args))
        finally:
            idle.append(worker)

    def asked(work: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        return _here.worker.ask(partial(work, *args))

    trio.to_thread.run_sync, trio.from_thread.run = in_turn, asked  # type: ignore[assignment]
    os.urandom = random.Random(seed).randbytes
    try:
        yield
    finally:
        trio.to_thread.run_sync, trio.from_thread.run, os.urandom = real
        for worker in idle:
            worker.jobs.put(None)


def aside(work: Callable[[], Awaitable[T]]) -> T:
    """Run something in an event loop of its own, from wherever we are, while everybody else waits."""
    found: list[outcome.Outcome[T]] = []
    thread = threading.Thread(
        target=lambda: found.append(outcome.capture(partial(trio.run, clock=MockClock()), work))  # type: ignore[arg-type]
    )
    thread.start()
    thread.join()
    return found[0].unwrap()
