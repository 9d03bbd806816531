"""Conflicts and trash on the page: by the commands, bytes as bytes, and ten thousand of them."""

from __future__ import annotations

import asyncio
from typing import Any, Final
from urllib.parse import quote_from_bytes

import msgspec
import pytest

from syncer.ui import jobs
from syncer.ui.ports import Compared, CycleFacts, Ran, RootFacts
from syncer.ui.views.lists import PER_PAGE, view_compared
from syncer.ui.words import iso
from tests.unit.syncer.ui.conftest import Page

EVIL: Final = "<script>alert(1)</script>"
RAW: Final = b"caf\xe9 (conflict vm 20261126T173028Z 2424dd).txt"


def conflict(number: int = 0, **more: Any) -> bytes:
    fields = {
        "path": f"{EVIL}{number} (conflict vm 20261126T173028Z 2424dd).txt",
        "kind": "file",
        "size_bytes": 315,
        "host": "vm",
        "utc": "20261126T173028Z",
        "encoded": quote_from_bytes(RAW) if not number else f"c{number}",
        "modified_ns": 10**18,
        "original": f"{EVIL}{number}.txt",
        "original_size_bytes": 320,
        "original_modified_ns": 10**18,
        "differs": True,
    }
    return msgspec.json.encode({"type": "conflict", "version": 1, **fields, **more})


def kept(number: int = 0, **more: Any) -> bytes:
    day = "2026-11-26T16:43:02+00:00"
    fields = {"id": f"id{number}", "path": f"{EVIL}{number}", "name": "x", "kind": "file", "size_bytes": 7}
    return msgspec.json.encode({"type": "trash", "version": 1, **fields, "deleted": day, "expires": day, **more})


def ready(page: Page, *outcomes: Ran) -> None:
    page.program.facts = [RootFacts(uuid="1", path=b"/home/me/photos", url="pithos+http://h/v1/me/photos", conflicts=3)]
    page.program.outcomes += outcomes


def after_a_cycle(page: Page) -> None:
    """A second passes, in which a cycle ended."""
    page.now_s += 1
    cycle = CycleFacts(ended_s=page.now_s, exit_code=0, error=None, counts={})
    page.program.facts = [msgspec.structs.replace(page.program.facts[0], last=cycle)]
    page.now_s += 1


def ran(*lines: bytes, code: int = 0, message: str = "") -> Ran:
    return Ran(exit_code=code, lines=lines, message=message)


def test_names_are_text(page: Page) -> None:
    async def scenario() -> None:
        ready(page, ran(conflict()), ran(kept()))
        browser = await page.browser()
        for target in ("/root/1/conflicts", "/root/1/trash"):
            text = (await browser.get(target)).text
            assert "&lt;script&gt;alert(1)" in text
            assert EVIL not in text

    asyncio.run(scenario())


@pytest.mark.parametrize("take", ["local", "remote", "both"])
def test_a_conflict_is_settled_by_the_command_and_is_gone_from_the_list(page: Page, take: str) -> None:
    async def scenario() -> None:
        done = msgspec.json.encode({"type": "resolve", "done": "the version of vm has the name"})
        ready(page, ran(conflict(), conflict(1)), ran(done))
        browser = await page.browser()
        await browser.get("/root/1/conflicts")
        await browser.post("/root/1/conflicts/resolve", {"path": quote_from_bytes(RAW), "take": take})
        arguments, _ = page.program.ran[-1]
        assert arguments == [b"resolve", b"/home/me/photos/" + RAW, b"--take", take.encode(), b"--json"]
        text = (await browser.get("/root/1/conflicts")).text
        assert "the version of vm has the name" in text
        assert f"value=&#34;{quote_from_bytes(RAW)}" not in text
        assert f'value="{quote_from_bytes(RAW)}"' not in text
        assert 'value="c1"' in text
        assert len(page.program.ran) == 2  # the rest of the list is as it was

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "fields",
    [
        {"path": "a", "take": "all"},
        {"take": "both"},
        {"path": "a%00", "take": "both"},
        {"path": "../other/a", "take": "both"},
        {"path": "a/..", "take": "both"},
        {},
    ],
)
def test_what_no_page_sends_does_nothing(page: Page, fields: dict[str, str]) -> None:
    async def scenario() -> None:
        ready(page)
        browser = await page.browser()
        assert (await browser.post("/root/1/conflicts/resolve", fields)).status == 404
        assert (await browser.get("/root/1/conflicts/compare?path=")).status == 404
        assert not page.program.done
        assert (await browser.post("/root/1/trash/restore", {})).status == 404
        assert (await browser.post("/root/1/trash/restore", {"id": "a\0"})).status == 404
        assert not page.program.ran

    asyncio.run(scenario())


