"""Blocks from the daemon's peers for another process of the same user, through the daemon's socket.

The daemon is on the LAN already and knows who is there; a `reconcile` beside it is no second member. It says what it
wants, is told what the daemon's peers offer, and fetches that: the messages of peers in clear, where the daemon is the
only peer. What differs:

- A block is named by all of its id, as four tokens: the daemon shall fetch it, and must know all of it.
- The daemon speaks first: PING, whose number is how many milliseconds ago a peer was heard (2^32 - 1: none was).
- HAVER tells what is offered already, and HAVE what is offered later.
- HAVE by who asks: these are here, or not wanted any more.

The daemon verifies what it hands on, for it must know which peer lied. Who asks verifies once more, as all sources.

Source: docs/design/peer-protocol.md.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Final

import trio

from blockfs.blocks.hashing import block_id, canonical
from blockfs.blocks.ids import BlockId
from syncer.errors import SyncerError
from syncer.peer.exchange.channel import Channel
from syncer.peer.exchange.fetching import Download, tokens_of
from syncer.peer.exchange.source import Asker, Circle, Cycle, PeerSource
from syncer.peer.session.actions import PeerId
from syncer.peer.wire.bodies import bitmap_of
from syncer.peer.wire.messages import (
    MAX_HAVE_TOKENS,
    Cancel,
    Close,
    CloseReason,
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
from syncer.peer.wire.plain import Plain
from syncer.ports.blocks import Given, NearBlocks, Want

WORDS: Final = 4
WANTS: Final = 65_536
BUDGET_BYTES: Final = 32 << 20
GRACE_S: Final = 0.01  # for its answer to the first question: 2 ms more than for one on the wire, at both ends
HELLO_S: Final = 2.0  # the daemon's first word
PATIENCE_S: Final = 10.0  # its peers may stall, one after the other
DAEMON: Final = PeerId(b"the daemon".ljust(16))
_NEVER: Final = (1 << 32) - 1
_HASHED_HERE: Final = 128 << 10  # bytes; more are hashed in a thread


# --- the daemon's side


async def serve(stream: trio.abc.Stream, circle: Circle | None, block_size: int) -> None:
    """Serve another process until it goes. The stream is closed.

    Args:
        stream: After its question was read, with nothing behind it.
        circle: The share; None: the daemon takes no part in it.
        block_size: Of the share, bytes.
    """
    channel = Channel(stream, Plain())
    if circle is None:
        await channel.close(Close(reason=CloseReason.REFUSED))
        return
    board = _Board(channel, circle, block_size)
    try:
        async with trio.open_nursery() as nursery:
            heard_s = trio.current_time() - circle.heard_s
            await channel.send([Ping(number=_NEVER if math.isinf(heard_s) else min(_NEVER, int(heard_s * 1000)))])
            nursery.start_soon(board.cycle.run)
            nursery.start_soon(board.tell)
            while (messages := await channel.receive()) and all(map(board.hear, messages)):
                pass
            nursery.cancel_scope.cancel()
    finally:
        await channel.close()


class _Board:
    """The wants of the other process as a `Board`: shown when it asks, to be taken when it wants to have them."""

    own: NearBlocks | None = None  # the other process asks its root itself

    def __init__(self, channel: Channel, circle: Circle, block_size: int) -> None:
        self.cycle = Cycle(circle, self, random.randrange, gated=True)
        self._channel = channel
        self._block_size = block_size
        self._wants: dict[BlockId, Want] = {}
        self._fresh: deque[Want] = deque()
        self._offered: set[BlockId] = set()
        self._gets: dict[BlockId, int] = {}  # rids
        self._claimed: set[BlockId] = set()
        self._outbox: list[Message] = []
        self._has_mail = trio.Event()
        self._news = trio.Event()

    # --- what the other process says

    def hear(self, message: Message) -> bool:
        """Returns whether it keeps to the protocol, and goes on."""
        match message:
            case HaveQuery():
                return self._hear_query(message)
            case Have(tokens=tokens):
                for block in _ids(tokens) or ():
                    self._forget(block)
            case Get(offset=0):
                return self._hear_get(message.rid, BlockId(message.id))
            case Cancel(rid=rid):
                for block in [block for block, other in self._gets.items() if other == rid]:
                    self._forget(block)
            case Ping(answer=False, number=number):
                self._post(Ping(number=number, answer=True))
            case _:
                return False
        return True

    def _hear_query(self, query: HaveQuery) -> bool:
        ids = _ids(query.tokens)
        if ids is None:
            return False
        held = [block in self._offered for block in ids for _ in range(WORDS)]
        self._post(HaveReply(qid=query.qid, bitmap=bitmap_of(held)))
        for block in ids:
            if block not in self._wants and len(self._wants) < WANTS:
                self._wants[block] = Want(id=block, length=self._block_size)
                self._fresh.append(self._wants[block])
        self._news.set()
        return True

    def _hear_get(self, rid: int, block: BlockId) -> bool:
        if block in self._gets:
            return False
        if block in self._offered:
            self._gets[block] = rid
            self.cycle.fetch(block)
        else:
            self._post(NotFound(rid=rid))
        return True

    async def tell(self) -> None:
        """Send what is to be said."""
        while True:
            if not self._outbox:
                self._has_mail = trio.Event()
                await self._has_mail.wait()
            mail, self._outbox = self._outbox, []
            await self._channel.send(mail)

    def _post(self, message: Message) -> None:
        self._outbox.append(message)
        self._has_mail.set()

    def _forget(self, block: BlockId) -> None:
        self._wants.pop(block, None)
        self._gets.pop(block, None)
        self._offered.discard(block)
        self._claimed.discard(block)

    # --- Board

    @property
    def open(self) -> int:
        """See Board."""
        return len(self._wants)

    def peek(self, most: int) -> Sequence[Want]:
        """See Board."""
        shown = [self._fresh.popleft() for _ in range(min(most, len(self._fresh)))]
        return [want for want in shown if self._wants.get(want.id) is want]

    def glance(self, most: int) -> Sequence[Want]:
        """See Board."""
        shown = self.peek(most)
        if self._fresh:
            self._news.set()
        return shown

    def take(
        self, most_bytes: int, among: Collection[BlockId] | None = None, *, spare: bool = False, again: bool = False
    ) -> Sequence[Want]:
        """See Board. Only what the other process wants to have now."""
        del spare, again
        taken: list[Want] = []
        for block in self._gets if among is None else among:
            room = min(most_bytes, BUDGET_BYTES) - self._block_size * (len(self._claimed) if taken else 0)
            if (taken and room <= 0) or self._block_size * len(self._claimed) >= BUDGET_BYTES:
                break
            if block in self._gets and block not in self._claimed:
                self._claimed.add(block)
                taken.append(self._wants[block])
        return taken

    async def give(self, got: Sequence[tuple[Want, bytes]], *, hold: bool = False) -> list[Given]:
        """See Board."""
        blocks = [canonical(data) for _, data in got]
        if sum(map(len, blocks)) <= _HASHED_HERE:
            names = [block_id(data) for data in blocks]
        else:
            names = await trio.to_thread.run_sync(lambda: [block_id(data) for data in blocks])
        outcomes: list[Given] = []
        for (want, _), data, name in zip(got, blocks, names, strict=True):
            if name == want.id or not hold:
                self._claimed.discard(want.id)
            outcomes.append(await self._given(want, data) if name == want.id else Given.WRONG)
        return outcomes

    async def _given(self, want: Want, data: bytes) -> Given:
        rid = self._gets.pop(want.id, None)
        if rid is None:
            return Given.LATE
        await self._channel.send([Head(rid=rid, total=len(data)), *data_of(rid, data), End(rid=rid)])
        return Given.RIGHT

    def lack(self, wants: Iterable[Want], why: SyncerError | None = None) -> None:
        """See Board."""
        del why
        for want in wants:
            self._offered.discard(want.id)
            self._claimed.discard(want.id)
            rid = self._gets.pop(want.id, None)
            if rid is not None:
                self._post(NotFound(rid=rid))

    def offer(self, wants: Iterable[Want]) -> None:
        """See Board."""
        ids = [want.id for want in wants if want.id in self._wants]
        self._offered.update(ids)
        for have in _haves(ids):
            self._post(have)

    def heard(self, at_s: float) -> None:
        """See Board. Who asks hears of it by what is offered."""

    def seek(self, *, over: bool = False, sure: bool = False) -> None:
        """See Board. The board of who asks has its own rules."""

    def answering(self, *, over: bool = False) -> None:
        """See Board. Who asks hears of answers by what is offered."""

    def is_open(self, want: Want) -> bool:
        """See Board."""
        return want.id in self._wants and (want.id not in self._claimed or want.id in self._gets)

    async def more(self) -> bool:
        """See Board."""
        await self._news.wait()
        self._news = trio.Event()
        return True


# --- the other process's side


@asynccontextmanager
async def relayed(stream: trio.abc.Stream, question: bytes) -> AsyncIterator[PeerSource | None]:
    """A source of blocks that come through the daemon.

    Args:
        stream: Connected to the daemon's socket; it is closed at the end.
        question: The line that asks for it, with its end.

    Yields:
        The source; None: this daemon does not do that, or takes no part in the share.
    """
    channel = Channel(stream, Plain())
    try:
        hello: list[Message] = []
        with trio.move_on_after(HELLO_S):
            try:
                await stream.send_all(question)
                hello = await channel.receive()
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass
        if not hello or not isinstance(hello[0], Ping):
            yield None
            return
        async with trio.open_nursery() as nursery:
            relay = _Relay(channel, hello[0].number, nursery)
            try:
                yield PeerSource(relay)
            finally:
                relay.nursery = None  # it takes no more tasks soon
            nursery.cancel_scope.cancel()
    finally:
        await channel.close()


class _Relay:
    """The daemon as a `source.Circle` with one peer."""

    def __init__(self, channel: Channel, heard_ms: int, nursery: trio.Nursery) -> None:
        self.heard_s = -math.inf if heard_ms == _NEVER else trio.current_time() - heard_ms / 1000
        self._channel = channel
        self.nursery: trio.Nursery | None = nursery
        self._askers: dict[int, Asker] = {}
        self._download: Download | None = None

    @property
    def is_alone(self) -> bool:
        """See Circle. Only the daemon can know."""
        return False

    async def known(self) -> bool:
        """See Circle. The daemon asks, which was there before: it has as long as frames have."""
        await trio.sleep(GRACE_S)
        return False

    def join(self, asker: Asker) -> None:
        """See Circle."""
        self._askers[id(asker)] = asker

    def leave(self, asker: Asker) -> None:
        """See Circle."""
        del self._askers[id(asker)]

    def want(self, asker: Asker, ids: Sequence[BlockId]) -> None:
        """See Circle. Whoever uses the connection asks over it."""
        del ids
        asker.offered(DAEMON, ())

    def drop(self, asker: Asker, ids: Iterable[BlockId]) -> None:
        """See Circle."""
        del asker
        haves = _haves(list(ids))
        if haves and self.nursery is not None:
            self.nursery.start_soon(self._channel.send, haves)

    async def connect(self, asker: Asker, peer: PeerId) -> Download | None:
        """See Circle."""
        del asker, peer
        await trio.lowlevel.checkpoint()
        if self._download is None and self.nursery is not None:
            self._download = Download(self._channel, self._told, patience_s=PATIENCE_S, words=WORDS)
            self.nursery.start_soon(self._download.run)
        return None if self._download is None or self._download.is_over else self._download

    def release(self, asker: Asker, peer: PeerId) -> None:
        """See Circle."""
        del asker, peer
        if self._download is not None and self.nursery is not None:
            self.nursery.start_soon(self._download.hang_up)

    def lacked(self, peer: PeerId) -> None:
        """See Circle. Its peers are none of our business."""
        del peer

    def wrong(self, peer: PeerId, block: BlockId) -> None:
        """See Circle. The daemon looks at what it hands on."""
        del peer, block
        if self._download is not None:
            self._download.end()

    def _told(self, ids: Sequence[BlockId]) -> None:
        for asker in list(self._askers.values()):
            asker.offered(DAEMON, ids)


def _haves(ids: Sequence[BlockId]) -> list[Have]:
    most = MAX_HAVE_TOKENS // WORDS
    return [Have(tokens=tokens_of(ids[at : at + most], WORDS)) for at in range(0, len(ids), most)]


def _ids(tokens: Sequence[bytes]) -> list[BlockId] | None:
    """The blocks that are named; None: not all of an id."""
    if len(tokens) % WORDS:
        return None
    return [BlockId(b"".join(tokens[at : at + WORDS])) for at in range(0, len(tokens), WORDS)]
