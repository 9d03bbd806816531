"""Who asks first for a look hears soon that it goes on; who comes back waits for what is found."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from syncer.ui import jobs
from syncer.ui.jobs import Job
from syncer.ui.ports import Ran

DONE: Final = Ran(exit_code=0, lines=(), message="")


def test_only_who_comes_back_waits_for_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "FIRST_S", 0.0)
    monkeypatch.setattr(jobs, "PATIENCE_S", 600.0)

    async def scenario() -> None:
        job = Job("a look", 0.0)
        assert await job.result() is None
        waiting = asyncio.create_task(job.result())
        await asyncio.sleep(0)
        assert not waiting.done()
        job.end(DONE, 1.0)
        assert await waiting == DONE

    asyncio.run(scenario())


def test_what_has_ended_is_told_to_who_asks_first() -> None:
    async def scenario() -> None:
        job = Job("a look", 0.0)
        job.end(DONE, 1.0)
        assert await job.result() == DONE

    asyncio.run(scenario())


def test_who_names_a_time_waits_for_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "FIRST_S", 600.0)

    async def scenario() -> None:
        job = Job("a look", 0.0)
        assert await job.result(0.0) is None

    asyncio.run(scenario())
