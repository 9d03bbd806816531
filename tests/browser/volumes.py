"""Volumes and a server in a real browser."""

from __future__ import annotations

import os
import random
import re
import time
import tomllib
from pathlib import Path
from typing import IO
from urllib.parse import quote

from playwright.sync_api import Browser, Page, expect

from blockfs.runtime.units import counted, format_size
from syncer.cli.registry.roots import Registry
from syncer.cli.ui.history import History
from syncer.ui.ports import Use
from tests.browser.tables import tables_of
from tests.browser.visits import link_of, until_found
from tests.integration.live_server import Client, private_text
from tests.integration.syncing import BLOCK, Sync, command, mounted, server
from tests.integration.watching import watching
from tests.kit.chromium import NARROW, Visit, visit

TRIES = 10
"""A file is sealed when nobody has written to it for 30 s; a look takes a fraction of a second on an idle machine."""


def a_map_tells_what_a_disk_shares(sync: Sync, browser: Browser) -> None:
    """From all volumes to the map of a disk, and on to the one that it shares with; then what was written since."""
    draw = random.Random(1)
    with mounted(sync.home, "vms") as [vms]:
        first = [draw.randbytes(BLOCK) for _ in range(8)]
        (vms / "golden.img").write_bytes(b"".join(first))
        (vms / "web <b>.img").write_bytes(b"".join(first[:4]) + bytes(2 * BLOCK) + draw.randbytes(2 * BLOCK))
        with (vms / "large.img").open("wb") as file:
            file.truncate(1 << 30)
            file.seek(700 << 20)
            file.write(draw.randbytes(2 * BLOCK))
        command("flush", vms)
        command("snapshot", vms, "before")
        with watching(sync.home / "watch.log"), visit(browser, link_of(sync), size=NARROW, dark=True) as seen:
            page, main = seen.page, seen.page.locator("main")
            page.get_by_role("link", name="Volumes", exact=True).click()
            expect(main.get_by_role("link", name=str(vms))).to_be_visible()  # beside others of this user
            assert not seen.flaws()
            main.get_by_role("link", name=str(vms)).click()
            expect(page.get_by_role("cell", name="before")).to_be_visible()
            assert not seen.flaws()
            page.get_by_label("The map of a file").fill("web <b>.img")
            page.keyboard.press("Enter")
            expect(page.get_by_text("256 KiB shared (50 %)")).to_be_visible()
            expect(page.get_by_text("128 KiB its own (25 %)")).to_be_visible()
            drawn = page.locator("svg.blockmap rect").evaluate_all("all => all.map(one => one.getAttribute('class'))")
            assert drawn == ["other0", "hole", "own"]
            assert not seen.flaws()
            width = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert width == 0, "nothing sticks out at the side"
            main.get_by_role("link", name="golden.img").click()
            expect(page.get_by_text("256 KiB shared (50 %)")).to_be_visible()
            with (vms / "golden.img").open("r+b") as file:
                look_until_staged(seen, file, first[7])
                assert not seen.flaws()
            look_closer(seen)


def look_until_staged(seen: Visit, file: IO[bytes], block: bytes) -> None:
    """Write a block, and look. Where it was sealed before the page had looked, write it anew: so do disks in use."""
    page = seen.page
    for _ in range(TRIES):
        file.seek(0)
        file.write(block)
        file.flush()
        os.fsync(file.fileno())
        with page.expect_navigation():
            page.get_by_role("link", name="Look again").click()
        expect(page.get_by_role("heading", name="Shared with")).to_be_visible()
        if page.get_by_text("64 KiB staged, not sealed yet (12 %)").is_visible():
            return
    raise AssertionError("what was written is never told as staged")


