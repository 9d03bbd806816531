"""One request on its way to the store: its memory, its threads, its body, and its reply."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Final, TypeVar, TypeVarTuple

import msgspec
from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from syncer.errors import EXPECTED
from syncer.protocol import swift
from syncer.protocol.pithos import hashmap, headers
from syncer.protocol.pithos.listing import MAX_ROWS
from syncer.server.budget import Purse
from syncer.server.calls.memory import Need, Size
from syncer.server.http.arriving import arriving, read_body
from syncer.server.http.object_orders import SHORT_BYTES
from syncer.server.http.urls import Target
from syncer.server.store.incoming import Incoming
from syncer.server.store.store import Store

JSON: Final = "application/json; charset=utf-8"
XML: Final = "application/xml; charset=utf-8"
TEXT: Final = "text/plain; charset=utf-8"

_PIECE_BYTES: Final = 1 << 20  # of a body, handed to a thread at once: a hop costs some 50 µs

_EXPECTED: Final = (*EXPECTED, hashmap.HashmapError, headers.HeaderError)

_PACE_BYTES: Final = 1 << 20  # of a reply, handed to the connection at once
_PLAIN_BYTES: Final = 64 << 10  # what asyncio keeps of a connection without asking anybody to wait

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A request, whose header fields and parameters are an order by now.

    Attributes:
        request: For its body.
        target: What its URL names.
        account: The caller's. Another one's objects are at most read.
        length: Bytes of the body; None if it does not say.
        store: Where it is done.
        purse: What it may use of the account's memory and threads.
        needs: How much memory it needs at first, and if that was too little.
    """

    request: Request
    target: Target
    account: str
    length: int | None
    store: Store
    purse: Purse
    needs: Sequence[Need]

    async def run(self, work: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        """Do something that waits for the disk, in one of the account's threads."""
        try:
            return await to_thread.run_sync(work, *arguments, limiter=self.purse.lane)
        except _EXPECTED as error:
            # Its traceback has a frame with the future that has the error: all that was seen on the way, the body too,
            # would stay until Python looks for cycles.
            raise error.with_traceback(None)  # noqa: B904 - it is the same one

    async def reserve(self, rows: int = MAX_ROWS, *, again: bool = False) -> None:
        """Have the memory that this request needs, before it needs it; see `Purse.reserve`.

        Args:
            rows: At most so many are wanted.
            again: It was too little: give it back first, and have the most that it may be.
        """
        if again:
            self.purse.keep(0)
        need = self.needs[again]
        await self.purse.reserve(need if isinstance(need, int) else need(self.size(rows)))

    def size(self, rows: int = MAX_ROWS) -> Size:
        """What the need of memory depends on."""
        return Size(length=self.length, block_size=self.store.block_size, rows=rows)

    @property
    def is_foreign(self) -> bool:
        """Whether the URL names what belongs to another account."""
        return self.target.account != self.account

    def object_fields(self, state: headers.ObjectState) -> dict[str, str]:
        """Describe a version in a reply, all but Content-Length."""
        return swift.object_fields(state) if self.target.is_swift else headers.object_headers(state)

    async def pieces(self, limit_bytes: int) -> AsyncIterator[tuple[list[bytes], bool]]:
        """The body, about 1 MiB at once, or a block if that is more, as it came; the last comes with True.

        Args:
            limit_bytes: Longest body that is taken.

        Raises:
            TooLarge: A longer one.
            ClientDisconnect: The client went away.
            TimeoutError: It has sent nothing for two minutes.
        """
        step = max(_PIECE_BYTES, self.store.block_size)
        buffered: list[bytes] = []
        size = 0
        async for data in arriving(self.request, limit_bytes):
            if size >= step:
                yield buffered, False
                buffered, size = [], 0
            buffered.append(data)
            size += len(data)
        yield buffered, True

    async def body(self, limit_bytes: int) -> bytes:
        """The whole body; see `read_body`."""
        return await read_body(self.request, limit_bytes)

    async def receive(
        self,
        limit_bytes: int,
        finish: Callable[[Incoming], Result],
        *,
        check: Callable[[], None] | None = None,
        md5: bool = False,
    ) -> Result:
        """Store the body's blocks as they come, then finish in the same thread call as the last of them.

        Args:
            limit_bytes: Longest body that is taken.
            finish: What to do with it all; the blocks are held until it returns.
            check: Refuses what `finish` would refuse, before anything is stored; a long body is not even read.
            md5: Compute that of the body.
        """
        is_short = self.length is not None and self.length <= SHORT_BYTES
        if check is not None and not is_short:
            await self.run(check)
        incoming: Incoming | None = None

        def take(pieces: list[bytes], last: bool) -> Result | None:
            nonlocal incoming
            if incoming is None:
                if check is not None and is_short:
                    check()
                incoming = self.store.receive(md5=md5)
            incoming.feed(pieces)
            return finish(incoming) if last else None

        try:
            async for pieces, last in self.pieces(limit_bytes):
                result = await self.run(take, pieces, last)
                if last:
                    assert result is not None
                    return result
        finally:
            if incoming is not None:
                incoming.close()
        raise AssertionError("a body ends with a last piece")


class PacedResponse(Response):
    """A reply of one piece that is over when the client has taken it, nearly: until then its memory counts.

    uvicorn takes the last piece of any length and calls it sent.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        del scope, receive  # a client that goes is seen when it takes no more
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        view = memoryview(self.body)
        for at in range(0, len(view), _PACE_BYTES):
            piece = bytes(view[at : at + _PACE_BYTES])
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class StreamedResponse(StreamingResponse):
    """A reply of many pieces. When its client goes, the piece on its way goes too, not when Python looks for cycles."""

    async def stream_response(self, send: Send) -> None:
        """Send it. When the client has gone, this is cancelled."""
        try:
            await super().stream_response(send)
        except CancelledError as gone:  # anyio has a cycle with it, its traceback, and the frames that it tells
            if isinstance(self.body_iterator, AsyncGenerator):
                await self.body_iterator.aclose()
            raise gone.with_traceback(None)  # noqa: B904 - it is the same one


def reply(
    status: int, body: bytes = b"", *, content_type: str | None = None, fields: dict[str, str] | None = None
) -> Response:
    """A response. Values beyond latin-1 must be quoted already."""
    kind = Response if len(body) <= _PLAIN_BYTES else PacedResponse
    response = kind(body, status_code=status, headers=fields)
    if content_type is not None:
        response.headers["Content-Type"] = content_type
    return response
