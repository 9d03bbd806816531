"""HTTP as the remote clients need it: one request in, one whole reply out, many at once.

urllib3's pool in trio worker threads. Measured on 4 MiB GETs a thread costs 2.2 ms of CPU, httpx on trio 9.6 ms
(docs/adr, client transport). Nothing is retried or redirected here: `retry.py` decides that.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

import trio
import urllib3
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    NameResolutionError,
    NewConnectionError,
    SSLError,
)

from syncer.errors import RemoteUnavailableError
from syncer.remote.client import Counters
from syncer.remote.url import RemoteUrl

MAX_SMALL_REPLY_BYTES: Final = 1 << 20
"""Bound for replies that are not content or lists: a wrong server can't fill our memory."""

_READ_STEP_BYTES: Final = 1 << 20

_READ_ONLY: Final = frozenset({"GET", "HEAD"})


class ReplyLostError(RemoteUnavailableError):
    """The request may have reached the server, its reply did not reach us: a write may or may not have happened."""


class BadReplyError(RemoteUnavailableError):
    """Something answers, but not as a Pithos server does. Trying again would not help."""

    retryable = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One HTTP request.

    Attributes:
        method: Upper case.
        target: Quoted path with query, as it goes on the wire.
        headers: Without the token, which the transport adds.
        body: Sent with a Content-Length; b"" for none.
        max_reply_bytes: A longer reply body is refused as a protocol error.
    """

    method: str
    target: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    max_reply_bytes: int = MAX_SMALL_REPLY_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One whole HTTP reply.

    Attributes:
        status: 100 to 599.
        headers: Names in lower case.
        body: Complete: as long as the server announced.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes


class Transport(Protocol):
    """Sends requests. The seam for tests."""

    async def send(self, request: Request) -> Reply:
        """Send once, wait for the whole reply, whatever its status.

        Raises:
            RemoteUnavailableError: Not sent: nothing can have happened on the server.
            ReplyLostError: Perhaps sent, no complete reply.
            BadReplyError: The reply is longer than the request allows.
        """
        ...

    def close(self) -> None:
        """Close idle connections. Idempotent."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """How to talk.

    Attributes:
        concurrency: Requests at once, 4 to 16. 8 by default: enough to hide a 50 ms round trip behind 64 KiB batches.
        connect_timeout_s: Until the TCP (and TLS) connection stands.
        read_timeout_s: Longest silence while waiting for or within a reply.
        ca_file: PEM file of certificate authorities to trust instead of the system's; for https only.
    """

    concurrency: int = 8
    connect_timeout_s: float = 10.0
    read_timeout_s: float = 60.0
    ca_file: str | None = None


class HttpTransport:
    """`Transport` over urllib3, to one server."""

    def __init__(self, url: RemoteUrl, token: str, settings: HttpSettings, counters: Counters) -> None:
        self._origin = url.origin
        self._counters = counters
        self._headers = {"X-Auth-Token": token, "User-Agent": "blocksync", "Accept-Encoding": "identity"}
        # A limiter of our own: slow replies must not take trio's default threads from disk work.
        self._limiter = trio.CapacityLimiter(settings.concurrency)
        timeout = urllib3.Timeout(connect=settings.connect_timeout_s, read=settings.read_timeout_s)
        self._pool: urllib3.HTTPConnectionPool
        if url.scheme == "https":
            self._pool = urllib3.HTTPSConnectionPool(
                url.host,
                url.port,
                timeout=timeout,
                maxsize=settings.concurrency,
                ssl_context=ssl.create_default_context(cafile=settings.ca_file),
            )
        else:
            self._pool = urllib3.HTTPConnectionPool(url.host, url.port, timeout=timeout, maxsize=settings.concurrency)

    async def send(self, request: Request) -> Reply:
        """See `Transport.send`. Cancelling abandons the thread, which ends with its own time-outs."""
        self._counters.requests += 1
        self._counters.bytes_sent += len(request.body)
        if request.method not in _READ_ONLY:
            self._counters.mutating_requests += 1
        reply = await trio.to_thread.run_sync(self._exchange, request, abandon_on_cancel=True, limiter=self._limiter)
        self._counters.bytes_received += len(reply.body)
        return reply

    def close(self) -> None:
        """Close idle connections."""
        self._pool.close()

    def _exchange(self, request: Request) -> Reply:
        """Blocking: one request on a pooled connection."""
        try:
            response = self._pool.urlopen(
                request.method,
                request.target,
                body=request.body or None,
                headers={**self._headers, **request.headers},
                retries=False,
                redirect=False,
                preload_content=False,
                decode_content=False,
            )
            body = self._read(response, request)
        except (NewConnectionError, ConnectTimeoutError, NameResolutionError) as error:
            raise RemoteUnavailableError(f"{self._origin} is unreachable: {_reason(error)}") from error
        except SSLError as error:
            raise RemoteUnavailableError(f"{self._origin} is unreachable: TLS: {_reason(error)}") from error
        except (HTTPError, OSError) as error:
            raise ReplyLostError(f"{self._origin}: connection lost: {_reason(error)}") from error
        headers = {name.lower(): value for name, value in response.headers.items()}
        return Reply(status=response.status, headers=headers, body=body)

    def _read(self, response: urllib3.BaseHTTPResponse, request: Request) -> bytes:
        """The whole body; the connection goes back to the pool only then."""
        parts: list[bytes] = []
        size = 0
        while part := response.read(_READ_STEP_BYTES):
            parts.append(part)
            size += len(part)
            if size > request.max_reply_bytes:
                response.close()
                raise BadReplyError(
                    f"{self._origin}: reply to {request.method} {request.target} is longer than "
                    f"{request.max_reply_bytes} bytes"
                )
        response.release_conn()
        return b"".join(parts)


def _reason(error: Exception) -> str:
    """The innermost reason, e.g. "Connection refused", without urllib3's object addresses."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    text = str(error)
    return text.rpartition(">: ")[2] or text
