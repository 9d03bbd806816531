"""One request, authenticated and parsed, as the handlers see it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Final, TypeVar, TypeVarTuple

import msgspec
from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from syncer.protocol import swift
from syncer.protocol.pithos import headers
from syncer.protocol.pithos.headers import HeaderError, ObjectState
from syncer.protocol.pithos.listing import MAX_ROWS
from syncer.server.budget import Purse
from syncer.server.catalogue.conditions import Conditions
from syncer.server.catalogue.objects import Place
from syncer.server.catalogue.settings import merged_meta
from syncer.server.errors import BadRequest
from syncer.server.http.arriving import arriving, read_body, refuse_announced
from syncer.server.http.urls import Target
from syncer.server.store.incoming import Incoming
from syncer.server.store.store import Store

JSON: Final = "application/json; charset=utf-8"
TEXT: Final = "text/plain; charset=utf-8"

MAX_CONTENT_TYPE_CHARACTERS: Final = 256

_PIECE_BYTES: Final = 1 << 20  # of a body, handed to a thread at once: a hop costs some 50 µs

_PACE_BYTES: Final = 1 << 20  # of a reply, handed to the connection at once
_PLAIN_BYTES: Final = 64 << 10  # what asyncio keeps of a connection without asking anybody to wait

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A request.

    Attributes:
        request: HTTP's view of it.
        target: What its URL names.
        store: Where it is done.
        account: The caller's. Another one's objects are at most read, see `foreign_calls`.
        purse: What it may use of the account's memory and threads.
    """

    request: Request
    target: Target
    store: Store
    account: str
    purse: Purse

    async def run(self, work: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        """Do something that waits for the disk, in one of the account's threads."""
        return await to_thread.run_sync(work, *arguments, limiter=self.purse.lane)

    async def reserve(self, size_bytes: int) -> None:
        """Have memory before it is needed; see `Purse.reserve`."""
        await self.purse.reserve(size_bytes)

    @property
    def place(self) -> Place:
        """The object that the URL names."""
        return Place(account=self.target.account, container=self.target.container, name=self.target.name)

    @property
    def wants_json(self) -> bool:
        """Whether a listing is to be JSON rather than text.

        Raises:
            BadRequest: Another format.
        """
        wanted = self.target.parameters.get("format")
        if wanted not in {None, "json", "text"}:
            raise BadRequest(f"This server does not speak the format {wanted!r}, only json and text")
        return wanted == "json" or (wanted is None and self.header("Accept") == "application/json")

    @property
    def until_us(self) -> int | None:
        """The moment that `until` names, to the end of that second; None without it.

        Raises:
            HeaderError: Not whole seconds since the epoch.
        """
        text = self.target.parameters.get("until")
        return None if text is None else headers.parse_decimal("until", text) * 1_000_000 + 999_999

    @property
    def delimiter(self) -> str:
        """What makes a request be about all below a name as well, or a listing group names; "" for neither."""
        return self.target.parameters.get("delimiter", "")

    @property
    def is_foreign(self) -> bool:
        """Whether the URL names what belongs to another account."""
        return self.target.account != self.account

    @property
    def is_swift(self) -> bool:
        """Whether to answer as OpenStack's storage does."""
        return self.target.is_swift

    @property
    def is_update(self) -> bool:
        """Whether metadata that a POST does not name stay. OpenStack's do, but for objects."""
        return "update" in self.target.parameters or (self.is_swift and not self.target.name)

    def object_fields(self, state: ObjectState) -> dict[str, str]:
        """Describe a version in a reply, all but Content-Length."""
        return swift.object_fields(state) if self.is_swift else headers.object_headers(state)

    @property
    def length(self) -> int | None:
        """Bytes of the body; None if it does not say (chunks)."""
        if self.header("Transfer-Encoding") is not None:
            return None
        return headers.parse_decimal("Content-Length", self.header("Content-Length") or "0")

    @property
    def is_empty(self) -> bool:
        """Whether there is no body."""
        return self.length == 0

    @property
    def is_short(self) -> bool:
        """Whether the body comes in one piece."""
        length = self.length
        return length is not None and length <= _PIECE_BYTES

    def header(self, name: str) -> str | None:
        """A header's value."""
        found: str | None = self.request.headers.get(name)
        return found

    def number(self, name: str) -> int | None:
        """A header's value as a number, e.g. a version serial.

        Raises:
            HeaderError: Not a decimal number.
        """
        value = self.header(name)
        return None if value is None else headers.parse_decimal(name, value)

    def serial_parameter(self, name: str) -> int | None:
        """A parameter's value as a version serial; None without it.

        Raises:
            HeaderError: Not a decimal number.
        """
        value = self.target.parameters.get(name)
        return None if value is None else headers.parse_decimal(name, value)

    def conditions(self) -> Conditions:
        """On the object that the URL names.

        Raises:
            HeaderError: A version that is no number.
        """
        match = self.header("If-Match")
        none_match = self.header("If-None-Match")
        unmodified, modified = self.header("If-Unmodified-Since"), self.header("If-Modified-Since")
        return Conditions(
            if_match=None if match is None else headers.parse_etags(match),
            if_none_match=None if none_match is None else headers.parse_etags(none_match),
            if_version=self.number(headers.IF_OBJECT_VERSION),
            if_unmodified_since=None if unmodified is None else headers.parse_http_date(unmodified),
            if_modified_since=None if modified is None else headers.parse_http_date(modified),
            by_md5=self.is_swift,
        )

    def meta(self, prefix: str = headers.OBJECT_META_PREFIX) -> dict[str, str]:
        """X-Object-Meta-* of the request, or those of another prefix.

        Raises:
            HeaderError: Too many or too long.
        """
        return headers.meta_from_headers(self.request.headers.items(), prefix)

    def own_meta(self) -> dict[str, str]:
        """The same for a new version: an empty value is as good as none."""
        return merged_meta({}, self.meta())

    def content_type(self) -> str | None:
        """Content-Type, None without one.

        Raises:
            HeaderError: Too long, or not printable.
        """
        value = self.header("Content-Type")
        if value is not None and (len(value) > MAX_CONTENT_TYPE_CHARACTERS or not value.isprintable()):
            raise HeaderError(f"Content-Type: expected at most {MAX_CONTENT_TYPE_CHARACTERS} printable characters")
        return value or None

    def page(self) -> tuple[str, str, int]:
        """Marker, prefix and limit of a listing.

        Raises:
            BadRequest: A limit of 0.
            HeaderError: A limit that is not a number.
        """
        parameters = self.target.parameters
        limit = headers.parse_decimal("limit", parameters.get("limit", str(MAX_ROWS)))
        if limit == 0:
            raise BadRequest("limit: expected a positive number, got 0")
        return parameters.get("marker", ""), parameters.get("prefix", ""), min(limit, MAX_ROWS)

    async def pieces(self, limit_bytes: int) -> AsyncIterator[tuple[bytes, bool]]:
        """The body in pieces of about 1 MiB, or of a block if that is more; the last comes with True.

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
                yield b"".join(buffered), False
                buffered, size = [], 0
            buffered.append(data)
            size += len(data)
        yield b"".join(buffered), True

    def refuse_announced(self, limit_bytes: int) -> None:
        """Refuse a body that says it is too long, before any of it is read.

        Raises:
            TooLarge: It does.
        """
        refuse_announced(self.request, limit_bytes)

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
        if check is not None and not self.is_short:
            await self.run(check)
        incoming: Incoming | None = None

        def take(piece: bytes, last: bool) -> Result | None:
            nonlocal incoming
            if incoming is None:
                if check is not None and self.is_short:
                    check()
                incoming = self.store.receive(md5=md5)
            incoming.feed(piece)
            return finish(incoming) if last else None

        try:
            async for piece, last in self.pieces(limit_bytes):
                result = await self.run(take, piece, last)
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


def reply(
    status: int, body: bytes = b"", *, content_type: str | None = None, fields: dict[str, str] | None = None
) -> Response:
    """A response. Values beyond latin-1 must be quoted already."""
    kind = Response if len(body) <= _PLAIN_BYTES else PacedResponse
    response = kind(body, status_code=status, headers=fields)
    if content_type is not None:
        response.headers["Content-Type"] = content_type
    return response
