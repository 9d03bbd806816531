"""What a pull fetches: the board is served meanwhile, and who else may want it is told what came."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import trio

from blockfs.blocks.ids import BlockId
from syncer.blocks.board import Blocks
from syncer.blocks.recent import RecentBlocks
from syncer.errors import SyncerError
from syncer.ports.blocks import Priority, Receive, Want
from syncer.ports.localvalues import SMALL_BYTES
from syncer.remote.parallel import one_error


@asynccontextmanager
async def serving(board: Blocks) -> AsyncIterator[None]:
    """Have the sources serve meanwhile."""
    with one_error():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(board.run)
            yield
            nursery.cancel_scope.cancel()


class PullFetcher:
    """A `Fetcher`: the cycle's board; what came of versions that the server has is told."""

    def __init__(self, board: Blocks, recent: RecentBlocks | None, step: Callable[[str], None]) -> None:
        """Take the board, who is told if there is somebody, and the fault points."""
        self._board = board
        self._recent = recent
        self._step = step

    async def fetch(
        self, wants: Sequence[Want], receive: Receive, *, priority: Priority
    ) -> Mapping[BlockId, SyncerError]:
        """See Fetcher."""
        self._step("before fetch")
        recent = self._recent
        if recent is None:
            return await self._board.fetch(wants, receive, priority=priority)
        small = {want.id: priority is Priority.SMALL and want.length <= SMALL_BYTES for want in wants if want.places}

        async def take(got: Sequence[tuple[BlockId, bytes]]) -> None:
            await receive(got)
            # Small contents are in place only later, many at once: until then they are to be had from memory.
            recent.came(block for block, _ in got if small.get(block) is False)
            recent.hold([(block, data) for block, data in got if small.get(block)])

        return await self._board.fetch(wants, take, priority=priority)
