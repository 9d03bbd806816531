"""The documentation site in a browser: search finds, plots are seen, and nothing is asked of another host."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.kit.chromium import PATIENCE_MS
from tests.kit.site import build_site


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_site(tmp_path_factory.mktemp("site") / "s")


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=site)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    context = browser.new_context()
    found = context.new_page()
    found.set_default_timeout(PATIENCE_MS)
    complaints: list[str] = []
    found.on("pageerror", lambda error: complaints.append(str(error)))
    found.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    found.on("response", lambda reply: complaints.append(reply.url) if reply.status >= 400 else None)
    host = urlsplit(address).netloc
    context.route(lambda url: urlsplit(url).netloc != host, lambda route: complaints.append(route.request.url))
    yield found
    context.close()
    assert complaints == []


def test_search_leads_to_a_page_and_plots_are_drawn(page: Page, address: str) -> None:
    page.goto(f"{address}/index.html")
    page.keyboard.press("/")
    page.keyboard.type("safety stop")
    result = page.locator(".md-search-result__link").first
    expect(result).to_be_visible()
    result.click()
    page.wait_for_url(lambda url: "index.html" not in url)
    expect(page.locator("article")).to_contain_text("safety stop", ignore_case=True)

    page.goto(f"{address}/reference/benchmarks.html")
    plots = page.locator("article img")
    assert plots.count() > 3
    page.wait_for_load_state("load")
    broken = plots.evaluate_all("found => found.filter(one => !one.complete || !one.naturalWidth).map(one => one.src)")
    assert broken == []
