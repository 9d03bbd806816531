"""Trying again: the only place that does. Time is trio's clock, randomness is an argument.

Two ways, because repeating a write blindly loses data:

- `Retry.idempotent` for calls that may be repeated (GET, HEAD, block POSTs, container PUT);
- `Retry.looking` for conditional writes: when the reply was lost it looks what happened before it tries again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
import trio

from syncer.errors import ConflictOnRemoteError, RemoteUnavailableError, SyncerError
from syncer.remote.http.transport import ReplyLostError

T = TypeVar("T")


class GaveUpError(RemoteUnavailableError):
    """Patience ended. Not retryable: a call that is made of such calls must not multiply their patience."""

    retryable = False


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How patient a client is.

    Attributes:
        attempts: Tries in all, at least 1. 6 with the delays below ride out a server restart of about 8 s.
        first_delay_s: Before the second try; doubles from there.
        max_delay_s: No pause is longer.
        deadline_s: For one call, all its tries and pauses together.
    """

    attempts: int = 6
    first_delay_s: float = 0.25
    max_delay_s: float = 8.0
    deadline_s: float = 300.0


def delay_s(policy: RetryPolicy, failures: int, draw: float) -> float:
    """Pause after the n-th failure: exponential, the upper half of it random, so that clients don't march in step.

    Args:
        policy: The figures.
        failures: How many tries have failed, at least 1.
        draw: Random number in [0, 1).
    """
    full = min(policy.max_delay_s, policy.first_delay_s * 2.0 ** (failures - 1))
    return float(full * (0.5 + draw / 2))


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """A policy with its source of randomness.

    Attributes:
        policy: The figures.
        draw: Gives random numbers in [0, 1); `random.random` outside tests.
        host: Named when the deadline passes.
    """

    policy: RetryPolicy
    draw: Callable[[], float]
    host: str

    async def idempotent(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeat `call` until it answers, its error is not retryable, or patience ends.

        Raises:
            GaveUpError: Says the last failure, or that the deadline passed.
        """

        async def no_doubt() -> T | None:
            return None

        return await self.looking(call, no_doubt)

    async def looking(
        self, attempt: Callable[[], Awaitable[T]], look: Callable[[], Awaitable[T | None]], *, doubt: bool = False
    ) -> T:
        """Run a conditional write to a known end.

        Args:
            attempt: Sends the write once; nothing after it, whose failure would look like the write's.
            look: Called after a lost reply, with retries of its own. Returns the result if the write turns out to be
                done, None if it was not (then it is attempted again: its condition protects against a late first
                one), raises if somebody else's change is there.
            doubt: It may have been applied already, by an attempt before these.

        Raises:
            GaveUpError: Patience ended; whether the write happened is unknown.
            ConflictOnRemoteError: The condition failed, and not because of an earlier attempt of ours.
        """
        last: SyncerError | None = None
        with trio.move_on_after(self.policy.deadline_s):
            for failures in range(1, self.policy.attempts + 1):
                if doubt and (done := await look()) is not None:
                    return done
                try:
                    return await attempt()
                except ConflictOnRemoteError:
                    # The lost attempt may have arrived between our look and this one.
                    if doubt and (done := await look()) is not None:
                        return done
                    raise
                except SyncerError as error:
                    if not error.retryable:
                        raise
                    last = error
                    asked_s = error.retry_after_s if isinstance(error, RemoteUnavailableError) else 0.0
                    doubt = doubt or isinstance(error, ReplyLostError)
                if failures < self.policy.attempts:
                    await trio.sleep(max(asked_s, delay_s(self.policy, failures, self.draw())))
        if last is None:
            raise GaveUpError(f"{self.host}: no answer within {self.policy.deadline_s:g} s")
        raise GaveUpError(str(last)) from last
