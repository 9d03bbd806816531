"""Who may look at the page, and what of a request is taken. All of the page's security is here: docs/design/page.md.

Everybody who has an account on this machine can connect to a port of the loopback, and so can every site that the
user's browser visits. What keeps them out:

- the page's *name* is secret and new at each start (`blocksync-….localhost`, which browsers take for this machine). A
  site that has its own name point here (DNS rebinding) asks for another one, and is refused. Cookies go by name and not
  by port: under `127.0.0.1` the cookie would be sent to whatever another user serves on another port;
- the page has its *port* at both addresses that browsers take the name for: `serving.listen`;
- a *link* opens a session once, within minutes, and is told over the daemon's socket only;
- the session's *cookie* can't be read by scripts and is not sent for other sites;
- whatever changes something has to come from the page (`Origin`, `Sec-Fetch-Site`) with the session's own *proof*;
- a browser is told to run, load, embed and send nothing that is not the page's own (CSP).
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Iterator, Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Final

import msgspec
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE: Final = "blocksync-page"
LINK_S: Final = 600.0
SESSION_S: Final = 12 * 3600.0
"""Since it was last used."""

MAX_LINKS: Final = 8
MAX_SESSIONS: Final = 16
MAX_BODY_BYTES: Final = 64 << 10  # a form: a path has at most 4 KiB, percent-encoded 12
SUFFIX: Final = ".localhost"
OVERSIGHT: Final = frozenset({"/healthz", "/metrics"})
"""For programs that look after the daemon, which have no session: `oversight.py`."""

HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # with none at all browsers say of a form that it comes from nowhere
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
"""Of every reply."""

_LOCAL_NAMES: Final = frozenset({"127.0.0.1", "[::1]", "localhost"})
_SAFE: Final = frozenset({"GET", "HEAD"})
_FORM: Final = "application/x-www-form-urlencoded"
_OWN: Final = frozenset({"same-origin", "none"})  # values of Sec-Fetch-Site: from the page, or from the address line


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who has opened a link.

    Attributes:
        proof: What each of his forms carries.
        seen_s: When he was here last.
    """

    proof: str
    seen_s: float


class Keys:
    """Links that were given out and not used, and sessions. Time and chance are arguments."""

    def __init__(self, draw: Callable[[], str] = lambda: secrets.token_urlsafe(32)) -> None:
        """None of either.

        Args:
            draw: Something that nobody guesses.
        """
        self._draw = draw
        self._links: dict[str, float] = {}
        self._sessions: dict[str, Session] = {}

    def new_link(self, now_s: float) -> str:
        """A secret that opens a session once. The oldest one of many ends."""
        while len(self._links) >= MAX_LINKS:
            del self._links[next(iter(self._links))]
        token = self._draw()
        self._links[token] = now_s + LINK_S
        return token

    def spend(self, token: str, now_s: float) -> bool:
        """Use a link's secret up. False: used, too old, or never given out."""
        found = next((known for known in list(self._links) if _equal(known, token)), None)
        return found is not None and self._links.pop(found) >= now_s

    def redeem(self, token: str, now_s: float) -> str | None:
        """Open a session with a link's secret; returns the cookie's value. None: as `spend`."""
        if not self.spend(token, now_s):
            return None
        while len(self._sessions) >= MAX_SESSIONS:
            del self._sessions[min(self._sessions, key=lambda one: self._sessions[one].seen_s)]
        cookie = self._draw()
        self._sessions[cookie] = Session(proof=self._draw(), seen_s=now_s)
        return cookie

    def session(self, cookie: str, now_s: float) -> Session | None:
        """Whose cookie this is; None: nobody's (any more)."""
        found = next((known for known in list(self._sessions) if _equal(known, cookie)), None)
        if found is None:
            return None
        if self._sessions[found].seen_s + SESSION_S < now_s:
            del self._sessions[found]
            return None
        self._sessions[found] = msgspec.structs.replace(self._sessions[found], seen_s=now_s)
        return self._sessions[found]

    def goes_on(self, cookie: str, now_s: float) -> bool:
        """Whether a session has not ended: who is told of changes uses it."""
        return self.session(cookie, now_s) is not None

    def end(self, cookie: str) -> None:
        """Sign out."""
        self._sessions.pop(cookie, None)


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why a request is not answered.

    Attributes:
        status: HTTP's.
        reason: For who made it.
    """

    status: int
    reason: str


def is_proof(session: Session, given: str) -> bool:
    """Whether a form carries the session's proof."""
    return _equal(session.proof, given)


def cookie_of(headers: Mapping[str, str]) -> str:
    """The cookie's value; empty: there is none."""
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return "" if found is None else found.value


def set_cookie(value: str) -> str:
    """The header that hands it out. Without Max-Age: it ends with the browser."""
    return f"{COOKIE}={value}; Path=/; HttpOnly; SameSite=Strict"


def objection(method: str, headers: Mapping[str, str], host: str, *, is_link: bool) -> Refusal | None:
    """What is wrong with a request, whoever makes it; None: nothing.

    Args:
        method: HTTP's.
        headers: By names in lower case.
        host: The page's name.
        is_link: It opens a link, which may stand anywhere: in a terminal, or in a file that a browser is shown.
    """
    return next(_objections(method, headers, host, is_link=is_link), None)


