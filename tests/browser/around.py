"""More tabs than the page follows, and devices on a network of their own that exchange blocks."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from playwright.sync_api import Browser, Locator, Page, expect

from blockfs.runtime.units import counted, format_size
from syncer.ui.live import MAX_STREAMS
from tests.browser.keyboard import press
from tests.browser.tables import tables_of
from tests.browser.visits import link_of
from tests.integration.syncing import Sync
from tests.integration.watching import watching
from tests.kit.chromium import NARROW, WIDE, Visit, browser_on, visit
from tests.kit.netns import Lan
from tests.kit.program import Machine, Site, has_peer, is_there

MIB = 1 << 20
PEER_HEADINGS = ("Peer", "Link", "Address", "Heard", "Rate", "Came from it", "Connected")
SLOW_MBIT_S = 8.0  # so that the server can't have sent all before a neighbour has answered


def seventeen_tabs_are_one_too_many_for_the_first_alone(sync: Sync, browser: Browser) -> None:
    """The newest goes on as things happen; the first says that it waits, answers as before, and goes on when seen."""
    root = sync.folder("one")
    with watching(sync.home / "watch.log") as daemon, ExitStack() as stack:
        daemon.until_root(root, "idle")
        with visit(browser, link_of(sync)) as seen:
            first, address = seen.page, seen.page.url
            expect(first.get_by_text("In step", exact=True)).to_be_visible()
            # Each with connections of its own, as windows of several browsers: a browser has six for all its tabs.
            tabs = [tab(stack, browser, seen, address) for _ in range(MAX_STREAMS)]
            waits = first.get_by_text("The page is open in too many places")
            expect(waits).to_be_visible()
            first.get_by_role("button", name="Pause").click()
            for each in (first, tabs[-1], tabs[1]):
                expect(each.get_by_text("Paused", exact=True)).to_be_visible()
            expect(waits).to_have_count(0)  # it was loaded anew, and the next one waits now
            expect(tabs[0].get_by_text("The page is open in too many places")).to_be_visible()
            assert not seen.flaws()
            sync("resume", root)
            expect(first.get_by_text("In step", exact=True)).to_be_visible()
            tabs[-1].close()
            tabs[0].evaluate("window.dispatchEvent(new Event('focus'))")
            expect(tabs[0].get_by_text("In step", exact=True)).to_be_visible()


def tab(stack: ExitStack, browser: Browser, seen: Visit, address: str) -> Page:
    """One more window of a session."""
    context = browser.new_context(storage_state=seen.page.context.storage_state())
    stack.callback(context.close)
    page = context.new_page()
    page.goto(address)
    expect(page.locator("section.card")).to_have_count(1)
    return page


def peers_give_blocks_and_a_ban_is_lifted(sync: Sync, browser: Browser) -> None:
    """On a network of three machines: what came from a neighbour is told, a liar is banned, and let in again."""
    with Lan(3, home=sync.home / "lan") as lan:
        server = Site(lan.nodes[0])
        evil, other = Machine(lan.nodes[1], server), Machine(lan.nodes[2], server)
        evil.watch(crooked=["corrupt"])
        evil.until("peers", is_there)
        other.watch()
        other.until("peers", has_peer)
        with peers_of(other, browser) as seen:
            page = seen.page
            expect(page.get_by_role("cell", name="lan0")).to_be_visible()
            assert not seen.flaws()
            page.set_viewport_size({"width": NARROW["width"], "height": NARROW["height"]})
            (told,) = tables_of(page)
            assert (told.name, told.headings) == ("Peers", PEER_HEADINGS)
            assert [row[1] for row in told.rows] == ["lan0"]
            page.set_viewport_size({"width": WIDE["width"], "height": WIDE["height"]})
            data = os.urandom(16 * MIB)
            server.node.shape(SLOW_MBIT_S)
            (evil.root / "image").write_bytes(data)
            lift = page.get_by_role("button", name="Lift the ban")
            expect(lift).to_be_visible()  # it came by itself
            assert [ban["address"] for ban in other.json("peers")["figures"]["bans"]] == [evil.node.link_local]
            assert not seen.flaws()
            image = other.root / "image"
            other.until("status", lambda live: live["phase"] == "idle" and image.is_file())
            assert image.read_bytes() == data
            lift.click(trial=True)  # by mouse it could be pressed, too
            press(seen, lift)
            expect(lift).to_have_count(0)
            assert not other.json("peers")["figures"]["bans"]
            evil.node.end()
            evil.watch()  # honest by now
            evil.until("peers", has_peer)
            other.until("peers", has_peer)
            with peers_of(evil, browser) as theirs:
                (evil.root / "more").write_bytes(more := os.urandom(16 * MIB))
                expect(page.get_by_text(re.compile("^[1-9].* from peers"))).to_be_visible()
                expect(given_on(theirs.page)).to_contain_text([re.compile(r"[1-9]\d* blocks? \(")])
                other.until("status", lambda live: (other.root / "more").is_file() and live["phase"] == "idle")
                assert (other.root / "more").read_bytes() == more
                the_giver_tells_to_whom(evil, theirs, other)
            assert other.json("peers")["figures"]["blocks_from_peers"] > 0
            assert not seen.flaws()
            seen.go("/")
            page.locator("main").get_by_role("link", name="root").click()
            expect(page.get_by_role("heading", name="Where blocks came from")).to_be_visible()
            legend = [each.partition(" ") for each in page.locator(".legend li").all_inner_texts()]
            count_of = {words: count for count, _, words in legend}
            assert count_of.keys() >= {"from the server", "from peers", "from other roots", "from the root itself"}
            assert count_of["from peers"] != "0"
            assert not seen.flaws()


@contextmanager
def peers_of(machine: Machine, browser: Browser) -> Iterator[Visit]:
    """A browser on one of the machines, at its page of peers."""
    link = str(json.loads(machine("ui", "--json", "--listen", "127.0.0.1:0"))["link"])
    with browser_on(machine.node, browser) as there, visit(there, link) as seen:
        seen.page.get_by_role("link", name="Peers", exact=True).click()
        expect(seen.page.get_by_role("heading", name="Who is there")).to_be_visible()
        yield seen


def given_on(page: Page) -> Locator:
    """Who is given blocks, line by line."""
    return page.locator("section", has=page.get_by_role("heading", name="Who is given blocks")).get_by_role("listitem")


def the_giver_tells_to_whom(giver: Machine, seen: Visit, taker: Machine) -> None:
    """It is the neighbour that its page has in the table, with as much as `peers` tells."""
    ((neighbour, *_),) = tables_of(seen.page)[0].rows
    uploads = giver.json("peers")["figures"]["uploads"]
    assert {(each["peer"][:8], each["address"]) for each in uploads} == {(neighbour, taker.node.link_local)}
    much = [f"{counted(each['blocks'], 'block', 'blocks')} ({format_size(each['bytes'])})" for each in uploads]
    expect(given_on(seen.page)).to_have_text([f"{neighbour} {taker.node.link_local}: {each}" for each in much])
    assert not seen.flaws()
