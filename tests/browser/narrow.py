"""Names as long as a name can be, on a telephone: each page with a list of names in a real browser."""

from __future__ import annotations

import os
from pathlib import Path

from playwright.sync_api import Browser, expect

from tests.browser.visits import link_of
from tests.integration.syncing import BLOCK, Sync, command, in_conflict, mounted
from tests.integration.watching import watching
from tests.kit.chromium import NARROW, Visit, visit

LATIN, HEBREW = "x" * 255, "ש" * 127 + "x"
"""Of 255 bytes each."""

WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
LISTS = {
    "What would the next cycle do?": "z" * 255,
    "Conflicts": HEBREW,
    "Trash": LATIN,
    "Ignored": "*.tmp (pattern of the root, line 1)",
}
"""Pages of a root, and what each shows."""

SQUEEZED = """
[...document.querySelectorAll("main dd, main td")].filter(one => one.getBoundingClientRect().width < innerWidth / 2)
    .map(one => one.innerText)
"""
"""What has less than half of the width for its text: on a telephone one is below the other."""


def the_longest_names_fit_on_every_page(sync: Sync, browser: Browser) -> None:
    """In conflict, in the trash, ignored, in a plan and on a volume: nothing sticks out, and buttons can be reached."""
    one, two = sync.folder("one"), sync.folder("two")
    (one / LATIN).write_bytes(b"1")
    sync.reconcile(one)
    in_conflict(sync, (one, two), HEBREW, (b"theirs", b"and mine"))
    (one / LATIN).unlink()
    sync.reconcile(one)
    sync.reconcile(two)
    (two / ("w" * 251 + ".tmp")).write_bytes(b"1")
    sync("ignore", two, "add", "*.tmp")
    (two / os.fsdecode(b"v" * 254 + b"\xe9")).write_bytes(b"1")
    with mounted(sync.home, "vms") as [vms]:
        for name in (LATIN, HEBREW):
            (vms / name).write_bytes(os.urandom(BLOCK))
            command("clone", vms / name, vms / f"{name[:-1]}z")
        command("flush", vms)
        command("snapshot", vms, "before")
        with watching(sync.home / "watch.log") as daemon:
            sync("pause")
            daemon.until(lambda live: all(root.phase == "paused" for root in live.roots))
            (two / ("z" * 255)).write_bytes(b"for the plan")
            with visit(browser, link_of(sync), size=NARROW) as seen:
                look_at_lists_of_a_root(seen)
                look_at_a_volume(seen, vms)


def look_at_lists_of_a_root(seen: Visit) -> None:
    page = seen.page
    assert_fits(seen)
    page.locator("main").get_by_role("link", name="two").first.click()
    assert_fits(seen)
    here = page.url
    for link, told in LISTS.items():
        page.goto(here)
        page.locator("main").get_by_role("link", name=link, exact=True).click()
        expect(page.get_by_text(told).first).to_be_visible()
        assert_fits(seen)
    page.goto(f"{here}/conflicts")
    page.get_by_role("link", name="Compare").click()
    expect(page.get_by_role("heading", name="Line by line")).to_be_visible()
    assert_fits(seen)


def look_at_a_volume(seen: Visit, vms: Path) -> None:
    page, main = seen.page, seen.page.locator("main")
    page.get_by_role("link", name="Volumes", exact=True).click()
    main.get_by_role("link", name=str(vms)).click()  # beside others of this user
    expect(page.get_by_role("cell", name="before")).to_be_visible()
    assert_fits(seen)
    main.get_by_role("link", name=LATIN).click()
    expect(page.get_by_role("heading", name="Shared with")).to_be_visible()
    assert_fits(seen)


def assert_fits(seen: Visit) -> None:
    """Nothing sticks out at the side or is squeezed, and axe finds nothing."""
    assert not seen.page.evaluate(WIDER), seen.page.title()
    assert not seen.page.evaluate(SQUEEZED), seen.page.title()
    assert not seen.flaws()
