"""The application: the door, the pages behind it, and what a stranger sees."""

from __future__ import annotations

from collections.abc import Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Scope

from syncer.ui.asked import NotFromPageError, form
from syncer.ui.context import Context, GoneError, see_other
from syncer.ui.oversight import Oversight
from syncer.ui.pages.doctor import Doctor
from syncer.ui.pages.ignored import Ignored
from syncer.ui.pages.lists import Lists
from syncer.ui.pages.peers import Peers
from syncer.ui.pages.roots import Roots
from syncer.ui.pages.servers import Servers
from syncer.ui.pages.volumes import Volumes
from syncer.ui.ports import PagePorts
from syncer.ui.render import ASSETS, asset, render
from syncer.ui.security import Door, Keys, set_cookie

_YEAR_S = 365 * 86_400


def make_app(
    ports: PagePorts,
    keys: Keys,
    host: str,
    now_s: Callable[[], float],
    known: Callable[[Scope], None] = lambda _scope: None,
) -> ASGIApp:
    """The page.

    Args:
        ports: The program.
        keys: Who may come in.
        host: The page's name, without a port.
        now_s: Seconds since the epoch.
        known: Is told the scope of each request of a session.
    """
    context = Context(ports, now_s, keys.goes_on)

    async def missing(request: Request, _error: Exception) -> Response:
        return context.missing(request)

    async def not_from_page(request: Request, _error: Exception) -> Response:
        text = "The form was of another session. Nothing was done; load its page again, and try once more."
        return context.page(request, "message.html", 403, title="Nothing was done", text=text)

    async def abandoned(_request: Request, _error: Exception) -> Response:
        return Response(status_code=400)  # for nobody: the browser has gone in the midst of a form

    async def sign_out(request: Request) -> Response:
        await form(request)
        keys.end(request.scope["cookie"])
        return see_other("/")

    async def open_again(request: Request) -> Response:
        """Who is in stays in: forms in other tabs carry his session's proof."""
        keys.spend(request.query_params.get("key", ""), now_s())
        return HTMLResponse(render("opened.html"))

    inside = Starlette(
        routes=[
            *Roots(context).routes(),
            *Lists(context).routes(),
            *Ignored(context).routes(),
            *Peers(context).routes(),
            *Doctor(context).routes(),
            *Volumes(context).routes(),
            *Servers(context).routes(),
            Route("/open", open_again, methods=["GET"]),
            Route("/sign-out", sign_out, methods=["POST"]),
            *_assets(),
        ],
        exception_handlers={
            404: missing,
            405: missing,
            GoneError: missing,
            NotFromPageError: not_from_page,
            ClientDisconnect: abandoned,
        },
    )
    return Door(inside, keys, host, _outside(keys, now_s), now_s, known, Oversight(ports, known))


def _outside(keys: Keys, now_s: Callable[[], float]) -> ASGIApp:
    """What who has no session may see: assets, which every copy of the program has, and how to come in."""

    async def open_link(request: Request) -> Response:
        cookie = keys.redeem(request.query_params.get("key", ""), now_s())
        if cookie is None:
            return HTMLResponse(render("stranger.html", is_late=True), 403)
        # Not a redirection: a browser that came from elsewhere would not send the cookie with it (SameSite=Strict).
        return HTMLResponse(render("opened.html"), headers={"Set-Cookie": set_cookie(cookie)})

    async def stranger(_request: Request, _error: Exception) -> Response:
        return HTMLResponse(render("stranger.html", is_late=False), 403)

    return Starlette(
        routes=[Route("/open", open_link, methods=["GET"]), *_assets()],
        exception_handlers={404: stranger, 405: stranger},
    )


def _assets() -> list[Route]:
    async def send_asset(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in ASSETS:
            raise HTTPException(404)
        headers = {"Cache-Control": f"private, max-age={_YEAR_S}, immutable"}
        return Response(asset(name), media_type=ASSETS[name], headers=headers)

    async def no_icon(_request: Request) -> Response:
        return PlainTextResponse("", 404)

    return [Route("/assets/{name}", send_asset, methods=["GET"]), Route("/favicon.ico", no_icon, methods=["GET"])]
