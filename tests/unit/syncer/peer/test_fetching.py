"""How blocks come from one peer, and what a peer that lies, stalls or dies can do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from blockfs.blocks.ids import BlockId
from syncer.peer.exchange.channel import Channel
from syncer.peer.exchange.fetching import MOST_BYTES, Allowance, Download, Failure
from syncer.peer.exchange.limits import Throttle
from syncer.peer.exchange.serving import Serving
from syncer.peer.wire.incoming import Incoming
from syncer.peer.wire.messages import (
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
    data_of,
)
from syncer.ports.blocks import Want
from tests.kit.peering import SOMEBODY, Inline, Shelf, block, connected, name, on_a_clock

BIG = 1 << 20


def want(data: bytes) -> Want:
    """A want for it."""
    return Want(id=name(data), length=len(data))


class Notes:
    """An owner that notes what it is told."""

    def __init__(self) -> None:
        self.got: dict[BlockId, bytes] = {}
        self.lost: dict[BlockId, Failure] = {}
        self.closed: set[BlockId] = set()
        self.news = trio.Event()

    def is_open(self, want: Want) -> bool:
        """See Owner."""
        return want.id not in self.closed

    def came(self, download: Download, want: Want, block: bytes) -> None:
        """See Owner."""
        self.got[want.id] = block
        self.news.set()

    def failed(self, download: Download, want: Want, why: Failure) -> None:
        """See Owner."""
        self.lost[want.id] = why
        self.news.set()

    async def until(self, count: int) -> None:
        """So many have come or failed."""
        while len(self.got) + len(self.lost) < count:
            self.news = trio.Event()
            await self.news.wait()


class Fake:
    """A peer that does what a test wants."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.heard: list[Message] = []

    def record(self, message: Message) -> bytes:
        """A message as it travels."""
        return bytes(self.channel._codec.send(message))

    @property
    def stream(self) -> trio.abc.Stream:
        """What carries it."""
        return self.channel._stream

    async def says(self, *messages: Message) -> None:
        await self.channel.send(messages)

    async def hears(self) -> Message | None:
        """The next message but for the first, a PING; None: the end."""
        while not self.heard:
            messages = await self.channel.receive()
            if not messages:
                return None
            self.heard = [message for message in messages if not isinstance(message, Ping)]
        return self.heard.pop(0)

    async def is_asked(self) -> Get:
        """The next request."""
        message = await self.hears()
        assert isinstance(message, Get), message
        return message


class Case:
    """A download from a peer, and what its owner was told."""

    def __init__(self, download: Download, fake: Fake) -> None:
        self.download, self.fake, self.notes = download, fake, Notes()
        self.ended: Failure | None = None
        self.told: list[BlockId] = []

    async def asks(self, *blocks: bytes) -> None:
        await self.download.get(self.notes, [want(data) for data in blocks])


@asynccontextmanager
async def case(
    pace: Throttle | None = None, allowance: Allowance | None = None, partial: dict[BlockId, Incoming] | None = None
) -> AsyncIterator[Case]:
    """A connection to a fake peer."""
    ours, theirs = connected()
    told: list[BlockId] = []
    download = Download(ours, told.extend, pace=pace, allowance=allowance, partial=partial)
    made = Case(download, Fake(theirs))
    made.told = told

    async def run() -> None:
        made.ended = await download.run()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        yield made
        await theirs.close()


@asynccontextmanager
async def honest(*blocks: bytes) -> AsyncIterator[tuple[Download, Notes]]:
    """A connection to a peer that serves these."""
    ours, theirs = connected()
    download = Download(ours, lambda ids: None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Serving(theirs, Shelf(blocks), Inline(), SOMEBODY, lambda: True).run)
        nursery.start_soon(download.run)
        yield download, Notes()
        download.end()


@on_a_clock
async def test_blocks_come_as_they_are() -> None:
    blocks = [block(number, size) for number, size in enumerate((10, 1000, BIG, 3 * BIG))]
    async with honest(*blocks) as (download, notes):
        await download.get(notes, [want(data) for data in blocks])
        await notes.until(4)
        assert notes.got == {name(data): data for data in blocks}
        assert download.idle
        assert download.outstanding == 0
        assert (download.blocks, download.bytes, download.wasted) == (4, 1010 + 4 * BIG, 0)


@on_a_clock
async def test_what_is_not_there_fails_alone() -> None:
    async with honest(block(1)) as (download, notes):
        await download.get(notes, [want(block(2)), want(block(1))])
        await notes.until(2)
        assert notes.lost == {name(block(2)): Failure.LACKED}
        assert notes.got == {name(block(1)): block(1)}


