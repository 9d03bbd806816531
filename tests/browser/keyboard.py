"""No mouse: what there is to do is reached by Tab, and done by Enter or Space."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Browser, Locator, expect

from tests.browser.visits import link_of, until_found
from tests.integration.syncing import Sync, content, in_conflict
from tests.integration.watching import watching
from tests.kit.chromium import Visit, visit

MOST_TABS = 80  # of a page with a few things to do
UNSEEN = """
() => {
    const one = document.activeElement;
    return one !== document.body && getComputedStyle(one).outlineStyle === "none" && one.outerHTML;
}
"""
"""What has the focus without an outline. After the last element none has it, and the next Tab begins at the top."""

PHOTOS, DELETED = 20, 15
MINE = b"and mine"


def all_of_it_goes_by_keyboard(sync: Sync, browser: Browser) -> None:
    """To the content, to a pattern, and it is on the disk; the focus is always seen."""
    root = sync.folder("one")
    with watching(sync.home / "watch.log") as daemon:
        daemon.until_root(root, "idle")
        with visit(browser, link_of(sync)) as seen:
            page, main = seen.page, seen.page.locator("main")
            page.keyboard.press("Tab")
            expect(page.get_by_role("link", name="To the content")).to_be_focused()
            page.keyboard.press("Enter")
            assert page.evaluate("document.activeElement.id") == "main"
            press(seen, main.get_by_role("link", name="one"))
            expect(page.get_by_text("What waits, and why")).to_be_visible()
            press(seen, page.get_by_role("link", name="Ignored"))
            tab_to(seen, page.get_by_label("A pattern, as in .gitignore"))
            page.keyboard.type("*.tmp")
            page.keyboard.press("Enter")
            expect(page.get_by_text("*.tmp", exact=True).first).to_be_visible()
            assert [line["pattern"] for line in sync("ignore", root, "ls", "--json")] == ["*.tmp"]


def what_waits_is_settled_by_keyboard(sync: Sync, browser: Browser) -> None:
    """A plan is agreed to, what it deleted is restored, and a conflict settled; then the other device has all of it."""
    one, two = sync.folder("one"), sync.folder("two")
    for number in range(PHOTOS):
        (one / photo(number)).write_bytes(b"%d" % number)
    copy = in_conflict(sync, (one, two), "report.txt", (b"theirs", MINE))
    sync.reconcile(two)
    for number in range(DELETED):
        (one / photo(number)).unlink()
    (plan,) = sync("plan", one, "--json")
    sync.reconcile(one, "--allow-deletes", plan["digest"])
    with watching(sync.home / "watch.log", two) as daemon:
        daemon.until_root(two, "consent")
        with visit(browser, link_of(sync)) as seen:
            agree_to_a_plan(seen, two)
            restore(seen, two, photo(7), b"7")
            take_the_version_of_the_copy(seen, two, copy)
            assert not seen.flaws()
        daemon.until(lambda live: live.roots[0].phase == "idle" and not live.roots[0].dirty)
    sync.reconcile(one)
    assert content(one) == content(two)
    assert len(list(one.glob("*.jpg"))) == PHOTOS - DELETED + 1


def photo(number: int) -> str:
    """The name of one."""
    return f"photo {number}.jpg"


def agree_to_a_plan(seen: Visit, root: Path) -> None:
    """Nothing is deleted before, and by the button alone, without the tick, neither."""
    page = seen.page
    press(seen, page.get_by_role("link", name="See what it would delete"))
    until_found(page)
    tick, carry_out = page.get_by_label("I have seen the list"), page.get_by_role("button", name="Carry out this plan")
    tab_to(seen, tick)
    tab_to(seen, carry_out)
    page.keyboard.press("Enter")
    expect(tick).to_be_focused()  # the browser says that it must be ticked
    assert len(list(root.glob("*.jpg"))) == PHOTOS
    page.keyboard.press("Space")
    expect(tick).to_be_checked()
    press(seen, carry_out, "Space")
    expect(page.get_by_text("It was carried out.")).to_be_visible()
    assert len(list(root.glob("*.jpg"))) == PHOTOS - DELETED


def restore(seen: Visit, root: Path, name: str, data: bytes) -> None:
    """From the page that the plan has led to."""
    page = seen.page
    press(seen, page.get_by_role("navigation", name="Pages").get_by_role("link", name="Trash"))
    press(seen, page.locator("main").get_by_role("link", name=root.name))
    assert not (root / name).exists()
    press(seen, page.get_by_role("button", name=f"Restore {name}"))
    expect(page.get_by_text(f"Restored {name}")).to_be_visible()
    assert (root / name).read_bytes() == data


def take_the_version_of_the_copy(seen: Visit, root: Path, copy: Path) -> None:
    """It gets the name."""
    page = seen.page
    press(seen, page.get_by_role("navigation", name="Pages").get_by_role("link", name="Conflicts"))
    press(seen, page.locator("main").get_by_role("link", name=root.name))
    assert (root / "report.txt").read_bytes() == b"theirs"
    press(seen, page.get_by_role("button", name="Take that of"), "Space")
    expect(page.get_by_text("There are none.")).to_be_visible()
    assert (root / "report.txt").read_bytes() == MINE
    assert not copy.exists()


def press(seen: Visit, target: Locator, key: str = "Enter") -> None:
    """Go to a link or a button, and press it: it leads to another page."""
    tab_to(seen, target)
    with seen.page.expect_navigation():
        seen.page.keyboard.press(key)


def tab_to(seen: Visit, target: Locator) -> None:
    """Tab until it has the focus. Whatever has it on the way has an outline."""
    expect(target).to_be_visible()
    for _ in range(MOST_TABS):
        seen.page.keyboard.press("Tab")
        unseen = seen.page.evaluate(UNSEEN)
        assert not unseen, f"nobody sees that this has the focus: {unseen}"
        if target.evaluate("one => one === document.activeElement"):
            return
    raise AssertionError(f"the focus never came to {target}")
