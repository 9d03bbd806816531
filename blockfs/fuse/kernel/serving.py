"""Reads requests, and answers most of them at once: without a task, or a thread. Those that would wait get a task.

A task per request, and waking it, costs more than what most requests need (docs/design/kernel-frontend.md). An fsync
always waits, and somebody waits for it: it goes to a thread at once.
"""

from __future__ import annotations

import contextlib
import errno
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, Protocol

import trio

from blockfs.engine.fatal import begin, end
from blockfs.errors import WouldBlock
from blockfs.fuse.answering import BLOCKING_CALLS, Answering
from blockfs.fuse.kernel import decode
from blockfs.fuse.kernel.decode import Header, MalformedError
from blockfs.fuse.kernel.translation import UNANSWERED, Row
from blockfs.fuse.kernel.wire import HANDLE_IN, Opcode
from blockfs.fuse.requests import Repeat
from blockfs.runtime.logs import Log

MAX_WAITING: Final = 96
"""Writes that wait: each holds up to 1 MiB, and beyond that nothing is read until one is done.

Other requests hold a few bytes, and there are no more than threads that ask. They must not be bounded: a search for
data waits for pages that the kernel has, and they come as writes.
"""

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
        self._room = trio.Semaphore(MAX_WAITING)
        self._syncs = ThreadPoolExecutor(BLOCKING_CALLS, thread_name_prefix="blocksync-fsync")

    async def run(self, nursery: trio.Nursery) -> None:
        """Answer what comes, until the kernel has unmounted.

        Args:
            nursery: Owns the requests that wait. It ends when they are answered.
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
                await trio.to_thread.run_sync(self._syncs.shutdown)

    async def _leave(self, nursery: trio.Nursery, row: Row, header: Header, body: bytes, began_s: float) -> None:
        """Have a request answered that may have to wait."""
        if row.request.repeat is Repeat.SYNC:
            self._syncs.submit(self._sync, row, header, body, began_s)
        elif row.request.repeat is Repeat.WRITE:
            await self._room.acquire()
            nursery.start_soon(self._write_later, row, header, body, began_s)
        else:
            nursery.start_soon(self._answer_later, row, header, body, began_s)

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

    def _sync(self, row: Row, header: Header, body: bytes, began_s: float) -> None:
        """Answer a request that always waits, in a thread of our own: a task, and its way to a thread, take a fifth."""
        view = memoryview(body)
        try:
            with self._answering.owning(row.request, began_s, _handle(row, view)), self._answering.priority.waiting():
                self._connection.answer(header.unique, row.answer(header, view, True))
        except Refused as refused:
            self._connection.refuse(header.unique, refused.number)

    async def _write_later(self, row: Row, header: Header, body: bytes, began_s: float) -> None:
        try:
            await self._answer_later(row, header, body, began_s)
        finally:
            self._room.release()

    async def _answer_later(self, row: Row, header: Header, body: bytes, began_s: float) -> None:
        """Answer a request for which a disk must be waited for, or others' turns."""
        view = memoryview(body)

        def answer(may_block: bool) -> None:
            """In the thread that has the answer: whoever asked need not wait for the way back to the loop."""
            self._connection.answer(header.unique, row.answer(header, view, may_block))

        try:
            with self._answering.owning(row.request, began_s, _handle(row, view)):
                await self._answering.repeated(row.request.repeat, partial(answer, False), partial(answer, True))
        except Refused as refused:
            self._connection.refuse(header.unique, refused.number)

    def _refuse(self, header: Header, number: int) -> None:
        if header.opcode not in UNANSWERED:
            self._connection.refuse(header.unique, number)


def _handle(row: Row, body: memoryview) -> int | None:
    """The file whose content a request is about, to be told if it is damaged."""
    return int(HANDLE_IN.unpack_from(body)[0]) if row.request.by_handle and len(body) >= HANDLE_IN.size else None
