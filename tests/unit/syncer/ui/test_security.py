"""Who may look at the page. Each test is something that somebody else on this machine, or on the web, could try."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from syncer.ui.ports import RootFacts
from syncer.ui.security import HEADERS, LINK_S, MAX_BODY_BYTES, MAX_LINKS, MAX_SESSIONS, SESSION_S, Keys
from tests.kit.asgi import HOST, ask
from tests.unit.syncer.ui.conftest import Page

FORM: Final = {"content-type": "application/x-www-form-urlencoded", "origin": f"http://{HOST}:8801"}


def test_a_link_opens_one_session_and_no_second() -> None:
    keys = Keys()
    link = keys.new_link(0.0)
    assert keys.redeem(link, 1.0)
    assert keys.redeem(link, 1.0) is None


def test_a_link_ends_after_ten_minutes() -> None:
    keys = Keys()
    link = keys.new_link(0.0)
    assert keys.redeem(link, LINK_S + 1) is None


def test_of_many_links_the_oldest_ends() -> None:
    keys = Keys()
    links = [keys.new_link(0.0) for _ in range(MAX_LINKS + 1)]
    assert keys.redeem(links[0], 1.0) is None
    assert keys.redeem(links[1], 1.0)


def test_of_many_sessions_that_which_was_not_used_longest_ends() -> None:
    keys = Keys()
    cookies = [keys.redeem(keys.new_link(at), at) or "" for at in map(float, range(MAX_SESSIONS))]
    assert keys.session(cookies[0], 50.0)
    keys.redeem(keys.new_link(60.0), 60.0)
    assert keys.session(cookies[0], 61.0)
    assert keys.session(cookies[1], 61.0) is None


def test_a_session_ends_when_it_is_not_used() -> None:
    keys = Keys()
    cookie = keys.redeem(keys.new_link(0.0), 0.0) or ""
    assert keys.session(cookie, SESSION_S - 1)
    assert keys.session(cookie, 2 * SESSION_S - 2)
    assert keys.session(cookie, 4 * SESSION_S) is None


def test_two_sessions_have_two_proofs() -> None:
    keys = Keys()
    one, other = (keys.session(keys.redeem(keys.new_link(0.0), 0.0) or "", 1.0) for _ in range(2))
    assert one is not None
    assert other is not None
    assert one.proof != other.proof


@pytest.mark.parametrize("target", ["/", "/root/1", "/root/1/plan", "/root/1/explain?path=a", "/events", "/nothing"])
def test_who_has_no_session_sees_how_to_get_one_and_nothing_else(page: Page, target: str) -> None:
    """Also that a path is there or not is nobody's business."""
    answer = asyncio.run(ask(page.app, "GET", target))
    assert answer.status == 403
    assert "blocksync ui" in answer.text
    assert page.program.device not in answer.text
    assert asyncio.run(ask(page.app, "GET", "/")).body == answer.body


@pytest.mark.parametrize("cookie", ["blocksync-page=", "blocksync-page=guess", "other=1", "blocksync-page", "\x01"])
def test_a_wrong_cookie_is_none(page: Page, cookie: str) -> None:
    assert asyncio.run(ask(page.app, "GET", "/", {"cookie": cookie})).status == 403


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:8801",
        "localhost:8801",
        "evil.example:8801",
        "",
        f"{HOST}.evil.example",
        f"x.{HOST}:8801",
        f"{HOST}@e",
    ],
)
def test_another_name_for_this_machine_has_no_page(page: Page, host: str) -> None:
    """DNS rebinding: a site's own name points here, and its scripts would read what is answered."""

    async def scenario() -> None:
        browser = await page.browser()
        answer = await ask(page.app, "GET", "/", browser.headers, host=host)
        assert answer.status == 421
        link = await ask(page.app, "GET", f"/open?key={page.keys.new_link(page.now_s)}", host=host)
        assert link.status == 421

    asyncio.run(scenario())


def test_through_a_tunnel_the_port_is_another_one(page: Page) -> None:
    async def scenario() -> None:
        browser = await page.browser()
        answer = await ask(page.app, "GET", "/", browser.headers, host=f"{HOST}:9999")
        assert answer.status == 200

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": ""},
        {"origin": f"https://{HOST}:8801"},
        {"origin": f"http://{HOST}:9999"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
    ids=str,
)
def test_a_form_of_another_site_does_nothing(page: Page, headers: dict[str, str]) -> None:
    """CSRF. The cookie would not come with it; here it does, as if a browser kept no SameSite."""

    async def scenario() -> None:
        browser = await page.browser()
        body = f"proof={browser.proof}".encode()
        answer = await ask(page.app, "POST", "/root/1/pause", {**browser.headers, **FORM, **headers}, body)
        assert answer.status == 403
        assert not page.program.done

    asyncio.run(scenario())


