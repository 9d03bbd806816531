"""Writing to Pithos: a list of orders becomes requests, as few as the server lets it be.

Each request is sent once here. What is in doubt then, or was refused as too long together, is brought to its end order
by order (`alone.py`); so are orders that need more than a request. Files of several blocks: `upload.py`. New small
objects on a server without atomic conditions: `creates.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Final

import msgspec
import trio

from syncer.core.model import Kind, RemoteTag
from syncer.core.planner.overwrites import ForeignVersion, Overwrite
from syncer.core.xattrs import XattrError
from syncer.errors import ONE_NODE, OverQuotaError, SyncerError, UnholdableError, UnsafeNameError
from syncer.ports.orders import Delete, Done, Move, MoveTree, Order, Reader, SetMeta, Store, Stored
from syncer.protocol.extensions import bulk
from syncer.protocol.pithos import headers as wire
from syncer.protocol.pithos.faults import Fault, encode_fault
from syncer.remote.container.info import ContainerInfo
from syncer.remote.container.requests import object_name
from syncer.remote.container.session import Session
from syncer.remote.http.transport import Reply, ReplyLostError
from syncer.remote.parallel import LISTS_AT_ONCE, cut_into_lists, for_each
from syncer.remote.pithos.alone import Alone
from syncer.remote.pithos.creates import Creator, OwnSerials
from syncer.remote.pithos.upload import Uploads

_ALONE_AT_ONCE: Final = 16  # requests of their own: they wait for round trips most of the time
_LARGE_AT_ONCE: Final = 8
_ALONE_BYTES: Final = 256 << 10  # of a file whose request gains nothing from those of others, where there is no `bulk`


class _Change(msgspec.Struct, frozen=True, kw_only=True):
    """A small order with its content.

    Attributes:
        at: Its place in the list.
        order: What.
        data: The whole content; b"" if the order has none.
    """

    at: int
    order: Order
    data: bytes = b""


class Writer:
    """The writing half of the client.

    Attributes:
        session: The container.
        alone: Carries out single orders.
        creator: Makes new objects on a server without atomic conditions.
        uploads: Sends large files.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.alone = Alone(session)
        self.creator = Creator(session, OwnSerials(), self.alone)
        self.uploads = Uploads(session, self.alone)

    async def write(self, orders: Sequence[Order], reader: Reader, done: Done) -> None:
        """See Writes."""
        info = self.session.known or await self.session.info()
        await _Writing(self, info, orders, reader, done).run()

    async def replaced_unseen(self, write: Overwrite) -> list[ForeignVersion]:
        """See Remote.replaced_unseen."""
        if (await self.session.info()).atomic:
            return []
        return await self.alone.plain.foreign(object_name(write.path), write)


