"""The source "peers" on a real board: all blocks come, verified, whatever the peers do."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from blockfs.blocks.ids import BlockId
from syncer.blocks.board import Blocks
from syncer.errors import SyncerError
from syncer.peer.exchange.channel import Channel
from syncer.peer.exchange.source import ALONE_S, ANSWER_S, SOON_S, PeerSource
from syncer.peer.session.actions import PeerId
from syncer.peer.wire.bodies import MAX_TOKENS
from syncer.peer.wire.messages import Busy, Data, End, Get, HaveQuery, HaveReply, Head, NotFound, data_of
from syncer.ports.blocks import BlockSource, Board, Priority, SourceStats, Want
from tests.kit.peering import Serve, Shelf, Yard, block, corrupts, name, on_a_clock, stalls

A, B, C, D = (PeerId(letter * 16) for letter in (b"a", b"b", b"c", b"d"))


class Server:
    """A far source that has what it is given, and takes so long for each."""

    name = "remote"
    near = False

    def __init__(self, blocks: Iterable[bytes] = (), each_s: float = 0.0) -> None:
        self.blocks = {name(data): data for data in blocks}
        self.each_s = each_s

    async def run(self, board: Board) -> None:
        """See BlockSource."""
        while await board.more():
            for want in board.take(1):
                if want.id in self.blocks:
                    await trio.sleep(self.each_s)
                    await board.give([(want, self.blocks[want.id])])
                else:
                    board.lack([want])


class Case:
    """A board, its sources, and what came."""

    def __init__(self, yard: Yard, board: Blocks) -> None:
        self.yard, self.board = yard, board
        self.got: dict[BlockId, bytes] = {}

    async def fetches(self, blocks: Sequence[bytes]) -> dict[BlockId, SyncerError]:
        """Fetch these; returns what failed."""

        async def receive(batch: Sequence[tuple[BlockId, bytes]]) -> None:
            self.got.update(batch)

        wants = [Want(id=name(data), length=len(data)) for data in blocks]
        return dict(await self.board.fetch(wants, receive, priority=Priority.LARGE))

    @property
    def stats(self) -> SourceStats:
        """Of the peers."""
        return self.board.stats["peers"]


@asynccontextmanager
async def case(yard: Yard, *others: BlockSource, nursery: trio.Nursery | None = None) -> AsyncIterator[Case]:
    """A board on which the peers of this yard serve, and others; connections live in the nursery, if there is one."""
    board = Blocks([PeerSource(yard, random.Random(7).randrange), *others], draw=random.Random(7).randrange)
    async with trio.open_nursery() as own:
        yard.nursery = nursery or own
        async with trio.open_nursery() as serving:
            serving.start_soon(board.run)
            with trio.fail_after(300):
                yield Case(yard, board)
            serving.cancel_scope.cancel()
        own.cancel_scope.cancel()


# Together less than a board hashes in a thread: the clock would jump meanwhile.
BLOCKS = [block(number, 600) for number in range(200)]
ALL = {name(data): data for data in BLOCKS}


@on_a_clock
async def test_all_comes_from_one_peer() -> None:
    yard = Yard()
    yard.add(A, BLOCKS)
    async with case(yard) as made:
        assert await made.fetches(BLOCKS) == {}
        assert made.got == ALL
        assert made.stats.blocks == 200
        assert yard.downloads[A].wasted == 0
        await trio.sleep(0.2)
        assert yard.dropped == set(ALL)


@on_a_clock
async def test_peers_share_the_work_and_nothing_comes_twice() -> None:
    yard = Yard()
    for peer in (A, B, C):
        yard.add(peer, BLOCKS)
    async with case(yard) as made:
        assert await made.fetches(BLOCKS) == {}
        assert made.got == ALL
    assert sum(download.blocks for download in yard.downloads.values()) == 200
    assert all(download.blocks > 20 for download in yard.downloads.values())


@on_a_clock
async def test_each_part_comes_from_who_has_it_and_the_rest_from_the_server() -> None:
    yard = Yard()
    yard.add(A, BLOCKS[:80])
    yard.add(B, BLOCKS[50:150])
    async with case(yard, Server(BLOCKS, 0.001)) as made:
        assert await made.fetches(BLOCKS) == {}
        assert made.got == ALL
        assert made.board.stats["remote"].blocks < 70


async def _lies(channel: Channel) -> None:
    while messages := await channel.receive():
        for message in messages:
            if isinstance(message, Get):
                await channel.send([NotFound(rid=message.rid)])


async def _dies(channel: Channel) -> None:
    for _ in range(2):
        for message in await channel.receive():
            if isinstance(message, Get):
                await channel.send([Head(rid=message.rid, total=600), Data(rid=message.rid, content=b"0:")])
                await channel.close()
                return


async def _is_busy(channel: Channel) -> None:
    while messages := await channel.receive():
        for message in messages:
            if isinstance(message, Get):
                await channel.send([Busy(rid=message.rid, retry_ms=250)])


@pytest.mark.parametrize("evil", [_lies, corrupts, stalls, _dies, _is_busy])
@on_a_clock
async def test_an_evil_peer_beside_a_good_one(evil: Serve) -> None:
    yard = Yard()
    yard.add(A, BLOCKS, evil)
    yard.add(B, BLOCKS)
    async with case(yard) as made:
        assert await made.fetches(BLOCKS) == {}
        assert made.got == ALL
    assert yard.banned == ([A] if evil is corrupts else [])
    assert len(yard.lies) <= 64


@pytest.mark.parametrize("evil", [_lies, corrupts, stalls, _dies, _is_busy])
@on_a_clock
async def test_an_evil_peer_alone_beside_the_server(evil: Serve) -> None:
    yard = Yard()
    yard.add(A, BLOCKS, evil)
    async with case(yard, Server(BLOCKS)) as made:
        assert await made.fetches(BLOCKS) == {}
        assert made.got == ALL
        assert made.stats.blocks == 0


@on_a_clock
async def test_what_an_evil_peer_has_alone_fails() -> None:
    yard = Yard()
    yard.add(A, BLOCKS[:5], _lies)
    async with case(yard) as made:
        assert set(await made.fetches(BLOCKS[:5])) == {name(data) for data in BLOCKS[:5]}


@on_a_clock
async def test_what_nobody_has_fails_when_answers_would_have_come() -> None:
    yard = Yard()
    async with case(yard, Server()) as made:
        began = trio.current_time()
        assert set(await made.fetches(BLOCKS)) == set(ALL)
        assert ANSWER_S < trio.current_time() - began < ANSWER_S + 1


@on_a_clock
async def test_where_nobody_was_heard_one_frame_asks_and_the_rest_follows_when_somebody_is_or_nobody_was() -> None:
    """Breaks as a pull on an empty network that keeps books of peers for each block."""
    for comes_s in (ALONE_S / 2, None):
        yard = Yard()
        async with case(yard) as made, trio.open_nursery() as nursery:
            nursery.start_soon(made.fetches, BLOCKS)
            await trio.testing.wait_all_tasks_blocked()
            assert yard.wanted == list(ALL)[:MAX_TOKENS]
            if comes_s is not None:
                await trio.sleep(comes_s)
                yard.add(A, BLOCKS)
                yard.askers[0].heard(trio.current_time())
            else:
                await trio.sleep(ALONE_S)
            await trio.testing.wait_all_tasks_blocked()
            assert yard.wanted == list(ALL)
            nursery.cancel_scope.cancel()


@on_a_clock
async def test_who_was_heard_is_asked_for_all_at_once() -> None:
    yard = Yard()
    yard.heard_s = trio.current_time()
    async with case(yard) as made, trio.open_nursery() as nursery:
        nursery.start_soon(made.fetches, BLOCKS)
        await trio.testing.wait_all_tasks_blocked()
        assert yard.wanted == list(ALL)
        nursery.cancel_scope.cancel()


@on_a_clock
async def test_who_can_not_be_reached_offers_nothing() -> None:
    yard = Yard()
    yard.heard_s = trio.current_time()
    yard.add(A, BLOCKS)
    yard.unreachable.add(A)
    async with case(yard, Server(BLOCKS)) as made:
        assert await made.fetches(BLOCKS) == {}
        assert made.stats.blocks == 0
    assert yard.tried == [A]


@on_a_clock
async def test_at_most_eight_peers_are_used_and_others_take_their_place() -> None:
    yard = Yard()
    yard.heard_s = trio.current_time()
    peers = [PeerId(bytes([65 + number]) * 16) for number in range(12)]
    for peer in peers[:8]:
        yard.add(peer, BLOCKS, _dies)
    for peer in peers[8:]:
        yard.add(peer, BLOCKS)
    async with case(yard) as made:
        assert await made.fetches(BLOCKS) == {}
        assert made.got == ALL
    assert len(yard.tried) <= 12


@on_a_clock
async def test_a_slow_peer_does_not_hold_up_the_end() -> None:
    yard = Yard()

    async def slow(channel: Channel) -> None:
        shelf = Shelf(BLOCKS)
        while messages := await channel.receive():
            for message in messages:
                if isinstance(message, Get):
                    data = shelf.blocks[BlockId(message.id)]
                    await trio.sleep(0.9)
                    rid = message.rid
                    await channel.send([Head(rid=rid, total=len(data)), Data(rid=rid, content=data), End(rid=rid)])

    yard.add(A, BLOCKS, slow)
    yard.add(B, BLOCKS)
    async with case(yard) as made:
        began = trio.current_time()
        assert await made.fetches(BLOCKS) == {}
        assert made.got == ALL
        assert trio.current_time() - began < 5
        assert made.stats.late <= 4


@on_a_clock
async def test_what_a_peer_gets_later_comes_from_it() -> None:
    yard = Yard()
    shelf = yard.add(A, [])
    async with case(yard, Server(BLOCKS[:1])) as made, trio.open_nursery() as nursery:
        nursery.start_soon(made.fetches, BLOCKS[:2])
        await trio.sleep(0.5)
        shelf.add(BLOCKS[1])
        with trio.fail_after(1):
            while len(made.got) < 2:
                await trio.sleep(0.01)


@on_a_clock
async def test_who_asks_no_more_lets_go() -> None:
    yard = Yard()
    yard.add(A, BLOCKS, stalls)
    async with case(yard, Server(BLOCKS, 1000.0)) as made:
        with trio.move_on_after(0.5):
            await made.fetches(BLOCKS)
        await trio.sleep(0.2)
        assert yard.dropped == set(ALL)
        assert made.board.claimed_bytes <= 1000  # what the server is at
        assert yard.downloads[A].idle or yard.downloads[A].is_over


@on_a_clock
async def test_the_end_of_a_cycle_leaves_nothing_asked() -> None:
    yard = Yard()
    yard.add(A, BLOCKS, stalls)
    async with case(yard, Server([], 0.0)) as made:
        with trio.move_on_after(0.5):
            await made.fetches(BLOCKS)
    assert yard.askers == []
    assert yard.downloads[A].idle


@on_a_clock
async def test_a_question_over_a_connection_is_answered_too() -> None:
    yard = Yard()

    async def mute(channel: Channel) -> None:
        while messages := await channel.receive():
            for message in messages:
                if isinstance(message, HaveQuery):
                    size = (len(message.tokens) + 7) // 8
                    await channel.send([HaveReply(qid=message.qid, bitmap=bytes(size))])

    yard.add(A, [], mute)
    yard.add(B, BLOCKS)
    async with case(yard) as made:
        assert await made.fetches(BLOCKS) == {}
    assert set(yard.tried) == {A, B}


@on_a_clock
async def test_cycles_one_after_the_other_and_beside_each_other_hear_all_answers() -> None:
    yard = Yard()
    yard.add(A, BLOCKS)
    yard.is_silent = True
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            async with case(yard, nursery=nursery) as made, case(yard, nursery=nursery) as other:
                nursery.start_soon(other.fetches, BLOCKS)
                assert await made.fetches(BLOCKS) == {}
        nursery.cancel_scope.cancel()
    assert len(yard.tried) > 1


async def _answers_late(channel: Channel) -> None:
    """A busy machine: it has all, and says so after a fifth of a second."""
    while messages := await channel.receive():
        for message in messages:
            if isinstance(message, HaveQuery):
                await trio.sleep(0.2)
                size, odd = divmod(len(message.tokens), 8)
                held = b"\xff" * size + (bytes([(1 << odd) - 1]) if odd else b"")
                await channel.send([HaveReply(qid=message.qid, bitmap=held)])
            elif isinstance(message, Get):
                data = ALL[BlockId(message.id)]
                await channel.send(
                    [Head(rid=message.rid, total=len(data)), *data_of(message.rid, data), End(rid=message.rid)]
                )


@on_a_clock
async def test_a_connected_peer_that_answers_late_is_waited_for() -> None:
    """Else busy machines that pull together each get all of it from the server."""
    yard = Yard()
    yard.is_silent = True
    yard.add(A, BLOCKS, _answers_late)
    async with case(yard, Server(BLOCKS)) as made:
        await made.fetches(BLOCKS[:1])
        await trio.sleep(1)
        assert await made.fetches(BLOCKS[1:]) == {}
        assert made.got == ALL
        assert made.stats.blocks == len(BLOCKS) - 1


@on_a_clock
async def test_a_connected_peer_that_never_answers_is_waited_for_once() -> None:
    yard = Yard()
    yard.is_silent = True
    yard.add(A, BLOCKS, stalls)
    async with case(yard, Server(BLOCKS)) as made:
        await made.fetches(BLOCKS[:1])
        await trio.sleep(1)
        took = []
        for first in (1, 50, 100):
            began = trio.current_time()
            assert await made.fetches(BLOCKS[first : first + 49]) == {}
            took.append(trio.current_time() - began)
        assert took[0] <= SOON_S + 0.1
        assert max(took[1:]) < 0.1
