"""Write base rows in groups: directories durable first, then what the remote was told, then one StateDB transaction.

A group is at most 1,024 changes or 200 ms: two fsyncs per file would make small files slow. A crash repeats a group.
What a remote holds back is a group for ten minutes: so much of a first push of hours is what a crash repeats at most.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

import trio
from msgspec.structs import replace

from syncer.core.model import BaseRow, Kind, RemoteTag
from syncer.core.planner.outcome import BaseChange, Booking
from syncer.ports.local import LocalRoot
from syncer.ports.localvalues import settled
from syncer.ports.state import State

GROUP_CHANGES: Final = 1024
GROUP_S: Final = 0.2
_BOOKED_TOGETHER: Final = 1024  # orders of a record: some 150 KB
COMMIT_S: Final = 600.0
COMMIT_CHANGES: Final = 100_000  # rows that wait in memory, 1 KB each


class Recorder:
    """Collects base changes and writes them. One per cycle.

    Attributes:
        waits: Groups are large: of what the remote holds back no row may speak, and a commit for each of few changes
            would be too many.
        versions: On the server, of the rows that were written.
    """

    def __init__(
        self,
        state: State,
        local: LocalRoot,
        commit: Callable[[], Awaitable[None]],
        clock_ns: int,
        step: Callable[[str], None],
    ) -> None:
        """Take the remote's `commit`, and the cycle's clock: files changed after it get no trusted evidence."""
        self._state = state
        self._local = local
        self._commit = commit
        self._clock_ns = clock_ns
        self._step = step
        self.versions: list[RemoteTag] = []
        self.waits = False
        self._waiting: list[BaseChange] = []
        self._untold: dict[int, int] = {}
        self._told: list[int] = []
        self._held_back: list[Callable[[], None]] = []
        self._lost = False  # a group could not be written
        self._last = 0
        self._since = 0.0
        self._writing = trio.Lock()

    async def add(self, changes: Iterable[BaseChange], count: Callable[[], None] | None = None) -> None:
        """Take changes; write if the group is full or old.

        Args:
            changes: What became so.
            count: Called when it is so for good: at once, or when what the remote holds back is committed and written.
        """
        if count is not None:
            if self.waits:
                self._held_back.append(count)
            else:
                count()
        if not self._waiting:
            self._since = trio.current_time()
        self._waiting += [self._trusted(change) for change in changes]
        if self._is_due():
            async with self._writing:
                if self._is_due():  # not if somebody wrote it while we waited for our turn
                    await self._write()

    async def book(self, orders: Sequence[Booking]) -> list[int]:
        """Keep what orders are to make, durably, before they are sent; returns the number of each one's list."""
        numbers = [self._last + 1 + at // _BOOKED_TOGETHER for at in range(len(orders))]
        booked: dict[int, list[Booking]] = {}
        for number, each in zip(numbers, orders, strict=True):
            booked.setdefault(number, []).append(self._trusted_booking(each))
        self._last = numbers[-1]
        self._untold.update({number: len(each) for number, each in booked.items()})
        await self._local.barrier()  # as before rows: rule C
        await trio.to_thread.run_sync(self._state.book_orders, booked)
        self._step("ordered")
        return numbers

    def settle(self, number: int) -> None:
        """An order's outcome is known, and what it changed was added before: with the last one the list goes."""
        self._untold[number] -= 1
        if not self._untold[number]:
            del self._untold[number]
            self._told.append(number)

    @property
    def has_rows(self) -> bool:
        """Some wait to be written."""
        return bool(self._waiting)

    async def flush(self) -> None:
        """Write what waits, durably."""
        async with self._writing:
            await self._write()

    def _is_due(self) -> bool:
        """The group is full or old."""
        if not self._waiting:
            return False
        most, longest_s = (COMMIT_CHANGES, COMMIT_S) if self.waits else (GROUP_CHANGES, GROUP_S)
        return len(self._waiting) >= most or trio.current_time() - self._since >= longest_s

    async def _write(self) -> None:
        group, self._waiting = self._waiting, []
        told, self._told = self._told, []
        held_back, self._held_back = self._held_back, []
        if self._lost:
            told = []  # rows are missing that tell the outcome of orders: the next cycle looks for it
        # Rule C: file data (fsynced when staged) → rename (done) → directories → StateDB. A row must never speak of
        # something that a power cut could undo: it would then look like a user's change.
        # The same holds for what a remote still holds back: if the commit fails, the rows are dropped, and the next
        # look tells what is there.
        lost, self._lost = self._lost, True
        await self._local.barrier()
        await self._commit()
        if group or told:
            self._step("before record")
            await trio.to_thread.run_sync(self._state.record, group, told)
            self._step("recorded")
            self.versions += [one.remote for one in group if isinstance(one, BaseRow) and one.remote]
        self._lost = lost
        for count in held_back:
            count()

    def _trusted(self, change: BaseChange) -> BaseChange:
        if isinstance(change, BaseRow) and change.local is not None and change.node.kind is Kind.FILE:
            local = settled(change.local, self._clock_ns)
            return change if local is change.local else replace(change, local=local)
        return change

    def _trusted_booking(self, booked: Booking) -> Booking:
        if booked.local is not None and booked.node is not None and booked.node.kind is Kind.FILE:
            return replace(booked, local=settled(booked.local, self._clock_ns))
        return booked
