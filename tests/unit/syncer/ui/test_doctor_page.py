"""What doctor finds, on the page."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from syncer.cli.doctor.diagnosis import Level
from syncer.ui.ports import Ran
from syncer.ui.views.doctor import view_checks
from tests.unit.syncer.ui.conftest import Page


def check(level: str, root: str | None = None, text: str = "found") -> bytes:
    fields = {"root": root, "subject": "clock", "level": level, "text": text, "remedy": "do this"}
    return msgspec.json.encode({"type": "check", "version": 1, **fields})


def test_what_needs_a_look_comes_first_and_every_level_is_known() -> None:
    places = view_checks([*(check(level.value) for level in Level), check("ok", "/home/me/photos")])
    assert [place.name for place in places] == ["This computer", "/home/me/photos"]
    assert [each.tone for each in places[0].checks] == ["bad", "warn", "good"]


@pytest.mark.parametrize("code", [0, 3, 15])
def test_findings_are_shown_whatever_they_are(page: Page, code: int) -> None:
    async def scenario() -> None:
        lines = (check("fail", "/<b>", "<script>"),)
        page.program.outcomes.append(Ran(exit_code=code, lines=lines, message=""))
        browser = await page.browser()
        text = (await browser.get("/doctor")).text
        assert "&lt;script&gt;" in text
        assert "do this" in text
        assert page.program.ran[0][0] == [b"doctor", b"--json"]

    asyncio.run(scenario())


def test_a_doctor_that_could_not_look_says_why(page: Page) -> None:
    async def scenario() -> None:
        page.program.outcomes.append(Ran(exit_code=12, lines=(), message="not allowed"))
        browser = await page.browser()
        assert "not allowed (exit code 12)" in (await browser.get("/doctor")).text

    asyncio.run(scenario())
