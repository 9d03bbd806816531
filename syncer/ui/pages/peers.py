"""Devices on the network: who is there, by which link, what came and went, who is banned."""

from __future__ import annotations

import os
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from syncer.ui.asked import form
from syncer.ui.context import Context, ended, see_other
from syncer.ui.jobs import Key
from syncer.ui.views.peers import view_peers

_LOOK: Final = Key("peers")


class Peers:
    """See the module."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._jobs = context.jobs

    def routes(self) -> list[Route]:
        """Where they are."""
        return [
            Route("/peers", self.all, methods=["GET"]),
            Route("/peers/unban", self.unban, methods=["POST"]),
        ]

    async def all(self, request: Request) -> Response:
        """How the daemon stands on the network now."""
        self._jobs.forget(_LOOK)  # rates and who was heard are of this moment
        job = self._jobs.look(_LOOK, "Peers", [b"peers", b"--json"])
        ran = await job.result(60.0)
        if ran is None:
            return self._context.waiting(request, job, "/")
        if ran.exit_code or not ran.lines:
            return self._context.failed(request, job, ran, "/")
        return self._context.page(request, "peers.html", peers=view_peers(ran.lines[-1]))

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
