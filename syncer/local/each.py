"""Several new files: one by one, each staged and named alone, or their contents fetched together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Protocol

import trio

from blockfs.blocks.ids import BlockId
from blockfs.errors import BlockfsError
from syncer.core.model import Content
from syncer.errors import SyncerError
from syncer.local.root import Applied, LocalRoot, Origin, Wanted

OWN: Final = (SyncerError, BlockfsError, OSError)
"""What may come of one file alone. All else is a fault of the program and ends it."""


async def create_each(root: LocalRoot, wanted: Sequence[Wanted], at_once: int) -> list[Applied | Exception]:
    """Stage and name several files.

    Args:
        root: Where.
        wanted: Which.
        at_once: How many are under way at a time.

    Returns:
        What each one alone would have given or raised.
    """
    done: dict[int, Applied | Exception] = {}
    room = trio.Semaphore(at_once)
    equal: dict[Content, list[int]] = {}
    for at, each in enumerate(wanted):
        equal.setdefault(each.content, []).append(at)

    async def one_after_the_other(positions: Sequence[int]) -> None:
        """Those of one content: what was fetched for one, the next takes from it."""
        before: tuple[Origin, ...] = ()
        for at in positions:
            each = replace(wanted[at], origins=(*before, *wanted[at].origins))
            try:
                done[at] = applied = await create_one(root, each)
                before = (Origin(path=each.path, tag=applied.tag, content=each.content),)
            except OWN as error:
                done[at] = error
        room.release()

    async with trio.open_nursery() as nursery:
        for positions in equal.values():
            await room.acquire()
            nursery.start_soon(one_after_the_other, positions)
    return [done[at] for at in range(len(wanted))]


async def create_one(root: LocalRoot, wanted: Wanted) -> Applied:
    """Stage and name one file."""
    staged = await root.stage(wanted)
    try:
        return await root.create(wanted.path, staged)
    finally:
        await staged.drop()


class Incomplete(Protocol):
    """Several new files of at most one block each, some of which lack their content."""

    def missing(self) -> list[int]:
        """Positions of those that lack it: one of each content, none that failed."""
        ...

    def take(self, at: int, data: bytes) -> None:
        """It was fetched, verified, for the file at this position and all of equal content."""
        ...

    def fail(self, at: int, error: Exception) -> None:
        """It can't be had for the file at this position."""
        ...


async def fetch_missing(portion: Incomplete, wanted: Sequence[Wanted]) -> None:
    """Fetch each content once; once more where that failed for one file and another one wants the same."""
    while missing := portion.missing():
        async with trio.open_nursery() as nursery:
            for at in missing:
                nursery.start_soon(_fetch, portion, at, wanted[at])


async def _fetch(portion: Incomplete, at: int, wanted: Wanted) -> None:
    delivered = False

    async def receive(got: Sequence[tuple[BlockId, bytes]]) -> None:
        nonlocal delivered
        ((_, data),) = got
        delivered = True
        portion.take(at, data)

    try:
        await wanted.fetch([0], receive)
    except OWN as error:
        portion.fail(at, error)
    else:
        assert delivered, wanted.path
