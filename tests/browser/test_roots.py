"""All flows in a real browser, from click to bytes on the disk; those of roots are here."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urljoin

import pytest
from playwright.sync_api import Browser, Page, expect

from tests import effort
from tests.browser.around import (
    peers_give_blocks_and_a_ban_is_lifted,
    seventeen_tabs_are_one_too_many_for_the_first_alone,
)
from tests.browser.conflicts import (
    a_conflict_of_disks_is_seen_where_they_differ_and_the_one_with_the_name_stays,
    both_versions_of_a_conflict_are_kept,
)
from tests.browser.cycles import (
    a_daemon_that_was_killed_is_used_again_by_a_new_link,
    a_slow_sync_tells_what_it_has_done_and_what_is_left,
    pages_that_wait_fail_or_find_nothing_are_as_readable,
    run_now_fetches_what_nobody_told_of,
)
from tests.browser.doctor import what_fails_is_told_with_what_to_do_about_it
from tests.browser.keyboard import all_of_it_goes_by_keyboard, what_waits_is_settled_by_keyboard
from tests.browser.many import (
    a_daemon_that_restarts_leaves_no_session_behind,
    a_hundred_roots_stand_on_one_page,
    ten_thousand_conflicts_are_shown_page_by_page,
)
from tests.browser.narrow import the_longest_names_fit_on_every_page
from tests.browser.refusals import (
    a_conflict_that_a_command_has_settled_meanwhile_is_told,
    a_plan_that_has_changed_since_is_not_carried_out,
    a_restore_where_something_else_lies_overwrites_nothing,
)
from tests.browser.scriptless import every_page_is_read_without_scripts, without_scripts_the_page_is_as_good
from tests.browser.tables import tables_are_told_as_tables_on_a_telephone
from tests.browser.visits import Flow, link_of
from tests.browser.volumes import (
    a_curve_tells_what_a_volume_held_and_holds,
    a_map_tells_what_a_disk_shares,
    a_server_shows_what_each_account_has_and_may,
)
from tests.integration.syncing import Sync, in_conflict
from tests.integration.watching import watching
from tests.kit.chromium import NARROW, WIDE, Visit, flaws, visit

NAMES = ("<img src=x onerror=alert(1)>", "שלום עולם.txt", "x" * 255, "inv\u202efdp.exe")


def a_safety_stop_is_seen_agreed_to_and_carried_out(sync: Sync, browser: Browser) -> None:
    """The flow of every day: from the safety stop on the page of all roots to the other device's folder."""
    one, two = sync.folder("one"), sync.folder("two")
    for number in range(20):
        (one / f"photo {number}.jpg").write_bytes(b"%d" % number)
    with watching(sync.home / "watch.log") as daemon:
        daemon.until(lambda _: len(list(two.glob("*.jpg"))) == 20)
        daemon.until(lambda live: all(root.phase == "idle" and not root.dirty for root in live.roots))
        for number in range(15):
            (one / f"photo {number}.jpg").unlink()
        with visit(browser, link_of(sync)) as seen:
            for root in (one, two):  # what is agreed to on one device is as much for the other one
                daemon.until_root(root, "consent")
                agree(seen)
        daemon.until(lambda _: len(list(two.glob("*.jpg"))) == 5)


def agree(seen: Visit) -> None:
    """From the page of all roots, of which one waits, to its own page when all is done."""
    page = seen.page
    seen.go("/")
    expect(page.get_by_text("Waits for you", exact=True)).to_be_visible()
    assert not seen.flaws()
    page.get_by_role("link", name="See what it would delete").click()
    expect(page.get_by_role("heading", name="It waits, because it would delete much")).to_be_visible()
    expect(page.get_by_text("delete (to the trash)")).to_have_count(15)
    assert not seen.flaws()
    page.get_by_label("I have seen the list").check()
    page.get_by_role("button", name="Carry out this plan").click()
    expect(page.get_by_text("It was carried out.")).to_be_visible()
    assert not seen.flaws()