def test_what_the_command_refuses_is_told_in_its_words_and_stays(page: Page) -> None:
    async def scenario() -> None:
        ready(page, ran(conflict()), ran(code=2, message="x is a folder: move what you want out of it"))
        browser = await page.browser()
        await browser.get("/root/1/conflicts")
        await browser.post("/root/1/conflicts/resolve", {"path": quote_from_bytes(RAW), "take": "local"})
        text = (await browser.get("/root/1/conflicts")).text
        assert "x is a folder: move what you want out of it (exit code 2)" in text
        assert f'value="{quote_from_bytes(RAW)}"' in text

    asyncio.run(scenario())


def test_a_version_is_restored_by_the_command(page: Page) -> None:
    async def scenario() -> None:
        ready(page, ran(kept(), kept(1)), ran(msgspec.json.encode({"type": "restored", "to": "a/b"})))
        browser = await page.browser()
        await browser.get("/root/1/trash")
        await browser.post("/root/1/trash/restore", {"id": "id0"})
        assert page.program.ran[-1][0] == [b"trash", b"restore", b"/home/me/photos", b"--entry=id0", b"--json"]
        text = (await browser.get("/root/1/trash")).text
        assert "Restored a/b" in text
        assert 'value="id0"' not in text
        assert 'value="id1"' in text

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"why": "deleted"}, "deleted elsewhere"),
        ({"why": "replaced"}, "replaced by another version"),
        ({"why": "resolved"}, "given up in a conflict"),
        ({"why": "doubled"}, "an equal file stays"),
        ({"why": EVIL}, "unknown"),
        ({"why": None}, "unknown"),
        ({}, "unknown"),
    ],
)
def test_each_version_in_the_trash_says_what_it_is_there_for(page: Page, more: dict[str, str], words: str) -> None:
    async def scenario() -> None:
        ready(page, ran(kept(**more)))
        text = (await (await page.browser()).get("/root/1/trash")).text
        assert f">{words}</td>" in text

    asyncio.run(scenario())


def test_ten_thousand_conflicts_come_by_pages(page: Page) -> None:
    async def scenario() -> None:
        ready(page, ran(*(conflict(number + 1) for number in range(10_000))))
        browser = await page.browser()
        first, last = [(await browser.get(f"/root/1/conflicts?page={number}")).text for number in (1, 9999)]
        assert first.count('name="path"') == last.count('name="path"') == PER_PAGE
        assert "Page 1 of 200" in first
        assert 'value="c10000"' in last
        assert len(page.program.ran) == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("what", ["conflicts", "trash"])
def test_a_list_tells_what_the_last_cycle_left_and_who_turns_pages_reads_on(page: Page, what: str) -> None:
    async def scenario() -> None:
        ready(page, ran(), ran(*[conflict(1) if what == "conflicts" else kept(1)] * (PER_PAGE + 1)))
        browser = await page.browser()
        empty = (await browser.get(f"/root/1/{what}")).text
        assert {"conflicts": "There are none.", "trash": "It is empty."}[what] in empty
        after_a_cycle(page)
        text = (await browser.get(f"/root/1/{what}")).text
        assert "Page 1 of 2" in text
        assert f'As of <time datetime="{iso(page.now_s)}">' in text
        after_a_cycle(page)
        assert "Page 2 of 2" in (await browser.get(f"/root/1/{what}?page=2")).text
        assert len(page.program.ran) == 2

    asyncio.run(scenario())