@on_a_clock
async def test_a_peer_that_goes_fails_what_it_owes() -> None:
    async with case() as made:
        await made.asks(block(1), block(2))
        get = await made.fake.is_asked()
        await made.fake.says(Head(rid=get.rid, total=1000), Data(rid=get.rid, content=b"x"))
        await made.fake.channel.close()
        await made.notes.until(2)
        assert set(made.notes.lost.values()) == {Failure.GONE}
        assert made.download.is_over
        assert made.download.room(1) == 0


@on_a_clock
async def test_what_broke_off_goes_on_at_the_same_peer() -> None:
    data, partial = block(1, BIG), dict[BlockId, Incoming]()
    async with case(partial=partial) as made:
        await made.asks(data)
        get = await made.fake.is_asked()
        await made.fake.says(Head(rid=get.rid, total=BIG), Data(rid=get.rid, content=data[:100_000]))
        await made.fake.channel.close()
        await made.notes.until(1)
    async with case(partial=partial) as made:
        await made.asks(data)
        get = await made.fake.is_asked()
        assert get.offset == 100_000
        await made.fake.says(Head(rid=get.rid, total=BIG), *data_of(get.rid, data, 100_000), End(rid=get.rid))
        await made.notes.until(1)
        assert made.notes.got == {name(data): data}
    assert not partial


@on_a_clock
async def test_a_block_that_comes_in_one_message_after_it_was_cancelled_is_wasted() -> None:
    data = block(1, 1000)
    async with case() as made:
        await made.asks(data, block(2))
        get, second = await made.fake.is_asked(), await made.fake.is_asked()
        assert made.download.cancel(made.notes, name(data))
        await made.download.hang_up()
        await made.fake.says(Block(rid=get.rid, content=data), Block(rid=second.rid, content=block(2)))
        await made.notes.until(1)
        assert made.notes.got == {name(block(2)): block(2)}
        assert made.download.wasted == 1000
        assert made.ended is None
        await made.fake.says(Block(rid=get.rid, content=data))
        assert await made.fake.hears() == Cancel(rid=get.rid)
        assert await made.fake.hears() == Close(reason=CloseReason.PROTOCOL)


@pytest.mark.parametrize("only", [False, True])
@on_a_clock
async def test_a_peer_that_sends_no_byte_has_stalled(only: bool) -> None:
    async with case() as made:
        made.download.is_only = only
        began = trio.current_time()
        await made.asks(block(1))
        await made.notes.until(1)
        assert made.notes.lost == {name(block(1)): Failure.STALLED}
        assert trio.current_time() - began == pytest.approx(2.0 if only else 1.0)


@on_a_clock
async def test_a_byte_now_and_then_is_a_stall_too() -> None:
    async with case() as made, trio.open_nursery() as nursery:
        began = trio.current_time()
        await made.asks(block(1))
        get = await made.fake.is_asked()

        async def dribble() -> None:
            for byte in made.fake.record(Data(rid=get.rid, content=bytes(1000))):
                await trio.sleep(0.5)
                await made.fake.stream.send_all(bytes([byte]))

        nursery.start_soon(dribble)
        await made.notes.until(1)
        assert made.notes.lost == {name(block(1)): Failure.STALLED}
        assert trio.current_time() - began < 11
        nursery.cancel_scope.cancel()


@on_a_clock
async def test_a_peer_of_whom_nothing_is_asked_may_be_silent() -> None:
    async with case() as made:
        await trio.sleep(30)
        assert made.ended is None
        await made.asks(block(1))
        get = await made.fake.is_asked()
        await trio.sleep(0.9)
        await made.fake.says(NotFound(rid=get.rid))
        await made.notes.until(1)
        await trio.sleep(30)
        assert made.ended is None


@on_a_clock
async def test_a_busy_peer_is_left_alone_for_a_while() -> None:
    async with case() as made:
        await made.asks(block(1))
        get = await made.fake.is_asked()
        await made.fake.says(Busy(rid=get.rid, retry_ms=300))
        await made.notes.until(1)
        assert made.notes.lost == {name(block(1)): Failure.BUSY}
        assert made.download.room(1000) == 0
        await trio.sleep(0.3)
        assert made.download.room(1000) > 0