def the_page_changes_as_things_happen_and_keeps_the_focus(sync: Sync, browser: Browser) -> None:
    root = sync.folder("one")
    with watching(sync.home / "watch.log") as daemon:
        daemon.until_root(root, "idle")
        with visit(browser, link_of(sync)) as seen:
            page = seen.page
            page.get_by_role("button", name="Pause").focus()
            page.keyboard.press("Enter")
            expect(page.get_by_text("Paused", exact=True)).to_be_visible()
            (root / "file").write_bytes(b"1")
            page.get_by_role("button", name="Resume").focus()
            sync("resume", root)
            expect(page.get_by_role("button", name="Pause")).to_be_focused()
            expect(page.locator("#said")).to_contain_text("In step")
            the_focus_stays_whatever_has_it(sync, page)
            a_button_is_pressed_while_the_page_changes(page, root)
            what_is_open_selected_and_scrolled_to_stays(page)
            daemon.kill()
            expect(page.get_by_text("The page does not answer any more")).to_be_visible()
            seen.complaints.clear()  # the browser says that the stream broke, as it should


def the_focus_stays_whatever_has_it(sync: Sync, page: Page) -> None:
    """On a link; and where the page takes away what has it, on the card around it, not at the top of the page."""
    link, card = page.locator("main").get_by_role("link", name="one"), page.locator("section.card")
    link.focus()
    sync("pause")
    expect(page.get_by_text("Paused", exact=True)).to_be_visible()
    expect(link).to_be_focused()
    sync("resume")
    run = page.get_by_role("button", name="Run now")
    run.focus()
    sync("pause")
    expect(run).to_have_count(0)
    expect(card).to_be_focused()
    page.keyboard.press("Tab")
    expect(link).to_be_focused()
    sync("resume")
    expect(run).to_be_visible()
    expect(link).to_be_focused()


def a_button_is_pressed_while_the_page_changes(page: Page, root: Path) -> None:
    """Between down and up the text beside it becomes another; it is pressed all the same."""
    page.get_by_role("button", name="Run now").focus()
    page.keyboard.down("Space")
    (root / "file (conflict laptop 20260101T000000Z 000001)").write_bytes(b"1")
    expect(page.get_by_text("1 conflict", exact=True)).to_be_visible()
    with page.expect_request("**/run"), page.expect_navigation():
        page.keyboard.up("Space")


def what_is_open_selected_and_scrolled_to_stays(page: Page) -> None:
    """A place of its own, which the server sends nothing for."""
    page.evaluate("() => { const place = document.createElement('div'); place.id = 'place'; main.prepend(place); }")
    put = "html => put('place', html)"
    html = "<p>mark me</p><details><summary>Remarks</summary><p>It is the %s.</p></details>" + "<p>more</p>" * 50
    page.evaluate(put, html % "first")
    page.get_by_text("Remarks").click()
    page.get_by_text("mark me").select_text()
    page.evaluate("scrollTo(0, 700)")
    page.evaluate(put, html % "second")
    expect(page.get_by_text("It is the second.")).to_be_visible()
    expect(page.get_by_text("Remarks")).to_be_focused()
    assert page.evaluate("[getSelection().toString().trim(), scrollY]") == ["mark me", 700]


def names_of_all_kinds_fit(sync: Sync, browser: Browser) -> None:
    """Wide and light, narrow and dark."""
    root = sync.folder("שלום " + "long" * 50)
    for name in NAMES:
        (root / name).write_bytes(b"1")
    (root / os.fsdecode(b"caf\xe9")).write_bytes(b"1")
    sync("reconcile", expect=3)
    with watching(sync.home / "watch.log") as daemon:
        daemon.until(lambda live: live.roots[0].phase in {"retrying", "idle"})
        for size, dark in ((WIDE, False), (NARROW, True)):
            with visit(browser, link_of(sync), size=size, dark=dark) as seen:
                look_at_names(seen)


