"""What the page is refused, in a real browser: it says so in the command's words, and nothing has happened."""

from __future__ import annotations

from playwright.sync_api import Browser, expect

from tests.browser.conflicts import at_rest, to_conflicts
from tests.browser.visits import link_of
from tests.integration.syncing import Sync, content, in_conflict
from tests.integration.watching import watching
from tests.kit.chromium import visit

PHOTOS, GONE = 20, 15


def a_plan_that_has_changed_since_is_not_carried_out(sync: Sync, browser: Browser) -> None:
    """One of the files is made anew while the list is read: nothing that was agreed to happens; there is a new list."""
    one, two = sync.folder("one"), sync.folder("two")
    for number in range(PHOTOS):
        (one / f"photo {number}.jpg").write_bytes(b"%d" % number)
    with watching(sync.home / "watch.log") as daemon:
        daemon.until(lambda _: len(list(two.glob("*.jpg"))) == PHOTOS)
        at_rest(daemon)
        for number in range(GONE):
            (one / f"photo {number}.jpg").unlink()
        with visit(browser, link_of(sync)) as seen:
            page = seen.page
            daemon.until_root(one, "consent")
            page.get_by_role("link", name="See what it would delete").click()
            expect(page.get_by_text("delete (to the trash)")).to_have_count(GONE)
            (one / "photo 0.jpg").write_bytes(b"made anew")
            page.get_by_label("I have seen the list").check()
            page.get_by_role("button", name="Carry out this plan").click()
            expect(page.get_by_text("photo 0.jpg: now it would be: update")).to_be_visible()
            expect(page.get_by_text("so nothing was done")).to_be_visible()
            assert not seen.flaws()
            assert len(list(two.glob("*.jpg"))) == PHOTOS
            expect(page.get_by_role("link", name="All of it, for you to agree to")).to_be_visible()
            expect(page.get_by_text(f"would delete {GONE - 1} of {PHOTOS}")).to_be_visible()
            page.get_by_role("link", name="See what it would delete").click()
            expect(page.get_by_text("delete (to the trash)")).to_have_count(GONE - 1)


def a_restore_where_something_else_lies_overwrites_nothing(sync: Sync, browser: Browser) -> None:
    """Another file has the name by then. When it has made way the button does it."""
    one, two = sync.folder("one"), sync.folder("two")
    (one / "report.txt").write_bytes(b"first")
    (one / "another.txt").write_bytes(b"else nothing would be left, and it would wait")
    with watching(sync.home / "watch.log") as daemon:
        daemon.until_there(two / "report.txt", b"first")
        at_rest(daemon)
        (one / "report.txt").unlink()
        daemon.until(lambda _: not (two / "report.txt").exists())
        at_rest(daemon)
        with visit(browser, link_of(sync)) as seen:
            page, main = seen.page, seen.page.locator("main")
            page.get_by_role("link", name="Trash", exact=True).first.click()
            main.get_by_role("link", name="two").click()
            button = page.get_by_role("button", name="Restore report.txt")
            expect(button).to_be_visible()
            (two / "report.txt").write_bytes(b"second")
            button.click()
            expect(page.get_by_text("report.txt exists: restoring never overwrites")).to_be_visible()
            assert not seen.flaws()
            assert (two / "report.txt").read_bytes() == b"second"
            (two / "report.txt").rename(two / "second.txt")
            at_rest(daemon)
            page.get_by_role("button", name="Restore report.txt").click()
            expect(page.get_by_text("Restored report.txt")).to_be_visible()
            assert (two / "report.txt").read_bytes() == b"first"
            daemon.until_there(one / "report.txt", b"first")


def a_conflict_that_a_command_has_settled_meanwhile_is_told(sync: Sync, browser: Browser) -> None:
    """The page still showed it; what was decided stays so."""
    one, two = sync.folder("one"), sync.folder("two")
    copy = in_conflict(sync, (one, two), "report.txt", (b"theirs", b"and mine"))
    with watching(sync.home / "watch.log") as daemon:
        at_rest(daemon)
        with visit(browser, link_of(sync)) as seen:
            page = seen.page
            to_conflicts(seen, "two")
            button = page.get_by_role("button", name="Take the one with the name")
            expect(button).to_be_visible()
            sync("resolve", copy, "--take", "local")
            button.click()
            expect(page.get_by_text(f"{copy.name} is no conflict copy")).to_be_visible()
            assert not seen.flaws()
            assert content(two) == {"report.txt": b"and mine"}
