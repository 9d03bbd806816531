"""Limits hold on average, whatever the sizes; the number of requests follows what it brings."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from syncer.remote.http.concurrency import STEPS, Concurrency
from syncer.remote.http.rate_limit import RateLimit, TokenBucket


@given(st.integers(1, 10**9), st.lists(st.tuples(st.integers(0, 10**7), st.floats(0, 10))))
def test_nobody_gets_more_than_the_rate_and_one_burst(rate: int, takes: list[tuple[int, float]]) -> None:
    now = 0.0
    bucket = TokenBucket.full(rate, now)
    taken = 0
    for tokens, pause in takes:
        taken += tokens
        now += bucket.take(tokens, now)
        assert taken <= rate * (now + 1.0) * (1 + 1e-9) + 1e-3
        now += pause


def test_within_a_burst_nobody_waits() -> None:
    bucket = TokenBucket.full(100, 5.0)
    assert bucket.take(100, 5.0) == 0
    assert bucket.take(50, 5.0) == 0.5


def test_tasks_share_a_limit() -> None:
    async def main() -> float:
        pace = RateLimit(1000)
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(pace.spend, 500)
        return trio.current_time() - began

    clock = trio.testing.MockClock(autojump_threshold=0)
    assert trio.run(main, clock=clock) == pytest.approx(4.0)  # 5,000 bytes, the first 1,000 at once


def rates(concurrency: Concurrency, rate_of: dict[int, float], seconds: int) -> list[int]:
    """Run at the rate that each number of requests brings; returns the numbers."""
    now, seen = 0.0, []
    concurrency.replied(0, now, saturated=True)
    for _ in range(seconds * 10):
        now += 0.1
        seen.append(concurrency.replied(int(rate_of[concurrency.now] / 10), now, saturated=True))
    return seen


def test_it_climbs_as_long_as_it_gains() -> None:
    assert rates(Concurrency(), {step: step * 1e7 for step in STEPS}, 20)[-1] == 16


def test_it_goes_back_when_nothing_is_gained() -> None:
    seen = rates(Concurrency(), {4: 4e7, 8: 8e7, 12: 8e7, 16: 8e7}, 15)
    assert max(seen) == 12
    assert seen[-1] == 8


def test_a_rate_that_falls_later_is_not_the_last_steps_fault() -> None:
    concurrency = Concurrency()
    assert rates(concurrency, {step: step * 1e7 for step in STEPS}, 10)[-1] == 16
    assert set(rates(concurrency, dict.fromkeys(STEPS, 1e7), 10)) == {16}


def test_many_small_requests_tell_soon() -> None:
    concurrency, now = Concurrency(), 0.0
    while concurrency.now < STEPS[-1]:
        now += 0.05 / concurrency.now  # a round trip of 50 ms
        concurrency.replied(1024, now, saturated=True)
    assert now < 1.5


def test_a_limit_is_kept() -> None:
    assert max(rates(Concurrency(8), {step: step * 1e7 for step in STEPS}, 20)) == 8
    assert Concurrency(2).now == 2


def test_it_does_not_climb_while_places_are_free() -> None:
    concurrency = Concurrency()
    for at in range(1000):
        concurrency.replied(10**6, at / 10, saturated=False)
    assert concurrency.now == STEPS[0]
