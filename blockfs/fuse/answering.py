"""How requests are answered on trio, whatever translates them: each in a task of its own, in one thread.

A call is first made inline, in the event loop: a thread hop costs more than most requests (40-70 µs against 10). When a
disk would have to be waited for, the call says `WouldBlock`, and is repeated where the table of requests says.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from functools import partial
from typing import Any, Final, ParamSpec, Protocol, TypeVar

import trio

from blockfs.engine.fatal import Doing
from blockfs.engine.filesystem import Filesystem
from blockfs.errors import EXPECTED, WouldBlock
from blockfs.fuse.calls import Calls
from blockfs.fuse.fairness import Fairness
from blockfs.fuse.requests import REQUESTS, Repeat
from blockfs.service.counters import Counters

BLOCKING_CALLS: Final = 16  # threads that may wait for disks
BLOCKING_WRITES: Final = 12  # their own, lest held-back writers stop reads

P = ParamSpec("P")
R = TypeVar("R")


class Answering:
    """The road from a request to its answer.

    Args:
        filesystem: What is mounted.
        calls: Answer the requests.
        counters: Count them.
        refusal: Makes the front-end's exception of an errno.
    """

    def __init__(
        self, filesystem: Filesystem, calls: Calls, counters: Counters, refusal: Callable[[int], Exception]
    ) -> None:
        self._filesystem = filesystem
        self._calls = calls
        self._counters = counters
        self._refusal = refusal
        self._threads = trio.CapacityLimiter(BLOCKING_CALLS)
        self._write_threads = trio.CapacityLimiter(BLOCKING_WRITES)

    def owned(self, kind: str, answer: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
        """A request handler that answers the same, is counted, and whose errors have an owner.

        `answer`: translates and calls. Its first argument is the file's handle, where the table says `by_handle`.
        """
        counters, fatal, now = self._counters, self._filesystem.fatal, time.perf_counter
        requests, seconds = counters.requests, counters.request_seconds
        what, row = f"the request {kind}", REQUESTS[kind]

        async def owned(*args: P.args, **kwargs: P.kwargs) -> R:
            began_s = now()
            doing = Doing(what, looks=not row.changes)
            try:
                with doing:
                    try:
                        return await answer(*args, **kwargs)
                    except EXPECTED as error:
                        handle: Any = args[0] if row.by_handle else None
                        number = self._calls.failed(error, handle)
            except Exception as error:  # noqa: BLE001 - what it costs, and its trace in the log, are its owner's business
                fatal.met(error, doing)
                number = errno.EIO
            finally:
                requests[kind] += 1
                seconds[kind] += now() - began_s
            counters.errors[number] += 1
            raise self._refusal(number)

        return owned

    async def patiently(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Make one of the `Calls`: inline if nothing has to be waited for."""
        again: Callable[..., R] = call
        while True:
            try:
                return call(*args, **kwargs)
            except WouldBlock:
                repeat = REQUESTS[call.__name__].repeat
            if repeat is not Repeat.LOOP:
                break
            await trio.lowlevel.checkpoint()
        with self._filesystem.priority.waiting() if repeat is Repeat.SYNC else nullcontext():
            return await trio.to_thread.run_sync(
                partial(again, *args, **kwargs, may_block=True),
                limiter=self._write_threads if repeat is Repeat.WRITE else self._threads,
            )


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
