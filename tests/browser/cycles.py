"""Cycles in a real browser: one that is asked for, one that takes long, and one after the daemon was killed."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import Browser, expect

from tests.browser.visits import link_of, until_found
from tests.integration.syncing import Sync, content
from tests.integration.watching import watching
from tests.kit.chromium import visit
from tests.kit.gate import Gate, gate_to

KIB, MIB = 1 << 10, 1 << 20
FILES, FILE_BYTES = 40, 256 * KIB
RATE = "2MiB"
HELD_BYTES = 8 * MIB
"""Most of it: at this rate seconds have passed, and more files are there than are fetched side by side."""


def run_now_fetches_what_nobody_told_of(sync: Sync, browser: Browser) -> None:
    """What tells the daemon of changes is held on its way, so only the button can do it."""
    one = sync.folder("one")
    with gate_to(sync.address) as gate:
        two = folder_behind(gate, sync, "two")
        with watching(sync.home / "watch.log", two) as daemon:
            daemon.until(lambda live: live.roots[0].phase == "idle" and not live.roots[0].dirty)
            with visit(browser, link_of(sync)) as seen:
                page = seen.page
                gate.hold(only=b"&wait=")
                (one / "file").write_bytes(b"from the other side")
                sync.reconcile(one)
                gate.until_held()
                assert not (two / "file").exists()
                page.get_by_role("button", name=f"Run now {two}").click()
                daemon.until_there(two / "file", b"from the other side")
                expect(page.get_by_text("1 pulled")).to_be_visible()
                expect(page.get_by_text("In step", exact=True)).to_be_visible()
                assert not seen.flaws()
                gate.open()


def a_slow_sync_tells_what_it_has_done_and_what_is_left(sync: Sync, browser: Browser) -> None:
    """The server stops in the middle: so much is done, at such a rate, and so much is left. Then it goes on."""
    one = sync.folder("one")
    for number in range(FILES):
        (one / f"photo {number:02}.jpg").write_bytes(os.urandom(FILE_BYTES))
    sync.reconcile(one)
    with gate_to(sync.address) as gate:
        two = folder_behind(gate, sync, "two", "--limit-down", RATE)
        sync("pause", two)
        with watching(sync.home / "watch.log", two) as daemon:
            daemon.until_root(two, "paused")
            with visit(browser, link_of(sync)) as seen:
                page = seen.page
                gate.hold(after_bytes=HELD_BYTES)
                page.get_by_role("button", name=f"Resume {two}").click()
                expect(page.get_by_text("Syncing", exact=True)).to_be_visible()
                gate.until_held()
                figures = page.locator(".figures")
                expect(figures).to_have_text(
                    re.compile(r"^[1-9]\d? of 40 · .+ [KM]iB of 10 MiB · ↑ .+ ↓ .+, .+/s · about \d+ (s|min) left$")
                )
                bar = page.get_by_role("progressbar", name=f"Progress of {two}")
                assert 0 < float(bar.get_attribute("value") or 0) < float(bar.get_attribute("max") or 0)
                assert 0 < len(list(two.glob("*.jpg"))) < FILES
                assert not seen.flaws()
                gate.open()
                expect(page.get_by_text("In step", exact=True)).to_be_visible()
                expect(figures).to_have_count(0)
                assert content(two) == content(one)
                assert not seen.flaws()


def a_daemon_that_was_killed_is_used_again_by_a_new_link(sync: Sync, browser: Browser) -> None:
    """The open tab says that nobody answers, and goes on saying it; with a link of the next daemon it serves again."""
    one = sync.folder("one")
    with watching(sync.home / "watch.log") as daemon, visit(browser, link_of(sync)) as seen:
        page = seen.page
        expect(page.get_by_text("In step", exact=True)).to_be_visible()
        daemon.kill()
        silent = page.get_by_text("The page does not answer any more")
        expect(silent).to_be_visible()
        with watching(sync.home / "watch.log") as again:
            again.until_root(one, "idle")
            expect(silent).to_be_visible()
            seen.follow(link_of(sync))
            seen.complaints.clear()  # the browser says that the stream broke, as it should
            expect(page.get_by_text("In step", exact=True)).to_be_visible()
            expect(silent).to_have_count(0)
            page.get_by_role("button", name=f"Pause {one}").click()
            again.until_root(one, "paused")
            expect(page.get_by_text("Paused", exact=True)).to_be_visible()
            (one / "file").write_bytes(b"made while it was paused")
            page.get_by_role("button", name=f"Resume {one}").click()
            expect(page.get_by_text("In step", exact=True)).to_be_visible()
            again.until(lambda live: live.roots[0].changed.get("pushed", 0) == 1)
            two = sync.folder("two")
            again.until_there(two / "file", b"made while it was paused")
            assert not seen.flaws()


def pages_that_wait_fail_or_find_nothing_are_as_readable(sync: Sync, browser: Browser) -> None:
    """A plan for which the server takes its time, then one of a server that is gone; roots to choose, and no page."""
    with gate_to(sync.address) as gate:
        one = folder_behind(gate, sync, "one")
        sync.reconcile(one)
        sync("pause", one)
        with watching(sync.home / "watch.log") as daemon:
            daemon.until_root(one, "paused")
            with visit(browser, link_of(sync)) as seen:
                page = seen.page
                page.get_by_role("link", name="one").click()
                expect(page.get_by_text("What waits, and why")).to_be_visible()
                place = urlsplit(page.url).path
                gate.hold()
                page.get_by_role("link", name="What would the next cycle do?").click()
                expect(page.get_by_text("This page shows what was found as soon as it is there.")).to_be_visible()
                assert not seen.flaws()
                gate.open()
                expect(page.get_by_role("heading", name="What the next cycle would do")).to_be_visible()
                until_found(page)
                assert not seen.flaws()
                for chosen in ("Conflicts", "Trash", "Server", "Volumes"):
                    page.get_by_role("navigation").get_by_role("link", name=chosen).click()
                    expect(page.get_by_role("heading", name=chosen, exact=True)).to_be_visible()
                    until_found(page)
                    assert not seen.flaws()
                assert not seen.complaints
                seen.go("/nothing")
                expect(page.get_by_role("heading", name="Not found")).to_be_visible()
                assert not seen.flaws()
                seen.complaints.clear()  # the browser says that it was not found, as it should
                one.rename(sync.home / "elsewhere")
                seen.go(f"{place}/plan?again=1")
                expect(page.get_by_role("link", name="Try again")).to_be_visible()
                assert not seen.flaws()


def folder_behind(gate: Gate, sync: Sync, name: str, *options: str) -> Path:
    """A linked folder whose way to the server leads through a gate."""
    path = sync.home / name
    path.mkdir()
    sync("link", path, sync.url.replace(sync.address, gate.address), sync.opens, sync.token_file, *options)
    return path
