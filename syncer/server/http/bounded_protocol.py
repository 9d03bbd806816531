"""HTTP/1.1 that is safe against whoever connects: uvicorn's protocol, with a bound on all that comes before a request.

uvicorn collects heads, trailers and pipelined requests without end, waits for ever for the rest of a head, and never
gives up a reader that takes nothing. Here each of them has a bound in bytes, in number or in time. What is refused
before it is a request costs no thread and no task.
"""

from __future__ import annotations

import asyncio
from collections import deque
from enum import Enum
from typing import Any, Final

import httptools
import msgspec
from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from syncer.server.http.guests import Guest, Guests
from syncer.server.http.throttle import Journal

MAX_HEAD_BYTES: Final = 256 << 10
"""Request line and headers. 32 metadata items of full length, all percent-encoded, have 110 KiB."""

MAX_LINE_BYTES: Final = 64 << 10
"""Request line. A name has at most 12 KiB percent-encoded; a listing has a container, a prefix and a marker."""

MAX_HEADERS: Final = 128
"""Metadata are 32. Each costs some 100 bytes of memory, however short it is."""

MAX_FRAMING_BYTES: Final = 64 << 10
"""Between two pieces of a body, and behind it: lengths of chunks, their extensions, trailers."""

MAX_PIPELINED: Final = 16
"""Requests that wait for the one before; what comes behind them is not read, and the connection ends after them."""

_TIMES_HEAD: Final = 2  # bytes of a head that is being answered: as it came, and as text
_FIELD_BYTES: Final = 256  # of each of its fields, however short it is

_FRAMING: Final = frozenset({b"content-length", b"transfer-encoding"})

GUEST_OF: Final = "guest"
RECEPTION_OF: Final = "reception"
"""Where the state of a request's scope has its connection, and what all of them share."""


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """Time-outs, in seconds.

    Attributes:
        handshake_s: Of TLS.
        head_s: For a whole head, from its first byte or from the connection's beginning.
        stranger_s: Between two requests of a connection without a token. With one: uvicorn's keep-alive.
        linger_s: For the rest of a body that nobody reads any more.
        stall_s: A reader that takes less than `stall_bytes` in this time has gone.
        stall_bytes: See there.
    """

    handshake_s: float = 10.0
    head_s: float = 20.0
    stranger_s: float = 10.0
    linger_s: float = 30.0
    stall_s: float = 60.0
    stall_bytes: int = 16 << 10


class Reception(msgspec.Struct, frozen=True, kw_only=True):
    """What all connections of a server share."""

    guests: Guests
    patience: Patience = msgspec.field(default_factory=Patience)
    journal: Journal = msgspec.field(default_factory=Journal)


class _Refused(Exception):  # noqa: N818 - stops the parser, never leaves this module
    """What comes is not taken."""


class _Phase(Enum):
    """Of the message that is being read."""

    BEFORE = "before"  # nothing of it is here
    HEAD = "head"
    BODY = "body"


class BoundedProtocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, *arguments: Any, reception: Reception, guest: Guest | None = None, **more: Any) -> None:
        """Begin.

        Args:
            *arguments: uvicorn's.
            reception: Of the server.
            guest: The connection, if somebody else lets it in (TLS); else it enters when it is made.
            **more: uvicorn's.
        """
        super().__init__(*arguments, **more)
        self._reception = reception
        self._patience = reception.patience
        self._keep_alive_s = self.timeout_keep_alive
        self._guest = guest
        self._early = b""  # what TLS hands over before it says that there is a connection
        self._skips_body = self._is_resuming = False  # see `_resume`
        self._before: RequestResponseCycle | None = None  # the request before the one that is being read
        self._phase = _Phase.BEFORE
        self._line_bytes = self._head_bytes = self._headers = 0  # of the head that is being parsed
        self._heads: deque[int] = deque()  # what the heads of requests without a reply cost, the oldest first
        self._idle_bytes = 0  # received since the last progress: one header, or one trailer, may have no end
        self._progressed = False
        self._refusal = ""  # a status line; "" while there is nothing to refuse
        self._deaf = False  # nothing more is read
        self._connected = self._gone = False  # TLS may say that it ended before it says that it began
        self._deadline: float | None = None
        self._stalled: tuple[float, int] | None = None  # since when, with how much unsent

    # --- asyncio

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A connection."""
        if self._gone:
            return
        self._connected = True
        super().connection_made(transport)
        self._deadline = self.loop.time() + self._patience.head_s
        if self._guest is None:
            address = self.client[0] if self.client else ""
            self._guest = Guest(address=address, hang_up=transport.abort, look=self.look)
            send_away(self._reception, self._guest, self.loop.time())
        self._guest.look = self.look
        if self._early:
            early, self._early = self._early, b""
            self.data_received(early)

    def connection_lost(self, exc: Exception | None) -> None:
        """Its end."""
        self._gone = True
        if self._connected:
            super().connection_lost(exc)
        self._unset_keepalive_if_required()  # uvicorn's timer goes on after a reset, and knows all of this: 75 s
        if self._guest is not None:
            self._reception.guests.leave(self._guest)
        # Guest and request know this connection: heads and bodies would stay until Python looks for cycles.
        self._guest = self.cycle = self._before = None  # type: ignore[assignment]
        self.scope, self.headers = None, []  # type: ignore[assignment]
        self.pipeline.clear()

    def data_received(self, data: bytes) -> None:
        """Take what the client sent."""
        if not self._connected:
            self._early += data
            return
        if self._deaf or self.transport.is_closing():
            return
        self._unset_keepalive_if_required()
        self._progressed = False
        try:
            self._parse(data)
        except httptools.HttpParserUpgrade:
            self._end_after_reply()  # what follows would be another protocol
            return
        except httptools.HttpParserError:
            self._refuse(self._refusal or "400 Bad Request")
            return
        self._idle_bytes = 0 if self._progressed else self._idle_bytes + len(data)
        self._check_idle_bytes()
        if self._deadline is None and (self._phase is _Phase.HEAD or self._is_idle()):
            self._deadline = self.loop.time() + self._patience.head_s

    def resume_writing(self) -> None:
        """The reader took enough for more."""
        self._stalled = None
        super().resume_writing()

    def look(self, now: float) -> None:
        """Once a second: end the connection if a time has passed."""
        if self._deadline is not None and now >= self._deadline and not self.transport.is_closing():
            late = self._phase is _Phase.HEAD
            self._refuse("408 Request Timeout" if late else "", "head.timed_out" if late else "")
        self._look_at_reader(now)

    def _look_at_reader(self, now: float) -> None:
        unsent = self.transport.get_write_buffer_size()
        if unsent == 0:
            self._stalled = None
        elif self._stalled is None:
            self._stalled = now, unsent
        elif now - self._stalled[0] >= self._patience.stall_s:
            if self._stalled[1] - unsent < self._patience.stall_bytes:
                self._warn("reader.stalled", unsent_bytes=unsent)
                self.transport.abort()
            self._stalled = now, unsent

    # --- the parser

    def _parse(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if not self._skips_body:
                raise
            self._resume()
            self._parse(data[upgrade.args[0] :])

    def _resume(self) -> None:
        """Read a body behind an offer of another protocol, which is not taken up.

        The parser takes all behind such a head for that protocol: another one, told how long the body is, goes on.
        """
        framing = [(name, value) for name, value in self.headers if name in _FRAMING]
        head = b"".join([b"%b: %b\r\n" % field for field in framing])
        self._skips_body, self._is_resuming = False, True
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's
        self.parser.feed_data(b"PUT / HTTP/1.1\r\n" + head + b"\r\n")
        self._is_resuming = False

    def on_message_begin(self) -> None:
        """A request begins."""
        if self._is_resuming:
            return
        if len(self.pipeline) >= MAX_PIPELINED:
            self._refusal = "429 Too Many Requests"
            raise _Refused
        self._phase = _Phase.HEAD
        self._line_bytes = self._head_bytes = self._headers = 0
        super().on_message_begin()
        self.scope["state"] |= {GUEST_OF: self._guest, RECEPTION_OF: self._reception}

    def on_url(self, url: bytes) -> None:
        """Some of the request line."""
        if self._is_resuming:
            return
        if b"#" in url:  # no target has one (RFC 9112, 3.2): what is behind it would be lost, and `a#b` be `a`
            raise _Refused
        self._line_bytes += len(url)
        if self._line_bytes > MAX_LINE_BYTES:
            self._too_long()
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header; behind the body, where it would join the request's head unseen, it is nothing to us."""
        if self._phase is not _Phase.HEAD:  # a head that is resumed is one that was read
            return
        self._headers += 1
        if self._headers > MAX_HEADERS:
            self._too_long()
        self._count(len(name) + len(value))
        super().on_header(name, value.rstrip(b" \t"))  # the parser takes only the blanks in front (RFC 9110, 5.5)

    def on_headers_complete(self) -> None:
        """The body begins, unless the target names no path: then what is refused is still a head."""
        if self._is_resuming:
            return
        self._before = self.cycle
        self._skips_body = self.parser.should_upgrade() and any(name in _FRAMING for name, _ in self.headers)
        super().on_headers_complete()
        self._phase = _Phase.BODY
        self._progressed = True
        self._deadline = None
        self._heads.append(_TIMES_HEAD * self._head_bytes + _FIELD_BYTES * self._headers)
        self._hold()

    def on_body(self, body: bytes) -> None:
        """Some of the body."""
        self._progressed = True
        if not self.cycle.body:  # b"" plus a body is that body: uvicorn would copy it into a bytearray, and out again
            self.cycle.body = b""  # type: ignore[assignment]
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is here as a whole."""
        if self._skips_body:
            return
        self._phase = _Phase.BEFORE
        self._progressed = True
        if self.cycle.response_complete:
            self._deadline = None  # it was lingering
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """The reply is written; the body may still be on its way."""
        known = self._guest is not None and self._guest.account is not None
        self.timeout_keep_alive = self._keep_alive_s if known else int(self._patience.stranger_s)
        self._drop_answered()
        super().on_response_complete()
        if self._phase is _Phase.BODY and not self.pipeline:
            self._deadline = self.loop.time() + self._patience.linger_s

    # --- memory

    def _drop_answered(self) -> None:
        """Keep nothing of a request that is answered: its connection may idle, or linger for the rest of its body."""
        if self._gone:  # it was answered behind the connection's end, which has dropped all of it
            return
        self._heads.popleft()
        for cycle in (self._before, self.cycle):
            if cycle is not None and cycle.response_complete:
                cycle.scope, cycle.body = {}, b""  # type: ignore[typeddict-item, assignment]
        if self.cycle.response_complete and self._phase is not _Phase.HEAD:  # else they are of the next request
            self.scope, self.headers, self.url = {}, [], b""  # type: ignore[typeddict-item]
        self._hold()

    def _hold(self) -> None:
        """Tell what a stranger's heads cost: of requests that wait for their replies, and the one that comes."""
        if self._guest is None:
            return
        comes = max(self._idle_bytes, self._head_bytes) if self._phase is _Phase.HEAD else 0
        for other in self._reception.guests.hold(self._guest, sum(self._heads) + comes):
            self._warn("connection.refused", other, reason="too many bytes of heads")

    # --- refusing

    def _is_idle(self) -> bool:
        """Nothing is asked, nothing is being answered."""
        answered = self.cycle is None or self.cycle.response_complete
        return self._phase is _Phase.BEFORE and answered and not self.pipeline

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > MAX_HEAD_BYTES:
            self._too_long()

    def _too_long(self) -> None:
        self._refusal = "431 Request Header Fields Too Large"
        raise _Refused

    def _check_idle_bytes(self) -> None:
        """Bound what the parser itself holds: a header, a trailer or a chunk's length that does not end."""
        if self._phase is _Phase.HEAD:
            self._hold()
            if self._idle_bytes > MAX_HEAD_BYTES:
                self._refuse("431 Request Header Fields Too Large")
        elif self._phase is _Phase.BODY and self._idle_bytes > MAX_FRAMING_BYTES:
            self._refuse("431 Request Header Fields Too Large")

    def _refuse(self, status: str, event: str = "request.refused") -> None:
        """Say why, if nothing else is being said, and end the connection."""
        if event:
            self._warn(event, status=status.partition(" ")[0])
        if self._phase is _Phase.BODY and self.pipeline:  # nobody looks at it yet: the one before is being answered
            assert self._before is not None
            self.pipeline.popleft()
            self._phase, self.cycle = _Phase.BEFORE, self._before
        if self._phase is not _Phase.BODY and self.cycle is not None and not self.cycle.response_complete:
            self._end_after_reply()  # of the requests before: theirs are the replies that the client waits for
            return
        if status and not (self._phase is _Phase.BODY and self.cycle.response_started):
            text = f"{status.partition(' ')[2]}; see the limits of blocksync serve".encode()
            head = f"HTTP/1.1 {status}\r\ncontent-type: text/plain\r\nconnection: close\r\ncontent-length: {len(text)}"
            self.transport.write(head.encode() + b"\r\n\r\n" + text)
        self._deaf = True
        self.transport.close()

    def _end_after_reply(self) -> None:
        """Read nothing more, and hang up behind the reply to what was read."""
        self._deaf = True
        self.cycle.keep_alive = False
        if self.cycle.response_complete:
            self.transport.close()

    def _warn(self, event: str, whom: Guest | None = None, **fields: object) -> None:
        guest = whom or self._guest
        self._reception.journal.warn(event, guest.address if guest else "", self.loop.time(), **fields)


def guest_of(scope: Scope) -> Guest | None:
    """The connection that a request came by; None if it came by none of ours."""
    found: Guest | None = scope.get("state", {}).get(GUEST_OF)
    return found


def send_away(reception: Reception, guest: Guest, now: float) -> None:
    """Let somebody in, and those out who have to go for that."""
    for other in reception.guests.enter(guest):
        reception.journal.warn("connection.refused", other.address, now, reason="too many connections")
