"""`[metrics]` of config.toml: a port with `/healthz` and `/metrics`, and no page."""

from __future__ import annotations

import asyncio

import pytest
from starlette.types import ASGIApp

from syncer.ui.oversight import make_figures
from tests.kit.asgi import HOST, ask
from tests.unit.syncer.ui.conftest import Program

LOCAL = "127.0.0.1:8802"
BEARER = {"authorization": "Bearer figures-token"}


@pytest.fixture
def program() -> Program:
    return Program()


@pytest.fixture
def app(program: Program) -> ASGIApp:
    return make_figures(program)


def test_who_shows_no_token_is_told_sums_and_who_shows_it_all(app: ASGIApp, program: Program) -> None:
    async def scenario() -> None:
        for host in (LOCAL, "[::1]:8802", "localhost:8802", "LocalHost:1"):  # by SSH the port is another one
            assert (await ask(app, "GET", "/healthz", host=host)).text == "ok\n"
            assert (await ask(app, "GET", "/metrics", host=host)).text == "sums 1\n"
            answer = await ask(app, "GET", "/metrics", BEARER, host=host)
            assert (answer.status, answer.text) == (200, "figures 1\n")
            assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert program.done == [("sums",), ("metrics",)]  # one look each for all who ask

    asyncio.run(scenario())


@pytest.mark.parametrize("authorization", ["Bearer", "Bearer figures", "Basic figures-token", "Bearer figures-tokén"])
def test_a_token_that_does_not_count_is_said(app: ASGIApp, program: Program, authorization: str) -> None:
    """Breaks when a Prometheus with an old token silently gets sums."""

    async def scenario() -> None:
        answer = await ask(app, "GET", "/metrics", {"authorization": authorization}, host=LOCAL)
        assert answer.status == 401
        assert program.done == []

    asyncio.run(scenario())


@pytest.mark.parametrize("host", ["evil.example:8802", "127.0.0.1.evil.example:8802", HOST, "", "127.0.0.2:8802"])
def test_it_is_asked_by_the_machines_own_name(app: ASGIApp, program: Program, host: str) -> None:
    """Breaks when a site that has its name point here (DNS rebinding) reads the sums."""

    async def scenario() -> None:
        for path in ("/healthz", "/metrics"):
            assert (await ask(app, "GET", path, host=host)).status == 421
        assert program.done == []

    asyncio.run(scenario())


@pytest.mark.parametrize("path", ["/healthz", "/metrics"])
@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("GET", {"sec-fetch-site": "cross-site"}, 403),
        ("GET", {"origin": "https://evil.example"}, 403),
        ("POST", {}, 405),
        ("OPTIONS", {}, 405),
    ],
)
def test_no_site_is_answered_and_nothing_is_changed(
    app: ASGIApp, path: str, method: str, headers: dict[str, str], status: int
) -> None:
    async def scenario() -> None:
        answer = await ask(app, method, path, headers, host=LOCAL)
        assert answer.status == status
        assert not any(name.startswith("access-control") for name in answer.headers)

    asyncio.run(scenario())


@pytest.mark.parametrize("path", ["/", "/open?key=x", "/events", "/assets/page.js", "/metrics/", "//healthz"])
def test_there_is_nothing_else(app: ASGIApp, path: str) -> None:
    async def scenario() -> None:
        assert (await ask(app, "GET", path, BEARER, host=LOCAL)).status == 404

    asyncio.run(scenario())


def test_a_daemon_that_does_not_answer_is_said(app: ASGIApp, program: Program) -> None:
    program.told = None

    async def scenario() -> None:
        for path in ("/healthz", "/metrics"):
            assert (await ask(app, "GET", path, host=LOCAL)).status == 503

    asyncio.run(scenario())
