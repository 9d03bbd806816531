"""What a server keeps, on the page."""

from __future__ import annotations

import asyncio
from typing import Final

from syncer.ui.ports import AccountFacts, ContainerFacts, ServerFacts, StoreFacts
from syncer.ui.views.servers import view_store
from tests.unit.syncer.ui.conftest import Page

SERVER: Final = ServerFacts(ident="ab12", directory=b"/srv/<b>", url="http://127.0.0.1:8800")
NOTES: Final = ContainerFacts(name="<i>notes", objects=2, size_bytes=3 << 20, modified_s=1.7e9)
KEPT: Final = StoreFacts(
    block_size=65536,
    stored_bytes=5 << 20,
    versions=7,
    accounts=(
        AccountFacts(name="anna", quota_bytes=4 << 20, containers=(NOTES,)),
        AccountFacts(name="new", quota_bytes=0, containers=()),
    ),
    trouble="",
)


def test_use_is_told_beside_what_is_allowed() -> None:
    anna, new = view_store(KEPT, 1.8e9).accounts
    assert (anna.use, anna.percent) == ("3 MiB of 4 MiB", 75)
    assert (new.use, new.percent) == ("0 B, no quota", None)


def test_one_server_is_shown_at_once_and_names_are_text(page: Page) -> None:
    async def scenario() -> None:
        browser = await page.browser()
        assert "None runs here" in (await browser.get("/servers")).text
        page.program.serving, page.program.kept = [SERVER], KEPT
        assert (await browser.get("/servers")).headers["location"] == "/servers/ab12"
        text = (await browser.get("/servers/ab12")).text
        assert "&lt;i&gt;notes" in text
        assert "<i>" not in text
        assert "7 versions of objects" in text
        assert (await browser.get("/servers/other")).status == 404
        page.program.serving = [SERVER, ServerFacts(ident="cd", directory=b"/x", url="http://h")]
        assert "/servers/cd" in (await browser.get("/servers")).text

    asyncio.run(scenario())


def test_a_server_that_ends_meanwhile_is_told(page: Page) -> None:
    async def scenario() -> None:
        page.program.serving = [SERVER]
        browser = await page.browser()
        assert "does not run any more" in (await browser.get("/servers/ab12")).text

    asyncio.run(scenario())
