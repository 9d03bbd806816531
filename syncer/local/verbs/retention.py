"""For how long what was deleted or displaced is kept, though this machine's clock may be wrong for a while.

An entry says by its name when it was made, and the clock says how old it is by now. Either may be wrong: a machine
without a battery begins in the past, another one jumps years ahead until NTP sets it right. So each cycle notes the
time, and what does not go on from there is not believed:

- *It went back.* Either time was wrong, and so may be what entries say: all are as old as that moment, no older.
- *It went ahead by more than a part of the time that is kept.* The machine was off, or the clock is wrong; as only that
  part passed, it counts. If it had gone back before, nothing counts: the wrong time has just ended.

So one wrong cycle takes a quarter of its time from an entry at worst, and whoever syncs once in a few months keeps
longer. A clock that is wrong all the time, and goes on steadily, does no harm.

Source: docs/reference/tools.md, `blocksync trash`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:  # `status` reads how long is kept, and starts without it
    from syncer.ports.state import State

KEEP_S: Final = 30 * 24 * 3600.0  # retention of settled entries of a trash, unless the root says otherwise

_SHARE: Final = 4  # so much of it may pass between two cycles and be believed
_LEAST_S: Final = 3600.0  # a smaller step, to either side, is none: NTP does such
_NOTED_S: Final = 600.0  # the time is noted so often: each cycle would be a write
_MOST_JUMPS: Final = 64


class Jump(msgspec.Struct, frozen=True):
    """The clock went ahead.

    Attributes:
        at_s: Where it arrived, since the epoch.
        lost_s: So much of the way is not counted.
    """

    at_s: float
    lost_s: float


class Clock(msgspec.Struct, frozen=True, kw_only=True):
    """What is noted of the times of cycles, seconds since the epoch. Kept as JSON.

    Attributes:
        since_s: Nothing is taken to be made earlier.
        last_s: Of the last cycle.
        jumps: Since then, ascending.
        went_back: It may be in the past now.
    """

    since_s: float
    last_s: float
    jumps: tuple[Jump, ...] = ()
    went_back: bool = False


def gone_on(clock: Clock | None, now_s: float, keep_s: float) -> Clock:
    """What is noted after another cycle. Pure.

    Args:
        clock: What was noted before; None: nothing yet.
        now_s: The time now.
        keep_s: For so long entries are kept.
    """
    if clock is None:
        return Clock(since_s=0.0, last_s=now_s)
    if now_s < clock.last_s - _LEAST_S:
        return Clock(since_s=now_s, last_s=now_s, went_back=True)
    most_s = max(_LEAST_S, keep_s / _SHARE)
    ahead_s = now_s - clock.last_s
    if ahead_s <= most_s:
        is_doubtful = clock.went_back and now_s - clock.since_s <= most_s
        return msgspec.structs.replace(clock, last_s=max(now_s, clock.last_s), went_back=is_doubtful)
    if clock.went_back:
        return Clock(since_s=now_s, last_s=now_s)
    jumps = (*clock.jumps, Jump(now_s, ahead_s - most_s))
    if len(jumps) > _MOST_JUMPS:  # two as one: it counts for what was made before the later one
        jumps = (Jump(jumps[1].at_s, jumps[0].lost_s + jumps[1].lost_s), *jumps[2:])
    return msgspec.structs.replace(clock, last_s=now_s, jumps=jumps)


def age_s(clock: Clock, made_s: float, now_s: float) -> float:
    """How old an entry is at least. Pure.

    Args:
        clock: As of now.
        made_s: When it was made, by its name.
        now_s: The time now.
    """
    counted_s = made_s if clock.since_s <= made_s <= now_s else clock.since_s
    return now_s - counted_s - sum(jump.lost_s for jump in clock.jumps if jump.at_s > counted_s)


class Retention:
    """For how long the entries of one root's trash are kept. Blocking."""

    def __init__(self, keep_s: float, state: State) -> None:
        """Keep for `keep_s` seconds; `state` has what is noted."""
        self._keep_s = keep_s
        self._state = state

    def is_over(self, now_s: float) -> Callable[[float], bool]:
        """Note that there is a cycle now; what tells by the time that an entry was made whether its time is over.

        In the first cycle that notes anything it is over for none.
        """
        raw = self._state.memory("trash-clock")
        known = None if raw is None else _read(raw)
        clock = gone_on(known, now_s, self._keep_s)
        if known is None or clock.jumps != known.jumps or abs(clock.last_s - known.last_s) > _NOTED_S:
            self._state.keep("trash-clock", msgspec.json.encode(clock))
        if known is None:
            return lambda _: False
        return lambda made_s: age_s(clock, made_s, now_s) > self._keep_s


def _read(raw: bytes) -> Clock | None:
    try:
        return msgspec.json.decode(raw, type=Clock)
    except msgspec.MsgspecError:
        return None  # a later program's
