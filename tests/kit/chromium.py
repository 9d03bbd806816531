"""Debian's Chromium without a window, driven by Playwright: a visitor who looks at the page as a person does.

Whatever the page complains of, and every request to another host, is an error of the visit.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.kit.netns import Node

PATIENCE_MS = 60_000  # what is waited for comes; how soon is not what these tests are about
expect.set_options(timeout=PATIENCE_MS)

OPTIONS = ["--no-sandbox"] if os.getuid() == 0 else []
"""Its sandbox needs another user than root."""

WIDE = {"width": 1100, "height": 800}
NARROW = {"width": 360, "height": 740}


@contextmanager
def chromium() -> Iterator[Browser]:
    """The browser."""
    program = shutil.which("chromium")
    assert program, "no Chromium: `make test-bootstrap` installs it"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=OPTIONS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def browser_on(node: Node, browser: Browser) -> Iterator[Browser]:
    """A browser on a machine of that network: no other one reaches a page that is on its loopback."""
    program = shutil.which("chromium")
    assert program
    starter = Path(node.home) / "chromium"
    words = " ".join(map(str, node.namespace.wrap([program])))
    starter.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    starter.chmod(0o755)
    found = browser.browser_type.launch(executable_path=starter, args=OPTIONS)
    try:
        yield found
    finally:
        found.close()


class Visit:
    """One session of the page.

    Attributes:
        page: The tab.
        complaints: What the browser had to say, and requests that went elsewhere.
    """

    def __init__(self, context: BrowserContext, link: str) -> None:
        """Open a link, and wait for the page behind it."""
        self.complaints: list[str] = []
        self._host = ""
        self.page: Page = context.new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        self.page.on("console", lambda message: self._complain("console", message.text))
        self.page.on("pageerror", lambda error: self._complain("script", str(error)))
        self.page.on("request", lambda request: self._note(request.url))
        self.follow(link)

    def follow(self, link: str) -> None:
        """Open a link in this tab, also one of a daemon that was started anew, and wait for the page behind it."""
        self._host = urlsplit(link).netloc
        self.page.goto(link)
        self.page.wait_for_url(f"http://{self._host}/")

    def go(self, path: str) -> None:
        """Load one of its pages."""
        self.page.goto(f"http://{self._host}{path}")

    def flaws(self) -> list[str]:
        """What axe finds on the page as it is now."""
        return flaws(self.page)

    def _complain(self, what: str, text: str) -> None:
        self.complaints.append(f"{what}: {text}")

    def _note(self, url: str) -> None:
        if urlsplit(url).netloc != self._host:
            self._complain("request", url)


def flaws(page: Page) -> list[str]:
    """What axe finds of contrast, labels, order and roles on a page as it is now: dark and light, then as it was."""
    was_dark = bool(page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches"))
    found: list[str] = []
    for is_dark in (not was_dark, was_dark):
        page.emulate_media(color_scheme="dark" if is_dark else "light")
        for each in Axe().run(page).response["violations"]:
            places = [node["html"] for node in each["nodes"]]
            found.append(f"{'dark' if is_dark else 'light'}: {each['id']}: {each['help']}: {places}")
    return found


@contextmanager
def visit(browser: Browser, link: str, *, size: dict[str, int] = WIDE, dark: bool = False) -> Iterator[Visit]:
    """Look at the page. The visit must end without a complaint."""
    context = browser.new_context(
        viewport={"width": size["width"], "height": size["height"]}, color_scheme="dark" if dark else "light"
    )
    try:
        found = Visit(context, link)
        yield found
        assert not found.complaints
    finally:
        context.close()
