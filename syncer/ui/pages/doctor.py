"""What `blocksync doctor` finds of this computer, the roots, their states and their servers."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from blockfs.exitcodes import ExitCode
from syncer.ui.asked import query
from syncer.ui.context import Context, see_other
from syncer.ui.jobs import Key
from syncer.ui.views.doctor import view_checks

_LOOK: Final = Key("doctor")
_FOUND: Final = frozenset({ExitCode.DONE, ExitCode.PARTLY_DONE, ExitCode.CORRUPTION})  # it has looked, and says so


class Doctor:
    """See the module."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._jobs = context.jobs

    def routes(self) -> list[Route]:
        """Where they are."""
        return [Route("/doctor", self.all, methods=["GET"])]

    async def all(self, request: Request) -> Response:
        """All checks."""
        if query(request).text("again"):
            self._jobs.forget(_LOOK)
            return see_other("/doctor")
        job = self._jobs.look(_LOOK, "Doctor", [b"doctor", b"--json"])
        ran = await job.result()
        if ran is None:
            return self._context.waiting(request, job, "/")
        if ran.exit_code not in _FOUND or not ran.lines:
            return self._context.failed(request, job, ran, "/")
        return self._context.page(request, "doctor.html", places=view_checks(ran.lines), at_s=job.ended_s)
