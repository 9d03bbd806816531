"""Near sources: looked up by lists, read only where something may be, and nobody waits for them in vain."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import trio

from blockfs.blocks.ids import BlockId
from syncer.blocks.board import Blocks
from syncer.blocks.near import OwnBlocks
from syncer.ports.blocks import Priority
from tests.unit.syncer.blocks.scripted import Holding, blocks_of, want


@dataclass
class Here:
    """What a root has. Of `stale` ones the first place has other bytes; of `gone` ones there is none any more."""

    has: Mapping[BlockId, bytes]
    stale: Collection[BlockId] = ()
    gone: Collection[BlockId] = ()
    looked_up: list[int] = field(default_factory=list)
    asked: list[tuple[BlockId, bool]] = field(default_factory=list)

    def which(self, ids: Sequence[BlockId]) -> Collection[BlockId]:
        self.looked_up.append(len(ids))
        return [block for block in ids if block in self.has]

    def read(self, ids: Sequence[BlockId], *, checked: bool) -> Mapping[BlockId, bytes]:
        self.asked += [(block, checked) for block in ids]
        there = [block for block in ids if block not in self.gone]
        return {block: b"?" if block in self.stale and not checked else self.has[block] for block in there}


async def fetched(board: Blocks, ids: Collection[BlockId]) -> dict[BlockId, bytes]:
    got: dict[BlockId, bytes] = {}

    async def receive(batch: Sequence[tuple[BlockId, bytes]]) -> None:
        got.update(batch)

    assert not await board.fetch([want(block) for block in ids], receive, priority=Priority.LARGE)
    return got


def all_of(here: Here, remote: Holding, ids: Collection[BlockId]) -> dict[BlockId, bytes]:
    async def main() -> dict[BlockId, bytes]:
        board = Blocks([OwnBlocks(here), remote])
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(board.run)
                got = await fetched(board, ids)
                nursery.cancel_scope.cancel()
        assert board.claimed_bytes == 0
        return got

    return trio.run(main)


def test_what_the_root_has_is_asked_of_nobody_else() -> None:
    """B5 of the board, with the near source that cycles have."""
    blocks = blocks_of(6000)
    names = list(blocks)
    here, remote = Here({name: blocks[name] for name in names[::2]}), Holding("remote", blocks)
    assert all_of(here, remote, names) == blocks
    assert {name for asked in remote.asked for name in asked} == set(names[1::2])
    assert here.asked == [(name, False) for name in names[::2]]
    assert sum(here.looked_up) == 6000
    assert len(here.looked_up) <= 3


def test_a_place_that_has_other_bytes_by_now_is_not_the_only_one() -> None:
    blocks = blocks_of(4)
    names = list(blocks)
    here, remote = Here(blocks, stale=names[:1]), Holding("remote", blocks)
    assert all_of(here, remote, names) == blocks
    assert not remote.asked
    assert [name for name, checked in here.asked if checked] == names[:1]


def test_what_is_gone_when_it_is_to_be_read_comes_from_the_server() -> None:
    blocks = blocks_of(4)
    names = list(blocks)
    here, remote = Here(blocks, gone=names[1:3]), Holding("remote", blocks)
    assert all_of(here, remote, names) == blocks
    assert [name for asked in remote.asked for name in asked] == names[1:3]


def test_who_takes_its_blocks_slowly_keeps_nobody_from_asking_the_server() -> None:
    """Breaks when the root is not looked through as long as somebody has not taken what was found in it."""
    blocks = blocks_of(9)
    names = list(blocks)

    async def main() -> None:
        board = Blocks([OwnBlocks(Here({name: blocks[name] for name in names[:8]})), Holding("remote", blocks)])
        taken, release = trio.Event(), trio.Event()

        async def slowly(_: Sequence[tuple[BlockId, bytes]]) -> None:
            taken.set()
            await release.wait()

        async def slow() -> None:
            await board.fetch([want(block) for block in names[:8]], slowly, priority=Priority.LARGE)

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(board.run)
                async with trio.open_nursery() as callers:
                    callers.start_soon(slow)
                    await taken.wait()
                    assert await fetched(board, names[8:]) == {names[8]: blocks[names[8]]}
                    release.set()
                nursery.cancel_scope.cancel()

    trio.run(main)


def test_more_than_the_budget_comes_all_the_same() -> None:
    blocks = blocks_of(300)

    async def main() -> None:
        board = Blocks([OwnBlocks(Here(blocks)), Holding("remote", {})], budget_bytes=8000)
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(board.run)
                async with trio.open_nursery() as callers:
                    for _ in range(3):
                        callers.start_soon(fetched, board, list(blocks))
                nursery.cancel_scope.cancel()
        assert board.claimed_bytes == 0

    trio.run(main)
