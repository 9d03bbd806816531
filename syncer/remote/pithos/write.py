"""Writing to Pithos. One write is: condition, request, and after a lost reply a look at what happened.

Two kinds of server. Ours checks conditions atomically by version. Synnefo's reads the object before it takes its lock
(protocol note 0.2), so two writers can both succeed: there we look before (its If-Match can't see appended NULs) and
after (`pithos_plain`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeVar

import msgspec
import trio
from msgspec.structs import replace

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.hashing import block_id, canonical
from blockfs.blocks.ids import BlockId
from blockfs.runtime.output import shown
from syncer.core.model import Kind, Meta, RelPath, RemoteTag
from syncer.core.planner.overwrites import ForeignVersion, Overwrite
from syncer.core.subtrees import Guard as SubtreeGuard
from syncer.core.subtrees import SubtreeMove
from syncer.errors import (
    ConflictOnRemoteError,
    CorruptionError,
    ForbiddenError,
    OverQuotaError,
    PreconditionFailedError,
    SyncerError,
    UnsafeNameError,
)
from syncer.protocol.extensions import bulk
from syncer.protocol.extensions.hashmap_delta import MAX_DELTA_IDS, delta_between, delta_of
from syncer.protocol.pithos import headers as wire
from syncer.protocol.pithos.faults import decode_fault
from syncer.protocol.pithos.headers import ObjectState
from syncer.remote.client import KnownBase, MissingBlocks, MoveOrder, PutOrder, PutResult
from syncer.remote.http.transport import BadReplyError, Reply, Request
from syncer.remote.parallel import each_alone, for_each
from syncer.remote.pithos.batch import Batcher, reply_of
from syncer.remote.pithos.conditions import describe, require
from syncer.remote.pithos.creates import Creator, OwnSerials
from syncer.remote.pithos.plain import PlainServer
from syncer.remote.pithos.replies import Written, same_payload, tag_of
from syncer.remote.pithos.requests import Guard, etag_guard, object_name, version_guard
from syncer.remote.pithos.session import Session

T = TypeVar("T")

_BULKS_AT_ONCE: Final = 3  # of one big rename: one is on its way while another is being done


class _Payload(msgspec.Struct, frozen=True, kw_only=True):
    """What a write makes of an object: enough to recognise it afterwards."""

    kind: Kind | None  # None: as it was
    size_bytes: int
    etag: str
    meta: Meta

    def is_in(self, state: ObjectState) -> bool:
        return same_payload(state, self.kind, self.size_bytes, self.etag, self.meta)


class _Refused:
    """The server makes something else of our splices: nothing was written."""


class Writer:
    """The writing half of the client."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._plain = PlainServer(session)
        self._batcher = Batcher(self._send_many)
        self._creator = Creator(session, OwnSerials(), self._create, self._create_in_doubt, self._created)

    async def put_blocks(self, blocks: Sequence[bytes]) -> list[BlockId]:
        """See CloudClient.put_blocks."""
        assert blocks
        block_size = (await self._session.info()).block_size
        assert all(len(block) <= block_size for block in blocks)
        # The shortest goes last: only there it travels without padding.
        order = sorted(range(len(blocks)), key=lambda at: len(blocks[at]), reverse=True)
        sent = [canonical(blocks[at]) for at in order]
        request = self._session.make.put_blocks(sent, block_size)
        ids = await trio.to_thread.run_sync(lambda: [block_id(block) for block in sent])
        self._session.counters.blocks_sent += len(sent)
        reply = await self._session.ask(request, 202, 403)
        if reply.status == 403:  # only the owner of a container may: that ends no cycle of who else may write objects
            raise ForbiddenError(str(self._session.judge.failure(request, reply)))
        # Even 202 proves nothing: a wrong content type is answered so, with an empty body.
        if self._session.judge.stored(reply) != ids:
            raise BadReplyError(f"{self._session.judge.origin} did not store the blocks that it was sent")
        places = dict(zip(order, ids, strict=True))
        return [places[at] for at in range(len(blocks))]

    async def put_object(
        self, path: RelPath, blocks: BlockList, meta: Meta, expect: RemoteTag | None, base: KnownBase | None = None
    ) -> PutResult | MissingBlocks:
        """See CloudClient.put_object."""
        name = object_name(path)
        if base is not None and expect is not None:
            done = await self._put_delta(path, name, blocks, meta, expect, base)
            if done is not None:
                return done
        etag = await trio.to_thread.run_sync(blocks.object_hash.hex)
        payload = _Payload(kind=Kind.FILE, size_bytes=blocks.size_bytes, etag=etag, meta=meta)

        info = await self._session.info()
        binary = wire.EXTENSION_BLOCK_LISTS in info.extensions and blocks.block_size == info.block_size
        delta = await trio.to_thread.run_sync(delta_of, blocks) if binary else None

        async def send(guard: Guard) -> Written | MissingBlocks:
            if delta is None:
                request = self._session.make.put_hashmap(name, blocks, meta, guard)
            else:
                request = self._session.make.put_block_list(name, blocks.block_size, delta, None, meta, guard)
            reply = await self._session.send(request)
            if reply.status == 409:
                return MissingBlocks(ids=self._session.judge.missing(request, reply))
            return self._written(request, reply, path, expect)

        return await self._guarded(path, name, payload, expect, send)

    async def _put_delta(  # put_object's arguments
        self, path: RelPath, name: str, blocks: BlockList, meta: Meta, expect: RemoteTag, base: KnownBase
    ) -> PutResult | MissingBlocks | None:
        """Write what differs from `expect`; None if that saves nothing, or if what we know of `expect` is wrong."""
        info = await self._session.info()
        known = base.blocks.block_size == blocks.block_size == info.block_size
        binary = wire.EXTENSION_BLOCK_LISTS in info.extensions
        if not known or not (binary or wire.EXTENSION_DELTA in info.extensions):
            return None
        delta = await trio.to_thread.run_sync(delta_between, base.blocks, blocks, base.object_hash)
        if 2 * len(delta) > len(blocks) or len(delta) > MAX_DELTA_IDS:
            return None
        etag = base.object_hash.hex()
        payload = _Payload(kind=Kind.FILE, size_bytes=blocks.size_bytes, etag=etag, meta=meta)

        async def send(guard: Guard) -> Written | MissingBlocks | _Refused:
            put = self._session.make.put_block_list if binary else self._session.make.put_delta
            request = put(name, blocks.block_size, delta, expect.version, meta, guard)
            reply = await self._session.send(request)
            if reply.status == 409:
                return MissingBlocks(ids=self._session.judge.missing(request, reply))
            if reply.status == 422:
                return _Refused()
            return self._written(request, reply, path, expect)

        done: PutResult | MissingBlocks | _Refused = await self._guarded(path, name, payload, expect, send)
        return None if isinstance(done, _Refused) else done

    async def put_all(self, orders: Sequence[PutOrder]) -> list[PutResult | SyncerError]:
        """See CloudClient.put_all."""
        info = await self._session.info()
        if not info.atomic:
            self._session.counters.blocks_sent += sum(1 for one in orders if one.kind is Kind.FILE and one.data)
            return await self._creator.make(orders)
        if wire.EXTENSION_BULK not in info.extensions or len(orders) == 1:
            return await each_alone(orders, self.put_small, min(self._session.workers, max(1, len(orders))))
        done: dict[int, PutResult | SyncerError] = {}
        operations: dict[int, bulk.Put] = {}
        for at, order in enumerate(orders):
            assert len(order.data) <= info.block_size
            try:
                name = object_name(order.path)
            except UnsafeNameError as error:
                done[at] = error
                continue
            content_type, meta = wire.content_type_of(order.kind), wire.encode_meta(order.meta)
            operations[at] = bulk.Put(name=name, data=order.data, content_type=content_type, meta=meta, if_version=0)
        self._session.counters.blocks_sent += sum(1 for one in orders if one.kind is Kind.FILE and one.data)
        if not operations:
            return [done[at] for at in range(len(orders))]
        try:
            results = await self._send_many(list(operations.values()))
        except SyncerError as error:
            too_long = isinstance(error, OverQuotaError)  # as a whole, and nothing was done: each may be small enough
            if not (error.retryable or too_long):
                raise
            # Else whether it was done is looked up, and made up for, one by one.
            rest = [orders[at] for at in operations]
            again = await each_alone(rest, partial(self._put_small, doubt=not too_long), self._session.workers)
            done.update(zip(operations, again, strict=True))
        else:
            for (at, operation), result in zip(operations.items(), results, strict=True):
                done[at] = await self._made(orders[at], operation, result)
        return [done[at] for at in range(len(orders))]

    async def _create(self, order: PutOrder, leaving: Callable[[], None]) -> Written:
        """Send one of several once, on a server that takes them one by one."""
        name = object_name(order.path)
        made = self._session.make.put_body(name, order.kind, order.data, order.meta, etag_guard(None))
        request = replace(made, leaving=leaving)
        return self._read_small(lambda: request, await self._session.send(request), order.path, None)

    async def _create_in_doubt(self, order: PutOrder) -> PutResult:
        return await self._put_small(order.path, order.kind, order.data, order.meta, None, doubt=True)

    async def _created(self, order: PutOrder, written: Written, tag: RemoteTag | None) -> PutResult:
        """Look at what has become of one that was sent."""
        name = object_name(order.path)
        if tag is None:
            tag = await self._tag(order.path, name, written, None, block_id(order.data).hex(), len(order.data))
        write = Overwrite(path=order.path, kind=order.kind, size_bytes=len(order.data), etag=tag.etag, known=0)
        return PutResult(tag=tag, foreign=tuple(await self._plain.foreign(name, write, tag)))

    async def _made(self, order: PutOrder, operation: bulk.Put, result: bulk.Result) -> PutResult | SyncerError:
        """What became of one of several."""
        etag = block_id(order.data).hex()
        if result.status == 201 and result.version and result.uuid and result.object_hash == etag:
            size_bytes = len(order.data)
            return PutResult(tag=RemoteTag(uuid=result.uuid, version=result.version, etag=etag, size_bytes=size_bytes))
        make = partial(self._session.make.put_body, operation.name, order.kind, order.data, order.meta, {})
        try:
            written = self._read_small(make, reply_of(result), order.path, None)
            tag = await self._tag(order.path, operation.name, written, None, etag, len(order.data))
        except SyncerError as error:
            return error
        return PutResult(tag=tag)

    async def put_small(
        self, path: RelPath, kind: Kind, data: bytes, meta: Meta, expect: RemoteTag | None
    ) -> PutResult:
        """See CloudClient.put_small."""
        if kind is Kind.FILE and data:
            self._session.counters.blocks_sent += 1
        return await self._put_small(path, kind, data, meta, expect)

    async def _put_small(  # put_small's arguments
        self, path: RelPath, kind: Kind, data: bytes, meta: Meta, expect: RemoteTag | None, *, doubt: bool = False
    ) -> PutResult:
        """See CloudClient.put_small; with `doubt` it may have been done already."""
        assert len(data) <= (await self._session.info()).block_size
        name = object_name(path)
        payload = _Payload(kind=kind, size_bytes=len(data), etag=block_id(data).hex(), meta=meta)

        async def send(guard: Guard) -> Written:
            operation = bulk.Put(
                name=name,
                data=data,
                content_type=wire.content_type_of(kind),
                meta=wire.encode_meta(meta),
                if_version=expect.version if expect else 0,
            )
            make = partial(self._session.make.put_body, name, kind, data, meta, guard)
            return await self._send_small(make, operation, path, expect)

        return await self._guarded(path, name, payload, expect, send, doubt=doubt)

    async def set_meta(self, path: RelPath, meta: Meta, expect: RemoteTag) -> PutResult:
        """See CloudClient.set_meta."""
        name = object_name(path)
        payload = _Payload(kind=None, size_bytes=expect.size_bytes, etag=expect.etag, meta=meta)

        async def send(guard: Guard) -> Written:
            request = self._session.make.set_meta(name, meta, guard)
            return self._written(request, await self._session.send(request), path, expect)

        return await self._guarded(path, name, payload, expect, send)

    async def move(self, source: RelPath, target: RelPath, expect: RemoteTag) -> PutResult:
        """See CloudClient.move."""
        from_name, to_name = object_name(source), object_name(target)
        if not (await self._session.info()).atomic:
            return await self._plain.move(source, target, expect)
        guard = {**version_guard(expect), wire.IF_DESTINATION_VERSION: "0"}
        make = partial(self._session.make.move, from_name, to_name, guard)

        operation = bulk.Move(name=from_name, to=to_name, if_version=expect.version, if_to_version=0)

        async def attempt() -> Written | RemoteTag:
            return await self._send_small(make, operation, source, expect)

        async def look() -> RemoteTag | None:
            return await self._plain.moved(to_name, expect)

        done = await self._session.retry.looking(attempt, look)
        if isinstance(done, Written):
            done = await self._tag(target, to_name, done, expect, expect.etag, expect.size_bytes)
        return PutResult(tag=done)

    async def move_all(self, orders: Sequence[MoveOrder]) -> list[PutResult]:
        """See CloudClient.move_all."""
        results: dict[int, PutResult] = {}
        info = await self._session.info()
        if info.atomic and wire.EXTENSION_BULK in info.extensions:

            async def some(first: int) -> None:
                part = orders[first : first + bulk.MAX_OPERATIONS]
                results.update(enumerate(await self._move_together(part), first))

            await for_each(iter(range(0, len(orders), bulk.MAX_OPERATIONS)), some, _BULKS_AT_ONCE)
        else:

            async def one(at: int) -> None:
                results[at] = await self.move(orders[at].source, orders[at].target, orders[at].expect)

            await for_each(iter(range(len(orders))), one, self._session.workers)
        return [results[at] for at in range(len(orders))]

    async def _move_together(self, orders: Sequence[MoveOrder]) -> list[PutResult]:
        """Several renames in one request; each that is in doubt afterwards is looked at, and made, by itself."""
        names = [(object_name(order.source), object_name(order.target)) for order in orders]
        operations = [
            bulk.Move(name=source, to=target, if_version=order.expect.version, if_to_version=0)
            for (source, target), order in zip(names, orders, strict=True)
        ]
        try:
            results = await self._send_many(operations)
        except OverQuotaError:  # as in put_all
            return [await self.move(order.source, order.target, order.expect) for order in orders]
        except SyncerError as error:
            if not error.retryable:
                raise
            return [await self._move_in_doubt(order) for order in orders]
        done: list[PutResult] = []
        for (source, target), order, result in zip(names, orders, results, strict=True):
            expect, make = order.expect, partial(self._session.make.move, source, target, {})
            written = self._read_small(make, reply_of(result), order.source, expect)
            tag = await self._tag(order.target, target, written, expect, expect.etag, expect.size_bytes)
            done.append(PutResult(tag=tag))
        return done

    async def _move_in_doubt(self, order: MoveOrder) -> PutResult:
        tag = await self._plain.moved(object_name(order.target), order.expect)
        return await self.move(order.source, order.target, order.expect) if tag is None else PutResult(tag=tag)

    async def move_subtree(self, source: RelPath, target: RelPath, guard: SubtreeGuard) -> SubtreeMove:
        """See CloudClient.move_subtree. After a lost reply nothing tells its serials for sure, so it is in doubt."""
        from_name, to_name = object_name(source), object_name(target)
        request = self._session.make.move_subtree(from_name, to_name, guard)

        async def attempt() -> SubtreeMove:
            reply = await self._session.send(request)
            if reply.status in {400, 404, 412}:
                raise self._refused_subtree(source, target, reply)
            self._session.judge.demand(request, reply, 201)
            return self._session.judge.moved_subtree(reply, from_name, to_name, guard)

        async def look() -> SubtreeMove | None:
            raise ConflictOnRemoteError(source, "the folder that was to be moved", "no answer about it")

        return await self._session.retry.looking(attempt, look)

    def _refused_subtree(self, source: RelPath, target: RelPath, reply: Reply) -> SyncerError:
        """400: a name becomes too long for the server. Else it is another subtree, or its new place is taken."""
        if reply.status == 400:
            fault = decode_fault(reply.status, reply.body)
            return UnsafeNameError(target, "the server refuses it" if fault is None else fault.message)
        return PreconditionFailedError(source, "the folder as it was seen", "another one, or a taken name")

    async def delete(self, path: RelPath, expect: RemoteTag) -> None:
        """See CloudClient.delete."""
        name = object_name(path)
        if not (await self._session.info()).atomic:
            await self._plain.delete(path, expect)
            return
        make = partial(self._session.make.delete, name, version_guard(expect))

        operation = bulk.Delete(name=name, if_version=expect.version)

        async def attempt() -> bool:
            reply = await self._send(make, operation)
            if reply.status == 412:
                raise self._session.judge.conflict(path, expect, reply)
            if reply.status not in {204, 200, 404}:
                raise self._session.judge.failure(make(), reply)
            return True

        async def look() -> bool | None:
            return await self._gone(path, name, expect) or None

        try:
            await self._session.retry.looking(attempt, look)
        except PreconditionFailedError:
            # Gone counts as done; only a HEAD tells "gone" from "another version".
            if not await self._gone(path, name, expect):
                raise

    async def replaced_unseen(self, write: Overwrite) -> list[ForeignVersion]:
        """See CloudClient.replaced_unseen."""
        if (await self._session.info()).atomic:
            return []
        return await self._plain.foreign(object_name(write.path), write)

    async def keep_version(self, version: ForeignVersion, target: RelPath) -> None:
        """See CloudClient.keep_version."""
        await self._plain.keep(version, target)

    async def _send_small(
        self, make: Callable[[], Request], operation: bulk.Operation, path: RelPath, expect: RemoteTag | None
    ) -> Written:
        """Send a small change once, and read the reply."""
        return self._read_small(make, await self._send(make, operation), path, expect)

    def _read_small(
        self, make: Callable[[], Request], reply: Reply, path: RelPath, expect: RemoteTag | None
    ) -> Written:
        """Read the reply to a small change."""
        if reply.status == 201:
            return self._session.judge.written(reply)
        return self._written(make(), reply, path, expect)

    async def _send(self, make: Callable[[], Request], operation: bulk.Operation) -> Reply:
        """Send a small change once, together with others if the server can that and others are there.

        The request is made only if it goes alone: for thousands of small files, quoting names is much of the work.
        """
        info = await self._session.info()
        if not info.atomic or wire.EXTENSION_BULK not in info.extensions:
            return await self._session.send(make())

        async def alone() -> Reply:
            return await self._session.send(make())

        return await self._batcher.send(operation, alone)

    async def _send_many(self, operations: Sequence[bulk.Operation]) -> Sequence[bulk.Result]:
        """Send several small changes once, in one request."""
        request = await trio.to_thread.run_sync(self._session.make.bulk, operations)
        reply = self._session.judge.demand(request, await self._session.send(request), 200)
        return self._session.judge.results(reply, len(operations))

    async def _gone(self, path: RelPath, name: str, expect: RemoteTag) -> bool:
        """True: there is no object. False: it is still there.

        Raises:
            ConflictOnRemoteError: Another version is there.
        """
        current = await self._session.current(name)
        if current is None:
            return True
        require(path, expect, tag_of(current.state))
        return False

    def _written(self, request: Request, reply: Reply, path: RelPath, expect: RemoteTag | None) -> Written:
        """Read the reply to a conditional write of one object."""
        if reply.status == 412 or (reply.status == 404 and expect is not None):
            raise self._session.judge.conflict(path, expect, reply)
        return self._session.judge.written(self._session.judge.demand(request, reply, 201, 202, 204))

    async def _guarded(
        self,
        path: RelPath,
        name: str,
        payload: _Payload,
        expect: RemoteTag | None,
        send: Callable[[Guard], Awaitable[Written | T]],
        *,
        doubt: bool = False,
    ) -> PutResult | T:
        """Write under the condition `expect`, to a known end."""
        atomic = (await self._session.info()).atomic

        async def attempt() -> Written | RemoteTag | T:
            if atomic:
                return await send(version_guard(expect))
            return await send(
                etag_guard(None) if expect is None else await self._look_before(path, name, expect, payload.meta)
            )

        async def look() -> RemoteTag | None:
            current = await self._session.current(name)
            found = None if current is None else tag_of(current.state)
            newer = found is not None and found.version > (expect.version if expect else 0)
            if current is not None and newer and payload.is_in(current.state):
                return found
            require(path, expect, found)
            return None

        done = await self._session.retry.looking(attempt, look, doubt=doubt)
        if isinstance(done, Written):
            sent = payload.kind is not None
            done = await self._tag(path, name, done, expect, payload.etag, payload.size_bytes, sent=sent)
        if not isinstance(done, RemoteTag):
            return done
        if atomic or payload.kind is None:  # a change of metadata leaves the content that it finds
            return PutResult(tag=done)
        write = Overwrite(
            path=path,
            kind=payload.kind,
            size_bytes=payload.size_bytes,
            etag=payload.etag,
            known=0 if expect is None else expect.version,
            replaced=expect,
        )
        return PutResult(tag=done, foreign=tuple(await self._plain.foreign(name, write, done)))

    async def _look_before(self, path: RelPath, name: str, expect: RemoteTag | None, meta: Meta) -> Guard:
        """Plain Pithos: compare everything first, then send the condition that it knows.

        Not for what must not exist: of that, a condition says all that a look would.
        """
        current = await self._session.current(name)
        require(path, expect, None if current is None else tag_of(current.state))
        guard = etag_guard(None if current is None else current.etag)
        if current is None:
            return guard
        # A PUT drops what it does not name (protocol note 0.9): what others keep there is sent again, if it fits.
        room = wire.MAX_META_ITEMS - len(wire.encode_meta(meta))
        foreign = sorted(wire.foreign_meta(current.state.meta).items())[:room]
        return {**guard, **wire.meta_headers(dict(foreign))}

    async def _tag(  # the reply and what it should say
        self,
        path: RelPath,
        name: str,
        written: Written,
        expect: RemoteTag | None,
        etag: str,
        size_bytes: int,
        *,
        sent: bool = True,
    ) -> RemoteTag:
        """Name the version that was just written, with a HEAD only for what the reply left out.

        Raises:
            ConflictOnRemoteError: It was written, and is replaced already; or no content was sent (`sent`), and it is
                somebody else's.
            CorruptionError: The server made something else of it.
        """
        uuid = written.uuid or (expect.uuid if expect is not None else None)
        if written.version is not None and uuid and written.etag == etag:
            return RemoteTag(uuid=uuid, version=written.version, etag=etag, size_bytes=size_bytes)
        current = await self._session.current(name, written.version)
        tag = None if current is None else tag_of(current.state)
        if tag is not None and tag.etag == etag and tag.size_bytes == size_bytes:
            return tag
        if written.version is None or tag is None or not sent:
            raise ConflictOnRemoteError(path, "what was just written", describe(tag))
        raise CorruptionError(
            f"{shown(path)} on {self._session.judge.container}: stored with hash {tag.etag}, sent with {etag}"
        )
