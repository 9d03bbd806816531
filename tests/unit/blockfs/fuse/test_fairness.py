from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from blockfs.fuse.answering import keep_dirty_low
from blockfs.fuse.fairness import Fairness

STREAM, DATABASE = 2, 3


class Limit:
    def __init__(self) -> None:
        self.changes: list[tuple[str, float]] = []

    def lower(self) -> None:
        self.changes.append(("lower", trio.current_time()))

    def restore(self) -> None:
        self.changes.append(("restore", trio.current_time()))


def at(times: list[float]) -> Fairness:
    return Fairness(now_s=iter(times).__next__)


def test_an_fsync_beside_a_stream_is_a_hurry_for_a_second() -> None:
    fairness = at([10.0, 10.9, 11.8, 12.0])
    fairness.streams(STREAM)
    fairness.waits(DATABASE)
    assert fairness.is_on
    assert not fairness.is_on


@pytest.mark.parametrize("ino", [STREAM, DATABASE])
def test_no_hurry_without_a_stream_of_somebody_else(ino: int) -> None:
    fairness = at([10.0, 10.0 if ino == STREAM else 11.1, 11.2])
    fairness.streams(STREAM)
    fairness.waits(ino)
    assert not fairness.is_on


def test_dirty_pages_are_limited_as_long_as_there_is_a_hurry() -> None:
    limit = Limit()

    async def play() -> None:
        fairness = Fairness(now_s=trio.current_time)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep_dirty_low, fairness, limit)
            for pause_s in (0.5, 0.5, 10.0):
                fairness.streams(STREAM)
                fairness.waits(DATABASE)
                await trio.sleep(pause_s)
            fairness.streams(STREAM)
            fairness.waits(DATABASE)
            await trio.sleep(5)
            nursery.cancel_scope.cancel()

    clock = MockClock(autojump_threshold=0)
    trio.run(play, clock=clock)
    assert [(what, round(when_s - limit.changes[0][1], 6)) for what, when_s in limit.changes] == [
        ("lower", 0.0),
        ("restore", 2.0),
        ("lower", 11.0),
        ("restore", 12.0),
    ]
