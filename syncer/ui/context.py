"""What all pages work with, and how a page is written."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse

from syncer.ui.jobs import Job, Jobs
from syncer.ui.live import Lookout, Pieces, Streams
from syncer.ui.ports import PagePorts, Ran, RootFacts
from syncer.ui.render import render
from syncer.ui.views.roots import RootView, meaning
from syncer.ui.words import plain

_NOTICES: Final = 8  # of one session, that it has not seen yet


class GoneError(Exception):
    """A root was unlinked between two looks at it."""


class Context:
    """One per page's process.

    Attributes:
        ports: The program.
        jobs: Commands that run.
        lookout: How the roots stand.
        streams: Browsers that are told of changes.
        now_s: Seconds since the epoch.
    """

    def __init__(self, ports: PagePorts, now_s: Callable[[], float], goes_on: Callable[[str, float], bool]) -> None:
        """Nothing runs.

        Args:
            ports: See the class.
            now_s: See the class.
            goes_on: Whether the session of a cookie has not ended.
        """
        self.ports = ports
        self.now_s = now_s
        self._goes_on = goes_on
        self.jobs = Jobs(ports, now_s)
        self.lookout = Lookout(ports, now_s)
        self.streams = Streams()
        self._notices: dict[str, deque[tuple[str, bool]]] = {}

    async def facts(self, uuid: str) -> RootFacts | None:
        """A root of that UUID; None: there is none (any more)."""
        roots = await asyncio.to_thread(self.ports.roots)
        return next((root for root in roots if root.uuid == uuid), None)

    async def view(self, uuid: str) -> RootView:
        """How a root stands.

        Raises:
            GoneError: It was unlinked meanwhile.
        """
        found = (await self.lookout.scene()).root(uuid)
        if found is None:
            raise GoneError
        return found

    def stream(self, request: Request, pieces: Pieces) -> Response:
        """Tell a browser of what changes of its page, as long as its session lasts."""
        cookie = request.scope["cookie"]
        told = self.streams.tell(pieces, lambda: self._goes_on(cookie, self.now_s()))
        return StreamingResponse(told, media_type="text/event-stream")

    def tell(self, request: Request, text: str, *, is_well: bool = True) -> None:
        """Have the session's next page say something."""
        self._notices.setdefault(request.scope["cookie"], deque(maxlen=_NOTICES)).append((plain(text), is_well))

    def page(self, request: Request, template: str, status: int = 200, **values: object) -> Response:
        """Write a page."""
        notices = self._notices.pop(request.scope["cookie"], ())
        session = request.scope["session"]
        common = {"device": self.ports.device, "proof": session.proof, "notices": list(notices)}
        text = render(template, here=_section(request.scope["path"]), **common, **values)
        return HTMLResponse(text, status)

    def missing(self, request: Request, text: str = "There is no such page, or no such root any more.") -> Response:
        """A page that says so."""
        return self.page(request, "message.html", 404, title="Not found", text=text)

    def waiting(self, request: Request, job: Job, back: str) -> Response:
        """A page that asks again by itself, until a look has ended."""
        seconds = max(0, int(self.now_s() - job.began_s))
        return self.page(request, "looking.html", title=job.name, seconds=seconds, back=back)

    def failed(self, request: Request, job: Job, ran: Ran, back: str) -> Response:
        """A page that says what a command said."""
        return self.page(request, "failed.html", title=job.name, text=ended(ran), again=_again(request), back=back)


def ended(ran: Ran) -> str:
    """How a command ended, in its own words."""
    told = ran.message or meaning(ran.exit_code)
    return plain(told if ran.exit_code == 0 else f"{told} (exit code {ran.exit_code})")


def see_other(target: str) -> Response:
    """Go on by looking at something."""
    return RedirectResponse(target, status_code=303)


def command_line(arguments: list[bytes]) -> str:
    """What a person would type for it."""
    import shlex  # noqa: PLC0415 - where somebody looks

    return plain("blocksync " + " ".join(shlex.quote(os.fsdecode(each)) for each in arguments))


def _section(path: str) -> str:
    """Which entry of the navigation a page belongs to."""
    return next(
        (
            section
            for section in ("conflicts", "trash", "volumes", "servers", "peers", "doctor")
            if section in path.split("/")
        ),
        "roots",
    )


def _again(request: Request) -> str:
    kept = "&".join(
        each
        for each in request.scope["query_string"].decode("ascii", "replace").split("&")
        if each and each != "again=1"
    )
    return f"{request.scope['path']}?{kept}{'&' if kept else ''}again=1"
