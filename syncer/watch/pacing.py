"""When the next cycle of one root is due. Pure: told what happened and when, asked when to act; it has no clock.

A change is not acted on at once, because mostly more of it follows: a cycle waits until there was quiet for a while.
The quiet time follows what cycles cost here, between 0.3 s and 2 s; 2 s after its first sign a change is acted on
though there was no quiet. A cycle that failed is tried again later and later.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import Final

MIN_QUIET_S: Final = 0.3
MAX_QUIET_S: Final = 2.0
_QUIET_SHARE: Final = 0.25
"""Quiet time as a share of what the last cycle took: many small steps of a dear cycle are not worth a cycle each."""

RESCAN_S: Final = 3600.0
"""Watching may lose an event without a sign; looking at everything finds it."""

BLIND_RESCAN_S: Final = 60.0
"""The same for a root that can't be watched, or not all of it."""

_BACKOFF_S: Final = 1.0
_MAX_BACKOFF_S: Final = 300.0
_MAX_PARTLY_S: Final = 900.0
"""What one node lacks mostly takes a person; the others are synced meanwhile."""

_MAX_AWAY_S: Final = 30.0
"""A root that is not mounted is looked for this often: a look costs one open(2)."""


class CycleResult(Enum):
    """How a cycle ended, as far as the next one is concerned."""

    DONE = "done"
    PARTLY = "partly"
    """Some nodes could not be synced: they are tried again, the others don't wait."""
    CONSENT = "consent"
    """The safety stop: only a person, or another change, can do something about it."""
    ROOT_AWAY = "away"
    SERVER_AWAY = "server"
    BUSY = "busy"
    """Another process works on this root."""
    BROKEN = "broken"
    """Anything else that broke the cycle off."""


THROUGH: Final = frozenset({CycleResult.DONE, CycleResult.PARTLY})
"""What could be synced was."""

_BLOCKING: Final = frozenset({CycleResult.ROOT_AWAY, CycleResult.SERVER_AWAY, CycleResult.BUSY, CycleResult.BROKEN})
"""After these the next cycle would fail for the same reason: changes wait for it, too."""


_LIMITS_S: Final = {
    CycleResult.ROOT_AWAY: _MAX_AWAY_S,
    CycleResult.BUSY: _MAX_AWAY_S,
    CycleResult.PARTLY: _MAX_PARTLY_S,
}


@dataclass(slots=True)
class Pacer:
    """Mutable, single-threaded; the root's task owns it. All times are of one monotonic clock, in seconds.

    Attributes:
        quiet_s: How long there must be quiet.
        failures: Cycles in a row that did not end well.
        rescan_s: How often everything is looked at.
    """

    quiet_s: float = MIN_QUIET_S
    failures: int = 0
    rescan_s: float = RESCAN_S
    _first_sign_s: float = math.inf
    _last_sign_s: float = -math.inf
    _rescan_at_s: float = math.inf
    _retry_at_s: float = math.inf
    _blocked_until_s: float = -math.inf
    _is_running: bool = False

    def noticed(self, now_s: float) -> None:
        """Something may have changed, on either side. Also while a cycle runs, which may not have seen it."""
        self._first_sign_s = min(self._first_sign_s, now_s)
        self._last_sign_s = now_s

    def rescan_at(self, when_s: float) -> None:
        """Look at everything then, or earlier."""
        self._rescan_at_s = min(self._rescan_at_s, when_s)

    def expedite(self, now_s: float) -> None:
        """Don't wait any longer: the server is back, a person asks, the root is resumed."""
        self._blocked_until_s = -math.inf
        self._first_sign_s = min(self._first_sign_s, now_s)
        self._last_sign_s = -math.inf

    @property
    def due_s(self) -> float:
        """When a cycle is to begin; `inf`: not before something happens."""
        if self._is_running:
            return math.inf
        after_quiet_s = min(self._last_sign_s + self.quiet_s, self._first_sign_s + MAX_QUIET_S)
        signs_s = max(self._first_sign_s, after_quiet_s)  # inf without a sign
        return max(self._blocked_until_s, min(signs_s, self._rescan_at_s, self._retry_at_s))

    def began(self, now_s: float) -> bool:
        """A cycle begins. Returns whether it is to look at everything."""
        everything = now_s >= self._rescan_at_s
        self._is_running = True
        self._first_sign_s, self._last_sign_s = math.inf, -math.inf
        self._retry_at_s = math.inf
        if everything:
            self._rescan_at_s = math.inf
        return everything

    def ended(self, result: CycleResult, now_s: float, seconds: float, draw: float, *, was_everything: bool) -> None:
        """It ended.

        Args:
            result: How.
            now_s: When.
            seconds: What it took.
            draw: Random, 0 to 1: many devices must not come back to a server in step.
            was_everything: It was to look at everything.
        """
        self._is_running = False
        self.quiet_s = min(max(_QUIET_SHARE * seconds, MIN_QUIET_S), MAX_QUIET_S)
        if result is CycleResult.DONE or result is CycleResult.CONSENT:
            self.failures = 0
            self._blocked_until_s = -math.inf
        else:
            self.failures += 1
            self._retry_at_s = now_s + backoff_s(result, self.failures, draw)
            if result in _BLOCKING:
                self._blocked_until_s = self._retry_at_s
        if result is CycleResult.PARTLY or (was_everything and result in _BLOCKING):
            self.rescan_at(self._retry_at_s)  # whatever was in the way, only a look at everything finds it gone
        elif math.isinf(self._rescan_at_s):  # else somebody asked for one while this cycle ran
            self._rescan_at_s = now_s + self.rescan_s


def backoff_s(result: CycleResult, failures: int, draw: float) -> float:
    """Pause after the n-th failure in a row: doubling, half of it random."""
    return min(_BACKOFF_S * 2.0 ** min(failures - 1, 16), _LIMITS_S.get(result, _MAX_BACKOFF_S)) * (0.5 + 0.5 * draw)
