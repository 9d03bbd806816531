"""Token buckets: never more than the burst and the rate."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from syncer.peer.session.budget import Bucket, broadcasts, inbound

steps = st.lists(st.tuples(st.floats(0, 2), st.integers(1, 30)), max_size=60)


@given(steps, st.integers(1, 100), st.integers(1, 300))
def test_no_span_of_time_gets_more_than_burst_and_rate(steps: list[tuple[float, int]], burst: int, rate: int) -> None:
    bucket, now, taken = Bucket(burst, rate), 100.0, list[tuple[float, int]]()
    for wait, tries in steps:
        now += wait
        taken.append((now, sum(bucket.take(now) for _ in range(tries))))
    for first, (begin, _) in enumerate(taken):
        for last in range(first, len(taken)):
            total = sum(count for _, count in taken[first : last + 1])
            assert total <= burst + (taken[last][0] - begin) * rate + 0.01


@given(st.integers(1, 100), st.integers(1, 300), st.floats(0, 1e6))
def test_who_waits_until_it_is_ready_gets_one(burst: int, rate: int, now: float) -> None:
    """Breaks as a loop that wakes up, gets nothing, and sleeps for nothing."""
    bucket = Bucket(burst, rate)
    for _ in range(3 * burst):
        now = max(now, bucket.ready_at(now))
        assert bucket.take(now)


def test_a_clock_that_stands_still_or_goes_back_gives_nothing() -> None:
    bucket = Bucket(1, 10)
    assert bucket.take(50.0)
    assert not bucket.take(49.0)
    assert not bucket.take(50.0)
    assert bucket.take(50.1)


def test_the_budgets_are_those_of_the_design() -> None:
    """docs/design/peer-protocol.md tells them to who runs a network."""

    def at_once(bucket: Bucket) -> int:
        return sum(bucket.take(0.0) for _ in range(10_000))

    def in_a_second(bucket: Bucket) -> int:
        at_once(bucket)
        return sum(bucket.take(step / 1000) for step in range(1, 1001))

    assert [at_once(broadcasts(wireless=each)) for each in (False, True)] == [64, 8]
    assert [in_a_second(broadcasts(wireless=each)) for each in (False, True)] == [200, 20]
    assert (at_once(inbound()), in_a_second(inbound())) == (2000, 1000)
