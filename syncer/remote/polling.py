"""Changes of servers that number their versions: told by the server, or found by asking it now and then."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import trio
from msgspec.structs import replace

from syncer.core.model import Position, RemoteTag
from syncer.core.partial.affected import UnboundedError
from syncer.core.partial.listing_diff import Known
from syncer.ports.remote import Changes
from syncer.remote.serials import Cursor, cursor_of

MIN_POLL_S: Final = 2.0
MAX_POLL_S: Final = 60.0
_SLOWER: Final = 1.5

_SETTLE_S: Final = 1.0
_SETTLE_TRIES: Final = 10
"""A container that never rests is looked at all the same, and again when it does."""


async def poll(look: Callable[[], Awaitable[Cursor]], seen: Position | None, most_s: float = MAX_POLL_S) -> Position:
    """See `Remote.wait`.

    Args:
        look: Looks at the container once.
        seen: See there.
        most_s: No pause is longer.
    """
    known = None if seen is None else cursor_of(seen)
    pause_s = min(MIN_POLL_S, most_s)
    if known is not None:
        await trio.sleep(pause_s)
    # One that is not distinct was left while it still might change within its second: everything counts as a change.
    while (found := await look()) == known and found.is_distinct:
        pause_s = min(pause_s * _SLOWER, most_s)
        await trio.sleep(pause_s)
    for _ in range(_SETTLE_TRIES):
        if found.is_distinct:
            break
        # Another change within the same second would look like this one: whoever lists now must list again.
        await trio.sleep(_SETTLE_S)
        found = await look()
    return found.position


class ServerChanges(ABC):
    """`Remote.changes` and `wait`. A server whose moments have an identity tells changes; others are listed.

    Attributes:
        poll_s: Longest pause between two looks at those others.
    """

    poll_s: float = MAX_POLL_S

    @abstractmethod
    async def _told(
        self, since: Cursor, *, moves: bool = False, own: Sequence[RemoteTag] = (), waits: bool = False
    ) -> Changes | None:
        """What the server says has changed; `waits`: for the first change, or until it has waited long enough."""

    @abstractmethod
    async def _compared(self, known: Known, since: Cursor) -> Changes:
        """What differs from what is known."""

    @abstractmethod
    async def _now(self) -> Cursor:
        """One look at the container."""

    async def changes(
        self,
        since: Position,
        known: Known | None = None,
        *,
        moves: bool = False,
        brief: bool = False,
        own: Sequence[RemoteTag] = (),
    ) -> Changes | None:
        """See Remote."""
        at = cursor_of(since)
        if at.identity:
            return await self._told(at, moves=moves, own=own)
        if known is None or own:
            return None
        try:
            # Its evidence has full seconds, and clocks that are not quite the same: now and then the listing counts.
            return await self._compared(known, at if brief else replace(at, evidence=()))
        except UnboundedError:
            return None

    async def wait(self, seen: Position | None) -> Position:
        """See Remote."""
        at = None if seen is None else cursor_of(seen)
        if at is None or not at.identity:
            return await poll(self._now, seen, self.poll_s)
        while (found := await self._told(at, waits=True)) is not None:
            if found.objects or found.deleted or found.refused:
                return found.position
            at = cursor_of(found.position)
        return (await self._now()).position  # of another life of it: what a cycle makes of that is its business
