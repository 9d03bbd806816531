"""What a peer gets of a share: its blocks, and nothing else; and how much of this machine it may have."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from syncer.peer.exchange.channel import Channel
from syncer.peer.exchange.limits import QUESTIONS, Door, Throttle, Uploads
from syncer.peer.exchange.serving import IDLE_S, LINE, SEND_S, Serving
from syncer.peer.wire.bodies import positions
from syncer.peer.wire.messages import (
    DATA_BYTES,
    Block,
    Busy,
    Cancel,
    Close,
    CloseReason,
    Data,
    End,
    Get,
    Have,
    HaveQuery,
    HaveReply,
    Head,
    Message,
    NotFound,
    Ping,
)
from tests.kit.peering import SOMEBODY, Inline, Shelf, block, connected, name, on_a_clock

BIG = 1 << 20


class Asker:
    """A peer that says what a test wants."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.heard: list[Message] = []

    async def says(self, *messages: Message) -> None:
        await self.channel.send(messages)

    async def hears(self) -> Message | None:
        """The next message; None: the end."""
        if not self.heard:
            self.heard = await self.channel.receive()
        return self.heard.pop(0) if self.heard else None

    async def fetches(self, rid: int) -> bytes | None:
        """What comes for a request; None: NOTFOUND."""
        message = await self.hears()
        if message == NotFound(rid=rid):
            return None
        if isinstance(message, Block):
            assert message.rid == rid
            return bytes(message.content)
        assert isinstance(message, Head), message
        total, got = message.total, b""
        while isinstance(message := await self.hears(), Data):
            assert message.rid == rid
            got += message.content
        assert message == End(rid=rid)
        assert len(got) <= total
        return got


@asynccontextmanager
async def served(
    shelf: Shelf, uploads: Uploads | None = None, *, tight: bool = False
) -> AsyncIterator[tuple[Asker, list[CloseReason]]]:
    """A peer that is connected to this share."""
    ours, theirs = connected(1 if tight else None)
    ended: list[CloseReason] = []

    async def serve() -> None:
        ended.append(await Serving(theirs, shelf, uploads or Inline(), SOMEBODY, lambda: not shelf.paused).run())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        yield Asker(ours), ended
        await ours.close()


@on_a_clock
async def test_a_block_of_the_share_comes_whole() -> None:
    data = block(1, BIG)
    async with served(Shelf([data])) as (asker, _):
        await asker.says(Get(rid=7, id=name(data)))
        assert await asker.fetches(7) == data


@pytest.mark.parametrize("size", [DATA_BYTES, DATA_BYTES + 1])
@on_a_clock
async def test_a_block_that_fits_comes_in_one_message(size: int) -> None:
    data = block(1, size)
    async with served(Shelf([data])) as (asker, _):
        await asker.says(Get(rid=7, id=name(data)))
        assert isinstance(await asker.hears(), Block if size == DATA_BYTES else Head)


@pytest.mark.parametrize("size", [1000, BIG])
@on_a_clock
async def test_a_request_that_goes_on_gets_the_rest(size: int) -> None:
    data = block(1, size)
    async with served(Shelf([data])) as (asker, _):
        await asker.says(Get(rid=7, id=name(data), offset=size - 10))
        assert await asker.fetches(7) == data[-10:]


@on_a_clock
async def test_requests_are_answered_in_their_order() -> None:
    blocks = [block(number) for number in range(100)]
    async with served(Shelf(blocks)) as (asker, _):
        await asker.says(*(Get(rid=rid, id=name(data)) for rid, data in enumerate(blocks)))
        for rid, data in enumerate(blocks):
            assert await asker.fetches(rid) == data


@pytest.mark.parametrize("size", [120_000, 300_000], ids=["one message", "several"])
@on_a_clock
async def test_a_number_may_be_used_again_once_its_block_has_come(size: int) -> None:
    """Also while others are under way that were read together with it."""
    blocks = [block(number, size) for number in range(6)]
    async with served(Shelf(blocks), tight=True) as (asker, _):
        await asker.says(*(Get(rid=rid, id=name(data)) for rid, data in enumerate(blocks)))
        assert [await asker.fetches(rid) for rid in range(3)] == blocks[:3]
        await asker.says(Get(rid=0, id=name(blocks[1])))
        assert [await asker.fetches(rid) for rid in range(3, 6)] == blocks[3:]
        assert await asker.fetches(0) == blocks[1]


