"""Servers that run here: all of them, and what one keeps."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from syncer.ui.asked import query
from syncer.ui.context import Context, see_other
from syncer.ui.jobs import Key
from syncer.ui.ports import StoreFacts
from syncer.ui.views.servers import view_server, view_store
from syncer.ui.words import name


class Servers:
    """See the module."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._jobs = context.jobs

    def routes(self) -> list[Route]:
        """Where they are."""
        return [
            Route("/servers", self.all, methods=["GET"]),
            Route("/servers/{ident}", self.one, methods=["GET"]),
        ]

    async def all(self, request: Request) -> Response:
        """All that run; where it is one, what it keeps."""
        found = await asyncio.to_thread(self._context.ports.servers)
        if len(found) == 1:
            return see_other(f"/servers/{found[0].ident}")
        return self._context.page(request, "servers.html", servers=[view_server(each) for each in found])

    async def one(self, request: Request) -> Response:
        """What one keeps."""
        running = await asyncio.to_thread(self._context.ports.servers)
        server = next((each for each in running if each.ident == request.path_params["ident"]), None)
        if server is None:
            return self._context.missing(request, "No such server runs here (any more).")
        ident, key = server.ident, Key("store", server.ident)
        if query(request).text("again"):
            self._jobs.forget(key)
            return see_other(f"/servers/{ident}")
        job = self._jobs.look(key, name(server.directory), lambda: self._context.ports.store(ident))
        ran = await job.result()
        if ran is None:
            return self._context.waiting(request, job, "/servers")
        if not isinstance(job.found, StoreFacts):
            self._jobs.forget(key)
            return self._context.failed(request, job, ran, "/")
        view = view_store(job.found, self._context.now_s())
        return self._context.page(request, "server.html", server=view_server(server), store=view, at_s=job.ended_s)
