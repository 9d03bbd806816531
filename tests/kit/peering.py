"""Two ends of a connection of LAN peers in memory, and shares for them: for tests of what speaks over it."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, TypeVar

import trio
import trio.testing

from blockfs.blocks.ids import BlockId
from syncer.peer.exchange.channel import Channel
from syncer.peer.exchange.fetching import Download
from syncer.peer.exchange.limits import UPLOADS, Throttle, Upload, Uploads
from syncer.peer.exchange.serving import Serving
from syncer.peer.exchange.source import Asker
from syncer.peer.session.actions import PeerId
from syncer.peer.wire.handshake import Dialled, answer
from syncer.peer.wire.keys import derive
from syncer.peer.wire.messages import Data, End, Get, Head
from syncer.peer.wire.records import Secured

A = TypeVar("A")
R = TypeVar("R")
Serve = Callable[[Channel], Awaitable[object]]
KEYS = derive(b"k" * 32, 5)


def on_a_clock(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run an async test under a clock that jumps when nobody has anything to do: a minute takes no time."""

    @functools.wraps(test)
    def run(**arguments: object) -> None:
        trio.run(functools.partial(test, **arguments), clock=trio.testing.MockClock(autojump_threshold=0))

    return run


SOMEBODY: Final = Upload(peer=b"", address=b"")
"""A connection whose figures nobody looks at."""


class Inline(Uploads):
    """Uploads without threads: the clock would jump while one of them works.

    Args:
        places: See Uploads.
        pace: See Uploads.
        faults: See Uploads; none, unless a test has some.
    """

    def __init__(
        self, places: int = UPLOADS, pace: Throttle | None = None, faults: Callable[[], int] = lambda: 0
    ) -> None:
        super().__init__(places, pace, faults)

    async def look(self, what: Callable[[A], R], at: A) -> R:
        """See Uploads."""
        await trio.lowlevel.checkpoint()
        return what(at)


def block(number: int, size: int = 1000) -> bytes:
    """A block with a number, without trailing zeros."""
    return (b"%d:" % number).ljust(size, b"x")


def name(data: bytes) -> BlockId:
    """Its id."""
    return BlockId(hashlib.sha256(data).digest())


class Shelf:
    """A share that is held in memory: a `ShareIndex`. Reads are counted."""

    def __init__(self, blocks: Iterable[bytes] = (), share: str = "share") -> None:
        self.share = share
        self.blocks: dict[BlockId, bytes] = {}
        self.came: list[BlockId] = []
        self.reads = 0
        self.paused = False
        for each in blocks:
            self.add(each)

    def add(self, data: bytes) -> BlockId:
        """One more block."""
        self.blocks[name(data)] = data
        self.came.append(name(data))
        return name(data)

    def match(self, prefixes: Sequence[bytes]) -> list[bool]:
        """See ShareIndex."""
        held = {each[:8] for each in self.blocks}
        return [prefix in held for prefix in prefixes]

    def read(self, block: BlockId) -> bytes | None:
        """See ShareIndex."""
        self.reads += 1
        return self.blocks.get(block)

    def recent(self, since: int) -> tuple[int, Sequence[BlockId]]:
        """See ShareIndex."""
        return len(self.came), self.came[since:]


def secured() -> tuple[Secured, Secured]:
    """Both codecs after a handshake: of who dialled, of who answered."""
    dialled = Dialled(KEYS, b"s" * 16, os.urandom(32))
    answered = answer(dialled.greeting, KEYS, os.urandom(32))
    assert not isinstance(answered, str)
    reply, theirs = answered
    ours = dialled.answered(reply)
    assert isinstance(ours, Secured)
    return ours, theirs


def connected(room_bytes: int | None = None) -> tuple[Channel, Channel]:
    """Both ends: of who dialled, of who answered.

    Args:
        room_bytes: So many bytes fit between them, each way; None: any number.
    """
    ours, theirs = secured()
    if room_bytes is None:
        one, two = trio.testing.memory_stream_pair()
    else:
        one, two = trio.testing.lockstep_stream_pair()
    return Channel(one, ours), Channel(two, theirs)


class Yard:
    """A circle without a network: peers that answer at once, and do what a test wants once they are connected."""

    def __init__(self) -> None:
        self.heard_s = float("-inf")
        self.askers: list[Asker] = []
        self.peers: dict[PeerId, tuple[set[BlockId], Serve]] = {}
        self.downloads: dict[PeerId, Download] = {}
        self.wanted: list[BlockId] = []
        self.dropped: set[BlockId] = set()
        self.lies: list[PeerId] = []
        self.banned: list[PeerId] = []
        self.unreachable: set[PeerId] = set()
        self.tried: list[PeerId] = []
        self.nursery: trio.Nursery | None = None
        self.is_silent = False  # who has what is told over connections alone

    def add(self, peer: PeerId, offers: Iterable[bytes], serve: Serve | None = None) -> Shelf:
        """A peer that offers these; it serves them, unless it does something else."""
        blocks = list(offers)
        shelf = Shelf(blocks)

        async def honest(channel: Channel) -> None:
            await Serving(channel, shelf, Inline(), SOMEBODY, lambda: True).run()

        self.peers[peer] = ({name(data) for data in blocks}, serve or honest)
        return shelf

    @property
    def is_alone(self) -> bool:
        """see Circle."""
        return False

    async def known(self) -> bool:
        """see Circle."""
        await trio.lowlevel.checkpoint()
        return False

    def join(self, asker: Asker) -> None:
        """see Circle."""
        self.askers.append(asker)

    def leave(self, asker: Asker) -> None:
        """see Circle."""
        self.askers.remove(asker)

    def want(self, asker: Asker, ids: Sequence[BlockId]) -> None:
        """see Circle."""
        self.wanted += ids
        for peer, (offers, _) in self.peers.items():
            if peer not in self.banned:
                asker.offered(peer, [] if self.is_silent else [each for each in ids if each in offers])

    def drop(self, asker: Asker, ids: Iterable[BlockId]) -> None:
        """see Circle."""
        self.dropped |= set(ids)

    async def connect(self, asker: Asker, peer: PeerId) -> Download | None:
        """see Circle."""
        self.tried.append(peer)
        await trio.lowlevel.checkpoint()
        if peer in self.unreachable or peer in self.banned:
            return None
        assert self.nursery is not None
        if peer in self.downloads and not self.downloads[peer].is_over:
            return self.downloads[peer]
        ours, theirs = connected()
        download = Download(ours, lambda ids: [each.offered(peer, ids) for each in self.askers])
        self.downloads[peer] = download
        self.nursery.start_soon(self.peers[peer][1], theirs)
        self.nursery.start_soon(download.run)
        return download

    def release(self, asker: Asker, peer: PeerId) -> None:
        """see Circle."""

    def lacked(self, peer: PeerId) -> None:
        """see Circle."""
        self.lies.append(peer)
        if self.lies.count(peer) == 3:
            self.downloads[peer].end()

    def wrong(self, peer: PeerId, block: BlockId) -> None:
        """see Circle."""
        self.banned.append(peer)
        self.downloads[peer].end()


async def corrupts(channel: Channel) -> None:
    """Serve every block as another one."""
    while messages := await channel.receive():
        for message in messages:
            if isinstance(message, Get):
                rid = message.rid
                await channel.send([Head(rid=rid, total=5), Data(rid=rid, content=b"wrong"), End(rid=rid)])


async def stalls(channel: Channel) -> None:
    """Take questions and answer none."""
    while await channel.receive():
        pass