def test_a_look_that_takes_longer_than_a_cycle_is_shown_once(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        ready(page, ran(conflict(1)))
        browser = await page.browser()
        monkeypatch.setattr(jobs, "FIRST_S", 0.0)
        assert "c1" not in (await browser.get("/root/1/conflicts")).text
        after_a_cycle(page)
        assert 'value="c1"' in (await browser.get("/root/1/conflicts")).text

    asyncio.run(scenario())


@pytest.mark.parametrize("original", ["report.txt", None])
@pytest.mark.parametrize("told", [{}, {"original_host": None}, {"original_host": EVIL}])
def test_of_which_device_each_version_is_or_that_nobody_knows(
    page: Page, original: str | None, told: dict[str, str | None]
) -> None:
    async def scenario() -> None:
        ready(page, ran(conflict(original=original, differs=None if original is None else True, **told)))
        text = (await (await page.browser()).get("/root/1/conflicts")).text
        assert "version of <bdi>vm</bdi>" in text
        is_known = told.get("original_host") is not None
        assert ("version with the name, device unknown" in text) is (original is not None and not is_known)
        known = "version with the name, of <bdi>&lt;script&gt;alert(1)&lt;/script&gt;</bdi>"
        assert (known in text) is (original is not None and is_known)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (None, "of the one with the name the device is unknown."),
        (EVIL, "the one with the name is that of <bdi>&lt;script&gt;alert(1)&lt;/script&gt;</bdi>."),
    ],
)
def test_two_versions_are_shown_side_by_side(page: Page, other: str | None, told: str) -> None:
    async def scenario() -> None:
        ready(page)
        diff = ("@@ -1 +1 @@", f"-{EVIL}", "+new")
        page.program.compared = Compared(
            diff=diff, cells=b"\x01", cell_bytes=4096, differing_bytes=4, host=EVIL, other=other
        )
        browser = await page.browser()
        text = (await browser.get(f"/root/1/conflicts/compare?path={quote_from_bytes(RAW)}")).text
        assert page.program.done == [("compare", RAW.decode("latin-1"))]
        assert '<span class="removed">-&lt;script&gt;' in text
        assert "4 B differ" in text
        assert f"the version of <bdi>&lt;script&gt;alert(1)&lt;/script&gt;</bdi>; {told}" in text

    asyncio.run(scenario())


def test_two_versions_are_compared_anew_when_asked_or_after_a_cycle(page: Page) -> None:
    async def scenario() -> None:
        ready(page)
        page.program.compared = Compared(diff=None, cells=b"\x01", cell_bytes=4096, differing_bytes=4, host="vm")
        browser, target = await page.browser(), f"/root/1/conflicts/compare?path={quote_from_bytes(RAW)}"
        for _ in range(2):
            text = (await browser.get(target)).text
        assert len(page.program.done) == 1
        again = f"{target}&amp;again=1"
        assert f'<a href="{again}">Look again</a>' in text
        assert (await browser.get(f"{target}&again=1")).status == 303
        await browser.get(target)
        assert len(page.program.done) == 2
        after_a_cycle(page)
        await browser.get(target)
        assert len(page.program.done) == 3

    asyncio.run(scenario())


def test_a_picture_of_pieces_has_each_of_them_once() -> None:
    cells = bytes([0, 0, 1, 1, 0, 2, 2, 2])
    view = view_compared(Compared(diff=None, cells=cells, cell_bytes=4096, differing_bytes=1, host="vm"))
    assert [(each.kind, each.at, each.width) for each in view.stretches] == [
        ("same", 0, 2), ("differs", 2, 2), ("same", 4, 1), ("only-copy", 5, 3)
    ]  # fmt: skip


def test_which_root_is_meant_is_asked_first(page: Page) -> None:
    async def scenario() -> None:
        ready(page)
        browser = await page.browser()
        assert "3 conflicts" in (await browser.get("/conflicts")).text
        assert "/root/1/trash" in (await browser.get("/trash")).text

    asyncio.run(scenario())
