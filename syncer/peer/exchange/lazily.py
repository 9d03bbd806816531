"""Peers only when a block is missing: a cycle that lacks nothing opens no socket and loads no code of peers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final

import trio

from syncer.ports.blocks import BlockSource, Board


class LazySource:
    """The source "peers", opened by the first want that nobody on this machine has.

    Attributes:
        later_s: Says, when the first want is there, for how many seconds the server is to have all wants alone before
            it is opened; 0: it is opened at once.

    Args:
        open_source: Opens it for one cycle; None: there are no peers here. Imports what it needs when it is called.
        later_s: See above.
    """

    name: Final = "peers"
    near: Final = False

    def __init__(
        self,
        open_source: Callable[[], AbstractAsyncContextManager[BlockSource | None]],
        later_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._open = open_source
        self.later_s = later_s

    async def run(self, board: Board) -> None:
        """See BlockSource."""
        if not await board.more():
            return
        if later_s := self.later_s():
            board.seek(over=True, sure=True)
            await trio.sleep(later_s)
            if not await board.more():
                return
        else:
            board.seek()  # the source ends it, or the end of this
        async with self._open() as source:
            if source is not None:
                await source.run(board)
