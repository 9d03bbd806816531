"""For programs that look after the daemon: `/healthz`, which says one word, and `/metrics`, which wants a token.

They have no session and do not know the page's secret name. The token is this user's alone (a file, 0600), opens this
and nothing else, and no browser sends it by itself, so neither a cookie nor a name has to be guarded here.

Where `config.toml` asks for figures there is a port for these two alone, `make_figures`. Who shows no token there is
told sums: numbers, and no path of a root.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from syncer.server.http.kept import TEXT_FORMAT, Kept, bearer
from syncer.ui.ports import PagePorts
from syncer.ui.security import Wicket

_HEALTH: Final = "/healthz"
_HEALTH_S: Final = 1.0
_TOKEN_S: Final = 1.0
_FIGURES_S: Final = 5.0


class Oversight:
    """Answers both, as `Door` lets them through."""

    def __init__(
        self, ports: PagePorts, known: Callable[[Scope], None] = lambda _scope: None, *, tells_sums: bool = False
    ) -> None:
        """Of a program.

        Args:
            ports: The program.
            known: Is told the scope of each request with the token: strangers can't push its connection out.
            tells_sums: Who shows no token is told sums.
        """
        self._sums = Kept(ports.sums, _FIGURES_S) if tells_sums else None
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
        authorization = Headers(scope=scope).get("authorization", "")
        if self._sums is not None and not authorization:
            return _figures(await self._sums.get())
        known, given = await self._token.get(), bearer(authorization)
        if not known or given is None or not hmac.compare_digest(known.encode(), given.encode("utf-8", "replace")):
            text = "The figures need `Authorization: Bearer TOKEN`; its place: docs/reference/metrics.md\n"
            return PlainTextResponse(text, 401, {"WWW-Authenticate": 'Bearer realm="metrics"'})
        self._known(scope)
        return _figures(await self._figures.get())


def make_figures(ports: PagePorts, known: Callable[[Scope], None] = lambda _scope: None) -> ASGIApp:
    """Both without a page.

    Args:
        ports: The program.
        known: See `Oversight`.
    """
    return Wicket(Oversight(ports, known, tells_sums=True))


def _figures(text: str | None) -> Response:
    if text is None:
        return PlainTextResponse("The daemon does not answer.\n", 503)
    return Response(text, media_type=TEXT_FORMAT)