def look_at_names(seen: Visit) -> None:
    page = seen.page
    page.get_by_role("heading", level=2).get_by_role("link").click()
    expect(page.get_by_text("What waits, and why")).to_be_visible()
    assert not seen.flaws()
    width = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert width == 0, "nothing sticks out at the side"
    page.get_by_role("link", name="caf\\xe9").click()
    expect(page.get_by_text("not UTF-8").first).to_be_visible()
    for name in NAMES:
        page.go_back()
        page.get_by_label("Why is this path as it is?").fill(name)
        page.get_by_role("button", name="Explain").click()
        expect(page.get_by_text("nothing to do", exact=True)).to_be_visible()
        assert not seen.flaws()


def a_link_opens_one_browser_and_no_second(sync: Sync, browser: Browser) -> None:
    root: Path = sync.folder("one")
    with watching(sync.home / "watch.log") as daemon:
        daemon.until_root(root, "idle")
        link = link_of(sync)
        the_page_behind_a_link_is_readable(browser, link_of(sync))
        with visit(browser, link):
            other = browser.new_context().new_page()
            other.goto(link)
            expect(other.get_by_text("This link is used up")).to_be_visible()
            assert not flaws(other)
            other.goto(urljoin(link, "/"))
            expect(other.get_by_text("This page is closed")).to_be_visible()
            assert not flaws(other)
            other.context.close()


def the_page_behind_a_link_is_readable(browser: Browser, link: str) -> None:
    """It goes on to the roots at once; where that takes a while, it is what is seen."""
    context = browser.new_context()
    page = context.new_page()
    page.route(urljoin(link, "/"), lambda route: route.fulfill(status=204))  # a browser stays where it is then
    page.goto(link)
    expect(page.get_by_role("heading", name="You are in")).to_be_visible()
    assert not flaws(page)
    page.unroute_all()
    page.get_by_role("link", name="To your roots").click()
    expect(page.get_by_text("In step", exact=True)).to_be_visible()
    context.close()


def a_conflict_is_compared_settled_and_taken_back(sync: Sync, browser: Browser) -> None:
    one, two = sync.folder("one"), sync.folder("two")
    copy = in_conflict(sync, (one, two), "report.txt")
    other, mine = (two / "report.txt").read_bytes(), copy.read_bytes()
    with watching(sync.home / "watch.log") as daemon:
        daemon.until_root(two, "idle")
        with visit(browser, link_of(sync)) as seen:
            page, main = seen.page, seen.page.locator("main")
            page.get_by_role("link", name="Conflicts", exact=True).first.click()
            assert not seen.flaws()
            main.get_by_role("link", name="two").click()
            expect(page.get_by_text("they differ")).to_be_visible()
            assert not seen.flaws()
            page.get_by_role("link", name="Compare").click()
            expect(page.get_by_role("heading", name="Line by line")).to_be_visible()
            assert not seen.flaws()
            main.get_by_role("link", name="Conflicts").click()
            page.get_by_role("button", name="Take that of").click()
            expect(page.get_by_text("has the name; the other one is in the trash")).to_be_visible()
            expect(page.get_by_text("There are none.")).to_be_visible()
            assert (two / "report.txt").read_bytes() == mine
            daemon.until_there(one / "report.txt", mine)
            (two / "report.txt").rename(two / "mine.txt")
            page.get_by_role("link", name="Trash", exact=True).first.click()
            main.get_by_role("link", name="two").click()
            page.get_by_role("button", name="Restore report.txt").first.click()
            expect(page.get_by_text("Restored report.txt")).to_be_visible()
            assert not seen.flaws()
            assert (two / "report.txt").read_bytes() == other


