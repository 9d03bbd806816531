"""The server's handle on the board while there are devices that may have blocks: it leaves those to them.

The rules are in `syncer.blocks.policy`; here they meet the pools. Without another far source the server has a plain
handle, and gets all wants at once and in order.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Final

import trio

from syncer.blocks.entries import Entry
from syncer.blocks.handles import Handle, Table
from syncer.blocks.policy import ServerPolicy, Turn
from syncer.blocks.pools import Draw, Lottery, Pool
from syncer.ports.blocks import BlockSource

REMOTE: Final = "remote"
"""Name of the source that has this handle."""

_STALE: Final = 1024  # so many wants that are not young any more lie among those that are
_TURNS: Final = 4  # of the loop, from a frame in a socket to an offer on the board: two
_LOOK_S: Final = 0.005  # not more often: the server's own rate moves the time at which the devices' is too low


class ServerHandle(Handle):
    """Decides by itself what is spare, and what of the rest may be taken: `take` without `among` follows the policy."""

    def __init__(self, table: Table, source: BlockSource, index: int, policy: ServerPolicy, draw: Draw) -> None:
        self._policy = policy
        self._draw = draw
        self._ripe = Lottery[Entry]()  # of the spare ones those that have waited long enough
        self._young: deque[Entry] = deque()  # by age; some are not spare any more
        self._first: Entry | None = None  # was drawn for the first window
        self._place: int | None = None  # where it was, among the spare ones
        self._has_deadline = False
        self._now = 0.0
        self._turn = Turn.NONE
        self._spare_only = False
        self._heard_until = -math.inf  # answers that came until then were read
        self._has_enough = False  # for now: when one of its claims ends there may be another
        self._claimed_before = 0  # when the last `take` began
        self._longest = 1
        super().__init__(table, source, index)
        self.draws = True
        policy.server = self.meter

    def _make_pools(self) -> None:
        self.spare = self._spare = Lottery[Entry]()
        self.offered = self._offered = Lottery[Entry]()
        self.claimed = self._claimed = Lottery[Entry]()

    def added(self, entry: Entry, pool: Pool[Entry]) -> None:
        """A want was put into one of the pools."""
        pool.add(entry)
        if pool is self.spare:
            entry.is_ripe = False
            self._young.append(entry)
            self.has_news()
        else:
            self._longest = max(self._longest, entry.want.length)
            self._policy.devices.run(trio.current_time())
            if not self._has_deadline:
                self.wake()

    def removed(self, entry: Entry, pool: Pool[Entry]) -> None:
        """A want was taken out of one of the pools."""
        pool.discard(entry)
        if pool is self.spare:
            if entry.is_ripe:
                self._ripe.discard(entry)
                entry.is_ripe = False
        elif not self.offered and not self.claimed:
            self._policy.devices.stop(trio.current_time())

    def is_alone_with(self, entry: Entry) -> None:
        """All other sources lack a want: it waits for nobody."""
        if entry.pools[self.index] is self.spare and not entry.is_ripe:
            self._make_ripe(entry)
            self.has_news()

    def policy_changed(self) -> None:
        """The policy may allow another thing now."""
        self.wake()

    def gave(self, blocks: int, size_bytes: int) -> None:
        """So many blocks of it were delivered, of so many bytes together."""
        self.blocks += blocks
        self.bytes += size_bytes
        self.meter.count(size_bytes, trio.current_time())
        if self._policy.answered():
            self.has_news()

    def unclaimed(self, length: int) -> None:
        """One of its claims is over."""
        super().unclaimed(length)
        if self._has_enough:
            self.has_news()

    def _begin_to_take(self, allowed: Sequence[Pool[Entry]]) -> None:
        self._now = now = trio.current_time()
        self._spare_only = self.offered not in allowed
        self._has_enough = False
        self._claimed_before = self.claimed_bytes
        self._turn = self._policy.turn(now)
        if self._turn is Turn.SPARE:
            self._ripen()
        elif len(self._young) > 2 * len(self._spare) + _STALE:
            self._young = deque(filter(self._is_young, self._young))

    def _next(self, allowed: Sequence[Pool[Entry]]) -> Entry | None:  # noqa: ARG002 - `_begin_to_take` looked at them
        if self._turn is Turn.ALL:
            entry = self._spare.first()
        else:
            entry = self._first = self._spare.drawn(self._next_place)
            if entry is not None and self._policy.fits_first(entry.want.length, self._now):
                return entry
            self._first = None
            entry = self._ripe.drawn(self._draw) if self._turn is Turn.SPARE else None
        if entry is not None and self._turn is Turn.SPARE:
            return self._few(entry, self._policy.ahead_bytes(self._now))
        if entry is not None:
            return self._few(entry, self._policy.few_bytes()) if self._now < self._policy.early_until() else entry
        if self._spare_only:
            return None
        since = self._policy.offered_from(self._now, self._longest, self._left)
        if since is None or since > self._now:
            return None
        entry = self._offered.drawn(self._draw) or self._claimed.drawn(self._draw)
        return None if entry is None else self._few(entry, self._policy.few_bytes())

    @property
    def _left(self) -> int:
        """How many wants devices have offered, and not brought yet."""
        return len(self._offered) + len(self._claimed)

    def _next_place(self, count: int) -> int:
        """Where the first window goes on: it begins by chance, and what lies behind each other is read as one range."""
        self._place = self._draw(count) if self._place is None else self._place + 1
        return self._place % count

    def _few(self, entry: Entry, most: int) -> Entry | None:
        """A want that a device may yet bring faster: only if so little is claimed that it does no harm.

        Half of that at once: while one request travels, the server is busy with the other.
        """
        claimed = self.claimed_bytes + entry.want.length
        if not self.claimed_bytes or (claimed <= most and claimed - self._claimed_before <= most // 2):
            return entry
        self._has_enough = True
        return None

    def _claim(self, entry: Entry, room: int, *, first: bool) -> bool:
        claimed = super()._claim(entry, room, first=first)
        if claimed and entry is self._first:
            self._policy.asked_first(entry.want.length, self._now)
        self._first = None
        return claimed

    def _ripen(self) -> None:
        while self._young and self._policy.held_until(self._young[0].far_since) <= self._heard_until:
            entry = self._young.popleft()
            if self._is_young(entry):
                self._make_ripe(entry)

    def _is_young(self, entry: Entry) -> bool:
        return entry.pools[self.index] is self.spare and not entry.is_ripe

    def _make_ripe(self, entry: Entry) -> None:
        entry.is_ripe = True
        self._ripe.add(entry)

    def _deadline(self, now: float) -> float | None:
        """When the policy allows something that it does not allow now; None: not as things are."""
        if self.denied:
            return None  # when a claim ends there is room
        times: list[float] = []
        if self.spare:
            turn = self._policy.turn(now)
            if turn is Turn.NONE:
                times.append(self._policy.opens_at(now))
            elif self._has_enough and turn is Turn.SPARE:
                pass  # when a claim ends there may be another
            elif self._has_enough and now < self._policy.early_until():
                times.append(self._policy.early_until())
            elif turn is Turn.ALL or self._ripe or not self._young:
                times.append(now)
            else:
                times.append(self._policy.held_until(self._young[0].far_since))
        if not self._has_enough and not self._spare_only and (self.offered or self.claimed):
            since = self._policy.offered_from(now, self._longest, self._left)
            if since is not None:
                times.append(since if since <= now else max(since, now + _LOOK_S))
        return min(times, default=None)

    async def _wait(self) -> None:
        while True:
            now, news = trio.current_time(), self._news
            deadline = self._deadline(now)
            if deadline is not None and deadline <= now:
                # Whatever kept this process busy: answers that wait to be read are read first.
                for _ in range(_TURNS):
                    await trio.lowlevel.checkpoint()
                self._heard_until = now
                return
            self._has_deadline = deadline is not None
            event = self._next_event()
            is_held = bool(self.spare) and not self.claimed_bytes
            with trio.move_on_at(float("inf") if deadline is None else deadline):
                await event.wait()
            if is_held:
                self.held_s += trio.current_time() - now
            if self._news != news:
                return
