"""Conflicts and trash of a root: what there is, what differs, and settling or restoring it by the commands."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import quote_from_bytes

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from syncer.protocol.jsontext import MALFORMED
from syncer.ui.asked import below, form, query
from syncer.ui.context import Context, ended, see_other
from syncer.ui.jobs import Job, Key
from syncer.ui.ports import Compared, Ran, RootFacts
from syncer.ui.views.lists import Listed, view_compared, view_conflicts, view_trash
from syncer.ui.words import name

_TAKES: Final = frozenset({"local", "remote", "both"})
_PATIENCE_S: Final = 60.0  # for a command that changes two names


class Lists:
    """See the module."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._jobs = context.jobs
        self._gone: dict[Key, tuple[Job, set[str]]] = {}  # of a list what was settled since it was made

    def routes(self) -> list[Route]:
        """Where they are."""
        return [
            Route("/conflicts", self.all_conflicts, methods=["GET"]),
            Route("/trash", self.all_trash, methods=["GET"]),
            Route("/root/{uuid}/conflicts", self.conflicts, methods=["GET"]),
            Route("/root/{uuid}/conflicts/compare", self.compare, methods=["GET"]),
            Route("/root/{uuid}/conflicts/resolve", self.resolve, methods=["POST"]),
            Route("/root/{uuid}/trash", self.trash, methods=["GET"]),
            Route("/root/{uuid}/trash/restore", self.restore, methods=["POST"]),
        ]

    # --- all roots

    async def all_conflicts(self, request: Request) -> Response:
        """Which roots have conflicts."""
        return await self._choose(request, "Conflicts", "conflicts")

    async def all_trash(self, request: Request) -> Response:
        """Whose trash to look into."""
        return await self._choose(request, "Trash", "trash")

    async def _choose(self, request: Request, title: str, what: str) -> Response:
        scene = await self._context.lookout.scene(fresh=True)
        roots = [root for root in scene.roots if root.url]
        return self._context.page(request, "choose.html", title=title, what=what, roots=roots)

    # --- conflicts

    async def conflicts(self, request: Request) -> Response:
        """A root's conflict copies, each beside what has its name."""

        def view(lines: Sequence[bytes], page: int, gone: set[str]) -> Listed:
            return view_conflicts(lines, page, gone, self._context.now_s())

        return await self._list(request, "conflicts", "Conflicts", [b"conflicts"], view)

    async def compare(self, request: Request) -> Response:
        """Where two versions differ."""
        root = await self._context.facts(request.path_params["uuid"])
        if root is None:
            return self._context.missing(request)
        asked, back = query(request), f"/root/{root.uuid}/conflicts"
        path = asked.raw("path")
        if not path:
            return self._context.missing(request)
        uuid = root.uuid
        key = Key("compare", uuid, path)
        if asked.text("again"):
            self._jobs.forget(key)
            return see_other(f"{back}/compare?path={quote_from_bytes(path, safe='')}")
        self._forget_older(key, root)
        job = self._jobs.look(key, "Where two versions differ", lambda: self._context.ports.compare(uuid, path))
        ran = await job.result()
        if ran is None:
            return self._context.waiting(request, job, back)
        if not isinstance(job.found, Compared):
            self._jobs.forget(key)
            return self._context.failed(request, job, ran, back)
        view = await self._context.view(root.uuid)
        return self._context.page(
            request,
            "compare.html",
            root=view,
            path=path,
            shown=name(path),
            compared=view_compared(job.found),
            at_s=job.ended_s,
            back=back,
        )

    async def resolve(self, request: Request) -> Response:
        """`blocksync resolve`."""
        root = await self._context.facts(request.path_params["uuid"])
        fields = await form(request)
        take, encoded = fields.text("take"), fields.text("path")
        path = fields.unquoted("path")
        whole = None if root is None else below(root.path, path)
        if root is None or whole is None or take not in _TAKES:
            return self._context.missing(request)
        arguments = [b"resolve", whole, b"--take", take.encode(), b"--json"]
        ran = await self._change(Key("resolve", root.uuid, path), "Settling a conflict", arguments)
        if ran is not None and ran.exit_code == 0:
            self._note_gone(Key("conflicts", root.uuid), encoded)
            self._jobs.forget_looks(root.uuid, but="conflicts")
        self._tell(request, ran, lambda line: f"{name(path)}: {msgspec.json.decode(line, type=_Done).done}")
        return see_other(f"/root/{root.uuid}/conflicts?page={fields.number('page', 1)}")

    # --- trash

    async def trash(self, request: Request) -> Response:
        """What is in a root's trash."""
        return await self._list(request, "trash", "Trash", [b"trash", b"ls"], view_trash)

    async def restore(self, request: Request) -> Response:
        """`blocksync trash restore`."""
        root = await self._context.facts(request.path_params["uuid"])
        fields = await form(request)
        ident = fields.text("id")
        if root is None or not ident or "\0" in ident:
            return self._context.missing(request)
        arguments = [b"trash", b"restore", root.path, b"--entry=" + os.fsencode(ident), b"--json"]
        ran = await self._change(Key("restore", root.uuid, os.fsencode(ident)), "Restoring a version", arguments)
        if ran is not None and ran.exit_code == 0:
            self._note_gone(Key("trash", root.uuid), ident)
            self._jobs.forget_looks(root.uuid, but="trash")
        self._tell(request, ran, lambda line: f"Restored {msgspec.json.decode(line, type=_Restored).to}")
        return see_other(f"/root/{root.uuid}/trash?page={fields.number('page', 1)}")

    # --- both

    async def _list(
        self,
        request: Request,
        what: str,
        title: str,
        command: list[bytes],
        view: Callable[[Sequence[bytes], int, set[str]], Listed],
    ) -> Response:
        root = await self._context.facts(request.path_params["uuid"])
        if root is None:
            return self._context.missing(request)
        asked, key = query(request), Key(what, root.uuid)
        if asked.text("again"):
            self._jobs.forget(key)
            return see_other(f"/root/{root.uuid}/{what}")
        if not asked.text("page"):  # who turns pages reads on in the list as it was
            self._forget_older(key, root)
        job = self._jobs.look(key, title, [*command, root.path, b"--json"])
        ran = await job.result()
        if ran is None:
            return self._context.waiting(request, job, f"/root/{root.uuid}")
        if ran.exit_code:
            self._jobs.forget(key)
            return self._context.failed(request, job, ran, f"/root/{root.uuid}")
        known = self._gone.get(key)
        gone = known[1] if known is not None and known[0] is job else set()
        try:
            listed = view(ran.lines, asked.number("page", 1), gone)
        except MALFORMED:
            return self._context.missing(request, "What the command printed can't be understood; please report it.")
        shown = await self._context.view(root.uuid)
        return self._context.page(request, f"{what}.html", root=shown, listed=listed, at_s=job.ended_s)

    def _forget_older(self, key: Key, root: RootFacts) -> None:
        """Look anew at what the root's last cycle may have changed."""
        if root.last is not None:
            self._jobs.forget_older(key, root.last.ended_s)

    async def _change(self, key: Key, title: str, arguments: list[bytes]) -> Ran | None:
        self._jobs.forget(key)
        return await self._jobs.begin(key, title, arguments).result(_PATIENCE_S)

    def _note_gone(self, key: Key, which: str) -> None:
        """Leave something out of a list that was made before: of 10,000 the rest is as it was."""
        job = self._jobs.of(key)
        if job is None:
            return
        known = self._gone.get(key)
        if known is None or known[0] is not job:
            self._gone[key] = known = (job, set())
        known[1].add(which)

    def _tell(self, request: Request, ran: Ran | None, told: Callable[[bytes], str]) -> None:
        if ran is None:
            self._context.tell(request, "It takes long, and goes on.")
        elif ran.exit_code or not ran.lines:
            self._context.tell(request, ended(ran), is_well=False)
        else:
            self._context.tell(request, told(ran.lines[-1]))


class _Done(msgspec.Struct):
    done: str


class _Restored(msgspec.Struct):
    to: str
