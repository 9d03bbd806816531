"""Peers only when a block is missing: a cycle that lacks nothing opens no socket and loads no code of peers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final

import trio

from syncer.ports.blocks import BlockSource, Board

LONE_S: Final = 0.05  # one want alone is the server's, as its first window: so long it may take to bring it …
LOOK_S: Final = 0.005  # … and so often it is looked whether it has, or whether there are more


class LazySource:
    """The source "peers", opened by the first want that nobody on this machine has.

    Attributes:
        later_s: Says, when the first want is there, for how many seconds the server is to have all wants alone before
            it is opened; 0: it is opened as soon as there are two wants, or one for `LONE_S`.

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
        later_s = self.later_s()
        if later_s:  # before the first want, of which the server would have a first window by chance
            board.seek(over=True, sure=True)
        while await board.more():
            if await _is_work(board):
                break
        else:
            return
        if later_s:
            await trio.sleep(later_s)
            if not await board.more():
                return
        else:
            board.seek()  # the source ends it, or the end of this
        async with self._open() as source:
            if source is not None:
                await source.run(board)


async def _is_work(board: Board) -> bool:
    """Wait while there is one want alone, which is the server's; whether any is left then."""
    for _ in range(round(LONE_S / LOOK_S)):
        if board.open != 1:
            break
        await trio.sleep(LOOK_S)
    if not board.open:
        board.take(0, ())  # nothing is left of the news
        return False
    return True
