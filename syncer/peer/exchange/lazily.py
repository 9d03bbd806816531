"""Peers only when a block is missing: a cycle that lacks nothing opens no socket and loads no code of peers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final

from syncer.ports.blocks import BlockSource, Board


class LazySource:
    """The source "peers", opened by the first want that nobody on this machine has.

    Args:
        open_source: Opens it for one cycle; None: there are no peers here. Imports what it needs when it is called.
    """

    name: Final = "peers"
    near: Final = False

    def __init__(self, open_source: Callable[[], AbstractAsyncContextManager[BlockSource | None]]) -> None:
        self._open = open_source

    async def run(self, board: Board) -> None:
        """See BlockSource."""
        if await board.more():
            board.seek()  # the source ends it, or the end of this
            async with self._open() as source:
                if source is not None:
                    await source.run(board)
