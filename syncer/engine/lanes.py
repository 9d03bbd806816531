"""Files that share blocks are sent one after the other, so that no block travels twice in a cycle.

What the first of them brought is on the server when the next one asks. Files without a common block go side by side.
(What is received lies on a board, where a block that several files want is one want: `engine/fetch.py`.)
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import trio

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.ids import ZERO_BLOCK, BlockId

_MAX_IDS: Final = 1 << 20  # about 100 MB as a set; a longer file (64 GiB at 64 KiB) goes alone


class Lanes:
    """The files that are being sent."""

    def __init__(self) -> None:
        self._active: list[set[BlockId] | None] = []  # None: shares with everybody
        self._left = trio.Event()

    @asynccontextmanager
    async def lane(self, blocks: BlockList, base: BlockList | None = None) -> AsyncIterator[None]:
        """Wait until no transfer under way shares a block with this one; inside the block it is under way itself.

        Nobody waits while holding a lane, so there is no deadlock.

        Args:
            blocks: What is transferred.
            base: The receiver has this: only what differs from it counts.
        """
        ids = blocks.unique_ids() if base is None and len(blocks) <= _MAX_IDS else None
        if base is not None and base.block_size == blocks.block_size:
            ids = set(blocks.changed_from(base).values()) - {ZERO_BLOCK}
        while any(_share(ids, other) for other in self._active):
            await self._left.wait()
        self._active.append(ids)  # no await since the look: the pair is atomic
        try:
            yield
        finally:
            self._active = [other for other in self._active if other is not ids]
            self._left.set()
            self._left = trio.Event()


def _share(ids: set[BlockId] | None, other: set[BlockId] | None) -> bool:
    return ids is None or other is None or not ids.isdisjoint(other)
