"""Sources that do what a test says, and blocks for them."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field

import trio

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.ids import BlockId, ObjectHash
from syncer.core.model import Content, RelPath, RemoteTag
from syncer.errors import RemoteUnavailableError
from syncer.ports.blocks import Board, Given, Place, VersionRef, Want

MOST = 2000  # bytes of a block


def blocks_of(count: int) -> dict[BlockId, bytes]:
    """Different blocks of 1 to 2000 bytes that end in no NUL."""
    made = [f"block {number} ".encode() * (1 + number * 37 % 150) for number in range(count)]
    return {BlockId(hashlib.sha256(data).digest()): data for data in made}


def want(block: BlockId, *places: Place, length: int = MOST) -> Want:
    """One that several tests ask for."""
    return Want(id=block, length=length, places=places)


def place(name: bytes, block: BlockId) -> Place:
    """The only block of an object."""
    content = Content(size_bytes=1, object_hash=ObjectHash(block))
    tag = RemoteTag(uuid=name.hex(), version=1, etag=block.hex(), size_bytes=1)
    blocks = BlockList(block_size=4096, size_bytes=1, ids=block)
    return Place(version=VersionRef(path=RelPath(name), tag=tag, content=content), blocks=blocks, index=0)


@dataclass
class Scripted:
    """A source that a test writes as a function."""

    name: str
    serve: Callable[[Board], Awaitable[None]]
    near: bool = False

    async def run(self, board: Board) -> None:
        """Do as told, then wait for the end."""
        await self.serve(board)
        await trio.sleep_forever()


@dataclass
class Holding:
    """A source that gives what it has and lacks the rest."""

    name: str
    has: Mapping[BlockId, bytes]
    near: bool = False
    most_bytes: int = 1 << 20
    delay_s: float = 0.0
    asked: list[list[BlockId]] = field(default_factory=list)

    async def run(self, board: Board) -> None:
        """Serve."""
        while True:
            taken = board.take(self.most_bytes)
            if taken:
                self.asked.append([each.id for each in taken])
                await trio.sleep(self.delay_s)
                board.lack([each for each in taken if each.id not in self.has])
                await board.give([(each, self.has[each.id]) for each in taken if each.id in self.has])
            elif not await board.more():
                return


@dataclass
class Unreliable:
    """A source that lies, stalls, doubles and dies by chance, with several tasks."""

    name: str
    has: Mapping[BlockId, bytes]
    chance: random.Random
    near: bool = False
    most_bytes: int = 4096
    tasks: int = 1
    lies: float = 0.0
    stalls: float = 0.0
    doubles: float = 0.0
    dies: float = 0.0
    peeks: bool = False
    again: float = 0.0
    claimed: dict[BlockId, int] = field(default_factory=dict)
    right: int = 0
    asked: list[BlockId] = field(default_factory=list)

    async def run(self, board: Board) -> None:
        """Serve with several tasks; one that dies takes all along."""
        if self.peeks:
            board.heard(trio.current_time())
        with trio.CancelScope() as ended:
            async with trio.open_nursery() as nursery:
                for _ in range(self.tasks):
                    nursery.start_soon(self._serve, board, ended)
        if self.chance.random() < 0.5:
            raise RemoteUnavailableError("it died")

    async def _serve(self, board: Board, ended: trio.CancelScope) -> None:
        while True:
            if self.peeks:
                shown = board.peek(self.chance.randrange(1, 20))
                board.offer(each for each in shown if each.id in self.has)
            again = self.chance.random() < self.again
            among = list(self.has) if self.peeks and self.chance.random() < 0.5 else None
            taken = board.take(self.most_bytes, among, spare=self.chance.random() < 0.2, again=again)
            taken = taken or board.take(self.most_bytes)  # who only wants some must not wait for news of all
            if not taken:
                if not await board.more():
                    return
                continue
            self.asked += [each.id for each in taken]
            if self.chance.random() < self.dies:
                ended.cancel()
            await trio.sleep(self.chance.random() * (5 if self.chance.random() < self.stalls else 0.01))
            board.lack([each for each in taken if each.id not in self.has])
            got = [(each, self._data(each)) for each in taken if each.id in self.has and self._is_of_use(board, each)]
            if self.chance.random() < self.doubles:
                got += got
            outcomes = await board.give(got)
            self.right += outcomes.count(Given.RIGHT)
            bad = [each for (each, _), outcome in zip(got, outcomes, strict=True) if outcome is Given.WRONG]
            if self.name != "remote":
                board.lack(bad)

    def _is_of_use(self, board: Board, each: Want) -> bool:
        return board.is_open(each) or self.chance.random() < 0.5

    def _data(self, each: Want) -> bytes:
        data = self.has[each.id]
        if self.chance.random() < self.lies:
            return data[:-1] + b"!" + data
        return data + b"\0" * self.chance.randrange(3)


def some(blocks: Mapping[BlockId, bytes], share: float, chance: random.Random) -> dict[BlockId, bytes]:
    """A part of them."""
    return {block: data for block, data in blocks.items() if chance.random() < share}


def ids(wants: Iterable[Want]) -> list[BlockId]:
    """Their ids."""
    return [each.id for each in wants]


class Seat:
    """A source whose board a test uses itself."""

    def __init__(self, name: str = "remote", *, near: bool = False) -> None:
        self.name = name
        self.near = near
        self._board: Board | None = None

    async def run(self, board: Board) -> None:
        self._board = board
        await trio.sleep_forever()

    @property
    def board(self) -> Board:
        assert self._board is not None
        return self._board
