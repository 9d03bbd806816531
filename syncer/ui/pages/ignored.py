"""What of a root is not synced: its own patterns, whether a path is ignored, and names that a side can't hold."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from syncer.protocol.jsontext import MALFORMED
from syncer.ui.asked import below, form, query
from syncer.ui.context import Context, ended, see_other
from syncer.ui.jobs import Job, Key
from syncer.ui.ports import Ran
from syncer.ui.views.ignored import NamesView, view_check, view_names, view_patterns

_PATIENCE_S = 60.0  # for a command that changes one file
_FRESH_S = 5.0  # what was told of small files is told once more to a page that comes back for it, and no later
_MOST = 200  # names on a page, and patterns of files


class Ignored:
    """See the module."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._jobs = context.jobs

    def routes(self) -> list[Route]:
        """Where they are."""
        return [
            Route("/root/{uuid}/ignored", self.patterns, methods=["GET"]),
            Route("/root/{uuid}/ignored/add", self.add, methods=["POST"]),
            Route("/root/{uuid}/ignored/remove", self.remove, methods=["POST"]),
        ]

    async def patterns(self, request: Request) -> Response:
        """The patterns, and what they ignore; with a path in the query also what becomes of it."""
        root = await self._context.facts(request.path_params["uuid"])
        if root is None:
            return self._context.missing(request)
        back = f"/root/{root.uuid}"
        if query(request).text("again"):
            self._jobs.forget_looks(root.uuid, but="plan")
            return see_other(f"{back}/ignored")
        patterns = self._small_look(Key("patterns", root.uuid), "Ignored", [b"ignore", root.path, b"ls", b"--json"])
        looks = [patterns]
        path = query(request).raw("path").lstrip(b"/")
        whole = below(root.path, path)
        if whole is not None:
            arguments = [b"ignore", root.path, b"check", b"--json", b"--", whole]
            looks.append(self._small_look(Key("check", root.uuid, path), "Is it ignored?", arguments))
        began_s = time.monotonic()
        ran, *checks = await asyncio.gather(*(job.result() for job in looks))
        if ran is None or None in checks:
            return self._context.waiting(request, patterns, back)
        if ran.exit_code:
            return self._context.failed(request, patterns, ran, back)
        # A look that began before the patterns were changed tells nothing of these.
        key = Key("names", root.uuid, b"\n".join(ran.lines))
        job = self._jobs.look(key, "What is ignored", [b"ignore", root.path, b"names", b"--most=%d" % _MOST, b"--json"])
        is_first = not job.is_asked
        names, trouble = self._names(key, await job.result(waited_s=time.monotonic() - began_s))
        if names is None and not trouble and is_first:
            return self._context.waiting(request, patterns, back)
        return self._context.page(
            request,
            "ignored.html",
            root=await self._context.view(root.uuid),
            patterns=view_patterns(ran.lines),
            told="".join(_told(each) for each in checks if each is not None),
            names=names,
            trouble=trouble,
        )

    def _small_look(self, key: Key, name: str, arguments: Sequence[bytes]) -> Job:
        """A look at a few small files."""
        known = self._jobs.of(key)
        if known is not None and known.ended_s + _FRESH_S < self._context.now_s():
            self._jobs.forget(key)
        return self._jobs.look(key, name, arguments)

    def _names(self, key: Key, ran: Ran | None) -> tuple[NamesView | None, str]:
        """What is ignored; None: it is not known yet, or why it can't be, in words."""
        if ran is None:
            return None, ""
        if ran.exit_code:
            self._jobs.forget(key)
            return None, ended(ran)
        try:
            return view_names(ran.lines), ""
        except MALFORMED:
            self._jobs.forget(key)
            return None, "What the command printed can't be understood; please report it."

    async def add(self, request: Request) -> Response:
        """`blocksync ignore ROOT add`."""
        fields = await form(request)
        return await self._change(request, b"add", fields.raw("pattern"))

    async def remove(self, request: Request) -> Response:
        """`blocksync ignore ROOT rm`."""
        fields = await form(request)
        return await self._change(request, b"rm", fields.unquoted("pattern"))

    async def _change(self, request: Request, verb: bytes, pattern: bytes) -> Response:
        root = await self._context.facts(request.path_params["uuid"])
        if root is None or not pattern or {b"\0"[0], b"\n"[0]} & set(pattern):
            return self._context.missing(request)
        arguments: Sequence[bytes] = [b"ignore", root.path, verb, b"--json", b"--", pattern]
        key = Key("ignore", root.uuid, verb + pattern)
        self._jobs.forget(key)
        ran = await self._jobs.begin(key, "Changing what is ignored", arguments).result(_PATIENCE_S)
        if ran is not None and ran.exit_code:
            self._context.tell(request, ended(ran), is_well=False)
        self._jobs.forget_looks(root.uuid)
        return see_other(f"/root/{root.uuid}/ignored")


def _told(check: Ran) -> str:
    """What becomes of a path, or why that is not known."""
    return view_check(check.lines[0]) if check.lines and not check.exit_code else ended(check)