@pytest.mark.parametrize("proof", ["", "guess", None])
def test_a_form_without_the_proof_of_its_session_does_nothing(page: Page, proof: str | None) -> None:
    async def scenario() -> None:
        browser, other = await page.browser(), await page.browser()
        browser.proof = other.proof if proof is None else proof
        for target in ("/root/1/pause", "/root/1/resume", "/root/1/run", "/root/1/consent", "/sign-out"):
            assert (await browser.post(target)).status == 403
        assert not page.program.done
        assert not page.program.ran

    asyncio.run(scenario())


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT"])
def test_other_methods_are_refused(page: Page, method: str) -> None:
    async def scenario() -> None:
        browser = await page.browser()
        assert (await ask(page.app, method, "/", {**browser.headers, **FORM})).status in {403, 405}

    asyncio.run(scenario())


def test_what_changes_something_is_not_done_by_looking(page: Page) -> None:
    """A picture on some site could make a browser GET anything."""

    async def scenario() -> None:
        browser = await page.browser()
        for target in ("/root/1/pause", "/root/1/resume", "/root/1/run", "/root/1/consent", "/sign-out"):
            assert (await browser.get(target)).status == 404
        assert not page.program.done

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({"content-type": "text/plain"}, b"proof=1", 415),
        ({"content-type": "application/json"}, b"{}", 415),
        ({"content-length": "x"}, b"", 411),
        ({"content-length": str(MAX_BODY_BYTES + 1)}, b"", 413),
        ({"content-length": "9" * 30}, b"", 413),
    ],
)
def test_bodies_are_forms_of_bounded_length(page: Page, headers: dict[str, str], body: bytes, status: int) -> None:
    async def scenario() -> None:
        browser = await page.browser()
        answer = await ask(page.app, "POST", "/root/1/pause", {**browser.headers, **FORM, **headers}, body)
        assert answer.status == status

    asyncio.run(scenario())


def test_a_form_that_breaks_off_does_nothing_and_is_no_failure_of_ours(page: Page) -> None:
    """Its tab was closed, or the line was cut: an error that leaves the application is logged as a bug of ours."""

    async def scenario() -> None:
        page.program.facts = [RootFacts(uuid="1", path=b"/home/me/photos", url="pithos+http://h/v1/me/photos")]
        browser = await page.browser()
        body = f"proof={browser.proof}".encode()
        more = {"content-length": str(len(body) + 1)}
        await ask(page.app, "POST", "/root/1/pause", {**browser.headers, **FORM, **more}, body, breaks_off=True)
        assert not page.program.done

    asyncio.run(scenario())


def test_every_reply_tells_the_browser_to_run_and_load_nothing_of_others(page: Page) -> None:
    async def scenario() -> None:
        browser = await page.browser()
        replies = [
            await browser.get("/"),
            await browser.get("/nothing"),
            await browser.get("/assets/style.css"),
            await ask(page.app, "GET", "/"),
            await ask(page.app, "GET", "/", host="evil.example"),
            await ask(page.app, "GET", "/open?key=guess"),
        ]
        for answer in replies:
            for name, value in HEADERS.items():
                if name != "Cache-Control":
                    assert answer.headers[name.lower()] == value
        policy = HEADERS["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy

    asyncio.run(scenario())


def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites(page: Page) -> None:
    async def scenario() -> None:
        answer = await ask(page.app, "GET", f"/open?key={page.keys.new_link(page.now_s)}")
        assert answer.headers["set-cookie"].endswith("; Path=/; HttpOnly; SameSite=Strict")
        assert "location" not in answer.headers  # a browser that comes from elsewhere sends no cookie along with one

    asyncio.run(scenario())


def test_a_link_may_be_followed_from_anywhere(page: Page) -> None:
    """Out of a mail client, a terminal, or the file that `ui --open` shows a browser."""
    target = f"/open?key={page.keys.new_link(page.now_s)}"
    answer = asyncio.run(ask(page.app, "GET", target, {"sec-fetch-site": "cross-site"}))
    assert answer.status == 200


def test_a_link_is_not_used_up_by_who_only_asks_for_its_head(page: Page) -> None:
    """As programs do that show what is behind a link."""

    async def scenario() -> None:
        target = f"/open?key={page.keys.new_link(page.now_s)}"
        assert (await ask(page.app, "HEAD", target)).status == 405
        assert (await ask(page.app, "GET", target)).status == 200

    asyncio.run(scenario())


def test_who_is_in_goes_on_by_another_link_and_uses_it_up(page: Page) -> None:
    """A browser sends the cookie when a link is pasted, or the page that opened one is loaded again."""

    async def scenario() -> None:
        browser = await page.browser()
        target = f"/open?key={page.keys.new_link(page.now_s)}"
        for _ in range(2):
            answer = await browser.get(target)
            assert answer.status == 200
            assert "set-cookie" not in answer.headers
            assert "You are in" in answer.text
        assert (await ask(page.app, "GET", target)).status == 403
        assert (await browser.post("/root/1/pause")).status == 303

    asyncio.run(scenario())


def test_who_signs_out_is_a_stranger(page: Page) -> None:
    async def scenario() -> None:
        browser = await page.browser()
        assert (await browser.post("/sign-out")).status == 303
        assert (await browser.get("/")).status == 403

    asyncio.run(scenario())
