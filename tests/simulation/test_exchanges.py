"""Whole exchanges with everything that goes wrong, by seed: all blocks come that can, each is right, and none hangs."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeVar

import pytest
import trio
import trio.testing

from blockfs.blocks.ids import BlockId
from syncer.peer.session.keyring import RootKey
from syncer.ports.blocks import Board
from tests import effort
from tests.kit.peering import Inline, Shelf, block, name
from tests.kit.stations import Station, Wire, running

KEY = RootKey(raw=b"k" * 32)
PATIENCE_S = 600.0
A = TypeVar("A")
R = TypeVar("R")


class Evil(Shelf):
    """A share that says it has everything, and has nothing or something else."""

    def __init__(self, chance: random.Random, wrong: float) -> None:
        super().__init__()
        self._chance, self._wrong = chance, wrong

    def match(self, prefixes: object) -> list[bool]:
        """See ShareIndex."""
        return [True] * len(prefixes)  # type: ignore[arg-type]

    def read(self, block_id: BlockId) -> bytes | None:
        """See ShareIndex."""
        return b"wrong" if self._chance.random() < self._wrong else None


class Slow(Inline):
    """Files that take their time, now and then for ever."""

    def __init__(self, places: int, chance: random.Random) -> None:
        super().__init__(places)
        self._chance = chance

    async def look(self, what: Callable[[A], R], at: A) -> R:
        """See Uploads."""
        await trio.sleep(self._chance.choice([0, 0, 0, 0.001, 0.05, 0.4, 30]))
        return what(at)


class Server:
    """The remote: it has all, or some of it, and is slow."""

    name = "remote"
    near = False

    def __init__(self, blocks: dict[BlockId, bytes], each_s: float) -> None:
        self._blocks, self._each_s = blocks, each_s

    async def run(self, board: Board) -> None:
        """See BlockSource."""
        while await board.more():
            for want in board.take(3000):
                data = self._blocks.get(want.id)
                if data is None:
                    board.lack([want])
                else:
                    await trio.sleep(self._each_s)
                    await board.give([(want, data)])


@pytest.mark.parametrize("seed", range(effort.count("exchanges")))
def test_all_comes_that_can_and_all_of_it_is_right(seed: int) -> None:
    chance = random.Random(seed)
    trio.run(_run, chance, clock=trio.testing.MockClock(autojump_threshold=0))


async def _run(chance: random.Random) -> None:
    wire = Wire()
    blocks = [block(number, chance.choice([10, 1000, 3000])) for number in range(chance.choice([1, 20, 200]))]
    stations = [Station(wire) for _ in range(chance.randint(1, 6))]
    asker, others = stations[0], stations[1:]
    good: set[BlockId] = set()
    shelves: list[Shelf] = []
    for each in others:
        if chance.random() < 0.3:
            shelves.append(Evil(chance, chance.choice([0.0, 0.1, 1.0])))
        else:
            shelves.append(Shelf([data for data in blocks if chance.random() < chance.choice([0.2, 1.0])]))
            if chance.random() < 0.3:
                each.exchange.uploads = Slow(4, chance)
            else:
                good |= set(shelves[-1].blocks)
    served = dict(
        chance.sample([(name(data), data) for data in blocks], chance.choice([0, len(blocks) // 2, len(blocks)]))
    )
    cuts = chance.random() < 0.3
    with trio.fail_after(PATIENCE_S):
        async with running(*stations):
            asker.exchange.share("root", [KEY], Shelf())
            for each, shelf in zip(others, shelves, strict=True):
                each.exchange.share("root", [KEY], shelf)
            async with trio.open_nursery() as nursery:
                if cuts:
                    nursery.start_soon(_cut, wire, chance)
                got = await asker.fetches(blocks, Server(served, chance.choice([0.0, 0.01, 1.0])))
                nursery.cancel_scope.cancel()
            assert all(name(data) == block_id for block_id, data in got.items())
            assert set(served) <= set(got)
            if not cuts and not any(isinstance(shelf, Evil) for shelf in shelves):
                assert good <= set(got)


async def _cut(wire: Wire, chance: random.Random) -> None:
    while True:
        await trio.sleep(chance.choice([0.001, 0.01, 0.1]))
        if wire.streams:
            await trio.aclose_forcefully(wire.streams.pop(chance.randrange(len(wire.streams))))