class _Writing:
    """One list."""

    def __init__(
        self, writer: Writer, info: ContainerInfo, orders: Sequence[Order], reader: Reader, done: Done
    ) -> None:
        self._session, self._alone = writer.session, writer.alone
        self._creator, self._uploads = writer.creator, writer.uploads
        self._orders, self._reader, self._done = orders, reader, done
        self._block_size, self._is_atomic = info.block_size, info.atomic
        self._has_bulk = info.atomic and wire.EXTENSION_BULK in info.extensions
        self._most_bytes = info.block_size if self._has_bulk else min(info.block_size, _ALONE_BYTES)

    async def run(self) -> None:
        groups: list[int] = []
        single: list[int] = []
        large: list[int] = []
        for at, order in enumerate(self._orders):
            if isinstance(order, Store) and order.size_bytes > self._block_size:
                large.append(at)
            else:
                (groups if self._goes_with_others(order) else single).append(at)
        if len(self._orders) == 1:  # the daily case: nothing to do at once
            await (self._together if groups else self._one if single else self._large)([0])
            return
        cut = cut_into_lists(groups, bulk.MAX_OPERATIONS, bulk.MAX_CONTENT_BYTES, lambda at: _cost(self._orders[at]))
        pools: list[tuple[Iterator[list[int]], Callable[[list[int]], Awaitable[None]], int]] = [
            (iter(cut), self._together, min(LISTS_AT_ONCE, len(cut))),
            (([at] for at in single), self._one, min(_ALONE_AT_ONCE, len(single))),
            (([at] for at in large), self._large, min(_LARGE_AT_ONCE, len(large))),
        ]
        used = [pool for pool in pools if pool[2]]
        await for_each(iter(used), lambda pool: for_each(*pool), max(1, len(used)))

    def _goes_with_others(self, order: Order) -> bool:
        """Whether an order is one of several in a request, or of several that are looked at by one listing."""
        if isinstance(order, MoveTree | SetMeta):
            return False
        if not isinstance(order, Store):
            return self._has_bulk
        if order.sent or isinstance(order.source, ForeignVersion) or order.size_bytes > self._most_bytes:
            return False
        return self._has_bulk or (not self._is_atomic and order.replaces is None)

    # --- small ones

    async def _together(self, places: list[int]) -> None:
        changes = await self._read(places)
        if not self._is_atomic:
            stores = [(change.order, change.data) for change in changes if isinstance(change.order, Store)]
            for change, outcome in zip(changes, await self._creator.make(stores), strict=True):
                await self._tell(change.at, outcome)
        else:
            await self._send(changes)

    async def _one(self, places: list[int]) -> None:
        (at,) = places
        order = self._orders[at]
        if isinstance(order, Store) and order.sent:
            await self._large(places)
            return
        once = self._is_atomic and not isinstance(order, MoveTree)
        once = once and not (isinstance(order, Store) and isinstance(order.source, ForeignVersion))
        for change in await self._read(places):
            await (self._send_alone(change) if once else self._settle(change))

    async def _read(self, places: Sequence[int]) -> list[_Change]:
        """The orders with their contents; what can't be had is told."""
        files: list[Store] = []
        for at in places:
            order = self._orders[at]
            if isinstance(order, Store) and _has_content(order):
                files.append(order)
        found = iter(await self._reader.contents(files) if files else ())
        changes: list[_Change] = []
        for at in places:
            order = self._orders[at]
            data: bytes | Exception = b""
            if isinstance(order, Store):
                data = next(found) if _has_content(order) else order.target or b""
            if isinstance(data, Exception):
                await self._tell(at, data)
                continue
            if data and isinstance(order, Store) and order.kind is Kind.FILE:
                self._session.counters.blocks_sent += 1
            changes.append(_Change(at=at, order=order, data=data))
        return changes

    async def _send(self, changes: Sequence[_Change]) -> None:
        """Send small changes to our own server, once, in one request."""
        if len(changes) < 2:
            for change in changes:
                await self._send_alone(change)
            return
        operations: dict[int, bulk.Operation] = {}
        for change in changes:
            assert isinstance(change.order, Store | Move | Delete)
            try:
                operations[change.at] = self._session.make.operation(change.order, change.data)
            except (UnsafeNameError, XattrError) as error:
                await self._tell(change.at, error)
        if operations:
            await self._send_bulk([one for one in changes if one.at in operations], list(operations.values()))

    async def _send_alone(self, change: _Change) -> None:
        order, doubt = change.order, True
        assert not isinstance(order, MoveTree)

        async def once() -> Stored | None:
            nonlocal doubt
            try:
                reply = await self._session.send(self._session.make.change(order, change.data))
                return await self._alone.concluded(order, reply)
            except SyncerError as error:
                if not error.retryable:
                    raise
                doubt = isinstance(error, ReplyLostError)
                return None

        if not await self._end(change, once):
            await self._settle(change, doubt=doubt)

    async def _send_bulk(self, changes: Sequence[_Change], operations: Sequence[bulk.Operation]) -> None:
        left, doubt = list(changes), False
        try:
            request = await trio.to_thread.run_sync(self._session.make.bulk, operations)
            reply = self._session.judge.demand(request, await self._session.send(request), 200)
            results = self._session.judge.results(reply, len(operations))
        except OverQuotaError:
            pass  # as a whole, and nothing was done: each goes alone, and may be small enough
        except SyncerError as error:
            if not error.retryable:
                raise
            doubt = isinstance(error, ReplyLostError)
        else:
            left, doubt = await self._read_results(changes, results), True
        if left:  # whether they were done is looked up, and made up for, one by one
            await for_each(iter(left), partial(self._settle, doubt=doubt), min(_ALONE_AT_ONCE, len(left)))

    async def _read_results(self, changes: Sequence[_Change], results: Sequence[bulk.Result]) -> list[_Change]:
        """Tell what became of several; returns those of which the server does not know itself."""
        others: list[tuple[_Change, bulk.Result]] = []
        with trio.CancelScope(shield=True):  # what is known is told, whatever happens elsewhere
            for change, result in zip(changes, results, strict=True):
                stored = _made(change.order, result)
                if stored is None:
                    others.append((change, result))
                else:
                    await self._tell(change.at, stored)
        left: list[_Change] = []
        for change, result in others:

            async def read(order: Order = change.order, result: bulk.Result = result) -> Stored | None:
                try:
                    return await self._alone.concluded(order, _reply_of(result))
                except SyncerError as error:
                    if not error.retryable:
                        raise
                    return None

            if not await self._end(change, read):
                left.append(change)
        return left

    async def _settle(self, change: _Change, *, doubt: bool = False) -> None:
        await self._end(change, partial(self._alone.settle, change.order, change.data, doubt=doubt))

    # --- large ones

    async def _large(self, places: list[int]) -> None:
        (at,) = places
        order = self._orders[at]
        assert isinstance(order, Store)
        await self._end(_Change(at=at, order=order), partial(self._uploads.upload, order, self._reader))

    # --- outcomes

    async def _end(self, change: _Change, work: Callable[[], Awaitable[Stored | None]]) -> bool:
        """Tell what `work` makes of an order; False if that is nothing yet."""
        outcome: Stored | Exception | None
        try:
            outcome = await work()
        except (*ONE_NODE, XattrError) as error:
            outcome = error
        if outcome is not None:
            await self._tell(change.at, outcome)
        return outcome is not None

    async def _tell(self, at: int, outcome: Stored | Exception) -> None:
        order = self._orders[at]
        if isinstance(outcome, XattrError):  # those of both sides, united
            outcome = UnholdableError(order.source if isinstance(order, Move | MoveTree) else order.path, str(outcome))
        await self._done(at, outcome)