@on_a_clock
async def test_more_is_asked_when_a_quarter_of_what_may_be_under_way_is_here() -> None:
    blocks = [block(number, 32 << 10) for number in range(8)]
    async with case() as made:
        await made.asks(*blocks)
        for number, data in enumerate(blocks):
            assert made.download.room(32 << 10) == (number * len(data) if number >= 2 else 0)
            get = await made.fake.is_asked()
            # At the same time: its rate is not known yet, so 256 KiB may be under way.
            made.download._hear(Block(rid=get.rid, content=data))


@on_a_clock
async def test_what_is_cancelled_is_told_and_wasted() -> None:
    data = block(1, 1000)
    async with case() as made:
        await made.asks(data, block(2))
        get = await made.fake.is_asked()
        second = await made.fake.is_asked()
        await made.fake.says(Head(rid=get.rid, total=1000), Data(rid=get.rid, content=data[:100]))
        made.notes.closed.add(name(data))
        await made.fake.says(Data(rid=get.rid, content=data[100:200]))
        assert await made.fake.hears() == Cancel(rid=get.rid)
        # What was on its way is no fault.
        await made.fake.says(Data(rid=get.rid, content=data[200:]), End(rid=get.rid))
        await made.fake.says(Head(rid=second.rid, total=1000), Data(rid=second.rid, content=block(2)))
        await made.fake.says(End(rid=second.rid))
        await made.notes.until(1)
        assert made.notes.got == {name(block(2)): block(2)}
        assert made.download.wasted == 1000
        assert made.ended is None


@pytest.mark.parametrize(
    "broken",
    [
        [Head(rid=0, total=1001)],
        [Data(rid=0, content=b"x")],
        [Head(rid=0, total=10), Data(rid=0, content=bytes(11))],
        [Head(rid=0, total=10), Data(rid=0, content=b"x"), End(rid=0)],
        [Head(rid=0, total=2), Data(rid=0, content=b"x\0"), End(rid=0)],
        [Head(rid=5, total=1)],
        [Block(rid=5, content=b"x")],
        [Block(rid=0, content=bytes(1001))],
        [Block(rid=0, content=b"x\0")],
        [Head(rid=0, total=10), Block(rid=0, content=b"x")],
        [HaveReply(qid=9, bitmap=b"\1")],
        [Ping(number=0, answer=True), Ping(number=0, answer=True)],
        [Get(rid=1, id=bytes(32))],
        [HaveQuery(qid=1, tokens=(bytes(8),))],
    ],
    ids=lambda broken: " ".join(type(each).__name__ for each in broken),
)
@on_a_clock
async def test_who_breaks_a_rule_is_let_go(broken: list[Message]) -> None:
    async with case() as made:
        await made.asks(block(1))
        await made.fake.is_asked()
        await made.fake.says(*broken)
        await made.notes.until(1)
        assert made.notes.lost == {name(block(1)): Failure.WRONG}


@on_a_clock
async def test_what_a_peer_has_and_gets_later_is_told() -> None:
    blocks = [block(number) for number in range(10)]
    async with case() as made:
        await made.download.ask([name(data) for data in blocks])
        question = await made.fake.hears()
        assert isinstance(question, HaveQuery)
        await made.fake.says(HaveReply(qid=question.qid, bitmap=b"\x05\x00"))
        await made.fake.says(Have(tokens=(question.tokens[7], b"unasked!")))
        await made.fake.says(Close(reason=0))
        while made.ended is None:
            await trio.sleep(0.1)
        assert made.told == [name(blocks[0]), name(blocks[2]), name(blocks[7])]
        assert made.fake.heard == []


@on_a_clock
async def test_what_is_asked_of_a_peer_and_of_all_is_bounded() -> None:
    allowance = Allowance(5 * BIG)
    async with case(allowance=allowance) as one, case(allowance=allowance) as two:
        assert one.download.room(64 << 10) == 256 << 10
        assert one.download.room(2 * BIG) == 4 * BIG
        assert one.download.room(BIG << 4) == 5 * BIG
        await one.asks(block(1, 3 * BIG))
        assert two.download.room(2 * BIG) == 2 * BIG
    assert allowance.left == 5 * BIG
    assert MOST_BYTES == 8 * BIG


@on_a_clock
async def test_downloads_keep_to_the_limit() -> None:
    async with case(pace=Throttle(BIG)) as made:
        began = trio.current_time()
        for number in range(4):
            await made.asks(block(number, BIG))
            get = await made.fake.is_asked()
            await made.fake.says(NotFound(rid=get.rid))
        await made.notes.until(4)
        assert trio.current_time() - began == pytest.approx(3, abs=0.2)