def _objections(method: str, headers: Mapping[str, str], host: str, *, is_link: bool) -> Iterator[Refusal]:
    named = headers.get("host", "")
    if host not in {named, named.rpartition(":")[0]}:
        yield Refusal(status=421, reason="This address has no page. `blocksync ui` prints the one that has.")
    if is_link:
        if method != "GET":  # a HEAD, which previews of links send, would use it up
            yield Refusal(status=405, reason="A link is opened, not sent to.")
        return
    if headers.get("sec-fetch-site", "none") not in _OWN:
        yield Refusal(status=403, reason="Another site asked for this, not the page.")
    if method in _SAFE:
        return
    if method != "POST":
        yield Refusal(status=405, reason="The page takes GET and POST.")
    # The name is enough: by SSH the port is another one here than where the browser is.
    if headers.get("origin", "") != f"http://{named}":
        yield Refusal(status=403, reason="Another site asked for this, not the page.")
    yield from _objections_to_form(headers)


def objection_to_oversight(method: str, headers: Mapping[str, str]) -> Refusal | None:
    """What is wrong with a request for `OVERSIGHT`; None: nothing.

    It may name the page as it likes: a program that looks after the daemon does not know the secret name. So no cookie
    counts there, and whoever browsers speak for is sent away.
    """
    if method not in _SAFE:
        return Refusal(status=405, reason="This is read, nothing else.")
    if headers.get("sec-fetch-site", "none") not in _OWN or "origin" in headers:
        return Refusal(status=403, reason="Another site asked for this.")
    return None


def objection_to_figures(method: str, path: str, headers: Mapping[str, str]) -> Refusal | None:
    """What is wrong with a request where there is no page, only `OVERSIGHT`; None: nothing.

    It must name this machine: a site that has its own name point here (DNS rebinding) is read by its scripts as itself,
    and they would see the sums.
    """
    if headers.get("host", "").lower().rpartition(":")[0] not in _LOCAL_NAMES:
        return Refusal(status=421, reason="Figures are asked for by 127.0.0.1:PORT, [::1]:PORT or localhost:PORT.")
    if path not in OVERSIGHT:
        return Refusal(status=404, reason="Here are /healthz and /metrics.")
    return objection_to_oversight(method, headers)


def _objections_to_form(headers: Mapping[str, str]) -> Iterator[Refusal]:
    if headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM:
        yield Refusal(status=415, reason="The page takes forms only.")
    length = headers.get("content-length", "")
    if not (length.isascii() and length.isdigit()):
        yield Refusal(status=411, reason="A form says how long it is.")
    elif int(length[:12]) > MAX_BODY_BYTES:
        yield Refusal(status=413, reason=f"A form has at most {MAX_BODY_BYTES} bytes.")


class Door:
    """Lets in who has a session; everybody else sees a page that says how to get one, and nothing of the user's."""

    def __init__(
        self,
        app: ASGIApp,
        keys: Keys,
        host: str,
        stranger: ASGIApp,
        now_s: Callable[[], float],
        known: Callable[[Scope], None] = lambda _scope: None,
        oversight: ASGIApp | None = None,
    ) -> None:
        """Stand before an application.

        Args:
            app: What is behind it; finds the `Session` in its scope.
            keys: Who may come in.
            host: The page's name.
            stranger: Answers who has no session: links, assets, and the page that says what to do.
            now_s: The time, seconds.
            known: Is told the scope of each request of a session.
            oversight: Answers `OVERSIGHT`, whatever name the page was asked by; None: nobody does.
        """
        self._oversight = oversight
        self._app = app
        self._keys = keys
        self._host = host
        self._stranger = stranger
        self._now_s = now_s
        self._known = known

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        send = _with_headers(send)
        headers = Headers(scope=scope)
        if scope["path"] in OVERSIGHT and self._oversight is not None:
            refusal = objection_to_oversight(scope["method"], headers)
            await (self._oversight(scope, receive, send) if refusal is None else _say(send, refusal))
            return
        refusal = objection(scope["method"], headers, self._host, is_link=scope["path"] == "/open")
        if refusal is not None:
            await _say(send, refusal)
            return
        cookie = cookie_of(headers)
        session = self._keys.session(cookie, self._now_s())
        scope["session"], scope["cookie"] = session, cookie
        if session is not None:
            self._known(scope)
        await (self._stranger if session is None else self._app)(scope, _bounded(receive), send)


class Wicket:
    """Lets programs through that look after the daemon, where there is no page."""

    def __init__(self, oversight: ASGIApp) -> None:
        """Stand before what answers `OVERSIGHT`."""
        self._oversight = oversight

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        send = _with_headers(send)
        refusal = objection_to_figures(scope["method"], scope["path"], Headers(scope=scope))
        await (self._oversight(scope, receive, send) if refusal is None else _say(send, refusal))


def _bounded(receive: Receive) -> Receive:
    """A body ends the connection when it is longer than was announced or allowed."""
    taken = 0

    async def receive_some() -> Message:
        nonlocal taken
        message = await receive()
        if message["type"] == "http.request":
            taken += len(message.get("body", b""))
            if taken > MAX_BODY_BYTES:
                return {"type": "http.disconnect"}
        return message

    return receive_some


def _with_headers(send: Send) -> Send:
    async def send_some(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return send_some


async def _say(send: Send, refusal: Refusal) -> None:
    text = refusal.reason.encode()
    head = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(text))]
    await send({"type": "http.response.start", "status": refusal.status, "headers": [*head, (b"connection", b"close")]})
    await send({"type": "http.response.body", "body": text})


def _equal(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode("utf-8", "surrogateescape"))
