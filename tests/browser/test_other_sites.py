"""What a page of another origin finds out about the daemon, in a real browser: that somebody refuses it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser

from syncer.cli.registry.roots import Registry
from tests.integration.syncing import Sync
from tests.integration.watching import watching

ATTACK = """
async ([page, token]) => {
    const found = [];
    const attempts = [
        {}, {mode: "no-cors"}, {credentials: "include"}, {mode: "no-cors", method: "POST"},
        {headers: {Authorization: `Bearer ${token}`}},
    ];
    for (const path of ["healthz", "metrics", ""]) {
        for (const options of attempts) {
            try {
                const answer = await fetch(page + path, options);
                found.push(`${path}: ${answer.type} ${answer.status} ${await answer.text()}`);
            } catch (error) {
                found.push(error.name);
            }
        }
        found.push(await new Promise(done => {
            const script = document.createElement("script");
            script.onload = () => done("script ran");
            script.onerror = () => done("TypeError");
            script.src = page + path;
            document.head.append(script);
        }));
    }
    return [...new Set(found)];
}
"""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[int]:
    """Somebody else's, on a port of its own."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site/index.html").write_text("<!doctype html><title>evil</title>")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=tmp_path / "site")) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_a_page_of_elsewhere_reads_nothing(sync: Sync, browser: Browser, site: int) -> None:
    """Even one that has got hold of the token for figures: no browser sends it for a site."""
    root = sync.folder("one")
    with watching(sync.home / "watch.log") as daemon:
        daemon.until_root(root, "idle")
        (line,) = sync("ui", "--json", "--listen", "127.0.0.1:0")
        port = urlsplit(str(line["link"])).port
        token = Path(Registry(os.environ).metrics_token).read_text().strip()
        context = browser.new_context()
        page = context.new_page()
        for name in ("127.0.0.1", "localhost"):  # of another origin, and of another site
            page.goto(f"http://{name}:{site}/")
            assert page.evaluate(ATTACK, [f"http://127.0.0.1:{port}/", token]) == ["TypeError"]
        context.close()
