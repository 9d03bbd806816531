"""Another process of this user fetches from the daemon's peers through the daemon's socket."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from blockfs.blocks.ids import BlockId
from syncer.blocks.board import Blocks
from syncer.peer.exchange.channel import Channel
from syncer.peer.exchange.relay import relayed, serve
from syncer.peer.session.actions import PeerId
from syncer.peer.wire.messages import Cancel, Data, End, Get, Have, HaveQuery, Head, Message, Ping
from syncer.peer.wire.plain import Plain
from syncer.ports.blocks import BlockSource, Priority, SourceStats, Want
from tests.kit.peering import Serve, Yard, block, corrupts, name, on_a_clock, stalls

A, B = PeerId(b"a" * 16), PeerId(b"b" * 16)
# Less than is hashed in a thread, all together: the clock would jump while it works.
BLOCKS = [block(number, 400) for number in range(300)]
QUESTION = b'{"ask": "blocks"}\n'
SIZE = 4096


class Case:
    """A process beside the daemon."""

    def __init__(self, yard: Yard, source: BlockSource) -> None:
        self.yard = yard
        self.board = Blocks([source], draw=random.Random(7).randrange)
        self.got: dict[BlockId, bytes] = {}

    async def fetches(self, blocks: Sequence[bytes]) -> int:
        """Fetch these; returns how many failed."""

        async def receive(batch: Sequence[tuple[BlockId, bytes]]) -> None:
            self.got.update(batch)

        wants = [Want(id=name(data), length=len(data)) for data in blocks]
        return len(await self.board.fetch(wants, receive, priority=Priority.LARGE))

    @property
    def stats(self) -> SourceStats:
        """Of the peers."""
        return self.board.stats["peers"]


async def _daemon(stream: trio.abc.Stream, yard: Yard | None) -> None:
    line = b""
    while not line.endswith(b"\n"):
        line += await stream.receive_some(100)
    assert line == QUESTION
    await serve(stream, yard, SIZE)


@asynccontextmanager
async def beside(yard: Yard) -> AsyncIterator[Case]:
    """A process beside a daemon whose peers are those of this yard."""
    ours, theirs = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        yard.nursery = nursery
        nursery.start_soon(_daemon, theirs, yard)
        async with relayed(ours, QUESTION) as source:
            assert source is not None
            made = Case(yard, source)
            async with trio.open_nursery() as serving:
                serving.start_soon(made.board.run)
                with trio.fail_after(300):
                    yield made
                serving.cancel_scope.cancel()
        nursery.cancel_scope.cancel()


@on_a_clock
async def test_blocks_come_from_the_daemons_peers() -> None:
    yard = Yard()
    yard.add(A, BLOCKS[:200])
    yard.add(B, BLOCKS[100:])
    async with beside(yard) as made:
        assert await made.fetches(BLOCKS) == 0
        assert made.got == {name(data): data for data in BLOCKS}
        assert made.stats.blocks == 300
        await trio.sleep(1)
        assert yard.dropped >= set(made.got)  # the daemon asks for nothing any more


@on_a_clock
async def test_only_what_is_taken_travels() -> None:
    yard = Yard()
    yard.add(A, BLOCKS)
    ours, theirs = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        yard.nursery = nursery
        nursery.start_soon(serve, theirs, yard, SIZE)
        channel = Channel(ours, Plain())
        assert isinstance((await channel.receive())[0], Ping)
        first = name(BLOCKS[0])
        await channel.send([HaveQuery(qid=1, tokens=tuple(first[at : at + 8] for at in range(0, 32, 8)))])
        heard: list[Message] = []
        while not any(isinstance(message, Have) for message in heard):
            heard += await channel.receive()
        await trio.sleep(1)
        assert yard.downloads[A].blocks == 0
        await channel.send([Get(rid=5, id=first)])
        heard = []
        while End(rid=5) not in heard:
            heard += await channel.receive()
        assert [type(message) for message in heard] == [Head, Data, End]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("evil", [corrupts, stalls])
@on_a_clock
async def test_an_evil_peer_is_the_daemons_affair(evil: Serve) -> None:
    yard = Yard()
    yard.add(A, BLOCKS, evil)
    yard.add(B, BLOCKS)
    async with beside(yard) as made:
        assert await made.fetches(BLOCKS) == 0
        assert made.stats.wrong == 0
    assert yard.banned == ([A] if evil is corrupts else [])


@on_a_clock
async def test_what_no_peer_has_fails() -> None:
    yard = Yard()
    yard.add(A, BLOCKS[:10], corrupts)
    async with beside(yard) as made:
        assert await made.fetches(BLOCKS[:20]) == 20


@on_a_clock
async def test_who_breaks_a_rule_is_let_go() -> None:
    broken: list[Message] = [HaveQuery(qid=1, tokens=(bytes(8),)), End(rid=1), Get(rid=1, id=bytes(32), offset=1)]
    for message in broken:
        ours, theirs = trio.testing.memory_stream_pair()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve, theirs, Yard(), SIZE)
            channel = Channel(ours, Plain())
            await channel.receive()
            await channel.send([message, Cancel(rid=1)])
            while await channel.receive():
                pass


@pytest.mark.parametrize("answer", [b"", b'{"done": false}\n'])
@on_a_clock
async def test_an_older_daemon_is_no_failure(answer: bytes) -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    if answer:
        await theirs.send_all(answer)
    await theirs.send_eof()
    async with relayed(ours, QUESTION) as source:
        assert source is None


@on_a_clock
async def test_a_daemon_that_takes_no_part_is_no_failure() -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_daemon, theirs, None)
        async with relayed(ours, QUESTION) as source:
            assert source is None


@on_a_clock
async def test_a_daemon_that_says_nothing_is_not_waited_for() -> None:
    ours, _theirs = trio.testing.memory_stream_pair()
    async with relayed(ours, QUESTION) as source:
        assert source is None
    assert trio.current_time() < 3


@on_a_clock
async def test_a_daemon_that_ends_fails_what_is_asked() -> None:
    yard = Yard()
    yard.add(A, BLOCKS, stalls)
    ours, theirs = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        yard.nursery = nursery

        async def die() -> None:
            with trio.move_on_after(0.5):
                await _daemon(theirs, yard)

        nursery.start_soon(die)
        async with relayed(ours, QUESTION) as source, trio.open_nursery() as serving:
            assert source is not None
            made = Case(yard, source)
            serving.start_soon(made.board.run)
            assert await made.fetches(BLOCKS) == 300
            serving.cancel_scope.cancel()
        nursery.cancel_scope.cancel()


def test_plain_messages_survive_any_cut_and_no_longer_ones_are_read() -> None:
    codec = Plain()
    messages: list[Message] = [Ping(number=1), Get(rid=1, id=bytes(32)), Data(rid=1, content=b"x" * 100)]
    stream = b"".join(codec.send(message) for message in messages)
    for step in (1, 3, 7, 1000):
        reader = Plain()
        read: list[Message] = []
        for at in range(0, len(stream), step):
            assert reader.wants() >= 1
            read += reader.receive(stream[at : at + step])
        assert read == messages
    for bad in (b"\0\0\0\0", b"\0\x04\0\x01", b"\0\0\0\1\xff"):
        reader = Plain()
        assert reader.receive(bad) == []
        assert reader.failed is not None
