"""Bodies of requests as they come off the wire: bounds on their length, on silence, and on how slowly they come."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import anyio
from starlette.requests import Request

from syncer.protocol.pithos import headers
from syncer.server.errors import TooLarge
from syncer.server.http.asked import require_at_most

IDLE_S: Final = 120.0
"""A client that sends nothing for so long has gone; its blocks must not be held for ever."""

BRIEF_S: Final = 10.0
"""For the whole body of a request that comes without a token."""

LEAST_BYTES_PER_S: Final = 2048
"""Slower than any line: whoever sends less, in the time that we wait for him, only wants to keep us busy."""


class Waiting:
    """How long one body may still be waited for. Pure.

    Only waiting counts, not what we do with what came: a slow disk of ours is not the client's fault.
    """

    def __init__(self, idle_s: float) -> None:
        self._idle_s = idle_s
        self._waited_s = 0.0
        self._received = 0

    @property
    def allowance_s(self) -> float:
        """For the next piece."""
        in_all = self._idle_s + self._received / LEAST_BYTES_PER_S
        return max(0.0, min(self._idle_s, in_all - self._waited_s))

    def got(self, size_bytes: int, waited_s: float) -> None:
        """A piece came after so long."""
        self._received += size_bytes
        self._waited_s += waited_s


async def arriving(request: Request, limit_bytes: int, idle_s: float | None = None) -> AsyncIterator[bytes]:
    """The body as it comes.

    Args:
        request: Whose.
        limit_bytes: Longest body that is taken.
        idle_s: Longest silence; None: two minutes.

    Raises:
        TooLarge: A longer one.
        ClientDisconnect: The client went away.
        TimeoutError: It keeps silent, or sends too slowly.
    """
    announced = request.headers.get("Content-Length")
    require_at_most(None if announced is None else headers.parse_decimal("Content-Length", announced), limit_bytes)
    waiting = Waiting(IDLE_S if idle_s is None else idle_s)
    total = 0
    stream = request.stream()
    while True:
        began = anyio.current_time()
        with anyio.fail_after(waiting.allowance_s):
            data = await anext(stream, None)
        if data is None:
            return
        waiting.got(len(data), anyio.current_time() - began)
        total += len(data)
        if total > limit_bytes:
            raise TooLarge(f"The body has more than {limit_bytes} bytes")
        yield data


async def read_body(request: Request, limit_bytes: int, *, brief: bool = False) -> bytes:
    """The whole body of a request; see `arriving`.

    Args:
        request: Whose.
        limit_bytes: Longest body that is taken.
        brief: Nobody knows who sends it: all of it must come at once.
    """
    if not brief:
        return b"".join([data async for data in arriving(request, limit_bytes)])
    with anyio.fail_after(BRIEF_S):
        return b"".join([data async for data in arriving(request, limit_bytes, BRIEF_S)])
