"""Conflicts that are settled in a real browser, in the ways that keep the version with the name, or both."""

from __future__ import annotations

import random

from playwright.sync_api import Browser, expect

from tests.browser.visits import link_of
from tests.integration.syncing import Sync, content, in_conflict
from tests.integration.watching import Watching, watching
from tests.kit.chromium import Visit, visit

DISK_BYTES = 1 << 20
BEGIN, END = 512 << 10, 640 << 10


def a_conflict_of_disks_is_seen_where_they_differ_and_the_one_with_the_name_stays(sync: Sync, browser: Browser) -> None:
    """The picture shows the range in the middle; then both roots hold the one version, and the trash the other one."""
    one, two = sync.folder("one"), sync.folder("two")
    draw = random.Random(1)
    theirs = draw.randbytes(DISK_BYTES)
    mine = theirs[:BEGIN] + draw.randbytes(END - BEGIN) + theirs[END:]
    copy = in_conflict(sync, (one, two), "disk.img", (theirs, mine))
    with watching(sync.home / "watch.log") as daemon:
        at_rest(daemon)
        with visit(browser, link_of(sync)) as seen:
            page, main = seen.page, seen.page.locator("main")
            to_conflicts(seen, "two")
            (line,) = sync("conflicts", two, "--json")
            expect(page.get_by_text(f"version with the name, of {line['original_host']}")).to_be_visible()
            page.get_by_role("link", name="Compare").click()
            expect(page.get_by_text(f"the one with the name is that of {line['original_host']}")).to_be_visible()
            expect(page.get_by_text("128 KiB differ. Each piece of the picture is 4 KiB.")).to_be_visible()
            drawn = page.locator("svg.pieces rect").evaluate_all(
                "all => all.map(one => ['class', 'x', 'width'].map(name => one.getAttribute(name)).join(' '))"
            )
            assert drawn == ["same 0 128", "differs 128 32", "same 160 96"]
            assert not seen.flaws()
            main.get_by_role("link", name="Conflicts").click()
            page.get_by_role("button", name="Take the one with the name").click()
            expect(page.get_by_text("There are none.")).to_be_visible()
            assert not seen.flaws()
            daemon.until(lambda _: not (one / copy.name).exists())
            assert content(one) == content(two) == {"disk.img": theirs}
            page.get_by_role("link", name="Trash", exact=True).first.click()
            main.get_by_role("link", name="two").click()
            page.get_by_role("button", name=f"Restore {copy.name}").click()
            expect(page.get_by_text(f"Restored {copy.name}")).to_be_visible()
            assert (two / copy.name).read_bytes() == mine


def both_versions_of_a_conflict_are_kept(sync: Sync, browser: Browser) -> None:
    """As ordinary files, on both devices; nothing is a conflict any more."""
    one, two = sync.folder("one"), sync.folder("two")
    copy = in_conflict(sync, (one, two), "report.txt", (b"theirs", b"and mine"))
    with watching(sync.home / "watch.log") as daemon:
        at_rest(daemon)
        with visit(browser, link_of(sync)) as seen:
            page = seen.page
            to_conflicts(seen, "two")
            page.get_by_role("button", name="Keep both").click()
            expect(page.get_by_text("both are kept, the version of")).to_be_visible()
            expect(page.get_by_text("There are none.")).to_be_visible()
            assert not seen.flaws()
            assert not copy.exists()
            (kept,) = [path.name for path in two.glob("report (*).txt")]
            assert content(two) == {"report.txt": b"theirs", kept: b"and mine"}
            daemon.until(lambda _: (one / kept).exists() and not (one / copy.name).exists())
            assert content(one) == content(two)
            page.get_by_role("link", name="Roots", exact=True).first.click()
            expect(page.get_by_text("In step", exact=True)).to_have_count(2)
            assert sync("conflicts", one, "--json") == sync("conflicts", two, "--json") == []


def at_rest(daemon: Watching) -> None:
    """Wait until no root has anything to do."""
    daemon.until(lambda live: all(root.phase == "idle" and not root.dirty for root in live.roots))


def to_conflicts(seen: Visit, root: str) -> None:
    """From any page to the conflicts of a root."""
    seen.page.get_by_role("link", name="Conflicts", exact=True).first.click()
    seen.page.locator("main").get_by_role("link", name=root).click()
    expect(seen.page.get_by_text("they differ")).to_be_visible()
    assert not seen.flaws()
