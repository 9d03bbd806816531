"""For programs that look after the daemon: `/healthz`, which says one word, and `/metrics`, which wants a token.

They have no session and do not know the page's secret name. The token is this user's alone (a file, 0600), opens this
and nothing else, and no browser sends it by itself, so neither a cookie nor a name has to be guarded here.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from syncer.server.http.kept import TEXT_FORMAT, Kept, bearer
from syncer.ui.ports import PagePorts

_HEALTH: Final = "/healthz"
_HEALTH_S: Final = 1.0
_TOKEN_S: Final = 1.0
_FIGURES_S: Final = 5.0


class Oversight:
    """Answers both, as `Door` lets them through."""

    def __init__(self, ports: PagePorts, known: Callable[[Scope], None] = lambda _scope: None) -> None:
        """Of a program.

        Args:
            ports: The program.
            known: Is told the scope of each request with the token: strangers can't push its connection out.
        """
        self._known = known
        self._health = Kept(ports.live, _HEALTH_S)
        self._token = Kept(ports.metrics_token, _TOKEN_S)
        self._figures = Kept(ports.metrics, _FIGURES_S)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        response = await (self._say_health() if scope["path"] == _HEALTH else self._tell(scope))
        await response(scope, receive, send)

    async def _say_health(self) -> Response:
        is_well = await self._health.get() is not None
        return PlainTextResponse("ok\n" if is_well else "failing\n", 200 if is_well else 503)

    async def _tell(self, scope: Scope) -> Response:
        known, given = await self._token.get(), bearer(Headers(scope=scope).get("authorization", ""))
        if not known or given is None or not hmac.compare_digest(known.encode(), given.encode("utf-8", "replace")):
            text = "The figures need `Authorization: Bearer TOKEN`; its place: docs/reference/metrics.md\n"
            return PlainTextResponse(text, 401, {"WWW-Authenticate": 'Bearer realm="metrics"'})
        self._known(scope)
        figures = await self._figures.get()
        if figures is None:
            return PlainTextResponse("The daemon does not answer.\n", 503)
        return Response(figures, media_type=TEXT_FORMAT)