def a_curve_tells_what_a_volume_held_and_holds(sync: Sync, browser: Browser) -> None:
    """An hour ago it had one disk, now a copy and another one, too: drawn and told are the figures of `stats`."""
    with mounted(sync.home, "vms") as [vms]:
        (vms / "golden.img").write_bytes(os.urandom(8 * BLOCK))
        before = held(sync, vms)
        uuid = tomllib.loads((sync.home / "volume-vms/volume.toml").read_text())["uuid"]
        History(Registry(os.environ).volumes).note(uuid, Use(at_s=time.time() - 3600, **before))
        command("clone", vms / "golden.img", vms / "web.img")
        (vms / "other.img").write_bytes(os.urandom(8 * BLOCK))
        now = held(sync, vms)
        assert all(before[key] < now[key] for key in before)
        most = max(now.values())
        with watching(sync.home / "watch.log"), visit(browser, link_of(sync)) as seen:
            page = seen.page
            page.get_by_role("link", name="Volumes", exact=True).click()
            page.locator("main").get_by_role("link", name=str(vms)).click()
            plot = page.get_by_role("img", name=re.compile("^From "))
            expect(plot).to_be_visible()
            told = plot.get_attribute("aria-label") or ""
            for key in before:
                name, legend = key.removesuffix("_bytes"), page.locator(".legend li")
                first, last = format_size(before[key]), format_size(now[key])
                assert re.search(rf"\b{name}: [^;]*, at first {first}, now {last}(;|$)", told), told
                expect(legend.filter(has_text=f"{name}:").locator("b")).to_have_text(last)
                points = (plot.locator(f"polyline.{name}").get_attribute("points") or "").split()
                heights = [220 - 220 * uses[key] / most for uses in (before, now)]
                assert [points[0], points[-1]] == [f"0.0,{heights[0]:.1f}", f"1000.0,{heights[1]:.1f}"]
            expect(page.get_by_text(f"upper line: {format_size(most)}")).to_be_visible()
            assert not seen.flaws()
        assert held(sync, vms) == now


def held(sync: Sync, volume: Path) -> dict[str, int]:
    """What a volume holds when all of it is sealed, as `stats --json` says."""
    command("flush", volume)
    (told,) = sync("stats", volume, "--json")
    return {key: told[key] for key in ("logical_bytes", "unique_bytes", "stored_bytes")}


def look_closer(seen: Visit) -> None:
    """By keyboard into parts of a large disk, until each piece is a block."""
    page = seen.page
    page.get_by_role("link", name="vms").click()
    page.get_by_label("The map of a file").fill("large.img")
    page.keyboard.press("Enter")
    expect(page.get_by_text("128 KiB its own (< 1 %)")).to_be_visible()
    for part in ("640 MiB to 768 MiB", "688 MiB to 704 MiB"):
        page.get_by_role("link", name=f"Look closer: {part}").focus()
        assert not seen.flaws()
        page.keyboard.press("Enter")
        expect(page.get_by_role("navigation", name="Part of the file").get_by_text(part)).to_be_visible()
        expect(page.get_by_text("128 KiB its own")).to_be_visible()
    expect(page.get_by_text("Each piece is a block of 64 KiB.")).to_be_visible()
    expect(page.get_by_role("link", name="Look closer")).to_have_count(0)
    assert not seen.flaws()
    page.get_by_role("link", name="Next").click()
    expect(page.get_by_text("704 MiB to 720 MiB")).to_be_visible()
    page.get_by_role("link", name="All of it").click()
    expect(page.get_by_role("link", name="Look closer")).to_have_count(8)


