"""Mounted volumes: all of them, what one holds, the map of a file."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from syncer.ui.asked import query
from syncer.ui.context import Context, see_other
from syncer.ui.jobs import PATIENCE_S, Job, Key
from syncer.ui.ports import MapFacts, MountFacts, Ran, VolumeFacts
from syncer.ui.render import address
from syncer.ui.views.volumes import CELLS, view_map, view_mount, view_volume
from syncer.ui.words import name


class Volumes:
    """See the module."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._jobs = context.jobs

    def routes(self) -> list[Route]:
        """Where they are."""
        return [
            Route("/volumes", self.all, methods=["GET"]),
            Route("/volumes/{uuid}", self.one, methods=["GET"]),
            Route("/volumes/{uuid}/map", self.map, methods=["GET"]),
        ]

    async def all(self, request: Request) -> Response:
        """All mounted volumes."""
        mounts = await asyncio.to_thread(self._context.ports.mounts)
        return self._context.page(request, "volumes.html", mounts=[view_mount(each) for each in mounts])

    async def one(self, request: Request) -> Response:
        """What a volume holds."""
        mount = await self._mount(request)
        if mount is None:
            return self._context.missing(request, "No such volume is mounted (any more).")
        uuid, key = mount.uuid, Key("volume", mount.uuid)
        if query(request).text("again"):
            self._jobs.forget(key)
            return see_other(f"/volumes/{uuid}")
        job = self._jobs.look(key, name(mount.mountpoint), lambda: self._context.ports.volume(uuid))
        ran = await job.result()
        if not isinstance(job.found, VolumeFacts):
            return self._not_found(request, job, key, ran, "/volumes")
        view = view_volume(job.found, self._context.now_s())
        return self._context.page(request, "volume.html", mount=view_mount(mount), volume=view, at_s=job.ended_s)

    async def map(self, request: Request) -> Response:
        """The map of a file."""
        mount = await self._mount(request)
        if mount is None:
            return self._context.missing(request, "No such volume is mounted (any more).")
        asked, back = query(request), f"/volumes/{mount.uuid}"
        path = asked.raw("path").strip(b"/")
        if not path or b"\0" in path:
            self._context.tell(request, "Say which file, below the mountpoint.", is_well=False)
            return see_other(back)
        part = asked.number("first", 0), asked.number("count", 0)
        uuid, key = mount.uuid, Key("map", mount.uuid, b"%d %d " % part + path)
        if asked.text("again"):
            self._jobs.forget(key)
            return see_other(f"{back}/map?path={address(path)}&first={part[0]}&count={part[1]}")
        job = self._jobs.look(key, name(path), lambda: self._context.ports.block_map(uuid, path, CELLS, part))
        ran = await job.result(PATIENCE_S)  # a picture within a second, rather than a word now
        if not isinstance(job.found, MapFacts):
            return self._not_found(request, job, key, ran, back)
        return self._context.page(
            request,
            "map.html",
            mount=view_mount(mount),
            shown=name(path),
            path=path,
            map=view_map(job.found),
            at_s=job.ended_s,
        )

    async def _mount(self, request: Request) -> MountFacts | None:
        uuid = request.path_params["uuid"]
        mounts = await asyncio.to_thread(self._context.ports.mounts)
        return next((mount for mount in mounts if mount.uuid == uuid), None)

    def _not_found(self, request: Request, job: Job, key: Key, ran: Ran | None, back: str) -> Response:
        """The page that says why a look has found nothing, or not yet."""
        if ran is None:
            return self._context.waiting(request, job, back)
        self._jobs.forget(key)
        return self._context.failed(request, job, ran, back)
