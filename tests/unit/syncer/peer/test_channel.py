"""A connection over sockets: many blocks are read at once, and nobody waits for bytes that do not come."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio
import trio.testing

from syncer.peer.exchange.channel import GATHER_S, Channel
from syncer.peer.wire.messages import Block, Message, Ping
from tests.kit.peering import on_a_clock, secured

BLOCKS: list[Message] = [Block(rid=rid, content=bytes([1 + rid]) * 1000) for rid in range(20)]


def on_a_still_clock(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """Run it while no time passes: however slow the machine is, nobody waits in vain."""

    @functools.wraps(test)
    def run() -> None:
        trio.run(test, clock=trio.testing.MockClock())

    return run


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[Channel, Channel]]:
    """Both ends of a TCP connection of this machine with itself."""
    listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
    async with listener:
        ours, theirs = secured()
        dialled = await trio.open_tcp_stream(*listener.socket.getsockname())
        one, two = Channel(dialled, ours), Channel(await listener.accept(), theirs)
        try:
            yield one, two
        finally:
            await one.close()
            await two.close()


def rids(messages: list[Message]) -> list[int]:
    return [each.rid for each in messages if isinstance(each, Block)]


@on_a_still_clock
async def test_blocks_that_come_one_by_one_are_read_together() -> None:
    async with pair() as (one, two), trio.open_nursery() as nursery:
        read: list[Message] = []

        async def receive() -> None:
            read.extend(await two.receive(owed=20_000))

        nursery.start_soon(receive)
        for each in BLOCKS:
            assert await one.send([each])
    assert rids(read) == list(range(20))


@on_a_clock
async def test_who_owes_more_than_it_sends_is_waited_for_a_moment_and_heard() -> None:
    async with pair() as (one, two):
        began = trio.current_time()
        assert await one.send(BLOCKS[:2])
        assert rids(await two.receive(owed=1 << 20)) == [0, 1]
        assert trio.current_time() - began == GATHER_S


@on_a_clock
async def test_after_that_moment_the_next_message_is_heard_as_it_comes() -> None:
    async with pair() as (one, two), trio.open_nursery() as nursery:

        @nursery.start_soon
        async def receive() -> None:
            assert await two.receive(owed=1 << 20) == [Ping(number=7)]

        await trio.sleep(10 * GATHER_S)
        assert await one.send([Ping(number=7)])


@on_a_still_clock
async def test_who_is_cancelled_while_it_reads_loses_nothing() -> None:
    async with pair() as (one, two):
        for owed in (0, 1 << 20):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(two.receive, owed)
                await trio.testing.wait_all_tasks_blocked()
                nursery.cancel_scope.cancel()
        assert await one.send(BLOCKS)
        assert rids(await two.receive()) == list(range(20))


@on_a_still_clock
async def test_the_end_is_heard_however_much_is_owed() -> None:
    async with pair() as (one, two):
        await one.close()
        assert await two.receive(owed=1 << 20) == []


@on_a_still_clock
async def test_who_is_cancelled_while_it_sends_ends_the_connection_for_both() -> None:
    """Breaks as another cycle that asks over it in vain, and takes the peer for one that stalls."""
    async with pair() as (one, two), trio.open_nursery() as waiting:
        heard: list[list[Message]] = []

        async def hear() -> None:
            heard.append(await one.receive())

        waiting.start_soon(hear)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.send, [Block(rid=rid, content=b"x" * 200_000) for rid in range(100)])
            await trio.testing.wait_all_tasks_blocked()
            assert heard == []
            nursery.cancel_scope.cancel()
        assert not await one.send([Ping(number=1)])
        await trio.testing.wait_all_tasks_blocked()
        assert heard == [[]]
        while await two.receive():  # what was sent whole counts
            pass
