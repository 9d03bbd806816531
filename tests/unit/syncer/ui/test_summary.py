"""The state at a glance: whatever needs a person is told first, how many roots it concerns, why, and where."""

from __future__ import annotations

import asyncio
import re
from html import unescape
from typing import Any, Final

import pytest
from starlette.requests import Request
from starlette.responses import Response

from syncer.ui.context import Context
from syncer.ui.live import Pieces, view_scene
from syncer.ui.ports import CycleFacts, Pending, RootFacts
from syncer.ui.render import render
from syncer.watch.live import DaemonLive, Phase, RootLive
from tests.unit.syncer.ui.conftest import Page

NOW: Final = 1_800_000_000.0
FAILURE: Final = Pending(path=b"a", is_failure=True, text="no", since_s=NOW)
PARTLY: Final = CycleFacts(ended_s=NOW, exit_code=3, error=None, counts={})


def root(uuid: str, **more: Any) -> RootFacts:
    return RootFacts(uuid=uuid, path=b"/home/me/" + uuid.encode(), url="pithos+http://h/v1/me/photos", **more)


def live(uuid: str, phase: Phase = "idle", **more: Any) -> RootLive:
    return RootLive(root="", uuid=uuid, phase=phase, since=NOW, **more)


def daemon(*roots: RootLive) -> DaemonLive:
    return DaemonLive(pid=1, started=0.0, roots=list(roots))


def told(facts: list[RootFacts], *roots: RootLive) -> str:
    """The summary as it is read."""
    text = render("_summary.html", scene=view_scene(facts, daemon(*roots), NOW))
    return " ".join(unescape(re.sub(r"<[^>]*>", "", text)).split())


def links(facts: list[RootFacts], *roots: RootLive) -> list[str]:
    return re.findall(r'href="([^"]*)"', render("_summary.html", scene=view_scene(facts, daemon(*roots), NOW)))


def test_a_root_with_conflicts_is_not_as_it_should_be() -> None:
    facts, watched = [root("1", conflicts=2), root("2")], (live("1"), live("2"))
    view = view_scene(facts, daemon(*watched), NOW)
    assert [(each.state, each.tone) for each in view.roots] == [
        ("In step, with conflicts", "warn"),
        ("In step", "good"),
    ]
    assert told(facts, *watched) == "1 of 2 needs a look: 1 root has 2 conflicts to settle."
    assert links(facts, *watched) == ["/root/1/conflicts"]


def test_conflicts_of_several_roots_are_told_together_and_lead_to_a_choice() -> None:
    facts, watched = [root("1", conflicts=2), root("2", conflicts=1)], (live("1"), live("2"))
    assert told(facts, *watched) == "2 of 2 need a look: 2 roots have 3 conflicts to settle."
    assert links(facts, *watched) == ["/conflicts"]


@pytest.mark.parametrize("phase", ["quiet", "working", "paused", "retrying", "consent", "away"])
def test_conflicts_are_told_whatever_else_the_root_does(phase: Phase) -> None:
    """Breaks when a root that syncs, or is paused, hides what nobody but a person settles."""
    facts = [root("1", conflicts=1)]
    assert "1 of 1 needs a look: 1 root has 1 conflict to settle" in told(facts, live("1", phase))
    (view,) = view_scene(facts, daemon(live("1", phase)), NOW).roots
    (without,) = view_scene([root("1")], daemon(live("1", phase)), NOW).roots
    assert (view.state, view.tone) == (without.state, without.tone)


def test_every_reason_is_told_once() -> None:
    facts = [
        root("1", conflicts=1),
        root("2", conflicts=1, pending=(FAILURE, FAILURE), last=PARTLY),
        root("3"),
        root("4"),
        root("5"),
    ]
    watched = (live("1"), live("2"), live("3", "retrying"), live("4", "away"), live("5", "away"))
    assert told(facts, *watched) == (
        "5 of 5 need a look: 2 roots have 2 conflicts to settle, 1 root has 2 paths that are not synced, "
        "1 root is trying again, 2 roots are not there."
    )
    assert links(facts, *watched) == ["/conflicts", "/root/2"]


def test_who_waits_for_a_person_is_told_before_what_needs_a_look() -> None:
    facts = [root("1"), root("2", conflicts=1)]
    assert told(facts, live("1", "consent"), live("2")) == (
        "1 of 2 waits for you. 1 of 2 needs a look: 1 root has 1 conflict to settle."
    )


def test_nothing_to_look_at_is_told_as_before() -> None:
    assert told([]) == "Nothing is linked."
    assert told([root("1")], live("1")) == "All is as it should be."
    assert told([root("1"), root("2")], live("1", "working"), live("2")) == "1 of 2 is syncing."
    assert told([root("1"), root("2")], live("1", "consent"), live("2", "working")) == "1 of 2 waits for you."


@pytest.mark.parametrize("target", ["/", "/root/1"])
def test_a_page_that_is_loaded_tells_the_conflicts_and_leads_to_them(page: Page, target: str) -> None:
    async def scenario() -> None:
        page.program.facts, page.program.told = [root("1", conflicts=1)], [live("1")]
        text = (await (await page.browser()).get(target)).text
        assert 'class="chip warn"' in text
        assert 'href="/root/1/conflicts">1 conflict' in text
        assert "Nothing waits." not in text
        assert "All is as it should be." not in text

    asyncio.run(scenario())


@pytest.mark.parametrize("target", ["/events", "/events?root=1"])
def test_a_page_that_is_open_is_told_of_a_new_conflict(
    page: Page, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaks when only a page that is loaded anew tells it."""
    made: list[Pieces] = []

    def stream(_self: Context, _request: Request, pieces: Pieces) -> Response:
        made.append(pieces)
        return Response()

    async def scenario() -> None:
        monkeypatch.setattr(Context, "stream", stream)
        page.program.facts, page.program.told = [root("1")], [live("1")]
        await (await page.browser()).get(target)
        assert "1 conflict" not in "".join((await made[0]()).values())
        page.program.facts = [root("1", conflicts=1)]
        page.now_s += 2.0
        pieces = await made[0]()
        assert "In step, with conflicts" in pieces["card-1"]
        assert "1 conflict to settle" in pieces["details" if "root" in target else "summary"]

    asyncio.run(scenario())
