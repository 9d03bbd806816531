"""The recorder: groups, each written once, directories durable first."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pytest
import trio
import trio.testing

from syncer.core.model import Nid
from syncer.core.planner.outcome import BaseChange, Booking, Forgotten
from syncer.engine.record import COMMIT_CHANGES, COMMIT_S, GROUP_CHANGES, Recorder
from syncer.errors import NoSpaceError
from tests.unit.syncer.engine.devices import MemoryState


class Log(MemoryState):
    """A state that tells what was written when."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def record(self, changes: Sequence[BaseChange], settled: Collection[int] = ()) -> None:
        self.seen.append(f"record {len(changes)}")

    async def barrier(self) -> None:
        """Stands for the local root's."""
        self.seen.append("barrier")
        await trio.lowlevel.checkpoint()

    async def commit(self) -> None:
        """Stands for the remote's."""
        self.seen.append("commit")


class Kept(Log):
    """One that keeps what is written, too."""

    def record(self, changes: Sequence[BaseChange], settled: Collection[int] = ()) -> None:
        MemoryState.record(self, changes, settled)


def recorder(log: Log) -> Recorder:
    return Recorder(log, log, log.commit, 0, lambda _name: None)  # type: ignore[arg-type]


def test_many_at_once_write_each_group_once() -> None:
    """Breaks when everybody who waits for the writer makes the directories durable again."""
    log = Log()

    async def main() -> None:
        books = recorder(log)
        async with trio.open_nursery() as nursery:
            for number in range(4 * GROUP_CHANGES):
                nursery.start_soon(books.add, [Forgotten(nid=Nid(number))])
        await books.flush()

    trio.run(main, clock=trio.testing.MockClock())
    assert sum(int(line.split()[1]) for line in log.seen if line.startswith("record")) == 4 * GROUP_CHANGES
    assert log.seen.count("barrier") <= 6
    for before, line in zip(log.seen, log.seen[1:], strict=False):
        assert before == "commit" or not line.startswith("record")
        assert (before == "barrier") == (line == "commit")


def test_what_comes_while_directories_are_made_durable_waits_for_the_next_time() -> None:
    """Its own directory may have been changed after the barrier looked: its row would lead."""

    class Slow(Log):
        books: Recorder

        async def barrier(self) -> None:
            await super().barrier()
            if len(self.seen) == 1:
                await self.books.add([Forgotten(nid=Nid(2))])

    log = Slow()

    async def main() -> None:
        log.books = recorder(log)
        await log.books.add([Forgotten(nid=Nid(1))])
        await log.books.flush()
        assert log.seen == ["barrier", "commit", "record 1"]
        await log.books.flush()

    trio.run(main, clock=trio.testing.MockClock())
    assert log.seen == ["barrier", "commit", "record 1"] * 2


def test_what_a_remote_holds_back_is_committed_every_ten_minutes_all_the_same() -> None:
    """Breaks when a first push of hours is done again after a crash."""
    log = Log()

    async def main() -> None:
        books = recorder(log)
        books.waits = True
        for number in range(2 * GROUP_CHANGES):
            await books.add([Forgotten(nid=Nid(number))])
        assert not log.seen
        await trio.sleep(COMMIT_S + 1)
        await books.add([Forgotten(nid=Nid(0))])
        assert log.seen == ["barrier", "commit", f"record {2 * GROUP_CHANGES + 1}"]
        await books.add([Forgotten(nid=Nid(0))] * COMMIT_CHANGES)
        assert log.seen[3:] == ["barrier", "commit", f"record {COMMIT_CHANGES}"]

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def booked(*numbers: int) -> list[Booking]:
    return [Booking(nid=Nid(number), node=None) for number in numbers]


def test_a_list_of_orders_goes_with_the_rows_of_the_last_of_them() -> None:
    log = Kept()

    async def main() -> None:
        books = recorder(log)
        one, other = await books.book(booked(1, 2))
        books.settle(one)
        await books.flush()
        assert log.ordered, "of the other nothing is known yet"
        books.settle(other)
        await books.flush()
        assert not log.ordered

    trio.run(main)


def test_orders_stay_booked_after_rows_could_not_be_written() -> None:
    """Breaks when the last flush of a cycle that failed drops the bookings of rows that are lost."""
    log = Kept()

    async def main() -> None:
        books = recorder(log)
        (number,) = await books.book(booked(1))
        log.fault = _full
        await books.add([Forgotten(nid=Nid(1))])
        with pytest.raises(NoSpaceError):
            await books.flush()
        log.fault = lambda _name: None
        books.settle(number)
        await books.flush()
        assert log.ordered

    trio.run(main)


def _full(name: str) -> None:
    raise NoSpaceError(name)


@pytest.mark.parametrize("is_full", [False, True])
def test_what_a_remote_holds_back_counts_when_it_is_committed(is_full: bool) -> None:
    """Breaks when a summary tells of files that nobody else will ever see."""
    counted: list[str] = []

    class Store(Log):
        async def commit(self) -> None:
            if is_full:
                raise NoSpaceError("no room")

    async def main() -> None:
        log = Store()
        books = recorder(log)
        books.waits = True
        await books.add([Forgotten(nid=Nid(1))], lambda: counted.append("held back"))
        assert not counted
        books.waits = False
        await books.add([], lambda: counted.append("at once"))
        assert counted == ["at once"]
        await books.flush()

    if is_full:
        with pytest.raises(NoSpaceError):
            trio.run(main, clock=trio.testing.MockClock())
    else:
        trio.run(main, clock=trio.testing.MockClock())
    assert counted == (["at once"] if is_full else ["at once", "held back"])
