"""What `blocksync doctor` finds of this computer, the roots, their states and their servers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from blockfs.exitcodes import ExitCode
from syncer.ui.asked import query
from syncer.ui.context import Context, see_other
from syncer.ui.jobs import Job, Key
from syncer.ui.render import render
from syncer.ui.views.doctor import view_checks

_LOOK: Final = Key("doctor")
_AGAIN_S: Final = 60.0  # a look asks servers, and takes about a second of one core
_FOUND: Final = frozenset({ExitCode.DONE, ExitCode.PARTLY_DONE, ExitCode.CORRUPTION})  # it has looked, and says so


class Doctor:
    """See the module."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._jobs = context.jobs

    def routes(self) -> list[Route]:
        """Where they are."""
        return [
            Route("/doctor", self.all, methods=["GET"]),
            Route("/doctor/events", self.events, methods=["GET"]),
        ]

    async def all(self, request: Request) -> Response:
        """All checks."""
        if query(request).text("again"):
            self._jobs.forget(_LOOK)
            return see_other("/doctor")
        job = self._look()
        ran = await job.result()
        if ran is None:
            return self._context.waiting(request, job, "/")
        if ran.exit_code not in _FOUND or not ran.lines:
            return self._context.failed(request, job, ran, "/")
        return self._context.page(request, "doctor.html", places=view_checks(ran.lines), at_s=job.ended_s)

    async def events(self, request: Request) -> Response:
        """What it finds when it looks again, as long as somebody looks at it."""
        told: dict[str, str] = {}

        async def pieces() -> Mapping[str, str]:
            job = self._jobs.of(_LOOK)
            if job is None or (job.ran is not None and self._context.now_s() - job.ended_s > _AGAIN_S):
                self._jobs.forget(_LOOK)
                job = self._look()
            if job.ran is not None and job.ran.exit_code in _FOUND and job.ran.lines:
                told["checks"] = render("_checks.html", places=view_checks(job.ran.lines), at_s=job.ended_s)
            return told

        return self._context.stream(request, pieces)

    def _look(self) -> Job:
        return self._jobs.look(_LOOK, "Doctor", [b"doctor", b"--json"])