def a_pattern_is_added_checked_and_removed(sync: Sync, browser: Browser) -> None:
    root = sync.folder("one")
    with watching(sync.home / "watch.log") as daemon:
        daemon.until_root(root, "idle")
        with visit(browser, link_of(sync)) as seen:
            page, main = seen.page, seen.page.locator("main")
            main.get_by_role("link", name="one").click()
            main.get_by_role("link", name="Ignored").click()
            expect(page.get_by_text("There are none.")).to_be_visible()
            page.get_by_label("A pattern, as in .gitignore").fill("*.tmp")
            page.get_by_role("button", name="Ignore", exact=True).click()
            expect(page.get_by_text("*.tmp", exact=True).first).to_be_visible()
            assert [line["pattern"] for line in sync("ignore", root, "ls", "--json")] == ["*.tmp"]
            page.get_by_label("A path below the root").fill("a/b.tmp")
            page.get_by_role("button", name="Check").click()
            expect(page.get_by_text("ignored (pattern of the root, line 1: *.tmp)")).to_be_visible()
            assert not seen.flaws()
            (root / "b.tmp").write_bytes(b"1")
            (root / "b.txt").write_bytes(b"1")
            daemon.until(lambda live: live.roots[0].changed.get("pushed", 0) == 1)
            page.get_by_role("link", name="Look again").click()
            expect(page.get_by_role("link", name="b.tmp")).to_be_visible()
            expect(page.get_by_text("*.tmp (pattern of the root, line 1)")).to_be_visible()
            assert not seen.flaws()
            page.get_by_role("button", name="Remove *.tmp").click()
            expect(page.get_by_text("There are none.")).to_be_visible()
            assert sync("ignore", root, "ls", "--json") == []


def peers_are_told_also_that_there_are_none(sync: Sync, browser: Browser) -> None:
    root = sync.folder("one")
    with watching(sync.home / "watch.log", "--no-peers") as daemon:
        daemon.until_root(root, "idle")
        with visit(browser, link_of(sync), size=NARROW) as seen:
            seen.page.get_by_role("link", name="Peers", exact=True).click()
            expect(seen.page.get_by_text("the daemon was started without them")).to_be_visible()
            assert not seen.flaws()
            seen.page.get_by_role("link", name="Doctor", exact=True).click()
            expect(seen.page.get_by_role("heading", name="This computer")).to_be_visible()
            assert not seen.flaws()


FLOWS: tuple[Flow, ...] = (
    a_safety_stop_is_seen_agreed_to_and_carried_out,
    the_page_changes_as_things_happen_and_keeps_the_focus,
    names_of_all_kinds_fit,
    a_conflict_is_compared_settled_and_taken_back,
    without_scripts_the_page_is_as_good,
    a_link_opens_one_browser_and_no_second,
    a_pattern_is_added_checked_and_removed,
    peers_are_told_also_that_there_are_none,
    a_map_tells_what_a_disk_shares,
    a_server_shows_what_each_account_has_and_may,
    ten_thousand_conflicts_are_shown_page_by_page,
    a_hundred_roots_stand_on_one_page,
    a_daemon_that_restarts_leaves_no_session_behind,
    all_of_it_goes_by_keyboard,
    seventeen_tabs_are_one_too_many_for_the_first_alone,
    peers_give_blocks_and_a_ban_is_lifted,
    a_conflict_of_disks_is_seen_where_they_differ_and_the_one_with_the_name_stays,
    both_versions_of_a_conflict_are_kept,
    run_now_fetches_what_nobody_told_of,
    a_slow_sync_tells_what_it_has_done_and_what_is_left,
    a_daemon_that_was_killed_is_used_again_by_a_new_link,
    pages_that_wait_fail_or_find_nothing_are_as_readable,
    the_longest_names_fit_on_every_page,
    every_page_is_read_without_scripts,
    tables_are_told_as_tables_on_a_telephone,
    a_curve_tells_what_a_volume_held_and_holds,
    what_fails_is_told_with_what_to_do_about_it,
    what_waits_is_settled_by_keyboard,
    a_plan_that_has_changed_since_is_not_carried_out,
    a_restore_where_something_else_lies_overwrites_nothing,
    a_conflict_that_a_command_has_settled_meanwhile_is_told,
)


@pytest.mark.parametrize("flow", effort.first("flows in a browser", FLOWS), ids=lambda flow: flow.__name__)
def test_in_a_browser(flow: Flow, sync: Sync, browser: Browser) -> None:
    flow(sync, browser)
