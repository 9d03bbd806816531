"""Bandwidth limits: a token bucket (pure), and tasks that wait for it (trio's clock).

Who is to send bytes, or has received some, takes as many tokens; if there are not enough, the bucket goes into debt and
the task waits until it is paid. So the rate holds on average whatever the sizes are, and no request is cut up for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import trio

_BURST_S: Final = 1.0  # what was not used in the last second may be used at once


@dataclass(slots=True)
class TokenBucket:
    """One bucket. Time is an argument.

    Attributes:
        rate: Tokens per second.
        level: Tokens in it; negative: debt.
        at_s: When that was so.
    """

    rate: float
    level: float
    at_s: float

    @classmethod
    def full(cls, rate: float, now_s: float) -> TokenBucket:
        """A bucket that nobody has taken from for a while."""
        assert rate > 0
        return cls(rate=rate, level=rate * _BURST_S, at_s=now_s)

    def take(self, tokens: float, now_s: float) -> float:
        """Take tokens, whether there are enough or not.

        Returns:
            For how many seconds to wait until they have come in.
        """
        self.level = min(self.rate * _BURST_S, self.level + (now_s - self.at_s) * self.rate) - tokens
        self.at_s = now_s
        return max(0.0, -self.level / self.rate)


class RateLimit:
    """A limit that several transfers share. Belongs to one event loop."""

    def __init__(self, rate: int) -> None:
        """Bytes per second, at least 1."""
        self.rate = rate
        self._bucket: TokenBucket | None = None

    async def spend(self, count: int) -> None:
        """Account for bytes, and wait until they are within the limit."""
        now_s = trio.current_time()
        if self._bucket is None:
            self._bucket = TokenBucket.full(self.rate, now_s)
        await trio.sleep(self._bucket.take(count, now_s))
