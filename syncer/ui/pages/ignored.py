"""What of a root is not synced: its own patterns, whether a path is ignored, and names that a side can't hold."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from syncer.protocol.jsontext import MALFORMED
from syncer.ui.asked import below, form, query
from syncer.ui.context import Context, ended, see_other
from syncer.ui.jobs import PATIENCE_S, Key
from syncer.ui.ports import RootFacts
from syncer.ui.views.ignored import NamesView, view_check, view_names, view_patterns

_PATIENCE_S = 60.0  # for a command that changes one file, or looks at a few
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
        key = Key("patterns", root.uuid)
        self._jobs.forget(key)  # a small file: never an old answer
        job = self._jobs.look(key, "Ignored", [b"ignore", root.path, b"ls", b"--json"])
        ran = await job.result(_PATIENCE_S)
        if ran is None:
            return self._context.waiting(request, job, back)
        if ran.exit_code:
            return self._context.failed(request, job, ran, back)
        # A look that began before the patterns were changed tells nothing of these.
        names_key = Key("names", root.uuid, b"\n".join(ran.lines))
        if query(request).text("again"):
            self._jobs.forget(names_key)
            return see_other(f"/root/{root.uuid}/ignored")
        path, told = query(request).raw("path").lstrip(b"/"), ""
        whole = below(root.path, path)
        if whole is not None:
            check = Key("check", root.uuid, path)
            self._jobs.forget(check)
            job = self._jobs.look(check, "Is it ignored?", [b"ignore", root.path, b"check", b"--json", b"--", whole])
            checked = await job.result(_PATIENCE_S)
            if checked is not None:
                told = view_check(checked.lines[0]) if checked.lines and not checked.exit_code else ended(checked)
        names, trouble = await self._names(root, names_key)
        view = await self._context.view(root.uuid)
        patterns = view_patterns(ran.lines)
        return self._context.page(
            request, "ignored.html", root=view, patterns=patterns, told=told, names=names, trouble=trouble
        )

    async def _names(self, root: RootFacts, key: Key) -> tuple[NamesView | None, str]:
        """What is ignored; None: it is not known yet, or why it can't be, in words."""
        arguments = [b"ignore", root.path, b"names", b"--most=%d" % _MOST, b"--json"]
        ran = await self._jobs.look(key, "What is ignored", arguments).result(PATIENCE_S)
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
