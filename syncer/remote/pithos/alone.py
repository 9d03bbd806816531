"""One order by requests of its own, to a known end: condition, request, and after a lost reply a look at what happened.

Two kinds of server. Ours checks conditions atomically by version. Synnefo's reads the object before it takes its lock
(protocol note 0.2), so two writers can both succeed: there we look before (its If-Match can't see appended NULs) and
after (`synnefo/plain.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from blockfs.runtime.output import shown
from syncer.core.model import Kind, Meta, RelPath, RemoteTag
from syncer.core.planner.overwrites import ForeignVersion, Overwrite
from syncer.errors import ConflictOnRemoteError, CorruptionError, PreconditionFailedError, SyncerError, UnsafeNameError
from syncer.ports.orders import Delete, Move, MoveTree, Order, SetMeta, Store, Stored
from syncer.protocol.pithos import headers as wire
from syncer.protocol.pithos.faults import decode_fault
from syncer.protocol.pithos.headers import ObjectState
from syncer.remote.container.conditions import describe, require
from syncer.remote.container.info import same_payload, tag_of
from syncer.remote.container.replies import Written
from syncer.remote.container.requests import (
    Condition,
    device_headers,
    etag_condition,
    object_name,
    version_condition,
)
from syncer.remote.container.session import Session
from syncer.remote.http.transport import Reply, Request
from syncer.remote.synnefo.plain import PlainServer

T = TypeVar("T")


class Payload(msgspec.Struct, frozen=True, kw_only=True):
    """What a write makes of an object: enough to recognise it afterwards.

    Attributes:
        kind: What; None: as it was.
        size_bytes: Of the content.
        etag: Object hash in hex.
        meta: What is sent of metadata.
    """

    kind: Kind | None
    size_bytes: int
    etag: str
    meta: Meta

    def is_in(self, state: ObjectState) -> bool:
        """Whether a version may be what was written."""
        return same_payload(state, self.kind, self.size_bytes, self.etag, self.meta)


class Alone:
    """Carries out single orders."""

    def __init__(self, session: Session) -> None:
        self.plain = PlainServer(session)
        self._session = session

    async def settle(self, order: Order, data: bytes = b"", *, doubt: bool = False) -> Stored:
        """Bring an order to its end.

        Args:
            order: Any but a file of more than one block (`upload.py`).
            data: The whole content, if the order has any.
            doubt: It may have been done already.

        Raises:
            ConflictOnRemoteError: The object is not what the order expects. Nothing was done.
            GaveUpError: Patience ended; whether it was done is not known.
        """
        match order:
            case Store(source=ForeignVersion() as version):
                await self.plain.keep(version, order.path)
                return Stored()
            case Store():
                return await self._put(order, data, doubt=doubt)
            case Move():
                return await self._move(order, doubt=doubt)
            case MoveTree():
                return await self._move_tree(order)
            case Delete():
                await self._delete(order, doubt=doubt)
                return Stored()
            case SetMeta():
                return await self._set_meta(order, doubt=doubt)

    async def concluded(self, order: Order, reply: Reply) -> Stored:
        """What became of a small change that our own server was sent once, by its reply; looks only at what that lacks.

        Raises:
            SyncerError: It was refused; or not answered, if that is retryable.
        """
        if isinstance(order, Delete):
            await self._read_delete(order, reply)
            return Stored()
        assert not isinstance(order, MoveTree)
        path = order.source if isinstance(order, Move) else order.path
        expect = order.replaces if isinstance(order, Store) else order.expect
        # The request is named in what is raised: it is made again only then.
        written = (
            self._session.judge.written(reply)
            if reply.status == 201
            else self.written(self._session.make.change(order, b""), reply, path, expect)
        )
        return Stored(tag=await self._tag_of(order, written))

    async def _tag_of(self, order: Store | Move | SetMeta, written: Written) -> RemoteTag:
        if isinstance(order, Store):
            name = object_name(order.path)
            return await self.tag(order.path, name, written, order.replaces, order.hash_hex, order.size_bytes)
        path, expect = order.target if isinstance(order, Move) else order.path, order.expect
        sent = isinstance(order, Move)
        return await self.tag(path, object_name(path), written, expect, expect.etag, expect.size_bytes, sent=sent)

    async def _put(self, order: Store, data: bytes, *, doubt: bool) -> Stored:
        name, make = object_name(order.path), self._session.make
        payload = Payload(kind=order.kind, size_bytes=order.size_bytes, etag=order.hash_hex, meta=order.meta)

        async def send(condition: Condition) -> Written:
            request = make.put_body(name, order.kind, data, order.meta, {**condition, **device_headers(order)})
            return self.written(request, await self._session.send(request), order.path, order.replaces)

        return await self.guarded(order.path, name, payload, order.replaces, send, doubt=doubt)

    async def _set_meta(self, order: SetMeta, *, doubt: bool) -> Stored:
        name, expect = object_name(order.path), order.expect
        payload = Payload(kind=None, size_bytes=expect.size_bytes, etag=expect.etag, meta=order.meta)

        async def send(condition: Condition) -> Written:
            request = self._session.make.set_meta(name, order.meta, condition)
            return self.written(request, await self._session.send(request), order.path, expect)

        return await self.guarded(order.path, name, payload, expect, send, doubt=doubt)

    async def _move(self, order: Move, *, doubt: bool) -> Stored:
        to_name = object_name(order.target)
        request = self._session.make.change(order, b"")
        if not (await self._session.info()).atomic:
            return await self.plain.move(order.source, order.target, order.expect)

        async def attempt() -> Written | RemoteTag:
            return self.written(request, await self._session.send(request), order.source, order.expect)

        async def look() -> RemoteTag | None:
            return await self.plain.moved(to_name, order.expect)

        done = await self._session.retry.looking(attempt, look, doubt=doubt)
        return Stored(tag=done if isinstance(done, RemoteTag) else await self._tag_of(order, done))

    async def _move_tree(self, order: MoveTree) -> Stored:
        """After a lost reply nothing tells its serials for sure, so it is in doubt."""
        from_name, to_name = object_name(order.source), object_name(order.target)
        request = self._session.make.move_subtree(from_name, to_name, order.guard)

        async def attempt() -> Stored:
            reply = await self._session.send(request)
            if reply.status in {400, 404, 412}:
                raise _refused_tree(order, reply)
            self._session.judge.demand(request, reply, 201)
            return Stored(moved=self._session.judge.moved_subtree(reply, from_name, to_name, order.guard))

        async def look() -> Stored | None:
            raise ConflictOnRemoteError(order.source, "the folder that was to be moved", "no answer about it")

        return await self._session.retry.looking(attempt, look)

    async def _delete(self, order: Delete, *, doubt: bool) -> None:
        if not (await self._session.info()).atomic:
            await self.plain.delete(order.path, order.expect)
            return
        request = self._session.make.change(order, b"")

        async def attempt() -> bool:
            await self._read_delete(order, await self._session.send(request))
            return True

        async def look() -> bool | None:
            return await self._gone(order) or None

        await self._session.retry.looking(attempt, look, doubt=doubt)

    async def _read_delete(self, order: Delete, reply: Reply) -> None:
        if reply.status == 412:
            # Gone counts as done; only a HEAD tells "gone" from "another version".
            if not await self._gone(order):
                raise self._session.judge.conflict(order.path, order.expect, reply)
        elif reply.status not in {204, 200, 404}:
            raise self._session.judge.failure(self._session.make.change(order, b""), reply)

    async def _gone(self, order: Delete) -> bool:
        """True: there is no object. False: it is still there.

        Raises:
            ConflictOnRemoteError: Another version is there.
        """
        current = await self._session.current(object_name(order.path))
        if current is None:
            return True
        require(order.path, order.expect, tag_of(current.state))
        return False

    def written(self, request: Request, reply: Reply, path: RelPath, expect: RemoteTag | None) -> Written:
        """Read the reply to a conditional write of one object."""
        if reply.status == 412 or (reply.status == 404 and expect is not None):
            raise self._session.judge.conflict(path, expect, reply)
        return self._session.judge.written(self._session.judge.demand(request, reply, 201, 202, 204))

    async def guarded(
        self,
        path: RelPath,
        name: str,
        payload: Payload,
        expect: RemoteTag | None,
        send: Callable[[Condition], Awaitable[Written | T]],
        *,
        doubt: bool = False,
    ) -> Stored | T:
        """Write under the condition `expect`, to a known end.

        Args:
            path: Where.
            name: The same as an object name.
            payload: What.
            expect: The version that is replaced; None: nothing may be there.
            send: Sends it once, and reads the reply; what is not `Written` is returned as it is.
            doubt: It may have been done already.
        """
        atomic = (await self._session.info()).atomic

        async def attempt() -> Written | RemoteTag | T:
            if atomic:
                return await send(version_condition(expect))
            return await send(
                etag_condition(None) if expect is None else await self._look_before(path, name, expect, payload.meta)
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
            done = await self.tag(path, name, done, expect, payload.etag, payload.size_bytes, sent=sent)
        if not isinstance(done, RemoteTag):
            return done
        if atomic or payload.kind is None:  # a change of metadata leaves the content that it finds
            return Stored(tag=done)
        write = Overwrite(
            path=path,
            kind=payload.kind,
            size_bytes=payload.size_bytes,
            etag=payload.etag,
            known=0 if expect is None else expect.version,
            replaced=expect,
        )
        return Stored(tag=done, foreign=tuple(await self.plain.foreign(name, write, done)))

    async def _look_before(self, path: RelPath, name: str, expect: RemoteTag | None, meta: Meta) -> Condition:
        """Plain Pithos: compare everything first, then send the condition that it knows.

        Not for what must not exist: of that, a condition says all that a look would.
        """
        current = await self._session.current(name)
        require(path, expect, None if current is None else tag_of(current.state))
        condition = etag_condition(None if current is None else current.etag)
        if current is None:
            return condition
        # A PUT drops what it does not name (protocol note 0.9): what others keep there is sent again, if it fits.
        room = wire.MAX_META_ITEMS - len(wire.encode_meta(meta)) - 1  # the device
        foreign = sorted(wire.foreign_meta(current.state.meta).items())[:room]
        return {**condition, **wire.meta_headers(dict(foreign))}

    async def tag(  # the reply and what it should say
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


def _refused_tree(order: MoveTree, reply: Reply) -> SyncerError:
    """400: a name becomes too long for the server. Else it is another subtree, or its new place is taken."""
    if reply.status == 400:
        fault = decode_fault(reply.status, reply.body)
        return UnsafeNameError(order.target, "the server refuses it" if fault is None else fault.message)
    return PreconditionFailedError(order.source, "the folder as it was seen", "another one, or a taken name")
