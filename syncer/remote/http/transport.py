"""HTTP as the remote clients need it: one request in, one whole reply out, many at once.

urllib3's pool in threads. Measured on 4 MiB GETs a thread costs 2.2 ms of CPU, httpx on trio 9.6 ms
(docs/adr, client transport). Nothing is retried or redirected here: `retry.py` decides that.
"""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from http.client import HTTPException
from typing import Final, Protocol

import msgspec
import trio
import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    NameResolutionError,
    NewConnectionError,
    SSLError,
)

from syncer.errors import RemoteUnavailableError, UsageError
from syncer.ports.remote import Counters
from syncer.remote.http.concurrency import Concurrency
from syncer.remote.http.expecting import LEASH, ExpectingConnection, ExpectingTlsConnection, Leash, hang_up
from syncer.remote.http.rate_limit import RateLimit

MAX_SMALL_REPLY_BYTES: Final = 1 << 20
"""Bound for replies that are not content or lists: a wrong server can't fill our memory."""

_MAX_WAITS: Final = 16  # long polls at once; one root needs one, and an abandoned one ends at once
_MOST_SAID: Final = 120  # characters of an error that may quote what a server sent
_READ_STEP_BYTES: Final = 1 << 20

_READ_ONLY: Final = frozenset({"GET", "HEAD"})


class ReplyLostError(RemoteUnavailableError):
    """The request may have reached the server, its reply did not reach us: a write may or may not have happened."""


class UntrustedError(RemoteUnavailableError):
    """The server's certificate was refused. Trying again would not help."""

    retryable = False


class BadReplyError(RemoteUnavailableError):
    """Something answers, but not as is expected of such a server. Trying again would not help."""

    retryable = False


class LongReplyError(BadReplyError):
    """A reply is longer than the request allows."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One HTTP request.

    Attributes:
        method: Upper case.
        target: Quoted path with query, as it goes on the wire.
        headers: Without the token, which the transport adds if it has one. With `Expect: 100-continue` the body stays
            here if the server answers at once.
        body: Sent with a Content-Length, pieces one after the other; b"" for none.
        max_reply_bytes: A longer reply body is refused as a protocol error.
        wait_s: How long the server may keep silent on purpose, on top of the usual time-out. Above 0 the request has a
            connection of its own, and cancelling it closes that.
        only_reads: It changes nothing, whatever its method.
        leaving: Called when it goes out, which may be long after it was asked for; in any thread.
    """

    method: str
    target: str
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    body: bytes | Sequence[bytes] = b""
    max_reply_bytes: int = MAX_SMALL_REPLY_BYTES
    wait_s: float = 0.0
    only_reads: bool = False
    leaving: Callable[[], None] | None = None

    @property
    def body_bytes(self) -> int:
        """Length of the body."""
        return len(self.body) if isinstance(self.body, bytes) else sum(map(len, self.body))


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """One whole HTTP reply.

    Attributes:
        status: 100 to 599.
        headers: Names in lower case.
        body: Complete: as long as the server announced.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes


class Server(Protocol):
    """Where to connect to: `RemoteUrl` is one."""

    @property
    def scheme(self) -> str:
        """`http` or `https`."""
        ...

    @property
    def host(self) -> str:
        """Name or address; IPv6 without brackets."""
        ...

    @property
    def port(self) -> int:
        """TCP port."""
        ...

    @property
    def origin(self) -> str:
        """Scheme, host and port, as messages name a server."""
        ...


class Transport(Protocol):
    """Sends requests. The seam for tests."""

    async def send(self, request: Request) -> Reply:
        """Send once, wait for the whole reply, whatever its status.

        Raises:
            RemoteUnavailableError: Not sent: nothing can have happened on the server.
            ReplyLostError: Perhaps sent, no complete reply.
            LongReplyError: The reply is longer than the request allows.
        """
        ...

    def close(self) -> None:
        """Close idle connections. Idempotent."""
        ...


class HttpSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How to talk.

    Attributes:
        concurrency: Requests at once, at most.
        adaptive: How many there are follows what they bring (`concurrency.Concurrency`); False: always the most.
        connect_timeout_s: Until the TCP (and TLS) connection stands.
        read_timeout_s: Longest silence while waiting for or within a reply.
        ca_file: PEM file of certificate authorities to trust instead of the system's; for https only.
        ignore_certificates: Trust every certificate: whoever is in between can read everything, the token included.
        limit_up: Bytes of request bodies per second; None: no limit.
        limit_down: Bytes of reply bodies per second; None: no limit.
        poll_s: Longest pause between two looks for others' changes, where nobody tells of them; None: the usual one.
    """

    concurrency: int = 16
    adaptive: bool = True
    connect_timeout_s: float = 10.0
    read_timeout_s: float = 60.0
    ca_file: str | None = None
    ignore_certificates: bool = False
    limit_up: int | None = None
    limit_down: int | None = None
    poll_s: float | None = None


