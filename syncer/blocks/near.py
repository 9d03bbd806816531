"""Near sources: blocks of this machine are looked up by long lists and read by some megabytes.

While what was found is read and delivered, the next wants are looked up: what is nowhere here must not wait for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import Final

import trio

from blockfs.blocks.ids import BlockId
from syncer.ports.blocks import Board, Given, NearBlocks, Want

_ASKED: Final = 4096  # ids at once
_READ_BYTES: Final = 8 << 20  # of blocks at once
_READERS: Final = 2  # one reads while what the other one read is taken


class OwnBlocks:
    """The near source `own`: what the root itself has, in any file, and what came into it in this cycle.

    Attributes:
        blocks: Where they are.
    """

    name = "own"
    near = True

    def __init__(self, blocks: NearBlocks) -> None:
        self.blocks: Final = blocks

    async def run(self, board: Board) -> None:
        """See BlockSource."""
        await serve(board, self.blocks)


async def serve(board: Board, blocks: NearBlocks) -> None:
    """Be a near source with some blocks, until the board's end."""
    async with trio.open_nursery() as nursery:
        serving = _Serving(board, blocks)
        for _ in range(_READERS):
            nursery.start_soon(serving.give_all)
        await serving.look_up()
        nursery.cancel_scope.cancel()


class _Serving:
    def __init__(self, board: Board, blocks: NearBlocks) -> None:
        self._board = board
        self._blocks = blocks
        self._here: dict[BlockId, Want] = {}  # looked up, and nobody reads them yet
        self._found = trio.Event()

    async def look_up(self) -> None:
        while True:
            while not (wants := self._board.peek(_ASKED)):
                if not await self._board.more():
                    return
            here = await trio.to_thread.run_sync(self._blocks.which, [want.id for want in wants])
            self._board.lack(want for want in wants if want.id not in here)
            self._here.update((want.id, want) for want in wants if want.id in here)
            if self._here:
                self._found.set()

    async def give_all(self) -> None:
        while True:
            while not self._here:
                self._found = trio.Event() if self._found.is_set() else self._found
                await self._found.wait()
            taken = self._board.take(_READ_BYTES, among=list(islice(self._here, _ASKED)))
            for want in taken:
                del self._here[want.id]
            if taken:
                await self._give(taken)
                continue
            self._here = {block: want for block, want in self._here.items() if self._board.is_open(want)}
            if self._here and not await self._board.more():  # no room in the budget
                return

    async def _give(self, wants: Sequence[Want]) -> None:
        """Have them read and delivered; once more, with more care, what was not the right one."""
        for checked in (False, True):
            read = await trio.to_thread.run_sync(
                partial(self._blocks.read, [want.id for want in wants], checked=checked)
            )
            got = [(want, read[want.id]) for want in wants if want.id in read]
            outcomes = await self._board.give(got, hold=True)
            right = {want.id for (want, _), outcome in zip(got, outcomes, strict=True) if outcome is not Given.WRONG}
            wants = [want for want in wants if want.id not in right]
            if not wants:
                return
        self._board.lack(wants)
