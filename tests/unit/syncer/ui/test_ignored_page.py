"""What is ignored, on the page: by the command, and patterns are bytes and text."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from syncer.ui import jobs
from syncer.ui.ports import Pending, Ran, RootFacts
from tests.unit.syncer.ui.conftest import Page

EVIL = "<script>alert(1)</script>"


def ran(*lines: dict[str, object], code: int = 0, message: str = "") -> Ran:
    return Ran(exit_code=code, lines=tuple(map(msgspec.json.encode, lines)), message=message)


def ready(page: Page, *outcomes: Ran) -> None:
    pending = (Pending(path=b"caf\xe9", is_failure=True, text="it is not UTF-8", since_s=0.0),)
    page.program.facts = [RootFacts(uuid="1", path=b"/home/me/photos", url="pithos+http://h/v1/me/p", pending=pending)]
    page.program.outcomes += outcomes


def test_patterns_and_refused_names_are_shown_as_text(page: Page) -> None:
    async def scenario() -> None:
        check = {"path": EVIL, "ignored": True, "file": None, "line": 2, "pattern": EVIL}
        ready(page, ran({"pattern": EVIL, "encoded": "%3Cscript%3E"}), ran(check), ran())
        browser = await page.browser()
        text = (await browser.get("/root/1/ignored?path=caf%E9/")).text
        assert EVIL not in text
        assert "&lt;script&gt;alert(1)" in text
        assert "ignored (pattern of the root, line 2: " in text
        assert "it is not UTF-8" in text
        assert page.program.ran[1][0] == [
            *(b"ignore", b"/home/me/photos", b"check", b"--json", b"--", b"/home/me/photos/caf\xe9/")
        ]

    asyncio.run(scenario())


def test_patterns_are_added_and_removed_by_the_command(page: Page) -> None:
    async def scenario() -> None:
        ready(page, ran(), ran(), ran(code=2, message="x is no pattern: because"), ran(), ran())
        browser = await page.browser()
        await browser.post("/root/1/ignored/add", {"pattern": b"--caf\xe9*"})
        await browser.post("/root/1/ignored/remove", {"pattern": "caf%E9"})
        await browser.post("/root/1/ignored/add", {"pattern": "x"})
        assert "x is no pattern: because (exit code 2)" in (await browser.get("/root/1/ignored")).text
        changes = [arguments for arguments, _ in page.program.ran[:2]]
        assert changes == [
            [b"ignore", b"/home/me/photos", b"add", b"--json", b"--", b"--caf\xe9*"],
            [b"ignore", b"/home/me/photos", b"rm", b"--json", b"--", b"caf\xe9"],
        ]

    asyncio.run(scenario())


@pytest.mark.parametrize("sent", ["caf%E9", b"caf\xe9"])
def test_a_pattern_to_be_removed_may_be_percent_encoded_once_or_twice(page: Page, sent: str | bytes) -> None:
    """The page sends it twice; whoever writes his own requests may not, and is no internal error."""

    async def scenario() -> None:
        ready(page, ran())
        browser = await page.browser()
        assert (await browser.post("/root/1/ignored/remove", {"pattern": sent})).status == 303
        assert page.program.ran[0][0][-1] == b"caf\xe9"

    asyncio.run(scenario())


def test_names_that_are_ignored_and_patterns_of_files_are_shown_as_text(page: Page) -> None:
    async def scenario() -> None:
        line = {"type": "ignore-line", "file": f"d/{EVIL}", "line": 7, "pattern": EVIL}
        name = {"type": "ignore-name", "path": EVIL, "encoded": "caf%E9", "file": None, "line": 3, "pattern": "*.tmp"}
        last = {"type": "ignore-names", "names": 1, "more": "there are more than 1", "more_lines": True, "unread": 2}
        ready(page, ran(), ran(line, name, last))
        browser = await page.browser()
        text = (await browser.get("/root/1/ignored")).text
        assert page.program.ran[1][0] == [b"ignore", b"/home/me/photos", b"names", b"--most=200", b"--json"]
        assert EVIL not in text
        assert 'href="/root/1/explain?path=caf%E9"' in text
        assert "*.tmp (pattern of the root, line 3)" in text
        assert "&lt;/script&gt;, line 7" in text
        assert "There may be more: there are more than 1." in text
        assert "There are more." in text
        assert "2 folders could not be looked at." in text

    asyncio.run(scenario())


def test_names_are_looked_for_once_until_the_patterns_change_or_somebody_asks(page: Page) -> None:
    """Breaks when each load of the page walks through the folder, or a change of the patterns shows the old names."""

    async def scenario() -> None:
        one, two = ({"pattern": each, "encoded": each} for each in ("one", "two"))
        ready(page, ran(one), ran(), ran(one), ran(one), ran(one), ran(), ran(two), ran())
        browser = await page.browser()
        for target in ("", "", "?again=1", "", ""):
            await browser.get(f"/root/1/ignored{target}")
        assert [arguments[2] for arguments, _ in page.program.ran].count(b"names") == 3

    asyncio.run(scenario())


@pytest.mark.parametrize("lines", [({"type": "ignore-other"},), ({"type": "ignore-name"},)])
def test_a_look_that_fails_leaves_the_patterns_on_the_page(page: Page, lines: tuple[dict[str, object], ...]) -> None:
    async def scenario() -> None:
        pattern = {"pattern": "*.log", "encoded": "*.log"}
        ready(page, ran(pattern), ran(code=2, message="it is not mounted"), ran(pattern), ran(*lines))
        browser = await page.browser()
        for told in ("it is not mounted (exit code 2)", "please report it"):
            text = (await browser.get("/root/1/ignored")).text
            assert "*.log" in text
            assert told in text

    asyncio.run(scenario())


def test_a_page_that_comes_back_shows_each_look_once_it_is_there(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when a look is begun anew by who comes back for it: the page would wait for ever."""
    monkeypatch.setattr(jobs, "FIRST_S", 0.0)

    async def scenario() -> None:
        last = {"type": "ignore-names", "names": 0, "more": "", "more_lines": False, "unread": 0}
        pattern = {"pattern": "*.log", "encoded": "*.log"}
        ready(page, ran(pattern), ran(last), ran(pattern), ran(last))
        browser = await page.browser()
        for _ in range(2):
            assert (await browser.get("/root/1/ignored?again=1")).status == 303
            shown = [(await browser.get("/root/1/ignored")).text for _ in range(3)]
            assert "Looking, for " in shown[0]
            assert "*.log" in shown[-1]
        assert [arguments[2] for arguments, _ in page.program.ran] == [b"ls", b"names"] * 2

    asyncio.run(scenario())


def test_what_was_told_of_the_patterns_is_told_again_only_at_once(page: Page) -> None:
    async def scenario() -> None:
        ready(page, ran(), ran(), ran({"pattern": "*.new", "encoded": "*.new"}), ran())
        browser = await page.browser()
        assert "*.new" not in (await browser.get("/root/1/ignored")).text
        page.now_s += 4.0
        assert "*.new" not in (await browser.get("/root/1/ignored")).text
        page.now_s += 4.0
        assert "*.new" in (await browser.get("/root/1/ignored")).text

    asyncio.run(scenario())


@pytest.mark.parametrize("pattern", ["", "a\nb", "a\0b"])
def test_what_is_no_line_is_no_pattern(page: Page, pattern: str) -> None:
    async def scenario() -> None:
        ready(page)
        browser = await page.browser()
        assert (await browser.post("/root/1/ignored/add", {"pattern": pattern})).status == 404
        assert not page.program.ran

    asyncio.run(scenario())
