"""When the server is asked for a block that devices on the LAN may have. Pure.

Without devices nobody asks here. Source of the numbers: docs/design/board.md, section 3.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import Final

from syncer.blocks.meter import Meter

FIRST_SHARE: Final = 32  # the first window is at most this part of the bytes wanted …
FIRST_BYTES: Final = 4 << 20  # … and this
GRACE_S: Final = 0.004  # so long answers may take if nobody was heard yet: 2 ms until it is asked, 0.5 to answer
EARLY_S: Final = 0.5  # the first window is of what is wanted until then; answers may come late, by Wi-Fi or of a busy
# machine: for so long …
FEW_BYTES: Final = 2 << 20  # … the server has no more than this, or a first window, at a time; of offered wants always
AHEAD_S: Final = 0.25  # somebody is there: what the server brings in this time is on its way of what nobody offers …
AHEAD_SHARE: Final = 256  # … or this part of the bytes wanted: those who are there may want the same, and ask for it …
AHEAD_BYTES: Final = 1 << 20  # … but no more than this
HEARD_S: Final = 60.0  # so long a device counts as there
HOLD_S: Final = 0.02  # so long a new want waits for answers if somebody is there …
ANSWERS_S: Final = 0.5  # … and so long at most for those of who is connected and was asked: they come, if late
SLOW_SHARE: Final = 4  # offered wants are for the server if devices bring less than this part of its rate …
SMALL_WANT: Final = (
    32 << 10
)  # … but not a few small ones: for these a round trip counts, which is no rate; up to this …
SMALL_LEFT: Final = 1 << 20  # … and together this


class Turn(Enum):
    """Which of the wants that no device offers the server may be asked for."""

    FIRST = "first"  # some by chance, as many as the first window has room for
    ALL = "all"  # all, as they came: nobody is there
    SPARE = "spare"  # those that have waited for answers, by chance
    NONE = "none"  # none for now


class ServerPolicy:
    """Decides for one cycle. Times are seconds of one clock."""

    def __init__(self) -> None:
        self._wanted = 0
        self._first = 0
        self._asked: float | None = None  # when the first window began
        self._answered = False
        self._heard: float | None = None
        self._there_since = -math.inf
        self._seeking = False
        self._sought = -math.inf  # when that was over
        self._is_sure = False
        self._alone = False
        self._answering = False
        self.server = Meter()
        self.devices = Meter()

    def wanted(self, length: int) -> None:
        """A want was put where the server and the devices see it."""
        self._wanted += length

    def heard(self, at: float) -> None:
        """A device was heard."""
        if self._heard is None or at >= self._heard + HEARD_S:
            self._there_since = at
        self._heard = at if self._heard is None else max(self._heard, at)
        self._seeking = self._is_sure = False

    def seek(self, now: float, *, over: bool, sure: bool = False) -> None:
        """It is being found out whether a device is there; or that is over. `sure`: nobody is."""
        self._seeking = not over
        self._sought = -math.inf if sure else now
        self._is_sure = sure

    def answering(self, *, over: bool) -> None:
        """Devices that are connected were asked, and owe answers; or that is over."""
        self._answering = not over

    def alone(self) -> None:
        """The source of the devices has ended: nobody will be heard any more."""
        self._seeking, self._answering, self._alone = False, False, True

    def asked_first(self, length: int, now: float) -> None:
        """The server is asked for a want of the first window."""
        self._first += length
        if self._asked is None:
            self._asked = now

    def answered(self) -> bool:
        """The server gave something.

        Returns:
            That it was the first time.
        """
        is_first = not self._answered
        self._answered = True
        return is_first

    def fits_first(self, length: int, now: float) -> bool:
        """Whether the first window has room for a want of this length: what is wanted later is not of it."""
        if self._asked is not None and now >= self._asked + EARLY_S:
            return False
        return not self._first or self._first + length <= min(self._wanted // FIRST_SHARE, FIRST_BYTES)

    def is_anyone(self, now: float) -> bool:
        """Whether a device was heard lately."""
        return self._heard is not None and now < self._heard + HEARD_S

    def held_until(self, since: float) -> float:
        """Until when a want waits for answers while somebody is there.

        Args:
            since: When the devices saw it. Who was heard only later has as long to answer.
        """
        return max(since, self._there_since) + (ANSWERS_S if self._answering else HOLD_S)

    def turn(self, now: float) -> Turn:
        """What is beyond the first window's room, which always is the server's."""
        if self.is_anyone(now):
            return Turn.SPARE
        return Turn.NONE if now < self.opens_at(now) else Turn.ALL

    def opens_at(self, now: float) -> float:
        """When wants beyond the first window are for the server, if nobody is heard until then."""
        if self._alone or self._is_sure:
            return now
        if self._seeking:
            return math.inf
        if self._asked is None:
            return now + GRACE_S
        return now if self._answered else self._asked + GRACE_S

    def early_until(self) -> float:
        """Until when the server has only a few of what nobody offers at a time: somebody may yet."""
        if self._alone or self._is_sure or self._asked is None:
            return -math.inf
        return max(self._asked, self._sought, self._there_since) + EARLY_S

    def ahead_bytes(self, now: float) -> int:
        """How much of what nobody offers may be on its way from the server while somebody is there, at least one want.

        Less, and nothing comes while a request travels; more, and devices that want the same fetch the same: what one
        of them is getting, the others do not know.
        """
        return max(min(AHEAD_BYTES, self._wanted // AHEAD_SHARE), int(AHEAD_S * (self.server.rate(now) or 0.0)))

    def few_bytes(self) -> int:
        """How many bytes these few are, at least one want."""
        return max(FEW_BYTES, min(self._wanted // FIRST_SHARE, FIRST_BYTES))

    def offered_from(self, now: float, coming: int, left: int) -> float | None:
        """From when on the server may be asked for what devices offer, if nothing comes from them until then.

        Args:
            now: The time.
            coming: Bytes of the longest want: so much may be on its way.
            left: How many wants devices have offered, and not brought yet.

        Returns:
            A time, which may be past; None: not as things are.
        """
        rate = self.server.rate(now)
        if rate is None or (coming <= SMALL_WANT and left * coming <= SMALL_LEFT):
            return self.devices.stalls_at()
        return self.devices.slower_than(rate / SLOW_SHARE, coming)