def a_server_shows_what_each_account_has_and_may(sync: Sync, browser: Browser) -> None:
    """As it answers itself: an object is put three times, then once more, then deleted; a put over the quota."""
    one = sync.folder("one")  # of the daemon, which would be in the way of cycles of the other one
    tokens = private_text(sync.home / "tokens", "secret anna 1MiB\nother bob\n")
    with server(sync.home / "served", "--token-file", str(tokens)) as address, watching(sync.home / "watch.log", one):
        anna = Client(address.removeprefix("http://"), "secret", "anna")
        own = synced_to(sync, f"pithos+{address}/v1/anna/disks", private_text(sync.home / "own", "secret anna\n"))
        assert anna("PUT", "/notes").status == 201
        for size in (1000, 2000, 3000):
            put(anna, "todo", size)
        put(anna, "other", 500)
        with visit(browser, link_of(sync)) as seen:
            page = seen.page
            page.get_by_role("link", name="Server", exact=True).click()
            assert told_of(page, "anna") == {"disks": held_in(anna, "disks"), "notes": held_in(anna, "notes")}
            assert told_of(page, "anna")["notes"] == ("2 objects", "3.42 KiB", "4 versions", "2.93 KiB")
            (own / "disk").write_bytes(os.urandom(300 << 10))
            sync.reconcile(own)
            put(anna, "todo", 4000)
            again(page)
            told = told_of(page, "anna")
            assert told == {"disks": held_in(anna, "disks"), "notes": held_in(anna, "notes")}
            assert told["notes"] == ("2 objects", "4.39 KiB", "5 versions", "5.86 KiB")
            use = page.locator("section", has=page.get_by_role("heading", name="anna")).locator("p").first
            before = use.inner_text()
            assert before == in_use(anna, 1 << 20)
            assert anna("DELETE", "/notes/todo").status == 204
            assert anna("PUT", "/notes/large", bytes(1 << 20)).status == 413
            again(page)
            assert told_of(page, "anna")["notes"] == ("1 object", "500 B", "5 versions", "9.77 KiB")
            assert use.inner_text() == in_use(anna, 1 << 20) != before
            in_all = sum(int(row[2].split()[0]) for row in told_of(page, "anna").values()) + 1
            expect(page.get_by_text(f"{in_all} versions of objects, deletions among them")).to_be_visible()
            bob = page.locator("section", has=page.get_by_role("heading", name="bob"))
            expect(bob.get_by_text("0 B, no quota")).to_be_visible()
            expect(bob.get_by_text("It has stored nothing yet.")).to_be_visible()
            assert not seen.flaws()
            two_servers_are_told_apart(sync, seen)
        anna.close()


def two_servers_are_told_apart(sync: Sync, seen: Visit) -> None:
    """One that is started beside the other."""
    second = sync.home / "second"
    with server(second) as address:
        seen.page.get_by_role("link", name="Server", exact=True).click()
        row = seen.page.get_by_role("listitem").filter(has_text=address)
        expect(seen.page.get_by_role("link", name=str(sync.home / "served"))).to_be_visible()
        assert not seen.flaws()
        row.get_by_role("link", name=str(second)).click()
        expect(seen.page.get_by_text(address).first).to_be_visible()
        assert not seen.flaws()


def synced_to(sync: Sync, url: str, token: Path) -> Path:
    """A folder with one file of 512 KiB, after its first cycle."""
    root = sync.home / "two"
    root.mkdir()
    (root / "disk").write_bytes(b"y" * (512 << 10))
    sync("link", root, url, "--token-file", token)
    sync.reconcile(root)
    return root


def put(client: Client, name: str, size_bytes: int) -> None:
    """A version of an object."""
    assert client("PUT", f"/notes/{name}", os.urandom(size_bytes)).status == 201


def again(page: Page) -> None:
    """Have it look again."""
    with page.expect_navigation():
        page.get_by_role("link", name="Look again").click()


def told_of(page: Page, account: str) -> dict[str, tuple[str, ...]]:
    """What the page says of each container: objects, their size, versions, and what old ones come to."""
    until_found(page)
    expect(page.get_by_role("heading", name=account)).to_be_visible()
    (table,) = (each for each in tables_of(page) if each.name == f"Containers of {account}")
    return {row[0]: row[1:5] for row in table.rows}


def held_in(client: Client, container: str) -> tuple[str, ...]:
    """The same, as the server answers to who asks for its objects and for each of their versions."""
    rows = client("GET", f"/{container}?format=json").json
    sizes = []
    for row in rows:
        path = f"/{container}/{quote(row['name'])}"
        versions = client("GET", f"{path}?version=list&format=json").json["versions"]
        replies = [client("HEAD", f"{path}?version={version}") for version, _ in versions]
        sizes.append([int(reply.headers["Content-Length"]) for reply in replies])
    count, old = sum(map(len, sizes)), sum(sum(each[:-1]) for each in sizes)
    words = (counted(len(rows), "object", "objects"), format_size(sum(row["bytes"] for row in rows)))
    return (*words, counted(count, "version", "versions"), format_size(old))


def in_use(client: Client, quota_bytes: int) -> str:
    """What an account uses of its quota, as the server answers to who asks for its containers."""
    used = sum(row["bytes"] for row in client("GET", "?format=json").json)
    return f"{format_size(used)} of {format_size(quota_bytes)} ({100 * used // quota_bytes} %)"
