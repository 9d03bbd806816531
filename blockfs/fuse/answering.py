"""How requests are answered on trio, whatever translates them: in one thread; those that wait have tasks of their own.

A call is first made inline, in the event loop: a thread hop costs more than most requests (40-70 µs against 10). When a
disk would have to be waited for, the call says `WouldBlock`, and is repeated where the table of requests says.
"""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from functools import partial
from types import TracebackType
from typing import Any, Final, ParamSpec, Protocol, TypeVar

import trio

from blockfs.engine.fatal import Doing
from blockfs.engine.filesystem import Filesystem
from blockfs.errors import EXPECTED, WouldBlock
from blockfs.fuse.calls import Calls
from blockfs.fuse.fairness import Fairness
from blockfs.fuse.requests import REQUESTS, Repeat, Request
from blockfs.service.counters import Counters

BLOCKING_CALLS: Final = 16  # threads that may wait for disks
BLOCKING_WRITES: Final = 12  # their own, lest held-back writers stop reads
BLOCKING_LOOKS: Final = 8  # their own, because they wait for other requests: reads, writes, opens

P = ParamSpec("P")
R = TypeVar("R")


class Answering:
    """The road from a request to its answer.

    Args:
        filesystem: What is mounted.
        calls: Answer the requests.
        counters: Count them.
        refusal: Makes the front-end's exception of an errno.

    Attributes:
        calls: As given; so are `counters` and `refusal`.
        fatal: Owns errors that nobody expected.
        priority: Who waits.
    """

    def __init__(
        self, filesystem: Filesystem, calls: Calls, counters: Counters, refusal: Callable[[int], Exception]
    ) -> None:
        self.calls = calls
        self.counters = counters
        self.fatal = filesystem.fatal
        self.refusal = refusal
        self.priority = filesystem.priority
        self._counting = threading.Lock()
        self._threads = trio.CapacityLimiter(BLOCKING_CALLS)
        write_threads, look_threads = trio.CapacityLimiter(BLOCKING_WRITES), trio.CapacityLimiter(BLOCKING_LOOKS)
        self._own_threads = {Repeat.WRITE: write_threads, Repeat.PAGES: look_threads}

    def owned(self, kind: str, answer: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
        """A request handler that answers the same, is counted, and whose errors have an owner.

        `answer`: translates and calls. Its first argument is the file's handle, where the table says `by_handle`.
        """
        row = REQUESTS[kind]

        async def owned(*args: P.args, **kwargs: P.kwargs) -> R:
            handle: Any = args[0] if row.by_handle else None
            with self.owning(row, time.perf_counter(), handle):
                return await answer(*args, **kwargs)

        return owned

    def owning(self, row: Request, began_s: float, handle: int | None) -> Owned:
        """As `owned`, for what is done inside.

        Args:
            row: Of the request.
            began_s: When it came, by `time.perf_counter`.
            handle: Of the file whose content is concerned.
        """
        return Owned(self, row, began_s, handle)

    def count(self, kind: str, began_s: float, number: int) -> None:
        """Count an answer, an errno or 0, to a request that came at `began_s`. From any thread."""
        counters, took_s = self.counters, time.perf_counter() - began_s
        with self._counting:
            counters.requests[kind] += 1
            counters.request_seconds[kind] += took_s
            if number:
                counters.errors[number] += 1

    def met(self, error: Exception, handle: int | None, doing: Doing) -> int:
        """What the kernel is told of an error, which has its owner."""
        try:
            if isinstance(error, EXPECTED):
                return self.calls.failed(error, handle)
        except Exception as another:  # noqa: BLE001 - what it costs, and its trace in the log, are its owner's business
            error = another
        self.fatal.met(error, doing)
        return errno.EIO

    async def patiently(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Make one of the `Calls`: inline if nothing has to be waited for."""
        try:
            return call(*args, **kwargs)
        except WouldBlock:
            again: Callable[..., R] = call
            waiting = partial(again, *args, **kwargs, may_block=True)
            return await self.repeated(REQUESTS[call.__name__].repeat, partial(call, *args, **kwargs), waiting)

    async def repeated(self, repeat: Repeat | None, inline: Callable[[], R], waiting: Callable[[], R]) -> R:
        """Make a call again that has said `WouldBlock`.

        Args:
            repeat: Where, by the table.
            inline: As before, in the loop.
            waiting: With `may_block`.
        """
        while repeat is Repeat.LOOP:
            await trio.lowlevel.checkpoint()
            with suppress(WouldBlock):
                return inline()
        with self.priority.waiting() if repeat is Repeat.SYNC else nullcontext():
            limiter = self._threads if repeat is None else self._own_threads.get(repeat, self._threads)
            return await trio.to_thread.run_sync(waiting, limiter=limiter)


class Owned:
    """Owns what is done for one request, as a context manager for one use: it is counted, and its errors have an owner.

    Errors come out of it as the front-end's refusals.
    """

    __slots__ = ("_answering", "_began_s", "_doing", "_handle", "_row")

    def __init__(self, answering: Answering, row: Request, began_s: float, handle: int | None) -> None:
        self._answering = answering
        self._row = row
        self._began_s = began_s
        self._handle = handle
        self._doing = Doing(row.what, looks=not row.changes)

    def __enter__(self) -> None:
        self._doing.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        answering = self._answering
        number = answering.met(error, self._handle, self._doing) if isinstance(error, Exception) else 0
        self._doing.__exit__()
        answering.count(self._row.kind, self._began_s, number)
        if number:
            raise answering.refusal(number) from None


class Limit(Protocol):
    """How much may be dirty in the kernel."""

    def lower(self) -> None:
        """Little."""
        ...

    def restore(self) -> None:
        """As much as before."""
        ...


async def keep_dirty_low(fairness: Fairness, limit: Limit) -> None:
    """Lower a limit for as long as fsyncs wait beside a stream, again and again, until cancelled."""
    while True:
        begun = trio.Event()
        fairness.tell = begun.set
        if not fairness.is_on:
            await begun.wait()
        limit.lower()
        while (left_s := fairness.left_s) > 0:
            await trio.sleep(left_s)
        limit.restore()
