"""How long ago something was, by two clocks of which one may stand still."""

from __future__ import annotations

import pytest

from syncer.remote.repository.elapsed import Stopwatch, When, awake_or_asleep_s

HOUR_S = 3600.0


@pytest.mark.parametrize(
    ("steps", "expected_s"),
    [
        ([(10.0, 10.0), (5.0, 5.0)], 15.0),
        ([(1.0, 90_000.0), (2.0, 2.0)], 90_002.0),  # paused from outside, and put right afterwards
        ([(60.0, -90_000.0), (60.0, 60.0)], 120.0),  # set back
        ([(60.0, -90_000.0), (1.0, 90_001.0)], 90_061.0),  # what was set back hides no pause after it
        ([(90_000.0, 5.0), (1.0, 1.0)], 90_001.0),
    ],
)
def test_of_two_clocks_the_one_that_goes_on_counts(steps: list[tuple[float, float]], expected_s: float) -> None:
    """Breaks when a pause that the time of day tells is no time, or when setting it back takes time away."""
    now = [500.0, 1e9]
    watch = Stopwatch(lambda: now[0], lambda: now[1])
    before_s = watch()
    seen = [before_s]
    for step in steps:
        now = [each + more for each, more in zip(now, step, strict=True)]
        seen.append(watch())
    assert seen[-1] - before_s == expected_s
    assert seen == sorted(seen)


def test_this_machines_clock_goes_on() -> None:
    assert awake_or_asleep_s() <= awake_or_asleep_s()


def test_a_moment_is_over_by_whichever_clock_says_so() -> None:
    began = When(100.0, 10**18)
    hour_ns = int(HOUR_S * 1e9)
    assert not began.is_over(HOUR_S, When(100.0 + HOUR_S, 10**18 + hour_ns))
    assert began.is_over(HOUR_S, When(101.0 + HOUR_S, 10**18))
    assert began.is_over(HOUR_S, When(100.0, 10**18 + hour_ns + 10**9))
    assert not began.is_over(HOUR_S, When(100.0, None))
    assert not When(100.0, None).is_over(HOUR_S, When(100.0, 2 * 10**18))


def test_of_two_moments_the_earlier_one_counts_by_each_clock() -> None:
    assert When(1.0, 20).or_earlier(When(2.0, 10)) == When(1.0, 10)
    assert When(1.0, None).or_earlier(When(2.0, 10)) == When(1.0, None)
