"""Noticing changes on the server: its `changes` request waits for them; a server without it is asked now and then."""

from __future__ import annotations

from typing import Final

import trio

from syncer.ports.remote import Cursor
from syncer.remote.client import CloudClient

MIN_POLL_S: Final = 2.0
MAX_POLL_S: Final = 60.0
_SLOWER: Final = 1.5

_SETTLE_S: Final = 1.0
_SETTLE_TRIES: Final = 10
"""A container that never rests is looked at all the same, and again when it does."""

_NOTHING: Final = object()
"""Evidence that is never seen again."""

WAIT_S: Final = 50.0
"""Of one waiting request. Proxies commonly cut connections that are silent for a minute."""


class ServerFeed:
    """See `RemoteFeed`. Asks the server first which way it knows.

    It keeps its own place in the container's history: what a cycle of ours writes is told, too, and the cycle that
    then looks finds that it is an echo.
    """

    kind = "nothing"

    def __init__(self, remote: CloudClient) -> None:
        self._remote = remote
        self._cursor: Cursor | None = None
        self._evidence: object = None
        self._pause_s = MIN_POLL_S

    async def wait(self) -> None:
        """See RemoteFeed.wait."""
        while not await self._has_changed():
            pass

    async def _has_changed(self) -> bool:
        if self.kind == "nothing":
            info = await self._remote.container_info()
            self.kind = "changes" if info.can.waits == "told" else "polling"
        return await (self._wait_on_server() if self.kind == "changes" else self._poll())

    async def _wait_on_server(self) -> bool:
        cursor = self._cursor
        if cursor is None:
            self._cursor = (await self._remote.moment()).cursor
            return True
        found = await self._remote.changes(cursor, WAIT_S)
        if found is None:
            self._cursor = None  # of another life of the container: what a cycle makes of that is its business
            return False
        self._cursor = found.cursor
        return bool(found.objects or found.deleted or found.refused)

    async def _poll(self) -> bool:
        if self._evidence is not None:
            await trio.sleep(self._pause_s)
        found = await self._remote.moment()
        if found.evidence == self._evidence:
            self._pause_s = min(self._pause_s * _SLOWER, MAX_POLL_S)
            return False
        for _ in range(_SETTLE_TRIES):
            if found.settled:
                break
            # Another change within the same second would look like this one: whoever lists now must list again.
            await trio.sleep(_SETTLE_S)
            found = await self._remote.moment()
        self._evidence = found.evidence if found.settled else _NOTHING
        self._pause_s = MIN_POLL_S
        return True
