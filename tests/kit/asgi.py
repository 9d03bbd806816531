"""An ASGI application, asked without a socket."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlencode

import msgspec
from starlette.types import ASGIApp, Message, Scope

HOST: Final = "blocksync-0123.localhost"


class Answer(msgspec.Struct, frozen=True):
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


def scope_of(method: str, target: str, headers: Mapping[str, str], *, host: str = f"{HOST}:8801") -> Scope:
    """What an ASGI server tells of one request."""
    path, _, query = target.partition("?")
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in {"host": host, **headers}.items()],
        "client": ("127.0.0.1", 40000),
        "server": ("127.0.0.1", 8801),
        "state": {},
    }


async def ask(
    app: ASGIApp,
    method: str,
    target: str,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    *,
    host: str = f"{HOST}:8801",
    breaks_off: bool = False,
) -> Answer:
    """One request. A body is announced by its length, unless the headers say otherwise; the client may go behind it."""
    scope = scope_of(method, target, {"content-length": str(len(body)), **(headers or {})}, host=host)
    sent: list[Message] = []
    given = iter([{"type": "http.request", "body": body, "more_body": breaks_off}])

    async def receive() -> Message:
        return next(given, {"type": "http.disconnect"})

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    start = sent[0]
    return Answer(
        start["status"],
        {name.decode().lower(): value.decode() for name, value in start["headers"]},
        b"".join(message.get("body", b"") for message in sent[1:]),
    )


class Browser:
    """Somebody with a session, who sends what a browser sends."""

    def __init__(self, app: ASGIApp, cookie: str, proof: str) -> None:
        self._app = app
        self.proof = proof
        self.headers = {"cookie": cookie}

    async def get(self, target: str) -> Answer:
        return await ask(self._app, "GET", target, {**self.headers, "sec-fetch-site": "same-origin"})

    async def post(self, target: str, fields: Mapping[str, str | bytes] | None = None) -> Answer:
        """Send a form of the page."""
        body = urlencode({"proof": self.proof, **(fields or {})}).encode()
        more = {
            "origin": f"http://{HOST}:8801",
            "sec-fetch-site": "same-origin",
            "content-type": "application/x-www-form-urlencoded",
        }
        return await ask(self._app, "POST", target, {**self.headers, **more}, body)
