"""Reads requests, and answers most of them at once: without a task, or a thread. Those that would wait get a thread.

A task per request, and waking it, costs more than what most requests need (docs/design/kernel-frontend.md).
"""

from __future__ import annotations

import contextlib
import errno
import threading
import time
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from typing import Final, Protocol

import trio

from blockfs.engine.fatal import begin, end
from blockfs.errors import WouldBlock
from blockfs.fuse.answering import BLOCKING_CALLS, BLOCKING_LOOKS, BLOCKING_WRITES, Answering
from blockfs.fuse.kernel import decode
from blockfs.fuse.kernel.decode import Header, MalformedError
from blockfs.fuse.kernel.translation import UNANSWERED, Row
from blockfs.fuse.kernel.wire import HANDLE_IN, Opcode
from blockfs.fuse.kernel.workers import Workers
from blockfs.fuse.requests import Repeat
from blockfs.runtime.logs import Log

MAX_WAITING: Final = 96
"""Writes that wait: each holds up to 1 MiB, and beyond that nothing is read until one is done.

Other requests hold a few bytes, and there are no more than threads that ask. They must not be bounded: a search for
data waits for pages that the kernel has, and they come as writes.
"""

_THREADS: Final = {
    Repeat.DISK: BLOCKING_CALLS,
    Repeat.SYNC: BLOCKING_CALLS,
    Repeat.WRITE: BLOCKING_WRITES,
    Repeat.PAGES: BLOCKING_LOOKS,
}
_TURN: Final = 16  # requests that are answered before other tasks have their turn

log = Log()


class Refused(Exception):  # noqa: N818 - a control-flow signal, as pyfuse3 has one
    """What the kernel is told instead of an answer."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Connection(Protocol):
    """Where requests come from, and answers go: see `Channel`."""

    def receive(self) -> memoryview | None:
        """The next message, if there is one; good until the next call. EOFError: there will be none."""

    async def ready(self) -> None:
        """Wait until there may be a message."""

    def answer(self, unique: int, body: bytes | memoryview) -> None:
        """Answer a request."""

    def refuse(self, unique: int, number: int) -> None:
        """Answer a request by an errno."""


class Serving:
    """Answers the requests of one mount. Belongs to the event loop.

    Args:
        connection: To the kernel.
        rows: By opcode; what is missing is not supported.
        answering: Owns requests; its refusals are `Refused`.
        nothing_to_do: Opcodes of requests that are done as soon as they are here.
    """

    def __init__(
        self,
        connection: Connection,
        rows: Mapping[int, Row],
        answering: Answering,
        nothing_to_do: frozenset[int] = frozenset({Opcode.DESTROY}),
    ) -> None:
        self._connection = connection
        self._rows = rows
        self._answering = answering
        self._nothing_to_do = nothing_to_do
        self._room = threading.Semaphore(MAX_WAITING)
        self._workers = {
            repeat: Workers(most, f"blocksync-{repeat.name.lower()}", answering.fatal)
            for repeat, most in _THREADS.items()
        }

    async def run(self, nursery: trio.Nursery) -> None:
        """Answer what comes, until the kernel has unmounted.

        Args:
            nursery: Owns the requests that go on in the loop. It ends when they are answered.
        """
        try:
            with contextlib.suppress(EOFError):
                while True:
                    for _ in range(_TURN):
                        message = self._connection.receive()
                        if message is None:
                            await self._connection.ready()
                            continue
                        left = self.answer(message)
                        if left is not None:
                            await self._leave(nursery, *left)
                    await trio.lowlevel.checkpoint()
        finally:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(self._end)

    async def _leave(self, nursery: trio.Nursery, row: Row, header: Header, body: bytes, began_s: float) -> None:
        """Have a request answered that may have to wait."""
        repeat = row.request.repeat or Repeat.DISK
        if repeat is Repeat.LOOP:
            nursery.start_soon(self._answer_later, row, header, body, began_s)
            return
        if repeat is Repeat.WRITE and not self._room.acquire(blocking=False):
            await trio.to_thread.run_sync(self._room.acquire)
        self._workers[repeat].submit(partial(self._answer_in_thread, row, header, body, began_s))

    def _end(self) -> None:
        """Wait for what is not answered yet."""
        for workers in self._workers.values():
            workers.close()

    def answer(self, message: memoryview) -> tuple[Row, Header, bytes, float] | None:
        """Answer a request; or what is needed to do so where it may wait."""
        began_s = time.perf_counter()
        try:
            header, body = decode.split(message)
        except MalformedError as error:  # not even whom to answer is certain
            log.warning("request.malformed", reason=str(error))
            return None
        row = self._rows.get(header.opcode)
        if row is None:
            self._answer_simply(header)
            return None
        answering = self._answering
        token = begin(row.doing)  # not `owning`: it takes as long as the answer to a getattr
        try:
            answer = row.answer(header, body, False)
        except WouldBlock:
            return row, header, bytes(body), began_s
        except Exception as error:  # noqa: BLE001 - its owner is found by `met`
            number = answering.met(error, _handle(row, body), row.doing)
            answering.count(row.request.kind, began_s, number)
            self._refuse(header, number)
            return None
        finally:
            end(token)
        answering.count(row.request.kind, began_s, 0)
        if header.opcode not in UNANSWERED:
            self._connection.answer(header.unique, answer)
        return None

    def _answer_simply(self, header: Header) -> None:
        """What needs no call.

        INTERRUPT is among what is not supported, and then the kernel stops sending it: no program expects EINTR of a
        disk, so whoever gets a signal has its answer when that is there, as on the host's filesystem.
        """
        if header.opcode in self._nothing_to_do:
            self._connection.answer(header.unique, b"")
        else:
            self._refuse(header, errno.ENOSYS)

    def _answer_in_thread(self, row: Row, header: Header, body: bytes, began_s: float) -> None:
        """Answer a request for which a disk must be waited for."""
        repeat, view = row.request.repeat, memoryview(body)
        gives_way = self._answering.priority.waiting() if repeat is Repeat.SYNC else nullcontext()
        try:
            with self._answering.owning(row.request, began_s, _handle(row, view)), gives_way:
                self._connection.answer(header.unique, row.answer(header, view, True))
        except Refused as refused:
            self._connection.refuse(header.unique, refused.number)
        finally:
            if repeat is Repeat.WRITE:
                self._room.release()

    async def _answer_later(self, row: Row, header: Header, body: bytes, began_s: float) -> None:
        """Answer a request in the loop, after others had their turn."""
        view = memoryview(body)
        answer = partial(row.answer, header, view, False)
        try:
            with self._answering.owning(row.request, began_s, _handle(row, view)):
                self._connection.answer(header.unique, await self._answering.repeated(Repeat.LOOP, answer, answer))
        except Refused as refused:
            self._connection.refuse(header.unique, refused.number)

    def _refuse(self, header: Header, number: int) -> None:
        if header.opcode not in UNANSWERED:
            self._connection.refuse(header.unique, number)


def _handle(row: Row, body: memoryview) -> int | None:
    """The file whose content a request is about, to be told if it is damaged."""
    return int(HANDLE_IN.unpack_from(body)[0]) if row.request.by_handle and len(body) >= HANDLE_IN.size else None
