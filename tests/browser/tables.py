"""Tables as a screen reader is told of them: read from the browser's own tree, at the width of a telephone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from playwright.sync_api import Browser, Page, expect

from tests.browser.scriptless import fill, torn_and_deleted
from tests.browser.visits import link_of, until_found
from tests.integration.live_server import private_text
from tests.integration.syncing import Sync, mounted, server
from tests.integration.watching import watching
from tests.kit.chromium import NARROW, visit


class Table(msgspec.Struct, frozen=True):
    """A table: its name, the headings of its columns, and the texts of its other rows, cell by cell."""

    name: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def tables_are_told_as_tables_on_a_telephone(sync: Sync, browser: Browser) -> None:
    """Of each page that has some: their names, headings, rows and cells, whatever the style makes of them."""
    tokens = private_text(sync.home / "tokens", "token me 64MiB\n")
    with server(sync.home / "served", "--token-file", str(tokens)) as address, mounted(sync.home, "vms") as [vms]:
        sync.address, sync.token_file = address, tokens
        one, two = sync.folder("one"), sync.folder("two")
        torn_and_deleted(sync, one, two)
        fill(vms)
        sync("pause")
        with watching(sync.home / "watch.log") as daemon:
            daemon.until_root(two, "paused")
            (two / "new.txt").write_bytes(b"for the plan")
            with visit(browser, link_of(sync), size=NARROW) as seen:
                page, main = seen.page, seen.page.locator("main")
                main.get_by_role("link", name="two").first.click()
                here = page.url
                page.get_by_role("link", name="What would the next cycle do?").click()
                expect(page.get_by_role("heading", name="What the next cycle would do")).to_be_visible()
                (plan,) = tables_of(page)
                assert (plan.name, plan.headings) == ("Actions of the plan", ("Where", "What", "Path", "Size"))
                assert ("on the server", "create", "new.txt", "12 B") in plan.rows
                page.goto(f"{here}/trash")
                expect(page.get_by_role("heading", name="Trash")).to_be_visible()
                (trash,) = tables_of(page)
                assert trash.name == "Versions in the trash"
                assert trash.headings == ("Path", "Why", "Came there", "Stays until", "Size", "Restore")
                assert ("old.txt", "deleted elsewhere", "11 B") in [(row[0], row[1], row[4]) for row in trash.rows]
                page.get_by_role("link", name="Server", exact=True).click()
                expect(page.get_by_role("heading", name="me", exact=True)).to_be_visible()
                (containers,) = tables_of(page)
                assert containers.name == "Containers of me"
                assert containers.headings == ("Container", "Objects", "Size", "Versions", "In old ones", "Changed")
                ((container, objects, *_),) = containers.rows
                assert container == sync.container
                assert objects.endswith(" objects")
                page.get_by_role("link", name="Volumes", exact=True).click()
                main.get_by_role("link", name=str(vms)).click()
                expect(page.get_by_role("heading", name="Snapshots")).to_be_visible()
                sharers, snapshots = tables_of(page)
                assert sharers.name == "Files that share blocks with other files"
                assert sharers.headings == ("File", "Size", "Shared", "Most with")
                assert ("web.img", "256 KiB", "256 KiB (100 %)", "golden.img") in sharers.rows
                assert (snapshots.name, snapshots.headings) == ("Snapshots", ("Name", "Made", "Of", "Holds"))
                assert [(row[0], row[2:]) for row in snapshots.rows] == [("before", ("all of it", "2 files, 512 KiB"))]


def tables_of(page: Page) -> tuple[Table, ...]:
    """The tables of a page: each has as many cells in a row as there are headings."""
    until_found(page)
    session = page.context.new_cdp_session(page)
    told = session.send("Accessibility.getFullAXTree")["nodes"]
    session.detach()
    nodes = {node["nodeId"]: node for node in told}
    found = tuple(_table(node, nodes) for node in told if _role(node) == "table")
    assert all(len(row) == len(table.headings) for table in found for row in table.rows)
    return found


def _table(node: dict[str, Any], nodes: dict[str, dict[str, Any]]) -> Table:
    rows = [list(_within(row, nodes, ("columnheader", "cell"))) for row in _within(node, nodes, ("row",))]
    texts = [tuple(_text(cell, nodes) for cell in row) for row in rows]
    assert {_role(cell) for cell in rows[0]} == {"columnheader"}
    assert {_role(cell) for row in rows[1:] for cell in row} == {"cell"}
    return Table(name=node["name"]["value"], headings=texts[0], rows=tuple(texts[1:]))


def _role(node: dict[str, Any]) -> str:
    return "" if node.get("ignored") else str(node["role"]["value"])


def _within(node: dict[str, Any], nodes: dict[str, dict[str, Any]], roles: Sequence[str]) -> Iterator[dict[str, Any]]:
    """What has one of these roles in a node, in their order, and nothing from within these."""
    for child in (nodes[ident] for ident in node.get("childIds", ())):
        if _role(child) in roles:
            yield child
        else:
            yield from _within(child, nodes, roles)


def _text(node: dict[str, Any], nodes: dict[str, dict[str, Any]]) -> str:
    return "".join(each["name"]["value"] for each in _within(node, nodes, ("StaticText",))).strip()
