"""What is wrong on purpose, as Doctor tells it in a real browser."""

from __future__ import annotations

import os
from pathlib import Path

from playwright.sync_api import Browser, Page, expect

from syncer.cli.registry.roots import LinkedRoot, Registry
from tests.browser.visits import link_of, until_found
from tests.integration.syncing import Sync
from tests.integration.watching import watching
from tests.kit.chromium import visit

Found = tuple[str, ...]
"""A check that fails: its place, subject, what was found, and what to do."""

READ = """
all => all.map(one => [one.closest("section").querySelector("h2"), ...one.querySelectorAll("b, div > bdi, .why")]
    .map(each => each.innerText))
"""
CHIPS = "all => all.map(one => [...one.querySelectorAll('.chip')].map(each => each.innerText))"
ORDER = ("Fails", "A look", "OK")


def what_fails_is_told_with_what_to_do_about_it(sync: Sync, browser: Browser) -> None:
    """A folder that was taken away, a token that is gone, a record that is torn; then all three are as they were."""
    one, two, three = (sync.folder(name) for name in ("one", "two", "three"))
    token, record = Path(linked(two).secret_file), Path(linked(three).state) / "root.json"
    whole, away = record.read_bytes(), sync.home / "away"
    with watching(sync.home / "watch.log", "--no-peers") as daemon:
        daemon.until(lambda live: all(root.phase == "idle" for root in live.roots))
        with visit(browser, link_of(sync)) as seen:
            page = seen.page
            page.get_by_role("link", name="Doctor", exact=True).click()
            assert failing(page) == []
            one.rename(away)
            token.rename(sync.home / "token")
            found = looked_again(page)
            assert found == told_by_the_command(sync, expect=3)
            remedy = "mount it, or bring it back; `blocksync unlink` forgets it"
            assert (str(one), "root", "No such file or directory", remedy) in found
            assert (str(two), "state", "the token is gone", f"blocksync link {two} {sync.url}") in found
            record.write_bytes(b"torn")
            found = looked_again(page)
            assert found == told_by_the_command(sync, expect=15)
            assert [each[:2] for each in found if str(record) in each[3]] == [("This computer", "linked roots")]
            assert not seen.flaws()
            away.rename(one)
            (sync.home / "token").rename(token)
            record.write_bytes(whole)
            assert looked_again(page) == told_by_the_command(sync) == []
            (one / "file").write_bytes(b"all is well")
            daemon.until_there(two / "file", b"all is well")


def linked(root: Path) -> LinkedRoot:
    """What is noted of a root."""
    return Registry(os.environ).get(os.fsencode(root))


def looked_again(page: Page) -> list[Found]:
    """By the link for it."""
    with page.expect_navigation():
        page.get_by_role("link", name="Look again").click()
    return failing(page)


def failing(page: Page) -> list[Found]:
    """What fails, as it stands there. In each place it stands before what does not."""
    until_found(page)
    expect(page.get_by_role("heading", name="This computer")).to_be_visible()
    chips = page.locator("main section").evaluate_all(CHIPS)
    assert all(each == sorted(each, key=ORDER.index) for each in chips), chips
    return sorted(map(tuple, page.locator(".check:has(.chip.bad)").evaluate_all(READ)))


def told_by_the_command(sync: Sync, expect: int = 0) -> list[Found]:
    """What fails, as `doctor --json` tells it."""
    checks = [line for line in sync("doctor", "--json", expect=expect) if line["level"] == "fail"]
    return sorted((each["root"] or "This computer", each["subject"], each["text"], each["remedy"]) for each in checks)
