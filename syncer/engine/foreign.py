"""What our own writes replaced unseen is not lost, on servers without atomic conditions: `planner.overwrites` says why.

A write is booked before it is sent. The booking goes when it is known that nobody slipped in, or when what slipped in
has a name of its own. What a cycle leaves in the book, because it was ended, the next one looks for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Final

import trio
from msgspec.structs import replace

from syncer.core.model import Kind, RelPath, RemoteTag
from syncer.core.paths import split
from syncer.core.planner.overwrites import ForeignVersion, Overwrite, change_of, copy_path, rename_of
from syncer.errors import PreconditionFailedError
from syncer.ports.orders import Move, Store, Writes, write_one
from syncer.ports.state import State

_NAMES: Final = 16  # tries; a second one is rare: a name holds the time of the version and six digits of its hash


def _nothing() -> None:
    """Nothing was seen."""


class Unseen:
    """The bookings of one cycle.

    Attributes:
        left: What earlier cycles left in the book.
        found: What writes replaced unseen, with the booking of each.
    """

    def __init__(
        self, state: State, step: Callable[[str], None], newest: Callable[[], RemoteTag | None] = _nothing
    ) -> None:
        """Take the book of a cycle.

        Args:
            state: Where bookings are kept.
            step: Fault points.
            newest: Tells the latest version that the cycle saw: what a free name had before is no later one. Asked only
                where writes are booked.
        """
        self._state = state
        self._step = step
        self._newest = cache(newest)
        self.left = list(state.overwrites())
        self.found: list[tuple[Overwrite, ForeignVersion]] = []
        self._last = max((write.number for write in self.left), default=0)
        self._waiting: list[Overwrite] = []
        self._settled: list[int] = []
        self._writing = trio.Lock()

    def store(self, order: Store) -> Overwrite:
        """What an order is about to make of an object."""
        return change_of(order.path, order.kind, order.size_bytes, order.hash_hex, order.replaces, self._newest())

    def rename(self, kind: Kind, order: Move) -> Overwrite:
        """A rename onto a free name."""
        return rename_of(order.target, kind, order.expect, self._newest())

    async def about_to(self, writes: Sequence[Overwrite]) -> list[Overwrite]:
        """Book writes that are sent next; durable when it returns. Several callers share a transaction."""
        booked: list[Overwrite] = []
        for write in writes:
            self._last += 1
            booked.append(replace(write, number=self._last))
        self._waiting += booked
        async with self._writing:
            if booked[-1] in self._waiting:  # nobody wrote them while we waited for our turn
                await self._write()
        self._step("booked")
        return booked

    def settle(self, write: Overwrite) -> None:
        """Nothing was lost by it, or nothing was sent. Kept in mind only: a look too many costs a request."""
        self._settled.append(write.number)

    def done(self, write: Overwrite, foreign: Sequence[ForeignVersion]) -> None:
        """It was sent, and it was looked up what it replaced."""
        if foreign:
            self.found += [(write, version) for version in foreign]
        else:
            self.settle(write)

    async def flush(self) -> None:
        """Make durable what is settled."""
        async with self._writing:
            if self._settled or self._waiting:
                await self._write()

    async def _write(self) -> None:
        new, settled = list(self._waiting), list(self._settled)
        await trio.to_thread.run_sync(self._state.book_overwrites, new, settled)
        # Only now: should that fail, nobody who waits for his booking may take it for done.
        del self._waiting[: len(new)]
        del self._settled[: len(settled)]


async def keep_beside(remote: Writes, version: ForeignVersion) -> RelPath:
    """Give a version a conflict name beside its object. It is copied on the server: nothing is transferred.

    Returns:
        Where it is now. Whoever repeats this, on any device, finds it there. The next cycle pulls it like any new file.

    Raises:
        ConflictOnRemoteError: It is no longer readable.
    """
    taken: list[bytes] = []
    while True:
        target = copy_path(version, taken)
        order = Store(path=target, kind=version.kind, meta=version.meta, source=version)
        try:
            await write_one(remote, order)
        except PreconditionFailedError:
            taken.append(split(target)[1])
            if len(taken) == _NAMES:
                raise
        else:
            return target
