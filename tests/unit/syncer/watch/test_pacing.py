"""When cycles are due: the pure core of the daemon."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncer.watch.pacing import MAX_QUIET_S, MIN_QUIET_S, CycleResult, Pacer, backoff_s

TIMES = st.floats(0, 100)
BLOCKING = [CycleResult.ROOT_AWAY, CycleResult.SERVER_AWAY, CycleResult.BUSY, CycleResult.BROKEN]


def cycle(
    pacer: Pacer, result: CycleResult = CycleResult.DONE, *, at_s: float = 0.0, seconds: float = 0.0, draw: float = 1.0
) -> bool:
    everything = pacer.began(at_s)
    pacer.ended(result, at_s + seconds, seconds, draw, was_everything=everything)
    return everything


def test_nothing_is_due_before_something_happens() -> None:
    assert math.isinf(Pacer().due_s)


@given(st.lists(TIMES, min_size=1))
def test_a_cycle_waits_for_quiet_but_not_for_ever(signs: list[float]) -> None:
    pacer = Pacer()
    signs.sort()
    for sign in signs:
        pacer.noticed(sign)
    assert pacer.due_s == min(signs[-1] + MIN_QUIET_S, max(signs[0] + MAX_QUIET_S, signs[0]))


@given(st.floats(0, 1000))
def test_the_quiet_time_follows_what_cycles_cost(seconds: float) -> None:
    pacer = Pacer()
    cycle(pacer, seconds=seconds)
    assert MIN_QUIET_S <= pacer.quiet_s <= MAX_QUIET_S


def test_a_change_during_a_cycle_is_due_after_it() -> None:
    pacer = Pacer()
    pacer.noticed(0.0)
    pacer.began(1.0)
    pacer.noticed(2.0)
    assert math.isinf(pacer.due_s)
    pacer.ended(CycleResult.DONE, 2.1, 0.1, 0.5, was_everything=False)
    assert pacer.due_s == 2.0 + MIN_QUIET_S


def test_everything_is_looked_at_when_it_is_time() -> None:
    pacer = Pacer()
    pacer.rescan_at(0.0)
    assert cycle(pacer)
    assert pacer.due_s == pacer.rescan_s
    pacer.noticed(10.0)
    assert not cycle(pacer, at_s=11.0)
    assert cycle(pacer, at_s=pacer.due_s)


def test_an_overflow_during_a_rescan_asks_for_another() -> None:
    pacer = Pacer()
    pacer.rescan_at(0.0)
    pacer.began(0.0)
    pacer.rescan_at(1.0)
    pacer.ended(CycleResult.DONE, 5.0, 5.0, 0.5, was_everything=True)
    assert pacer.due_s == 1.0


@pytest.mark.parametrize("result", BLOCKING)
def test_changes_wait_while_nothing_would_succeed(result: CycleResult) -> None:
    pacer = Pacer()
    pacer.noticed(0.0)
    for failures in range(1, 30):
        at_s = pacer.due_s
        cycle(pacer, result, at_s=at_s)
        pacer.noticed(at_s)
        assert pacer.due_s == at_s + backoff_s(result, failures, 1.0)
    pacer.expedite(at_s)
    assert pacer.due_s == at_s


@pytest.mark.parametrize("result", BLOCKING)
def test_a_rescan_that_failed_is_still_to_be_done(result: CycleResult) -> None:
    pacer = Pacer()
    pacer.rescan_at(0.0)
    cycle(pacer, result)
    assert cycle(pacer, at_s=pacer.due_s)


def test_what_could_not_be_synced_is_looked_for_again_and_holds_nothing_up() -> None:
    pacer = Pacer()
    pacer.noticed(0.0)
    cycle(pacer, CycleResult.PARTLY, at_s=1.0)
    pacer.noticed(1.0)
    assert pacer.due_s == min(1.0 + MIN_QUIET_S, 1.0 + backoff_s(CycleResult.PARTLY, 1, 1.0))
    assert not cycle(pacer, at_s=pacer.due_s)


def test_a_safety_stop_waits_for_a_person_or_another_change() -> None:
    pacer = Pacer()
    pacer.noticed(0.0)
    cycle(pacer, CycleResult.CONSENT, at_s=1.0)
    assert pacer.due_s == 1.0 + pacer.rescan_s
    pacer.noticed(2.0)
    assert pacer.due_s == 2.0 + MIN_QUIET_S


@given(st.sampled_from(CycleResult), st.integers(1, 10_000), st.floats(0, 1))
def test_pauses_grow_are_bounded_and_random(result: CycleResult, failures: int, draw: float) -> None:
    pause_s = backoff_s(result, failures, draw)
    assert 0.5 <= pause_s <= 900
    assert pause_s <= backoff_s(result, failures + 1, draw)
    assert backoff_s(result, failures, 0.0) < backoff_s(result, failures, 1.0)
