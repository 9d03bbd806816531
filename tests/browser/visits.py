"""What all flows in a browser begin with."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Browser, Page, expect

from tests.integration.syncing import Sync

Flow = Callable[[Sync, Browser], None]
"""From a click to bytes on the disk."""


def link_of(sync: Sync) -> str:
    """A link to the daemon's page, on any port."""
    (line,) = sync("ui", "--json", "--listen", "127.0.0.1:0")
    return str(line["link"])


def until_found(page: Page) -> None:
    """Wait until a page shows what was looked for: while it is looked for it may have the same heading."""
    expect(page.locator(".looking")).to_have_count(0)
