"""How many requests at once: as many as gain something, between 4 and 16. Pure.

A 2015 measurement of this pattern, and ours on loopback with 50 ms of delay, agree: most of the gain is there at 4, and
some links and servers go on gaining up to 16, others lose. So the number climbs while the measured rate grows with it,
and goes back one step when it does not.
"""

from __future__ import annotations

from typing import Final

STEPS: Final = (4, 8, 12, 16)
_WINDOW_S: Final = 1.0  # long enough that one slow reply does not decide
_WINDOW_REPLIES: Final = 8
_SHORT_WINDOW_S: Final = 0.15  # of small requests, so many that none of them decides
_SHORT_WINDOW_REPLIES: Final = 16
_GAIN: Final = 1.05  # a step up must bring this much, or it is taken back
_REST_S: Final = 20.0  # after a step back, for so long the number stays: links change, but not every second
_REPLY_COST_BYTES: Final = 16 << 10  # what a reply counts beside its bytes: small requests are work, too


class Concurrency:
    """Requests at once, adapted to what they bring.

    Attributes:
        now: How many.
    """

    def __init__(self, most: int = STEPS[-1], *, adaptive: bool = True) -> None:
        """Begin with the least.

        Args:
            most: Never more than this.
            adaptive: False: always the most.
        """
        self._steps = [step for step in STEPS if step <= most] if adaptive and most > STEPS[0] else [most]
        self._at = 0
        self.now = self._steps[0]
        self._began_s: float | None = None
        self._work = self._replies = 0
        self._before: float | None = None
        self._rest_until_s = 0.0

    def replied(self, size_bytes: int, now_s: float, *, saturated: bool) -> int:
        """Note a finished request.

        Args:
            size_bytes: Of its body and its reply's.
            now_s: The time.
            saturated: Others were waiting for a place: only then the number is what limits.

        Returns:
            How many requests there may be now.
        """
        if self._began_s is None or not saturated:  # what was measured until now was not the number's doing
            self._began_s, self._work, self._replies, self._before = now_s, 0, 0, None
            return self.now
        self._work += size_bytes + _REPLY_COST_BYTES
        self._replies += 1
        elapsed = now_s - self._began_s
        short = elapsed >= _SHORT_WINDOW_S and self._replies >= _SHORT_WINDOW_REPLIES
        if short or (elapsed >= _WINDOW_S and self._replies >= _WINDOW_REPLIES):
            self._judge(self._work / elapsed, now_s)
            self._began_s, self._work, self._replies = now_s, 0, 0
        return self.now

    def _judge(self, rate: float, now_s: float) -> None:
        if now_s < self._rest_until_s:
            return
        if self._before is not None and rate < self._before * _GAIN:
            self._at = max(0, self._at - 1)
            self._before, self._rest_until_s = None, now_s + _REST_S
        elif self._at + 1 < len(self._steps):
            self._at += 1
            self._before = rate
        else:
            self._before = None  # the last step has gained; a rate that falls later is not its fault
        self.now = self._steps[self._at]
