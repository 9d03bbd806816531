"""What a server keeps, on the page."""

from __future__ import annotations

import asyncio
from typing import Final

from msgspec.structs import replace

from syncer.ui.ports import AccountFacts, ContainerFacts, ServerFacts, StoreFacts
from syncer.ui.views.servers import view_store
from tests.unit.syncer.ui.conftest import Page

SERVER: Final = ServerFacts(ident="ab12", directory=b"/srv/<b>", url="http://127.0.0.1:8800")
NOTES: Final = ContainerFacts(
    name="<i>notes", objects=2, size_bytes=3 << 20, modified_s=1.7e9, versions=5, old_bytes=7 << 20
)
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


def test_versions_that_were_not_all_counted_are_told_as_a_lower_bound() -> None:
    notes = replace(NOTES, is_counted=False)
    found = view_store(replace(KEPT, accounts=(AccountFacts(name="a", quota_bytes=0, containers=(notes,)),)), 1.8e9)
    assert (found.accounts[0].containers[0].versions, found.accounts[0].containers[0].old) == (
        "over 5 versions",
        "over 7 MiB",
    )
    assert not found.is_counted
    assert view_store(KEPT, 1.8e9).is_counted


def test_one_server_is_shown_at_once_and_names_are_text(page: Page) -> None:
    async def scenario() -> None:
        browser = await page.browser()
        assert "None of yours runs here" in (await browser.get("/servers")).text
        page.program.serving, page.program.kept = [SERVER], KEPT
        assert (await browser.get("/servers")).headers["location"] == "/servers/ab12"
        text = (await browser.get("/servers/ab12")).text
        assert "&lt;i&gt;notes" in text
        assert "<i>" not in text
        assert "7 versions of objects, deletions among them" in text
        assert "5 versions" in text
        assert "7 MiB" in text
        assert "Not seen are those of other users" in text
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
