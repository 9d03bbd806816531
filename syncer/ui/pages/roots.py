"""Roots: all of them, one of them, what waits and why, and the plan that a safety stop stopped."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from blockfs.exitcodes import ExitCode
from syncer.errors import EXPECTED
from syncer.protocol.jsontext import MALFORMED
from syncer.ui.asked import below, form, query
from syncer.ui.context import Context, command_line, ended, see_other
from syncer.ui.jobs import Key
from syncer.ui.live import Scene
from syncer.ui.render import render
from syncer.ui.views.plans import view_explanation, view_plan
from syncer.ui.views.roots import Bar, view_bar
from syncer.ui.words import name
from syncer.watch.live import RootLive


class Agreed(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of a plan that was agreed to.

    Attributes:
        bar: How far it is; None: it has ended.
        outcome: How it ended.
        is_well: It did all that was agreed to.
    """

    bar: Bar | None
    outcome: str
    is_well: bool


class Roots:
    """See the module."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._jobs = context.jobs
        self._after: set[asyncio.Task[bool]] = set()

    def routes(self) -> list[Route]:
        """Where they are."""
        return [
            Route("/", self.all, methods=["GET"]),
            Route("/events", self.events, methods=["GET"]),
            Route("/root/{uuid}", self.one, methods=["GET"]),
            Route("/root/{uuid}/pause", self.pause, methods=["POST"]),
            Route("/root/{uuid}/resume", self.resume, methods=["POST"]),
            Route("/root/{uuid}/run", self.run, methods=["POST"]),
            Route("/root/{uuid}/plan", self.plan, methods=["GET"]),
            Route("/root/{uuid}/consent", self.consent, methods=["POST"]),
            Route("/root/{uuid}/explain", self.explain, methods=["GET"]),
        ]

    # --- looking

    async def all(self, request: Request) -> Response:
        """All roots, one below the other."""
        scene = await self._context.lookout.scene(fresh=True)
        return self._context.page(request, "roots.html", scene=scene)

    async def one(self, request: Request) -> Response:
        """One root."""
        scene = await self._context.lookout.scene(fresh=True)
        root = scene.root(request.path_params["uuid"])
        if root is None:
            return self._context.missing(request)
        return self._context.page(request, "root.html", scene=scene, root=root, consent=self._consent(root.uuid))

    async def events(self, request: Request) -> Response:
        """What changes of one root's page, or of that of all."""
        uuid, proof = query(request).text("root"), request.scope["session"].proof

        async def pieces() -> Mapping[str, str]:
            return self._pieces(await self._context.lookout.scene(), uuid, proof)

        return self._context.stream(request, pieces)

    def _pieces(self, scene: Scene, uuid: str, proof: str) -> dict[str, str]:
        roots = [root for root in scene.roots if uuid in {"", root.uuid}]
        found = {"daemon": render("_daemon.html", scene=scene)}
        for root in roots:
            found[f"card-{root.uuid}"] = render("_card.html", root=root, proof=proof, is_alone=bool(uuid))
            if uuid:
                found["details"] = render("_details.html", root=root, proof=proof, consent=self._consent(uuid))
        if uuid and not roots:
            found[f"card-{uuid}"] = render("_gone.html")
        if not uuid:
            found["summary"] = render("_summary.html", scene=scene)
        return found

    # --- what the daemon is told

    async def pause(self, request: Request) -> Response:
        """`blocksync pause`."""
        return await self._set_paused(request, paused=True)

    async def resume(self, request: Request) -> Response:
        """`blocksync resume`."""
        return await self._set_paused(request, paused=False)

    async def _set_paused(self, request: Request, *, paused: bool) -> Response:
        uuid = request.path_params["uuid"]
        fields = await form(request)
        try:
            await asyncio.to_thread(self._context.ports.pause, uuid, paused=paused)
        except EXPECTED as error:
            self._context.tell(request, str(error), is_well=False)
        await self._context.lookout.scene(fresh=True)
        return see_other(self._back(fields.text("back"), uuid))

    async def run(self, request: Request) -> Response:
        """Have the daemon look at everything now."""
        uuid = request.path_params["uuid"]
        fields = await form(request)
        if not await asyncio.to_thread(self._context.ports.expedite, uuid):
            self._context.tell(request, "The daemon does not watch this root.", is_well=False)
        await self._context.lookout.scene(fresh=True)
        return see_other(self._back(fields.text("back"), uuid))

    @staticmethod
    def _back(wanted: str, uuid: str) -> str:
        """Where a form stood: on the page of all, or of one."""
        return f"/root/{uuid}" if wanted == "root" else f"/#card-{uuid}"

    # --- plans

    async def plan(self, request: Request) -> Response:
        """What the next cycle would do; and, where it needs consent, the question."""
        root = await self._context.facts(request.path_params["uuid"])
        if root is None:
            return self._context.missing(request)
        asked, key, back = query(request), self._plan_key(root.uuid), f"/root/{root.uuid}"
        if asked.text("again"):
            self._jobs.forget(key)
            return see_other(f"{back}/plan")
        job = self._jobs.look(key, "What the next cycle would do", [b"plan", root.path, b"--json"])
        ran = await job.result()
        if ran is None:
            return self._context.waiting(request, job, back)
        if ran.exit_code or not ran.lines:
            return self._context.failed(request, job, ran, back)
        view = await asyncio.to_thread(view_plan, ran.lines[0], asked.number("page", 1))
        line = command_line([b"reconcile", root.path, b"--allow-deletes", view.digest.encode()])
        root_view = await self._context.view(root.uuid)
        return self._context.page(request, "plan.html", root=root_view, plan=view, at_s=job.ended_s, command=line)

    async def consent(self, request: Request) -> Response:
        """Agree to exactly the plan that was shown: `reconcile --plan FILE --allow-deletes DIGEST`."""
        root = await self._context.facts(request.path_params["uuid"])
        fields = await form(request)
        if root is None:
            return self._context.missing(request)
        job, digest = self._jobs.of(self._plan_key(root.uuid)), fields.text("digest")
        ran = None if job is None else job.ran  # of one that has failed the line is no plan
        shown = None if ran is None or ran.exit_code or not ran.lines else ran.lines[0]
        if shown is None or (await asyncio.to_thread(view_plan, shown, 1)).digest != digest:
            told = "The plan that you saw is not at hand any more. Here is the present one."
            self._context.tell(request, told, is_well=False)
            return see_other(f"/root/{root.uuid}/plan?again=1")
        if fields.text("agreed") != "yes":
            self._context.tell(request, "Nothing was done: the box was not ticked.", is_well=False)
            return see_other(f"/root/{root.uuid}/plan")

        def then() -> None:
            self._jobs.forget_looks(root.uuid)
            task = asyncio.create_task(asyncio.to_thread(self._context.ports.expedite, root.uuid))
            self._after.add(task)
            task.add_done_callback(self._after.discard)

        arguments = [b"reconcile", root.path, b"--plan", b"-", b"--allow-deletes", os.fsencode(digest), b"--json"]
        key = self._consent_key(root.uuid)
        self._jobs.forget(key)
        self._jobs.begin(key, "The plan that you agreed to", arguments, is_heard=True, given=shown + b"\n", then=then)
        return see_other(f"/root/{root.uuid}")

    @staticmethod
    def _plan_key(uuid: str) -> Key:
        return Key("plan", uuid)

    @staticmethod
    def _consent_key(uuid: str) -> Key:
        return Key("reconcile", uuid)

    def _consent(self, uuid: str) -> Agreed | None:
        job = self._jobs.of(self._consent_key(uuid))
        if job is None:
            return None
        if job.ran is not None:
            is_well = job.ran.exit_code in {ExitCode.DONE, ExitCode.CONFLICT_COPY}
            return Agreed(bar=None, outcome="It was carried out." if is_well else ended(job.ran), is_well=is_well)
        try:
            figures = msgspec.json.decode(job.latest or b"{}", type=_Line)
        except MALFORMED:
            figures = _Line()
        live = RootLive(
            root="", uuid=uuid, phase="working", since=job.began_s, progress=msgspec.structs.asdict(figures)
        )
        return Agreed(bar=view_bar(live), outcome="", is_well=True)

    # --- explanations

    async def explain(self, request: Request) -> Response:
        """What a path is here, on the server, and what becomes of it."""
        root = await self._context.facts(request.path_params["uuid"])
        if root is None:
            return self._context.missing(request)
        asked, back = query(request), f"/root/{root.uuid}"
        path = asked.raw("path").strip(b"/")
        whole = below(root.path, path)
        if whole is None:
            self._context.tell(request, "Say which path, below the root.", is_well=False)
            return see_other(back)
        key = Key("explain", root.uuid, path)
        if asked.text("again"):
            self._jobs.forget(key)
            self._jobs.look(key, "Why a path is as it is", self._explain(whole))
            return see_other(request.url.path + "?" + request.url.query.replace("again=1", "").strip("&"))
        job = self._jobs.look(key, "Why a path is as it is", self._explain(whole))
        ran = await job.result()
        if ran is None:
            return self._context.waiting(request, job, back)
        if ran.exit_code or not ran.lines:
            return self._context.failed(request, job, ran, back)
        told = [view_explanation(line) for line in ran.lines]
        view = await self._context.view(root.uuid)
        shown = name(path)
        return self._context.page(
            request, "explain.html", root=view, path=path, shown=shown, told=told, at_s=job.ended_s
        )

    @staticmethod
    def _explain(path: bytes) -> list[bytes]:
        return [b"explain", path, b"--json"]


class _Line(msgspec.Struct):
    """Lines `looking` and `progress` of `reconcile --json`."""

    files: int = 0
    files_done: int = 0
    bytes: int = 0
    bytes_done: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    bytes_per_s: int = 0
    seconds: int = 0
    bytes_hashed: int = 0
    bytes_to_hash: int = 0
