"""Waiting for changes on servers that tell of them, and on those that must be asked, under a clock that jumps."""

from __future__ import annotations

import itertools

import trio
from trio.testing import MockClock

from syncer.core.model import NO_META, Kind, RelPath
from syncer.remote.polling import MAX_POLL_S, poll
from syncer.remote.serials import Cursor
from tests.contract.writing import put_small
from tests.fakes.memory import MemoryClient, MemoryContainer


def test_polling_slows_down_while_nothing_happens_and_tells_of_changes_only() -> None:
    asked: list[float] = []

    async def look(operation: str, _path: RelPath) -> None:
        if operation == "moment":
            asked.append(trio.current_time())

    async def main() -> None:
        container = MemoryContainer(extensions=frozenset())
        client = MemoryClient(container, before=look)
        seen = await client.wait(None)  # nobody has looked before
        with trio.move_on_after(3600):
            await client.wait(seen)
        pauses = [later - earlier for earlier, later in itertools.pairwise(asked)]
        assert pauses == sorted(pauses)
        assert pauses[-1] == MAX_POLL_S
        container.last_version += 1
        assert await client.wait(seen) == container.cursor.position

    trio.run(main, clock=MockClock(autojump_threshold=0))


def test_a_change_is_told_when_the_next_one_would_show() -> None:
    """Breaks when who lists within the second of a change takes it for the last of that second."""
    evidence: tuple[str, ...] = ()
    looks: list[float] = []

    async def look() -> Cursor:
        looks.append(trio.current_time())
        return Cursor(identity="", version=0, modified_us=0, evidence=evidence)

    async def main() -> None:
        nonlocal evidence
        seen = await poll(look, None)  # it never rested: told all the same
        assert len(looks) > 1
        assert await poll(look, seen) == seen  # nothing tells whether it changed: told again
        evidence = ("rests",)
        seen = await poll(look, seen)  # it rests: told once more
        with trio.move_on_after(3600):
            await poll(look, seen)
            raise AssertionError("nothing happened")

    trio.run(main, clock=MockClock(autojump_threshold=0))


def test_who_begins_to_wait_for_a_server_that_tells_asks_once_and_hears_the_first_change() -> None:
    """Breaks when its moments are looked at until they rest, as if a later change might not show in them."""

    async def main() -> None:
        container = MemoryContainer()
        client, began_s = MemoryClient(container), trio.current_time()
        seen = await client.wait(None)
        assert client.counters.requests == 1
        await put_small(MemoryClient(container), RelPath(b"here"), Kind.DIRECTORY, b"", NO_META, None)
        assert await client.wait(seen) == container.cursor.position
        assert client.counters.requests == 2
        assert trio.current_time() == began_s

    trio.run(main, clock=MockClock(autojump_threshold=0))


def test_a_server_that_can_is_waited_for_and_not_polled() -> None:
    async def main() -> None:
        container = MemoryContainer()
        client = MemoryClient(container)
        seen = await client.wait(None)
        asked = client.counters.requests
        with trio.move_on_after(3600):
            await client.wait(seen)
        assert client.counters.requests == asked + 1
        told = trio.Event()

        async def listen() -> None:
            await client.wait(seen)
            told.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(listen)
            await trio.testing.wait_all_tasks_blocked()
            assert not told.is_set()
            await put_small(MemoryClient(container), RelPath(b"here"), Kind.DIRECTORY, b"", NO_META, None)
            await told.wait()

    trio.run(main, clock=MockClock(autojump_threshold=0.01))
