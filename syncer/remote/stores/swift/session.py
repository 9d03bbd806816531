"""Requests with a token: asked for when there is none, and once more when it has expired."""

from __future__ import annotations

import trio
from msgspec.structs import replace

from syncer.errors import RemoteUnavailableError
from syncer.ports.remote import Counters
from syncer.remote.http.transport import HttpSettings, HttpTransport, Reply, Request
from syncer.remote.stores.swift.signin import Access, SignIn


class Session:
    """Of one account. Safe for many tasks at once: they share a token, and sign in one for all."""

    def __init__(self, credentials: SignIn, settings: HttpSettings, counters: Counters) -> None:
        self._credentials = credentials
        self._settings = settings
        self._counters = counters
        self._signing_in = trio.Lock()
        self._access: Access | None = None
        self._transport: HttpTransport | None = None
        self._is_met = False  # the account's server has answered

    async def send(self, request: Request) -> Reply:
        """Send a request, whose target is relative to the account; once more, with a new token, after a 401.

        That is safe for every request: one that is refused for its token did nothing.
        """
        access, transport = await self._ready(None)
        try:
            reply = await self._sent(transport, access, request)
        except RemoteUnavailableError:
            if access.is_kept and not self._is_met and self._access is access:
                self._access = None  # the account may be elsewhere by now: who tries again asks
            raise
        self._is_met = True
        if reply.status != 401:
            return reply
        access, transport = await self._ready(access)
        return await self._sent(transport, access, request)

    async def origin(self) -> str:
        """The server of the account."""
        return (await self._ready(None))[0].storage.origin

    def close(self) -> None:
        """Close idle connections. Idempotent."""
        if self._transport is not None:
            self._transport.close()

    async def _sent(self, transport: HttpTransport, access: Access, request: Request) -> Reply:
        headers = {**request.headers, "X-Auth-Token": access.token}
        return await transport.send(replace(request, target=access.storage.path + request.target, headers=headers))

    async def _ready(self, refused: Access | None) -> tuple[Access, HttpTransport]:
        """A token that is not the one that was refused, and the way to its account."""
        async with self._signing_in:
            if self._access is refused or self._access is None or self._transport is None:
                door = HttpTransport(self._credentials.address, None, self._settings, self._counters)
                try:
                    access = await self._credentials.sign_in(door)
                finally:
                    door.close()
                if self._transport is None or self._access is None or self._access.storage != access.storage:
                    self.close()
                    self._transport = HttpTransport(access.storage, None, self._settings, self._counters)
                self._access = access
            return self._access, self._transport
