"""Connections that keep `Expect: 100-continue`: the body goes out when the server asks for it, or says nothing.

They end when nobody waits for the reply any more: no write may go on behind our back.

http.client sends the body at once and overlooks a 100. A server that refuses (412: the object is there) would get
16 MiB for nothing.
"""

from __future__ import annotations

import contextlib
import functools
import io
import socket
import threading
from contextvars import ContextVar
from http.client import HTTPException
from http.client import HTTPResponse as ClientResponse
from typing import TYPE_CHECKING, Any, Final

from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.response import HTTPResponse

if TYPE_CHECKING:
    _Mixed = HTTPConnection
else:
    _Mixed = object

_ASKED_WITHIN_S: Final = 3.0  # RFC 9110, 10.1.1: a client must not wait for ever; old proxies say nothing
_MAX_LINE_BYTES: Final = 1 << 16
_MAX_LINES: Final = 100


class Leash:
    """By which one thread ends the request of another one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._line: HTTPConnection | None = None
        self._is_cut = False

    def hold(self, line: HTTPConnection) -> None:
        """The request is about to go out on this connection.

        Raises:
            HTTPException: It has been cut.
        """
        with self._lock:
            if self._is_cut:
                raise HTTPException("nobody waits any more")
            self._line = line

    def let_go(self) -> None:
        """The reply is here: what happens to the connection from now on is not the request's."""
        with self._lock:
            self._line = None

    def cut(self) -> None:
        """End the request: if it has not gone out it never will, if it has its connection ends."""
        with self._lock:
            self._is_cut = True
            if self._line is not None:
                hang_up(self._line)


LEASH: Final[ContextVar[Leash | None]] = ContextVar("LEASH", default=None)
"""Of the request that this task, and the thread that works for it, is about."""


def hang_up(line: HTTPConnection) -> None:
    """End a connection on which another thread may be waiting: its wait ends, too."""
    sock = getattr(line, "sock", None)
    if isinstance(sock, socket.socket):
        with contextlib.suppress(OSError):  # it is closed already
            socket.socket.shutdown(sock, socket.SHUT_RDWR)  # not TLS's own: another thread is reading


class _Expecting(_Mixed):
    """What both kinds of connections do."""

    _expects = False
    _early: bytes | None = None

    def connect(self) -> None:
        """Connect, unless nobody waits any more."""
        super().connect()
        self._hold()

    def putheader(self, header: str, *values: Any) -> None:  # type: ignore[override]
        """Notice what is expected."""
        if header.lower() == "expect":
            self._expects = True
        super().putheader(header, *values)

    def endheaders(self, message_body: Any = None, *, encode_chunked: bool = False) -> None:
        """Send the headers; if a 100 is expected, wait for it, or for a final reply."""
        self._hold()
        super().endheaders(message_body, encode_chunked=encode_chunked)
        if self._expects:
            self._expects = False
            self._early = self._await_permission()

    def send(self, data: Any) -> None:
        """Send, unless there is a final reply already."""
        if self._early is None:
            super().send(data)

    def getresponse(self) -> HTTPResponse:  # type: ignore[override]
        """The reply. If the body stayed here, the connection ends with it: the server may still wait for that body."""
        early, self._early = self._early, None
        if early is None:
            return super().getresponse()
        before = self.response_class
        self.response_class = functools.partial(_EarlyReply, early)  # type: ignore[assignment]
        try:
            return super().getresponse()
        finally:
            self.response_class = before

    def close(self) -> None:
        """Close; the next request begins anew."""
        self._expects, self._early = False, None
        super().close()

    def _hold(self) -> None:
        leash = LEASH.get()
        if leash is not None:
            leash.hold(self)

    def _await_permission(self) -> bytes | None:
        """The first line of a final reply; None: the body is to be sent."""
        assert self.sock is not None
        usual = self.sock.gettimeout()
        with self.sock.makefile("rb", buffering=0) as replies:
            self.sock.settimeout(_ASKED_WITHIN_S)
            try:
                first = replies.read(1)
            except TimeoutError:
                return None
            finally:
                self.sock.settimeout(usual)
            line = first + _line(replies)
            if line.split(None, 2)[1:2] != [b"100"]:
                return line
            for _ in range(_MAX_LINES):
                if _line(replies) in (b"\r\n", b"\n", b""):
                    return None
        raise HTTPException("a 100 without end")


class ExpectingConnection(_Expecting, HTTPConnection):
    """Without TLS."""


class ExpectingTlsConnection(_Expecting, HTTPSConnection):
    """With TLS."""


class _Replayed(io.RawIOBase):
    """A socket's file, before it what was read of it already."""

    def __init__(self, first: bytes, rest: io.RawIOBase) -> None:
        self._first, self._rest = first, rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if not self._first:
            return self._rest.readinto(buffer)
        count = min(len(buffer), len(self._first))
        buffer[:count], self._first = self._first[:count], self._first[count:]
        return count

    def close(self) -> None:
        self._rest.close()
        super().close()


class _EarlyReply(ClientResponse):
    """A reply whose first line has been read. Its connection is of no more use."""

    def __init__(self, first: bytes, sock: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp.close()
        self.fp = io.BufferedReader(_Replayed(first, sock.makefile("rb", buffering=0)))

    def begin(self) -> None:
        super().begin()
        self.will_close = True  # told to the connection, which closes when it has this reply


def _line(replies: Any) -> bytes:
    line: bytes = replies.readline(_MAX_LINE_BYTES)
    return line
