from __future__ import annotations

import threading
from functools import partial

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from syncer.remote.http.threads import Threads

PATIENCE_S = 120.0  # of a test that would hang


class Gate:
    """Calls that begin, and end when they may."""

    def __init__(self) -> None:
        self.began: list[int] = []
        self.most = 0
        self._under_way = 0
        self._lock = threading.Lock()
        self._open = threading.Semaphore(0)

    def call(self, number: int) -> int:
        with self._lock:
            self.began.append(number)
            self._under_way += 1
            self.most = max(self.most, self._under_way)
        assert self._open.acquire(timeout=PATIENCE_S)
        with self._lock:
            self._under_way -= 1
        return number

    def begin(self, nursery: trio.Nursery, threads: Threads, count: int) -> None:
        for number in range(count):
            nursery.start_soon(threads.run, partial(self.call, number))

    def let(self, count: int) -> None:
        self._open.release(count)


async def until_begun(gate: Gate, count: int) -> None:
    with trio.fail_after(PATIENCE_S):
        while len(gate.began) < count:
            await trio.sleep(0)


@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4), calls=st.integers(1, 12))
def test_every_call_is_made_once_and_never_too_many_at_a_time(sizes: list[int], calls: int) -> None:
    gate, done = Gate(), list[int]()

    async def main() -> None:
        threads = Threads(sizes[0])

        async def one(number: int) -> None:
            done.append(await threads.run(lambda: gate.call(number)))

        async with trio.open_nursery() as nursery:
            for number in range(calls):
                nursery.start_soon(one, number)
            await until_begun(gate, min(calls, sizes[0]))
            for size in sizes[1:]:
                threads.resize(size)
                gate.let(1)
            gate.let(calls)

    trio.run(main)
    assert sorted(gate.began) == sorted(done) == list(range(calls))
    assert gate.most <= max(sizes)


def test_what_waits_begins_when_there_is_room_for_more() -> None:
    gate = Gate()

    async def main() -> None:
        threads = Threads(1)
        async with trio.open_nursery() as nursery:
            gate.begin(nursery, threads, 4)
            await until_begun(gate, 1)
            with trio.fail_after(PATIENCE_S):
                while threads.waiting < 3:  # the first may have begun before the others came
                    await trio.sleep(0)
            threads.resize(3)
            await until_begun(gate, 3)
            assert threads.waiting == 1
            gate.let(4)

    trio.run(main)
    assert gate.most == 3


def test_fewer_places_are_fewer_calls_once_those_under_way_are_done() -> None:
    gate = Gate()

    async def main() -> None:
        threads = Threads(3)
        async with trio.open_nursery() as nursery:
            gate.begin(nursery, threads, 6)
            await until_begun(gate, 3)
            threads.resize(1)
            gate.let(3)
            await until_begun(gate, 4)
            gate.most = 0
            gate.let(3)

    trio.run(main)
    assert len(gate.began) == 6
    assert gate.most <= 1


def test_a_thread_goes_on_while_the_event_loop_does_something_else() -> None:
    begun = threading.Event()

    async def main() -> None:
        threads, gate = Threads(1), Gate()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(threads.run, lambda: gate.call(0))
            await until_begun(gate, 1)
            nursery.start_soon(threads.run, begun.set)
            await trio.testing.wait_all_tasks_blocked()
            gate.let(1)
            assert begun.wait(PATIENCE_S)  # blocks the event loop

    trio.run(main)


def test_an_error_is_raised_where_the_call_is_waited_for() -> None:
    def fail() -> None:
        raise ConnectionResetError("by peer")

    async def main() -> None:
        threads = Threads(1)
        with pytest.raises(ConnectionResetError, match="by peer"):
            await threads.run(fail)
        assert await threads.run(lambda: 7) == 7

    trio.run(main)


def test_a_call_that_is_cancelled_while_it_waits_is_never_made() -> None:
    gate = Gate()

    async def main() -> None:
        threads = Threads(1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(threads.run, lambda: gate.call(0))
            await until_begun(gate, 1)
            with trio.move_on_after(0) as scope:
                await threads.run(lambda: gate.call(1))
            assert scope.cancelled_caught
            assert threads.waiting == 0
            nursery.start_soon(threads.run, lambda: gate.call(2))
            gate.let(2)

    trio.run(main)
    assert gate.began == [0, 2]


def test_a_call_that_is_cancelled_under_way_is_waited_for_by_nobody_and_keeps_its_place() -> None:
    gate = Gate()

    async def main() -> None:
        threads = Threads(1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(threads.run, lambda: gate.call(0))
            await until_begun(gate, 1)
            nursery.cancel_scope.cancel()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(threads.run, lambda: gate.call(1))
            await trio.testing.wait_all_tasks_blocked()
            assert gate.began == [0]
            gate.let(2)

    trio.run(main)
    assert gate.began == [0, 1]
    assert gate.most == 1


def test_a_call_may_outlive_the_event_loop() -> None:
    gate, ended = Gate(), threading.Event()

    def call() -> None:
        gate.call(0)
        ended.set()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Threads(1).run, call)
            await until_begun(gate, 1)
            nursery.cancel_scope.cancel()

    trio.run(main)
    gate.let(1)
    assert ended.wait(PATIENCE_S)
