"""Small changes that are asked for at the same time share a request, where the server can that (`bulk`).

Nobody waits for others on purpose. Up to four requests are under way; what comes meanwhile is the next one. So a single
change goes at once, and thousands that are asked for together go in few requests. (The server's group commit does the
same with its transactions.)

Each change keeps its own fate: it gets a reply as if it had been sent alone, also after a lost request. Who gets none
looks what happened, as after any lost reply (`retry`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import trio

from syncer.errors import SyncerError
from syncer.protocol import headers as wire
from syncer.protocol.bulk import MAX_CONTENT_BYTES, MAX_OPERATIONS, Operation, Put, Result
from syncer.protocol.faults import Fault, encode_fault
from syncer.remote.http import Reply, ReplyLostError

SendMany = Callable[[Sequence[Operation]], Awaitable[Sequence[Result]]]
"""Sends operations in one request, once; raises if there is no good answer."""

SendOne = Callable[[], Awaitable[Reply]]
"""Sends one change as a request of its own."""

_UNDER_WAY: Final = 4


@dataclass(slots=True, eq=False)
class _Item:
    """A change that waits, or is under way."""

    operation: Operation
    alone: SendOne
    turn: trio.Event = field(default_factory=trio.Event)  # it has an outcome, or somebody must send
    reply: Reply | None = None
    error: SyncerError | None = None

    @property
    def is_done(self) -> bool:
        return self.reply is not None or self.error is not None


class Batcher:
    """Collects changes of one container."""

    def __init__(self, send_many: SendMany) -> None:
        self._send_many = send_many
        self._waiting: deque[_Item] = deque()
        self._under_way = 0

    async def send(self, operation: Operation, alone: SendOne) -> Reply:
        """Have a change done, together with others or by a request of its own.

        Args:
            operation: The change.
            alone: The same as a single request; used when there is no company.

        Raises:
            SyncerError: As a transport does. After a ReplyLostError it may be done or not.
        """
        item = _Item(operation, alone)
        self._waiting.append(item)
        try:
            while not item.is_done:
                if self._under_way < _UNDER_WAY and self._waiting:
                    await self._send_next()
                else:
                    await item.turn.wait()
                    item.turn = trio.Event()
        finally:
            if not item.is_done and item in self._waiting:  # cancelled before anybody took it
                self._waiting.remove(item)
                self._wake()
        if item.error is not None:
            raise item.error
        assert item.reply is not None
        return item.reply

    async def _send_next(self) -> None:
        """Send what waits, as much as fits into a request."""
        self._under_way += 1
        batch: list[_Item] = []
        try:
            await trio.lowlevel.checkpoint()  # whoever is about to ask, too, comes along
            batch = self._take()
            self._wake()
            if len(batch) == 1:
                batch[0].reply = await batch[0].alone()
            elif batch:
                results = await self._send_many([item.operation for item in batch])
                for item, result in zip(batch, results, strict=True):
                    item.reply = reply_of(result)
        except SyncerError as error:
            for item in batch:
                item.error = error
        finally:
            self._under_way -= 1
            for item in batch:
                if not item.is_done:  # who sent it was cancelled
                    item.error = ReplyLostError("the request was given up; whether it was done is not known")
                item.turn.set()
            self._wake()

    def _wake(self) -> None:
        """Have somebody send what waits, if there is room for a request."""
        if self._waiting and self._under_way < _UNDER_WAY:
            self._waiting[0].turn.set()

    def _take(self) -> list[_Item]:
        batch: list[_Item] = []
        size = 0
        while self._waiting and len(batch) < MAX_OPERATIONS:
            operation = self._waiting[0].operation
            size += len(operation.data) if isinstance(operation, Put) else 0
            if batch and size > MAX_CONTENT_BYTES:
                break
            batch.append(self._waiting.popleft())
        return batch


def reply_of(result: Result) -> Reply:
    """What the change would have been answered if it had been sent alone."""
    if result.status >= 300:
        return Reply(
            status=result.status, headers={}, body=encode_fault(Fault(code=result.status, message=result.message))
        )
    headers: dict[str, str] = {}
    if result.version:
        headers[wire.OBJECT_VERSION.lower()] = str(result.version)
    if result.uuid:
        headers[wire.OBJECT_UUID.lower()] = result.uuid
    if result.object_hash:
        headers["etag"] = result.object_hash
    return Reply(status=result.status, headers=headers, body=b"")
