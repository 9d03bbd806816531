"""Small changes that are asked for at the same time share a request, where the server can that (`bulk`).

Each change keeps its own fate: it gets a reply as if it had been sent alone, also after a lost request. Who gets none
looks what happened, as after any lost reply (`retry`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from syncer.errors import OverQuotaError
from syncer.protocol.extensions.bulk import MAX_CONTENT_BYTES, MAX_OPERATIONS, Operation, Put, Result
from syncer.protocol.pithos import headers as wire
from syncer.protocol.pithos.faults import Fault, encode_fault
from syncer.remote.http.transport import Reply, ReplyLostError
from syncer.remote.pithos.gather import Gatherer, Item, Limits

SendMany = Callable[[Sequence[Operation]], Awaitable[Sequence[Result]]]
"""Sends operations in one request, once; raises if there is no good answer."""

SendOne = Callable[[], Awaitable[Reply]]
"""Sends one change as a request of its own."""

_LIMITS: Final = Limits(under_way=4, items=MAX_OPERATIONS, size_bytes=MAX_CONTENT_BYTES)


@dataclass(slots=True, eq=False, kw_only=True)
class _Change(Item):
    operation: Operation
    alone: SendOne
    reply: Reply | None = None


class Batcher:
    """Collects changes of one container."""

    def __init__(self, send_many: SendMany) -> None:
        self._send_many = send_many
        self._changes: Gatherer[_Change] = Gatherer(self._send, _size_of, _lost, _LIMITS)

    async def send(self, operation: Operation, alone: SendOne) -> Reply:
        """Have a change done, together with others or by a request of its own.

        Args:
            operation: The change.
            alone: The same as a single request; used when there is no company.

        Raises:
            SyncerError: As a transport does. After a ReplyLostError it may be done or not.
        """
        change = _Change(operation=operation, alone=alone)
        await self._changes.have_sent(change)
        return await alone() if change.reply is None else change.reply

    async def _send(self, batch: list[_Change]) -> None:
        if len(batch) == 1:
            batch[0].reply = await batch[0].alone()
            return
        try:
            results = await self._send_many([change.operation for change in batch])
        except OverQuotaError:
            return  # the request is, and nothing of it was done: each goes alone, and may be small enough
        for change, result in zip(batch, results, strict=True):
            change.reply = reply_of(result)


def _size_of(change: _Change) -> int:
    return len(change.operation.data) if isinstance(change.operation, Put) else 0


def _lost() -> ReplyLostError:
    return ReplyLostError("the request was given up; whether it was done is not known")


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
