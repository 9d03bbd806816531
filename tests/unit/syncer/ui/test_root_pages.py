"""Roots on the page: what is seen, what is done, and that names are text whatever they are."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec
import pytest

from syncer.ui.live import view_scene
from syncer.ui.ports import Pending, Ran, RootFacts
from syncer.ui.render import render
from syncer.watch.live import RootLive
from tests.unit.syncer.ui.conftest import Page

EVIL: Final = b'/home/me/<script>alert(1)</script>"onmouseover="alert(2)\'&amp;{{7*7}}'
PLAN: Final = msgspec.json.encode(
    {
        "digest": "06bb8f07",
        "created": "2026-11-26T16:43:02+00:00",
        "needs_consent": ["the plan would delete 36 of 42 nodes on the remote side (limit: half)"],
        "actions": [{"side": "remote", "action": "trash", "path": "old.jpg", "kind": "file"}],
        "not_synced": [],
        "notes": [],
    }
)


def root(uuid: str = "1", path: bytes = b"/home/me/photos", **more: Any) -> RootFacts:
    return RootFacts(uuid=uuid, path=path, url="pithos+http://h/v1/me/photos", **more)


def watched(uuid: str = "1", **more: Any) -> RootLive:
    return RootLive(**{"root": "", "uuid": uuid, "phase": "idle", "since": 0.0, **more})


def test_a_name_is_text_on_every_page(page: Page) -> None:
    async def scenario() -> None:
        pending = (Pending(path=EVIL, is_failure=True, text=EVIL.decode(), since_s=0.0),)
        page.program.facts = [root(path=EVIL, pending=pending, detail=EVIL.decode())]
        page.program.told = [watched(phase="consent", detail=EVIL.decode(), moving=EVIL.decode())]
        plan = msgspec.json.decode(PLAN)
        plan["actions"][0]["path"] = plan["needs_consent"][0] = EVIL.decode()
        explained = {"path": "a", "tracked": False, "notes": [EVIL.decode()]}
        page.program.outcomes += [
            Ran(exit_code=0, lines=(msgspec.json.encode(plan),), message=""),
            Ran(exit_code=0, lines=(msgspec.json.encode(explained),), message=""),
            Ran(exit_code=1, lines=(), message=EVIL.decode()),
        ]
        browser = await page.browser()
        for target in ("/", "/root/1", "/root/1/plan", "/root/1/explain?path=a", "/root/1/explain?path=b"):
            text = (await browser.get(target)).text
            assert "&lt;script&gt;alert(1)" in text, target
            assert "<script>alert" not in text, target
            assert '"onmouseover' not in text, target
            assert "{{7*7}}" in text, target

    asyncio.run(scenario())


def test_pause_resume_and_run_do_what_the_commands_do_and_lead_back(page: Page) -> None:
    async def scenario() -> None:
        page.program.facts, page.program.told = [root()], [watched()]
        browser = await page.browser()
        for verb in ("pause", "resume", "run"):
            answer = await browser.post(f"/root/1/{verb}", {"back": "root"})
            assert (answer.status, answer.headers["location"]) == (303, "/root/1")
        assert page.program.done == [("pause", "1"), ("resume", "1"), ("run", "1")]

    asyncio.run(scenario())


def test_a_root_that_is_gone_is_told_and_not_a_fault(page: Page) -> None:
    async def scenario() -> None:
        browser = await page.browser()
        assert (await browser.post("/root/2/pause")).status == 303
        assert "is linked any more" in (await browser.get("/")).text
        assert "is linked any more" not in (await browser.get("/")).text  # told once
        assert (await browser.get("/root/2")).status == 404

    asyncio.run(scenario())


@pytest.mark.parametrize("target", ["plan", "explain?path=a", "conflicts", "trash", "ignored"])
def test_a_root_that_is_unlinked_between_two_looks_is_told_and_not_a_fault(page: Page, target: str) -> None:
    """Breaks when a page takes for granted that what it has just seen is still there."""

    async def scenario() -> None:
        page.program.facts = [root()]
        browser = await page.browser()
        line = PLAN if target == "plan" else msgspec.json.encode({"path": "x", "tracked": False, "notes": []})
        lines = (line,) if target in {"plan", "explain?path=a"} else ()

        async def run(*_arguments: object, **_more: object) -> Ran:
            page.program.facts = []
            page.now_s += 60.0  # what was seen before is too old
            return Ran(exit_code=0, lines=lines, message="")

        page.program.run = run  # type: ignore[method-assign]
        answer = await browser.get(f"/root/1/{target}")
        assert answer.status == 404
        assert "no such root any more" in answer.text

    asyncio.run(scenario())


def test_a_plan_is_carried_out_as_it_was_shown_and_only_with_the_box_ticked(page: Page) -> None:
    async def scenario() -> None:
        page.program.facts, page.program.told = [root()], [watched(phase="consent")]
        page.program.outcomes += [Ran(exit_code=0, lines=(PLAN,), message="")]
        browser = await page.browser()
        assert "36 of 42 nodes" in (await browser.get("/root/1/plan")).text
        await browser.post("/root/1/consent", {"digest": "06bb8f07"})
        assert len(page.program.ran) == 1
        page.program.outcomes += [Ran(exit_code=0, lines=(), message="")]
        await browser.post("/root/1/consent", {"digest": "06bb8f07", "agreed": "yes"})
        await asyncio.sleep(0)
        arguments, given = page.program.ran[1]
        assert arguments == [
            *(b"reconcile", b"/home/me/photos", b"--plan", b"-", b"--allow-deletes", b"06bb8f07", b"--json")
        ]
        assert given == PLAN + b"\n"
        assert "It was carried out." in (await browser.get("/root/1")).text

    asyncio.run(scenario())


@pytest.mark.parametrize("digest", ["", "other", "06bb8f07 --json"])
def test_consent_to_another_plan_than_was_shown_does_nothing(page: Page, digest: str) -> None:
    async def scenario() -> None:
        page.program.facts = [root()]
        page.program.outcomes += [Ran(exit_code=0, lines=(PLAN,), message="")]
        browser = await page.browser()
        await browser.get("/root/1/plan")
        answer = await browser.post("/root/1/consent", {"digest": digest, "agreed": "yes"})
        assert answer.headers["location"] == "/root/1/plan?again=1"
        assert len(page.program.ran) == 1

    asyncio.run(scenario())


def test_consent_to_a_plan_that_nobody_was_shown_does_nothing(page: Page) -> None:
    async def scenario() -> None:
        page.program.facts = [root()]
        browser = await page.browser()
        await browser.post("/root/1/consent", {"digest": "06bb8f07", "agreed": "yes"})
        assert not page.program.ran

    asyncio.run(scenario())


def test_consent_after_a_plan_that_failed_does_nothing_and_shows_why(page: Page) -> None:
    """Another tab has looked again meanwhile: the folder is not there. What it printed is no plan."""

    async def scenario() -> None:
        page.program.facts = [root()]
        error = msgspec.json.encode({"type": "error", "exit_code": 10, "message": "not mounted?"})
        page.program.outcomes += [Ran(exit_code=10, lines=(error,), message="not mounted?")]
        browser = await page.browser()
        await browser.get("/root/1/plan")
        answer = await browser.post("/root/1/consent", {"digest": "06bb8f07", "agreed": "yes"})
        assert answer.headers["location"] == "/root/1/plan?again=1"
        assert len(page.program.ran) == 1

    asyncio.run(scenario())


def test_a_plan_that_does_not_hold_any_more_says_so(page: Page) -> None:
    async def scenario() -> None:
        page.program.facts = [root()]
        told = "1 of 1 actions of the plan would not be done any more"
        page.program.outcomes += [
            Ran(exit_code=0, lines=(PLAN,), message=""),
            Ran(exit_code=20, lines=(), message=told),
        ]
        browser = await page.browser()
        await browser.get("/root/1/plan")
        await browser.post("/root/1/consent", {"digest": "06bb8f07", "agreed": "yes"})
        await asyncio.sleep(0)
        assert f"{told} (exit code 20)" in (await browser.get("/root/1")).text

    asyncio.run(scenario())


def test_a_path_is_bytes_on_the_way_to_the_command(page: Page) -> None:
    async def scenario() -> None:
        page.program.facts = [root()]
        line = msgspec.json.encode({"path": "x", "tracked": False, "notes": ["it is ignored"]})
        page.program.outcomes += [Ran(exit_code=0, lines=(line,), message="")] * 2
        browser = await page.browser()
        assert "it is ignored" in (await browser.get("/root/1/explain?path=caf%E9%2b%20x")).text
        await browser.get("/root/1/explain?path=--json")
        paths = [arguments[1] for arguments, _ in page.program.ran]
        assert paths == [b"/home/me/photos/caf\xe9+ x", b"/home/me/photos/--json"]

    asyncio.run(scenario())


@pytest.mark.parametrize("path", ["", "/", "..", "../other/a", "a/../../b", "a%00"])
def test_of_what_is_not_below_the_root_nothing_is_asked(page: Page, path: str) -> None:
    async def scenario() -> None:
        page.program.facts = [root()]
        browser = await page.browser()
        await browser.get(f"/root/1/explain?path={path}")
        await browser.get(f"/root/1/ignored?path={path}")
        assert not any(arguments[0] == b"explain" or b"check" in arguments for arguments, _ in page.program.ran)

    asyncio.run(scenario())


def test_a_root_whose_daemon_is_gone_says_how_things_stood(page: Page) -> None:
    async def scenario() -> None:
        page.program.facts, page.program.told = [root()], None
        browser = await page.browser()
        assert "The daemon does not answer" in (await browser.get("/")).text

    asyncio.run(scenario())


def test_a_hundred_roots_stand_on_one_page(page: Page) -> None:
    facts = [root(str(number), b"/r/" + b"%d" % number + b"x" * 255) for number in range(100)]
    scene = view_scene(facts, None, page.now_s)
    assert render("_summary.html", scene=scene).strip() == "All is as it should be."

    async def scenario() -> None:
        page.program.facts = facts
        browser = await page.browser()
        assert (await browser.get("/")).text.count('class="card"') == 100

    asyncio.run(scenario())


def test_every_asset_that_a_page_names_is_there(page: Page) -> None:
    async def scenario() -> None:
        browser = await page.browser()
        text = (await browser.get("/")).text
        for name in ("style.css", "page.js", "icon.svg"):
            assert f"/assets/{name}?" in text
            assert (await browser.get(f"/assets/{name}")).status == 200
        for name in ("../app.py", "..%2fapp.py", "page.html", ""):
            assert (await browser.get(f"/assets/{name}")).status == 404

    asyncio.run(scenario())
