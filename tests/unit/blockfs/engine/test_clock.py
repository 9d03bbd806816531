"""Times of change never run behind the kernel's."""

from __future__ import annotations

import time

from blockfs.engine.clock import Clock

SECOND_NS = 10**9


def test_the_clock_tells_the_present_and_is_never_ahead_of_it() -> None:
    clock = Clock()
    before_ns = time.time_ns()
    told_ns = clock.now_ns()
    assert before_ns - SECOND_NS < told_ns <= time.time_ns()


def test_the_present_is_not_before_what_the_kernel_has_just_stamped() -> None:
    clock = Clock()
    stamp_ns = clock.now_ns() + 9_000_000
    clock.seen(stamp_ns)
    assert clock.now_ns() >= stamp_ns
    clock.seen(stamp_ns - 1)  # an older file is written back later
    assert clock.now_ns() >= stamp_ns


def test_a_stamp_from_the_future_is_nothing_to_wait_for() -> None:
    clock = Clock()
    clock.seen(time.time_ns() + 3600 * SECOND_NS)
    assert clock.now_ns() <= time.time_ns()