@on_a_clock
async def test_a_block_that_the_share_has_not_is_not_found() -> None:
    async with served(Shelf([block(1)])) as (asker, _):
        await asker.says(Get(rid=1, id=name(block(2))), Get(rid=2, id=name(block(1)), offset=2000))
        assert await asker.fetches(1) is None
        assert await asker.fetches(2) is None


@on_a_clock
async def test_a_block_is_sent_without_its_trailing_zeros() -> None:
    shelf = Shelf()
    short = block(1)
    shelf.blocks[name(short)] = short + bytes(500)
    async with served(shelf) as (asker, _):
        await asker.says(Get(rid=1, id=name(short)))
        assert await asker.fetches(1) == short


@on_a_clock
async def test_a_question_is_answered_for_each_token() -> None:
    blocks = [block(number) for number in range(20)]
    async with served(Shelf(blocks[::3])) as (asker, _):
        await asker.says(HaveQuery(qid=9, tokens=tuple(name(data)[:8] for data in blocks)))
        reply = await asker.hears()
    assert isinstance(reply, HaveReply)
    assert reply.qid == 9
    assert reply.fits(20)
    assert positions(reply.bitmap) == list(range(0, 20, 3))


@on_a_clock
async def test_who_asks_without_end_is_answered_at_a_bounded_rate() -> None:
    """A member of the share that keeps asking costs a part of a core, not all of it."""
    tokens = tuple(number.to_bytes(8, "big") for number in range(32_000))
    async with served(Shelf([block(1)])) as (asker, _):
        begin = trio.current_time()
        for qid in range(15):
            await asker.says(HaveQuery(qid=qid, tokens=tokens))
            assert isinstance(await asker.hears(), HaveReply)
        assert trio.current_time() - begin >= 14 * len(tokens) / QUESTIONS - 1


@on_a_clock
async def test_what_comes_in_later_is_told_to_who_asked_for_it() -> None:
    shelf = Shelf([block(1)])
    wanted, other = block(2), block(3)
    async with served(shelf) as (asker, _):
        await asker.says(HaveQuery(qid=1, tokens=(name(wanted)[:8],)))
        await asker.hears()
        shelf.add(other)
        shelf.add(wanted)
        assert await asker.hears() == Have(tokens=(name(wanted)[:8],))


@on_a_clock
async def test_a_paused_share_serves_nothing() -> None:
    shelf = Shelf([block(1)])
    shelf.paused = True
    async with served(shelf) as (asker, ended):
        await asker.says(Get(rid=1, id=name(block(1))))
        assert await asker.hears() == Close(reason=CloseReason.REFUSED)
    assert shelf.reads == 0
    assert ended == [CloseReason.REFUSED]


@on_a_clock
async def test_a_cancelled_request_gets_no_more() -> None:
    first, second = block(1, 4 * BIG), block(2)
    async with served(Shelf([first, second]), Inline(pace=Throttle(BIG))) as (asker, _):
        await asker.says(Get(rid=1, id=name(first)), Get(rid=2, id=name(second)))
        assert await asker.hears() == Head(rid=1, total=4 * BIG)
        assert isinstance(await asker.hears(), Data)
        await asker.says(Cancel(rid=1), Cancel(rid=2), Get(rid=3, id=name(second)))
        rest = [await asker.hears()]
        while rest[-1] != Block(rid=3, content=second):
            assert rest[-1] is not None
            rest.append(await asker.hears())
    sent = [message for message in rest if isinstance(message, Data) and message.rid == 1]
    assert sum(len(message.content) for message in sent) < BIG
    assert End(rid=1) not in rest
    assert not [message for message in rest if isinstance(message, Block) and message.rid == 2]


@on_a_clock
async def test_who_finds_all_places_taken_is_told_to_come_again() -> None:
    uploads = Inline(places=1, pace=Throttle(BIG))
    big = block(1, 8 * BIG)
    async with served(Shelf([big]), uploads) as (one, _), served(Shelf([block(2)]), uploads) as (two, _):
        await one.says(Get(rid=1, id=name(big)))
        assert isinstance(await one.hears(), Head)
        await two.says(Get(rid=1, id=name(block(2))), Get(rid=2, id=name(block(2))))
        told = [await two.hears(), await two.hears()]
        assert [type(message) for message in told] == [Busy, Busy]
        assert uploads.refused == 2
        while not isinstance(await one.hears(), End):
            pass
        await two.says(Get(rid=3, id=name(block(2))))
        assert await two.fetches(3) == block(2)


