"""Devices on the network: who is there, by which link, what came and went, who is banned."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from blockfs.runtime.failures import said
from syncer.errors import EXPECTED
from syncer.ui.asked import form
from syncer.ui.context import Context, ended, see_other
from syncer.ui.jobs import Key
from syncer.ui.render import render
from syncer.ui.views.peers import view_peers
from syncer.ui.words import plain


class Peers:
    """See the module."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._jobs = context.jobs

    def routes(self) -> list[Route]:
        """Where they are."""
        return [
            Route("/peers", self.all, methods=["GET"]),
            Route("/peers/events", self.events, methods=["GET"]),
            Route("/peers/unban", self.unban, methods=["POST"]),
        ]

    async def all(self, request: Request) -> Response:
        """How the daemon stands on the network now."""
        try:
            line = await asyncio.to_thread(self._context.ports.peers)
        except EXPECTED as error:
            return self._context.page(request, "message.html", 503, title="Peers", text=plain(said(error)))
        return self._context.page(request, "peers.html", peers=view_peers(line))

    async def events(self, request: Request) -> Response:
        """What changes of it: rates and who was heard are of a moment."""
        proof = request.scope["session"].proof

        async def pieces() -> Mapping[str, str]:
            try:
                line = await asyncio.to_thread(self._context.ports.peers)
            except EXPECTED as error:
                return {"peers": render("_silent.html", text=plain(said(error)))}
            return {"peers": render("_peers.html", peers=view_peers(line), proof=proof)}

        return self._context.stream(request, pieces)

    async def unban(self, request: Request) -> Response:
        """`blocksync peers unban`."""
        who = (await form(request)).text("who")
        if not (who.isascii() and who.isalnum()):
            return self._context.missing(request)
        key = Key("unban", "", who.encode())
        self._jobs.forget(key)
        job = self._jobs.begin(key, "Lifting a ban", [b"peers", b"unban", b"--json", b"--", os.fsencode(who)])
        ran = await job.result(60.0)
        if ran is not None and ran.exit_code:
            self._context.tell(request, ended(ran), is_well=False)
        return see_other("/peers")