def _made(order: Order, result: bulk.Result) -> Stored | None:
    """What a result says without doubt."""
    if isinstance(order, Delete):
        return Stored() if result.status == 204 else None
    assert isinstance(order, Store | Move)
    etag = order.hash_hex if isinstance(order, Store) else order.expect.etag
    if result.status != 201 or not (result.version and result.uuid) or result.object_hash != etag:
        return None
    size_bytes = order.size_bytes if isinstance(order, Store) else order.expect.size_bytes
    return Stored(tag=RemoteTag(uuid=result.uuid, version=result.version, etag=etag, size_bytes=size_bytes))


def _has_content(order: Store) -> bool:
    return order.kind is Kind.FILE and not isinstance(order.source, ForeignVersion)


def _cost(order: Order) -> int:
    """Bytes of an order in a request, names aside."""
    if not isinstance(order, Store):
        return 0
    attributes = sum(len(name) + len(value or b"") for name, value in order.meta.xattrs or ())
    return order.size_bytes + 2 * attributes


def _reply_of(result: bulk.Result) -> Reply:
    """What a change would have been answered if it had been sent alone."""
    if result.status >= 300:
        fault = Fault(code=result.status, message=result.message)
        return Reply(status=result.status, headers={}, body=encode_fault(fault))
    headers: dict[str, str] = {}
    if result.version:
        headers[wire.OBJECT_VERSION.lower()] = str(result.version)
    if result.uuid:
        headers[wire.OBJECT_UUID.lower()] = result.uuid
    if result.object_hash:
        headers["etag"] = result.object_hash
    return Reply(status=result.status, headers=headers, body=b"")
