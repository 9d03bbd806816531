"""Very many of everything, and a daemon that comes and goes."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import Browser, expect

from tests.browser.visits import link_of
from tests.integration.syncing import Sync
from tests.integration.watching import watching
from tests.kit.chromium import NARROW, visit

CONFLICTS = 10_000
ROOTS = 100


def ten_thousand_conflicts_are_shown_page_by_page(sync: Sync, browser: Browser) -> None:
    """One in the middle is settled: its copy has the name on the disk, and the list goes on where it was."""
    root = sync.folder("one")
    for number in range(CONFLICTS):
        (root / copy_of(number)).write_bytes(b"mine %d" % number)
    sync("pause", root)
    with watching(sync.home / "watch.log") as daemon:
        daemon.until_root(root, "paused")
        with visit(browser, link_of(sync)) as seen:
            page = seen.page
            page.get_by_role("link", name="Conflicts", exact=True).first.click()
            page.locator("main").get_by_role("link", name="one").click()
            expect(page.get_by_text(re.compile("Page 1 of 200, 10.000 in all"))).to_be_visible()
            page.get_by_role("link", name="Next").click()
            expect(page.get_by_text("Page 2 of 200")).to_be_visible()
            assert not seen.flaws()
            chosen = page.locator(".conflict").nth(10)
            name = chosen.get_by_text(re.compile("^f[0-9]+ \\(conflict")).first.inner_text()
            chosen.get_by_role("button", name="Take that of").click()
            expect(page.get_by_text(re.compile("Page 2 of 200, 9.999 in all"))).to_be_visible()
            stem = name.partition(" ")[0]
            assert (root / f"{stem}.txt").read_bytes() == b"mine %d" % int(stem[1:])
            assert not (root / copy_of(int(stem[1:]))).exists()


def copy_of(number: int) -> str:
    """The name of a conflict copy."""
    return f"f{number} (conflict laptop 20260101T000000Z {number:06x}).txt"


def a_hundred_roots_stand_on_one_page(sync: Sync, browser: Browser) -> None:
    """Narrow and dark; the last of them is paused, which nobody else is."""
    roots = [linked(sync, number) for number in range(ROOTS)]
    for root in roots:
        sync("pause", root)
    sync("resume", roots[-1])
    with watching(sync.home / "watch.log") as daemon:
        daemon.until_root(roots[-1], "idle")
        with visit(browser, link_of(sync), size=NARROW, dark=True) as seen:
            page = seen.page
            expect(page.locator("section.card")).to_have_count(ROOTS)
            assert not seen.flaws()
            page.get_by_role("button", name=f"Pause {roots[-1]}").click()
            expect(page.get_by_text("Paused", exact=True)).to_have_count(ROOTS)
            daemon.until_root(roots[-1], "paused")
            assert sync("status", roots[-1], "--json")[0]["paused"]


def linked(sync: Sync, number: int) -> Path:
    """One of many roots, each of its own container."""
    root = sync.home / f"root {number:03}"
    root.mkdir()
    sync("link", root, f"{sync.url}-{number}", "--token-file", sync.token_file)
    return root


def a_daemon_that_restarts_leaves_no_session_behind(sync: Sync, browser: Browser) -> None:
    """The open page says that nobody answers; the new daemon's link opens it anew, and the old one nothing."""
    root = sync.folder("one")
    with watching(sync.home / "watch.log") as daemon:
        daemon.until_root(root, "idle")
        with visit(browser, link_of(sync)) as seen:
            before = seen.page.url
            daemon.stop()
            expect(seen.page.get_by_text("The page does not answer any more")).to_be_visible()
            with watching(sync.home / "watch.log") as again:
                again.until_root(root, "idle")
                with visit(browser, link_of(sync)) as anew:
                    expect(anew.page.get_by_text("In step", exact=True)).to_be_visible()
                    assert anew.page.url.rpartition(":")[0] != before.rpartition(":")[0]
                    assert not anew.flaws()
            seen.complaints.clear()  # the browser says that the stream broke, as it should
