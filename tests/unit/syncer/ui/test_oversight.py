"""`/healthz` and `/metrics` of the page: for programs that have no session, and for nobody's browser."""

from __future__ import annotations

import asyncio

import pytest

from syncer.ui.app import make_app
from tests.kit.asgi import HOST, ask
from tests.unit.syncer.ui.conftest import Page

BEARER = {"authorization": "Bearer figures-token"}


@pytest.mark.parametrize("host", ["127.0.0.1:8801", "localhost:8801", "evil.example:8801", ""])
def test_anybody_may_ask_whether_it_is_well(page: Page, host: str) -> None:
    """Breaks when a program would have to know the secret name."""

    async def scenario() -> None:
        answer = await ask(page.app, "GET", "/healthz", host=host)
        assert (answer.status, answer.text) == (200, "ok\n")
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert "set-cookie" not in answer.headers

    asyncio.run(scenario())


def test_a_daemon_that_does_not_answer_is_said(page: Page) -> None:
    page.program.told = None

    async def scenario() -> None:
        assert (await ask(page.app, "GET", "/healthz")).status == 503
        assert (await ask(page.app, "GET", "/metrics", BEARER)).status == 503

    asyncio.run(scenario())


def test_figures_are_told_to_who_has_the_token_by_whatever_name(page: Page) -> None:
    async def scenario() -> None:
        for host in ("127.0.0.1:8801", "blocksync.lan:80"):
            answer = await ask(page.app, "GET", "/metrics", BEARER, host=host)
            assert (answer.status, answer.text) == (200, "figures 1\n")
            assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert page.program.done == [("metrics",)]  # one look for all who ask

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "authorization", ["", "Bearer", "Bearer ", "Bearer figures", "Basic figures-token", "Bearer figures-tokén"]
)
def test_and_to_nobody_else(page: Page, authorization: str) -> None:
    async def scenario() -> None:
        answer = await ask(page.app, "GET", "/metrics", {"authorization": authorization} if authorization else {})
        assert answer.status == 401
        assert page.program.done == []

    asyncio.run(scenario())


def test_who_shows_the_token_is_no_stranger(page: Page) -> None:
    """Breaks when another user who opens many connections pushes out the one of Prometheus."""
    known: list[str] = []
    app = make_app(page.program, page.keys, HOST, lambda: page.now_s, lambda scope: known.append(scope["path"]))

    async def scenario() -> None:
        for headers in ({}, {"authorization": "Bearer wrong"}, BEARER):
            await ask(app, "GET", "/metrics", headers)
            await ask(app, "GET", "/healthz", headers)
        assert known == ["/metrics"]

    asyncio.run(scenario())


def test_a_session_is_no_token_and_the_token_no_session(page: Page) -> None:
    async def scenario() -> None:
        browser = await page.browser()
        assert (await browser.get("/metrics")).status == 401
        assert (await ask(page.app, "GET", "/", BEARER)).status == 403
        assert (await ask(page.app, "GET", "/", BEARER, host="127.0.0.1:8801")).status == 421

    asyncio.run(scenario())


def test_without_a_file_to_compare_with_nobody_gets_in(page: Page) -> None:
    page.program.token = ""

    async def scenario() -> None:
        for given in ("Bearer ", "Bearer figures-token"):
            assert (await ask(page.app, "GET", "/metrics", {"authorization": given})).status == 401

    asyncio.run(scenario())


@pytest.mark.parametrize("path", ["/healthz", "/metrics"])
@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("GET", {"sec-fetch-site": "cross-site"}, 403),
        ("GET", {"sec-fetch-site": "same-site"}, 403),
        ("GET", {"origin": "https://evil.example"}, 403),
        ("OPTIONS", {"origin": "https://evil.example", "access-control-request-method": "GET"}, 405),
        ("POST", {}, 405),
        ("DELETE", {}, 405),
    ],
)
def test_no_site_is_answered(page: Page, path: str, method: str, headers: dict[str, str], status: int) -> None:
    """DNS rebinding is of no use either: a page that is read by its own name sends no Origin, and has no token."""

    async def scenario() -> None:
        answer = await ask(page.app, method, path, {**BEARER, **headers})
        assert answer.status == status
        assert not any(name.startswith("access-control") for name in answer.headers)

    asyncio.run(scenario())


@pytest.mark.parametrize("path", ["//metrics", "/metrics/", "/healthz/x", "/Metrics"])
def test_other_paths_are_pages(page: Page, path: str) -> None:
    async def scenario() -> None:
        assert (await ask(page.app, "GET", path, BEARER)).status == 403

    asyncio.run(scenario())
