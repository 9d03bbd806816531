"""Every page in a browser that runs no scripts: what it says, and what its forms do, down to the bytes on the disk."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from playwright.sync_api import Browser, Locator, Page, expect

from tests.browser.cycles import folder_behind
from tests.browser.visits import link_of
from tests.integration.live_server import private_text
from tests.integration.syncing import BLOCK, Sync, command, content, in_conflict, mounted, server
from tests.integration.watching import watching
from tests.kit.chromium import PATIENCE_MS
from tests.kit.gate import gate_to

THEIRS, MINE = b"theirs\n", b"and mine\n"
REFUSED = os.fsdecode(b"caf\xe9")


def without_scripts_the_page_is_as_good(sync: Sync, browser: Browser) -> None:
    """A root is paused and resumed by form; what is looked for shows itself when it is there."""
    with gate_to(sync.address) as gate:
        root = folder_behind(gate, sync, "one")
        sync.reconcile(root)
        with watching(sync.home / "watch.log") as daemon:
            daemon.until_root(root, "idle")
            with without_scripts(browser, link_of(sync)) as page:
                page.get_by_role("button", name="Pause").click()
                expect(page.get_by_text("Paused", exact=True)).to_be_visible()
                daemon.until_root(root, "paused")
                to(page, "Roots").get_by_role("link", name="one").click()
                expect(page.get_by_role("heading", name="What waits, and why")).to_be_visible()
                gate.hold()
                page.get_by_role("link", name="What would the next cycle do?").click()
                expect(page.get_by_text("This page shows what was found as soon as it is there.")).to_be_visible()
                gate.open()
                expect(page.get_by_role("heading", name="What the next cycle would do")).to_be_visible()
                to(page, "Roots").get_by_role("button", name="Resume").click()
                expect(page.get_by_role("button", name="Pause")).to_be_visible()
                daemon.until_root(root, "idle")


def every_page_is_read_without_scripts(sync: Sync, browser: Browser) -> None:
    """Each page says what there is; one conflict is settled and one version restored, here and on the other device."""
    tokens = private_text(sync.home / "tokens", "token me 64MiB\n")
    with server(sync.home / "served", "--token-file", str(tokens)) as address, mounted(sync.home, "vms") as [vms]:
        own = replace(sync, address=address, token_file=tokens)
        one, two = own.folder("one"), own.folder("two")
        torn_and_deleted(own, one, two)
        fill(vms)
        with watching(sync.home / "watch.log", "--no-peers") as daemon:
            daemon.until_root(two, "idle", "retrying")
            with without_scripts(browser, link_of(own)) as page:
                page.get_by_role("button", name=f"Pause {two}").click()
                expect(page.get_by_text("Paused", exact=True)).to_be_visible()
                daemon.until_root(two, "paused")
                (two / "new.txt").write_bytes(b"for the plan")
                roots_and_what_waits(page, two)
                a_conflict_is_settled(page, two)
                a_version_is_restored(page, two)
                volumes_and_a_map(page, vms)
                around_the_roots(page, own)
                to(page, "Roots").get_by_role("button", name=f"Resume {two}").click()
                daemon.until_there(one / "report.txt", MINE)
                daemon.until_there(one / "old.txt", b"was deleted")
                daemon.until_there(one / "new.txt", b"for the plan")
                page.get_by_role("button", name="Sign out").click()
                page.goto(page.url)
                expect(page.get_by_text("This page is closed")).to_be_visible()
        assert content(one) == {name: data for name, data in content(two).items() if name not in {REFUSED, "b.tmp"}}


def torn_and_deleted(sync: Sync, one: Path, two: Path) -> None:
    """The second root gets a conflict, a version in its trash, a name that is ignored, and one that is refused."""
    in_conflict(sync, (one, two), "report.txt", (THEIRS, MINE))
    (one / "old.txt").write_bytes(b"was deleted")
    for root in (one, two):
        sync.reconcile(root)
    (one / "old.txt").unlink()
    for root in (one, two):
        sync.reconcile(root)
    sync("ignore", two, "add", "*.tmp")
    for name in ("b.tmp", REFUSED):
        (two / name).write_bytes(b"stays here")


def fill(vms: Path) -> None:
    """Two disks of which one is a copy, and a snapshot."""
    (vms / "golden.img").write_bytes(os.urandom(4 * BLOCK))
    command("clone", vms / "golden.img", vms / "web.img")
    command("flush", vms)
    command("snapshot", vms, "before")


def roots_and_what_waits(page: Page, two: Path) -> None:
    """All roots, one with what waits, a path that is explained, the plan, and what is ignored and refused."""
    roots = to(page, "Roots")
    expect(roots.get_by_text("1 conflict", exact=True)).to_have_count(2)
    expect(roots.get_by_text("1 path is not synced")).to_be_visible()
    roots.get_by_role("link", name="two").first.click()
    expect(page.get_by_role("heading", name="What waits, and why")).to_be_visible()
    expect(page.get_by_text("not UTF-8")).to_be_visible()
    here = page.url
    page.get_by_label("Why is this path as it is?").fill("report.txt")
    page.get_by_role("button", name="Explain").click()
    expect(page.get_by_role("heading", name="report.txt")).to_be_visible()
    expect(page.get_by_text("next cycle")).to_be_visible()
    page.goto(here)
    page.get_by_role("link", name="What would the next cycle do?").click()
    expect(page.get_by_role("heading", name="What the next cycle would do")).to_be_visible()
    expect(page.get_by_role("row", name=re.compile("on the server create new.txt"))).to_be_visible()
    page.goto(here)
    page.get_by_role("link", name="Ignored").click()
    expect(page.get_by_role("link", name="b.tmp")).to_be_visible()
    expect(page.get_by_text("*.tmp (pattern of the root, line 1)")).to_be_visible()
    refused = page.locator("section").filter(has=page.get_by_role("heading", name="Refused, or not synced"))
    expect(refused.get_by_role("link", name="caf\\xe9")).to_be_visible()
    assert (two / "b.tmp").read_bytes() == b"stays here"


def a_conflict_is_settled(page: Page, two: Path) -> None:
    """From all roots to the lines that differ, and back to the form."""
    to(page, "Conflicts").get_by_role("link", name="two").click()
    expect(page.get_by_text("they differ")).to_be_visible()
    page.get_by_role("link", name="Compare").click()
    expect(page.get_by_role("heading", name="Line by line")).to_be_visible()
    expect(page.get_by_text("-theirs")).to_be_visible()
    expect(page.get_by_text("+and mine")).to_be_visible()
    page.locator("main").get_by_role("link", name="Conflicts").click()
    page.get_by_role("button", name="Take that of").click()
    expect(page.get_by_text("has the name; the other one is in the trash")).to_be_visible()
    expect(page.get_by_text("There are none.")).to_be_visible()
    assert (two / "report.txt").read_bytes() == MINE
    assert not list(two.glob("report (*"))


def a_version_is_restored(page: Page, two: Path) -> None:
    """What another device deleted is there again."""
    to(page, "Trash").get_by_role("link", name="two").click()
    row = page.get_by_role("row").filter(has_text="old.txt")
    expect(row.get_by_text("deleted elsewhere")).to_be_visible()
    assert not (two / "old.txt").exists()
    row.get_by_role("button", name="Restore old.txt").click()
    expect(page.get_by_text("Restored old.txt")).to_be_visible()
    assert (two / "old.txt").read_bytes() == b"was deleted"


def volumes_and_a_map(page: Page, vms: Path) -> None:
    """All volumes, one, and a disk of it."""
    to(page, "Volumes").get_by_role("link", name=str(vms)).click()
    expect(page.get_by_role("cell", name="before")).to_be_visible()
    page.get_by_label("The map of a file").fill("web.img")
    page.get_by_role("button", name="Draw").click()
    expect(page.get_by_role("img", name="Map: 100 % shared")).to_be_visible()
    expect(page.get_by_role("link", name="golden.img")).to_be_visible()


def around_the_roots(page: Page, sync: Sync) -> None:
    """Peers, the server that runs here, and what is found of this computer."""
    expect(to(page, "Peers").get_by_text("the daemon was started without them")).to_be_visible()
    expect(to(page, "Server").get_by_role("heading", name="me", exact=True)).to_be_visible()
    expect(page.get_by_role("cell", name=sync.container)).to_be_visible()
    expect(to(page, "Doctor").get_by_role("heading", name="This computer")).to_be_visible()


def to(page: Page, chosen: str) -> Locator:
    """Open one of the pages that are named on top of each; returns what is in it."""
    page.get_by_role("navigation", name="Pages").get_by_role("link", name=chosen, exact=True).click()
    expect(page.get_by_role("link", name=chosen, exact=True).and_(page.locator("[aria-current]"))).to_be_visible()
    return page.locator("main")


@contextmanager
def without_scripts(browser: Browser, link: str) -> Iterator[Page]:
    """A session in which no script runs: none has asked for what changes."""
    context = browser.new_context(java_script_enabled=False)
    try:
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.resource_type))
        page.goto(link)
        expect(page.get_by_role("heading", name="Roots")).to_be_visible()
        yield page
        assert set(asked) & {"document", "eventsource", "fetch"} == {"document"}
    finally:
        context.close()