class HttpTransport:
    """`Transport` over urllib3, to one server."""

    def __init__(self, url: Server, token: str | None, settings: HttpSettings, counters: Counters) -> None:
        """Connect to nothing yet.

        Args:
            url: The server.
            token: Goes with each request; None: the requests bring theirs.
            settings: How to talk.
            counters: Told of each request.
        """
        self._origin = url.origin
        self._counters = counters
        self._headers = {"User-Agent": "blocksync", "Accept-Encoding": "identity"}
        if token is not None:
            self._headers["X-Auth-Token"] = token
        # Threads of our own: slow replies must not take trio's default ones from disk work.
        self._concurrency = Concurrency(settings.concurrency, adaptive=settings.adaptive)
        self._places = trio.CapacityLimiter(self._concurrency.now)
        self._up = None if settings.limit_up is None else RateLimit(settings.limit_up)
        self._down = None if settings.limit_down is None else RateLimit(settings.limit_down)
        self._waits = trio.CapacityLimiter(_MAX_WAITS)
        self._url = url
        self._settings = settings
        self._ssl = _ssl_context(settings) if url.scheme == "https" else None
        timeout = urllib3.Timeout(connect=settings.connect_timeout_s, read=settings.read_timeout_s)
        self._pool: urllib3.HTTPConnectionPool
        if self._ssl is not None:
            self._pool = urllib3.HTTPSConnectionPool(
                url.host, url.port, timeout=timeout, maxsize=settings.concurrency, ssl_context=self._ssl
            )
        else:
            self._pool = urllib3.HTTPConnectionPool(url.host, url.port, timeout=timeout, maxsize=settings.concurrency)
        self._pool.ConnectionCls = ExpectingConnection if self._ssl is None else ExpectingTlsConnection

    async def send(self, request: Request) -> Reply:
        """See `Transport.send`. Cancelled while it waits, it is never sent; later, its connection is ended."""
        self._counters.requests += 1
        size_bytes = request.body_bytes
        self._counters.bytes_sent += size_bytes
        if request.method not in _READ_ONLY and not request.only_reads:
            self._counters.mutating_requests += 1
        if self._up is not None and size_bytes:
            await self._up.spend(size_bytes)
        if request.wait_s > 0:
            reply = await self._wait(request)
        else:
            reply = await self._send(request)
            self._adapt(size_bytes + len(reply.body))
        self._counters.bytes_received += len(reply.body)
        if self._down is not None and reply.body:
            await self._down.spend(len(reply.body))
        return reply

    async def _send(self, request: Request) -> Reply:
        """In a thread. Cancelled, nothing more goes out of it: a late write could be one over a newer one."""
        leash = Leash()
        before = LEASH.set(leash)
        try:
            return await trio.to_thread.run_sync(self._exchange, request, abandon_on_cancel=True, limiter=self._places)
        except trio.Cancelled:
            leash.cut()
            raise
        finally:
            LEASH.reset(before)

    def _adapt(self, size_bytes: int) -> None:
        saturated = self._places.statistics().tasks_waiting > 0
        self._places.total_tokens = self._concurrency.replied(size_bytes, trio.current_time(), saturated=saturated)

    def close(self) -> None:
        """Close idle connections."""
        self._pool.close()

    def _exchange(self, request: Request) -> Reply:
        """Blocking: one request on a pooled connection."""
        if request.leaving is not None:
            request.leaving()
        with self._failures():
            response = self._pool.urlopen(
                request.method,
                request.target,
                body=request.body or None,
                headers=self._all_headers(request),
                retries=False,
                redirect=False,
                preload_content=False,
                decode_content=False,
            )
            return self._reply(response, request)

    def _all_headers(self, request: Request) -> dict[str, str]:
        headers = {**self._headers, **request.headers}
        if not isinstance(request.body, bytes):
            headers["Content-Length"] = str(request.body_bytes)
        return headers

    async def _wait(self, request: Request) -> Reply:
        """One request whose reply may take long, on a connection of its own that ends with the wait."""
        line, abandoned = self._line(request.wait_s), threading.Event()
        try:
            return await trio.to_thread.run_sync(
                self._exchange_on, line, request, abandoned, abandon_on_cancel=True, limiter=self._waits
            )
        finally:
            abandoned.set()  # before we look for its socket: a thread that is still connecting looks after it has one
            hang_up(line)

    def _line(self, wait_s: float) -> HTTPConnection:
        """A connection that is not open yet."""
        timeout = self._settings.read_timeout_s + wait_s
        if self._ssl is not None:
            return HTTPSConnection(self._url.host, self._url.port, timeout=timeout, ssl_context=self._ssl)
        return HTTPConnection(self._url.host, self._url.port, timeout=timeout)

    def _exchange_on(self, line: HTTPConnection, request: Request, abandoned: threading.Event) -> Reply:
        """Blocking: one request on a connection that serves nothing else."""
        with self._failures():
            try:
                line.connect()
                if abandoned.is_set():
                    raise ReplyLostError(f"{self._origin}: nobody waits any more")
                line.request(
                    request.method,
                    request.target,
                    body=request.body or None,
                    headers=self._all_headers(request),
                    preload_content=False,
                    decode_content=False,
                )
                return self._reply(line.getresponse(), request)
            finally:
                line.close()

    @contextlib.contextmanager
    def _failures(self) -> Iterator[None]:
        """Tell urllib3's errors in our words."""
        try:
            yield
        except (NewConnectionError, ConnectTimeoutError, NameResolutionError) as error:
            raise RemoteUnavailableError(f"{self._origin} is unreachable: {_reason(error)}") from error
        except SSLError as error:
            if _is_untrusted(error):
                raise UntrustedError(f"{self._origin} is not trusted: TLS: {_reason(error)}") from error
            raise RemoteUnavailableError(f"{self._origin} is unreachable: TLS: {_reason(error)}") from error
        except (HTTPError, HTTPException, OSError) as error:
            raise ReplyLostError(f"{self._origin}: connection lost: {_reason(error)}") from error

    def _reply(self, response: urllib3.BaseHTTPResponse, request: Request) -> Reply:
        """All of a reply."""
        body = self._read(response, request)
        headers = {name.lower(): value for name, value in response.headers.items()}
        return Reply(status=response.status, headers=headers, body=body)

    def _read(self, response: urllib3.BaseHTTPResponse, request: Request) -> bytes:
        """The whole body; the connection goes back to the pool only then."""
        parts: list[bytes] = []
        size = 0
        # A fault is longer than the few bytes that were asked for; it must be read to be understood.
        limit = (
            request.max_reply_bytes if response.status < 400 else max(request.max_reply_bytes, MAX_SMALL_REPLY_BYTES)
        )
        # What is announced comes in one piece, if it may be that long: pieces would have to be joined, in new memory.
        announced = response.length_remaining or 0
        step = announced if _READ_STEP_BYTES < announced <= limit else _READ_STEP_BYTES
        while part := response.read(step):
            parts.append(part)
            size += len(part)
            if size > limit:
                response.close()
                raise LongReplyError(
                    f"{self._origin}: reply to {request.method} {request.target} is longer than {limit} bytes"
                )
        if (leash := LEASH.get()) is not None:
            leash.let_go()
        response.release_conn()
        return b"".join(parts)


def _ssl_context(settings: HttpSettings) -> ssl.SSLContext:
    """Whom to trust.

    Raises:
        UsageError: The file of authorities can't be read.
    """
    try:
        context = ssl.create_default_context(cafile=settings.ca_file)
    except OSError as error:  # ssl.SSLError is one
        raise UsageError(f"{settings.ca_file} can't be read as certificates: {error.strerror or error}") from None
    if settings.ignore_certificates:
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)  # said once, when the root was linked
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _is_untrusted(error: BaseException) -> bool:
    """Whether the server's certificate was refused."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return True
        cause = cause.__cause__ or cause.__context__ or next((e for e in cause.args if isinstance(e, Exception)), None)
    return False


def _reason(error: Exception) -> str:
    """The innermost reason, e.g. "Connection refused", without urllib3's object addresses."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    text = str(error)
    return _bounded(text.rpartition(">: ")[2] or text)


def _bounded(text: str) -> str:
    """What somebody else may have said, as one line that can be read: of garbage not more than its beginning."""
    plain = "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in text)
    return plain if len(plain) <= _MOST_SAID else f"{plain[:_MOST_SAID]}…"
