"""Bytes a second: whatever is asked for and whenever, a limit is kept to, and nobody waits for nothing."""

from __future__ import annotations

import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from syncer.peer.exchange.limits import Throttle

BURST_S = 0.05
PER_S = 1_000_000
ROUNDING_S = 1e-6

_COMING = st.lists(st.tuples(st.floats(0, 3), st.integers(1, 400_000)), min_size=1, max_size=20)
"""When somebody comes, in seconds, and for how many bytes."""


def granted(coming: list[tuple[float, int]], per_s: int | None) -> list[tuple[float, int, float]]:
    """When each had its bytes, how many, and when it came; the first first."""
    done: list[tuple[float, int, float]] = []

    async def one(throttle: Throttle, at_s: float, count: int) -> None:
        await trio.sleep(at_s)
        await throttle.spend(count)
        done.append((trio.current_time() - began, count, at_s))

    async def main() -> None:
        nonlocal began
        began = trio.current_time()
        throttle = Throttle(per_s)
        async with trio.open_nursery() as nursery:
            for each in coming:
                nursery.start_soon(one, throttle, *each)

    began = 0.0
    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    return done


@given(_COMING)
def test_in_no_stretch_of_time_more_is_given_than_the_limit_says(coming: list[tuple[float, int]]) -> None:
    """But for a twentieth of a second, and for the last of them: it is given as soon as those before are paid for."""
    done = granted(coming, PER_S)
    for first, (from_s, _, _) in enumerate(done):
        total = 0
        for to_s, count, _ in done[first:]:
            assert total <= PER_S * (to_s - from_s + BURST_S + ROUNDING_S)
            total += count


@given(_COMING)
def test_nobody_waits_longer_than_for_all_who_came_before(coming: list[tuple[float, int]]) -> None:
    total = sum(count for _, count in coming)
    assert all(at_s <= came_s + total / PER_S + ROUNDING_S for at_s, _, came_s in granted(coming, PER_S))


def test_without_a_limit_nobody_waits() -> None:
    assert granted([(1.0, 1 << 40), (1.0, 1 << 40)], None) == [(1.0, 1 << 40, 1.0)] * 2