@on_a_clock
async def test_one_machine_never_holds_all_places() -> None:
    """Else one that vanished in mid-transfer, or does not read, keeps blocks from all others for twenty seconds."""
    uploads = Uploads(places=4)
    here, there = bytes(15) + b"\1", bytes(15) + b"\2"
    assert [await uploads.enter(here) for _ in range(3)] == [True, True, False]
    assert [await uploads.enter(there) for _ in range(3)] == [True, True, False]
    assert uploads.load == 255 // 2
    uploads.leave(here)
    assert not await uploads.enter(there)
    assert await uploads.enter(here)
    for address in (here, here, there, there):
        uploads.leave(address)
    assert uploads.load == 0


@on_a_clock
async def test_who_waits_for_a_place_has_it_as_soon_as_there_is_one() -> None:
    uploads = Uploads(places=1)
    here, there = bytes(15) + b"\1", bytes(15) + b"\2"
    assert await uploads.enter(here)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(uploads.enter, there)
        await trio.testing.wait_all_tasks_blocked()
        uploads.leave(here)
    uploads.leave(there)
    assert await uploads.enter(here)


@on_a_clock
async def test_uploads_keep_to_the_limit() -> None:
    data = block(1, 4 * BIG)
    async with served(Shelf([data]), Inline(pace=Throttle(BIG))) as (asker, _):
        began = trio.current_time()
        await asker.says(Get(rid=1, id=name(data)))
        assert await asker.fetches(1) == data
        assert 3.5 < trio.current_time() - began < 4.5


@on_a_clock
async def test_who_says_nothing_for_a_minute_is_let_go() -> None:
    async with served(Shelf()) as (asker, _):
        await asker.says(Ping(number=3))
        assert await asker.hears() == Ping(number=3, answer=True)
        began = trio.current_time()
        assert await asker.hears() == Close(reason=CloseReason.DONE)
        assert trio.current_time() - began == pytest.approx(IDLE_S)


@on_a_clock
async def test_who_does_not_read_is_let_go() -> None:
    uploads = Inline(places=1)
    data = block(1, BIG)
    began = trio.current_time()
    async with served(Shelf([data]), uploads, tight=True) as (asker, ended):
        await asker.says(Get(rid=1, id=name(data)))
        while not ended:
            await trio.sleep(1)
    assert trio.current_time() - began <= SEND_S + 2
    assert uploads.load == 0


@pytest.mark.parametrize(
    "broken",
    [
        [Get(rid=1, id=bytes(32))] * 2,
        [Get(rid=rid, id=bytes(32)) for rid in range(LINE + 1)],
        [Ping(number=1, answer=True)],
        [Block(rid=1, content=b"x")],
        [Head(rid=1, total=1)],
        [Data(rid=1, content=b"x")],
        [End(rid=1)],
        [NotFound(rid=1)],
        [Busy(rid=1, retry_ms=1)],
        [HaveReply(qid=1, bitmap=b"\1")],
        [Have(tokens=(bytes(8),))],
    ],
    ids=lambda broken: f"{len(broken)} {type(broken[0]).__name__}",
)
@on_a_clock
async def test_who_breaks_a_rule_is_let_go(broken: list[Message]) -> None:
    async with served(Shelf()) as (asker, ended):
        await asker.says(*broken)
        while await asker.hears() is not None:
            pass
    assert ended == [CloseReason.PROTOCOL]


def test_the_door_is_as_wide_as_it_is() -> None:
    door = Door(most=5, each=2, handshakes=3)
    assert [door.enter(b"a") for _ in range(3)] == [True, True, False]
    assert door.enter(b"b")
    assert not door.enter(b"c")  # three have proven nothing yet
    door.proven()
    door.proven()
    assert door.enter(b"c")
    assert door.enter(b"d")
    door.proven()
    assert not door.enter(b"e")  # five are in
    door.leave(b"a", proven=True)
    assert door.enter(b"a")
    assert len(door) == 5
