"""The board under seeded histories: callers that share blocks and are cancelled, sources that lie, stall, double, die.

What each history is held to is numbered as in docs/design/board.md, section 6: B1 to B7, B9.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest
import trio
from trio.testing import MockClock

from blockfs.blocks.hashing import block_id
from blockfs.blocks.ids import BlockId
from syncer.blocks.board import Blocks
from syncer.ports.blocks import Priority, Want
from tests import effort
from tests.unit.syncer.blocks.scripted import MOST, Unreliable, blocks_of, some

BUDGET = 8192
_SEEDS = effort.count("board of blocks")
_STEP = 100


class History:
    """One run: six callers, up to four sources."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        self.blocks = blocks_of(chance.randrange(1, 80))
        self.near_ones = [
            Unreliable("own", some(self.blocks, 0.2, chance), chance, near=True, peeks=chance.random() < 0.5),
            Unreliable("roots", some(self.blocks, 0.2, chance), chance, near=True, dies=0.05),
        ]
        peers = Unreliable("peers", some(self.blocks, 0.6, chance), chance, peeks=True, again=0.3, doubles=0.1, tasks=3)
        peers.lies, peers.stalls, peers.dies = (chance.choice((0.0, 0.1)) for _ in range(3))
        self.remote = Unreliable("remote", self.blocks, chance, lies=0.02, tasks=chance.randrange(1, 4), doubles=0.05)
        self.sources = [*self.near_ones, *([peers] if chance.random() < 0.8 else []), self.remote]
        self.lost = set(some(self.blocks, 0.1, chance)) if chance.random() < 0.3 else set()  # nobody has these
        for source in self.sources:
            source.has = {block: data for block, data in source.has.items() if block not in self.lost}
        self.received: Counter[BlockId] = Counter()
        self.board = Blocks(self.sources, budget_bytes=BUDGET, draw=chance.randrange)
        self.most_claimed = self.most_claims = 0
        self.right: dict[str, int] = {}

    async def run(self) -> None:
        async with trio.open_nursery() as outer:
            outer.start_soon(self.board.run)
            outer.start_soon(self._watch)
            with trio.fail_after(500):
                async with trio.open_nursery() as callers:
                    for number in range(6):
                        callers.start_soon(self._call, number)
            self.right = {name: stats.blocks for name, stats in self.board.stats.items()}
            outer.cancel_scope.cancel()

    async def _watch(self) -> None:
        while True:
            self.most_claimed = max(self.most_claimed, self.board.claimed_bytes)
            claims = (entry.claims.bit_count() for entry in self.board._table.open.values())
            self.most_claims = max(self.most_claims, max(claims, default=0))
            await trio.sleep(0.001)

    async def _call(self, number: int) -> None:
        chance = self.chance
        await trio.sleep(chance.random() * 0.05)
        wanted = [block for block in self.blocks if chance.random() < 0.6]
        got: Counter[BlockId] = Counter()
        is_under_way = False

        async def receive(batch: Sequence[tuple[BlockId, bytes]]) -> None:
            nonlocal is_under_way
            assert not is_under_way
            is_under_way = True
            try:
                await trio.sleep(chance.random() * 0.002)
            finally:
                is_under_way = False
            for block, data in batch:
                assert block_id(data) == block
                assert data == self.blocks[block]
                got[block] += 1
                self.received[block] += 1

        wants = [Want(id=block, length=MOST + 1000) for block in wanted]
        with trio.move_on_after(0.02 if number == 5 else float("inf")) as scope:
            failed = await self.board.fetch(wants, receive, priority=chance.choice(list(Priority)))
        if not scope.cancelled_caught:  # B1, B4
            assert set(failed) == self.lost.intersection(wanted)
            assert got == Counter(set(wanted) - self.lost)

    def check(self) -> None:
        """What holds at the end."""
        assert self.most_claimed <= BUDGET + MOST + 1000  # B3
        assert self.board.claimed_bytes == 0  # B7
        own, *others = self.sources
        assert own.has.keys().isdisjoint(block for source in others if not source.near for block in source.asked)  # B5
        assert self.most_claims <= 2  # B6
        for source in self.sources:  # B9; a task that is cancelled does not see its last one
            assert self.right[source.name] >= source.right
        assert len(self.received) <= sum(self.right.values()) <= self.received.total() + len(self.blocks)


@pytest.mark.parametrize("first", range(0, _SEEDS, _STEP))
def test_every_history_ends_with_each_block_once_and_within_the_budget(first: int) -> None:
    for seed in range(first, min(first + _STEP, _SEEDS)):
        history = History(seed)
        try:
            trio.run(history.run, clock=MockClock(autojump_threshold=0))
            history.check()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
