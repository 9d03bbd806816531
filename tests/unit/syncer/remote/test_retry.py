from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from syncer.core.model import RelPath
from syncer.errors import AuthError, ConflictOnRemoteError, RemoteUnavailableError, SyncerError
from syncer.remote.http.retry import GaveUpError, Retry, RetryPolicy, delay_s
from syncer.remote.http.transport import BadReplyError, ReplyLostError

T = TypeVar("T")

POLICY = RetryPolicy(attempts=5, first_delay_s=1.0, max_delay_s=6.0, deadline_s=100.0)
CONFLICT = ConflictOnRemoteError(RelPath(b"f"), "version 1", "version 2")
LOST = ReplyLostError("h: lost")
REFUSED = RemoteUnavailableError("h: refused")


def retry(policy: RetryPolicy = POLICY) -> Retry:
    return Retry(policy=policy, draw=lambda: 0.0, host="http://h:1")


class Script:
    """Plays one step per call: raises an error or returns a value; remembers when it was called."""

    def __init__(self, *steps: SyncerError | str | None) -> None:
        self.steps = list(steps)
        self.times: list[float] = []

    async def __call__(self) -> str | None:
        self.times.append(trio.current_time())
        await trio.lowlevel.checkpoint()
        step = self.steps.pop(0)
        if isinstance(step, SyncerError):
            raise step
        return step


async def never_look() -> None:
    raise AssertionError("looked without a doubt")


def under_mock_clock(main: Callable[[], Awaitable[T]]) -> T:
    return trio.run(main, clock=MockClock(autojump_threshold=0))


@given(st.integers(1, 60), st.floats(0, 1, exclude_max=True))
def test_a_pause_is_between_half_and_the_whole_of_its_step(failures: int, draw: float) -> None:
    step = min(POLICY.max_delay_s, POLICY.first_delay_s * 2 ** (failures - 1))
    assert step / 2 <= delay_s(POLICY, failures, draw) <= step


def test_pauses_double_up_to_the_limit() -> None:
    call = Script(REFUSED, REFUSED, LOST, REFUSED, "done")
    assert under_mock_clock(lambda: retry().idempotent(call)) == "done"
    assert [later - earlier for earlier, later in zip(call.times, call.times[1:], strict=False)] == [0.5, 1, 2, 3]


def test_patience_ends_with_the_last_reason_and_is_not_retryable_again() -> None:
    call = Script(*[RemoteUnavailableError(f"h: refused {number}") for number in range(5)])
    with pytest.raises(GaveUpError, match="h: refused 4") as caught:
        under_mock_clock(lambda: retry().idempotent(call))
    assert (caught.value.retryable, caught.value.exit_code) == (False, 13)
    assert call.steps == []


def test_an_error_that_time_does_not_heal_is_raised_at_once() -> None:
    for error in (AuthError("no"), BadReplyError("html"), CONFLICT):
        call = Script(error, "never")
        with pytest.raises(type(error)):
            under_mock_clock(functools.partial(retry().idempotent, call))
        assert call.steps == ["never"]


def test_patience_of_nested_calls_does_not_multiply() -> None:
    inner = Script(*[REFUSED] * 100)

    async def outer() -> str | None:
        return await retry().idempotent(inner)

    with pytest.raises(GaveUpError):
        under_mock_clock(lambda: retry().idempotent(outer))
    assert len(inner.times) == POLICY.attempts


def test_the_deadline_ends_a_call_that_hangs() -> None:
    async def main() -> float:
        with pytest.raises(GaveUpError, match="no answer within 100 s"):
            await retry().idempotent(trio.sleep_forever)
        return trio.current_time()

    async def timed() -> float:
        start = trio.current_time()
        return await main() - start

    assert under_mock_clock(timed) == 100


def test_the_deadline_counts_pauses_too_and_names_the_last_failure() -> None:
    slow = RetryPolicy(attempts=1000, first_delay_s=10, max_delay_s=10, deadline_s=42)
    call = Script(*[REFUSED] * 1000)
    with pytest.raises(GaveUpError, match="refused"):
        under_mock_clock(lambda: retry(slow).idempotent(call))
    assert len(call.times) == 9  # every 5 s


def test_a_cancellation_from_outside_is_not_swallowed() -> None:
    async def main() -> bool:
        with trio.move_on_after(1) as scope:
            await retry().idempotent(trio.sleep_forever)
        return scope.cancelled_caught

    assert under_mock_clock(main)


def test_a_request_that_was_not_sent_is_repeated_without_looking() -> None:
    assert under_mock_clock(lambda: retry().looking(Script(REFUSED, "done"), never_look)) == "done"


def test_after_a_lost_reply_a_finished_write_is_adopted() -> None:
    attempt, look = Script(LOST), Script("adopted")
    assert under_mock_clock(lambda: retry().looking(attempt, look)) == "adopted"


def test_after_a_lost_request_the_write_is_attempted_again() -> None:
    attempt, look = Script(LOST, "done"), Script(None)
    assert under_mock_clock(lambda: retry().looking(attempt, look)) == "done"


def test_doubt_lasts_until_the_end() -> None:
    """A refused second attempt does not say what became of the first."""
    attempt, look = Script(LOST, REFUSED), Script(None, "adopted")
    assert under_mock_clock(lambda: retry().looking(attempt, look)) == "adopted"


def test_a_late_first_attempt_that_defeats_the_second_is_adopted() -> None:
    attempt, look = Script(LOST, CONFLICT), Script(None, "adopted")
    assert under_mock_clock(lambda: retry().looking(attempt, look)) == "adopted"


def test_somebody_elses_change_after_a_lost_request_is_a_conflict() -> None:
    attempt, look = Script(LOST, CONFLICT), Script(None, None)
    with pytest.raises(ConflictOnRemoteError):
        under_mock_clock(lambda: retry().looking(attempt, look))


def test_a_conflict_without_a_doubt_is_raised_without_looking() -> None:
    with pytest.raises(ConflictOnRemoteError):
        under_mock_clock(lambda: retry().looking(Script(CONFLICT), never_look))


def test_a_server_that_asks_for_a_pause_gets_it() -> None:
    busy = ReplyLostError("h: 429")
    busy.retry_after_s = 30.0
    script = Script(busy, REFUSED, "done")
    assert under_mock_clock(lambda: retry().idempotent(script)) == "done"
    first, second, third = script.times
    assert second - first == 30.0
    assert third - second < 30.0
