"""Browsers that are told of changes: what they hear, and what becomes of them when there are too many."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping

import pytest
from starlette.types import Message

from syncer.ui import live
from syncer.ui.live import Streams
from syncer.ui.ports import Ran
from syncer.ui.security import SESSION_S
from tests.kit.asgi import scope_of
from tests.unit.syncer.ui.conftest import Page


async def first(stream: AsyncIterator[bytes], count: int) -> list[bytes]:
    """So many events."""
    return [await anext(stream) for _ in range(count)]


def test_a_browser_hears_of_what_has_changed_only() -> None:
    async def scenario() -> None:
        looks = iter([{"a": "1", "b": "1"}, {"a": "1", "b": "1"}, {"a": "2", "b": "1"}])

        async def pieces() -> Mapping[str, str]:
            return next(looks)

        stream = Streams().tell(pieces)
        _, everything, changed = await first(stream, 3)
        assert everything == b'data: {"a":"1","b":"1"}\n\n'
        assert changed == b'data: {"a":"2"}\n\n'
        await stream.aclose()  # type: ignore[attr-defined]

    asyncio.run(scenario())


def test_of_too_many_browsers_the_one_that_was_told_longest_ends_and_hears_why() -> None:
    async def scenario() -> None:
        async def pieces() -> Mapping[str, str]:
            return {"a": "1"}

        streams = Streams(most=2)
        oldest, other, newest = (streams.tell(pieces) for _ in range(3))
        for stream in (oldest, other, newest):
            await first(stream, 2)
        assert await first(oldest, 1) == [b"event: full\ndata: \n\n"]
        assert [event async for event in oldest] == []
        assert len(streams) == 2
        for stream in (other, newest):
            await stream.aclose()  # type: ignore[attr-defined]
        assert len(streams) == 0

    asyncio.run(scenario())


@pytest.mark.parametrize("target", ["/events", "/events?root=1", "/peers/events", "/doctor/events"])
@pytest.mark.parametrize("ends", ["by signing out", "unused"])
def test_a_page_that_is_open_elsewhere_is_told_nothing_more_when_its_session_ends(
    page: Page, target: str, ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "LOOK_S", 0.0)
    page.program.outcomes = deque([Ran(exit_code=0, lines=(), message="")])

    async def scenario() -> None:
        browser, sent = await page.browser(), asyncio.Queue[Message]()
        scope = scope_of("GET", target, browser.headers)
        telling = asyncio.create_task(page.app(scope, asyncio.Event().wait, sent.put))  # type: ignore[arg-type]
        assert (await sent.get())["status"] == 200
        assert (await sent.get())["body"] == b"retry: 2000\n\n"
        if ends == "unused":
            page.now_s += SESSION_S + 1
        else:
            await browser.post("/sign-out")
        await telling
        while not sent.empty():
            last = await sent.get()
        assert last == {"type": "http.response.body", "body": b"", "more_body": False}

    asyncio.run(asyncio.wait_for(scenario(), 20))  # it would be told for ever
