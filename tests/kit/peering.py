"""Two ends of a connection of LAN peers in memory, and shares for them: for tests of what speaks over it."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

import trio
import trio.testing

from blockfs.blocks.ids import BlockId
from syncer.peer.channel import Channel
from syncer.peer.handshake import Dialled, answer
from syncer.peer.keys import derive
from syncer.peer.limits import Uploads
from syncer.peer.records import Secured

A = TypeVar("A")
R = TypeVar("R")
KEYS = derive(b"k" * 32, 5)


def on_a_clock(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run an async test under a clock that jumps when nobody has anything to do: a minute takes no time."""

    @functools.wraps(test)
    def run(**arguments: object) -> None:
        trio.run(functools.partial(test, **arguments), clock=trio.testing.MockClock(autojump_threshold=0))

    return run


class Inline(Uploads):
    """Uploads without threads: the clock would jump while one of them works."""

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
