"""What a file lacks, as wants on the cycle's board."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import trio

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.extents import block_length
from blockfs.blocks.ids import ZERO_BLOCK
from syncer.blocks.board import MAX_WANTS, Blocks
from syncer.ports.blocks import Place, Receive, Urgency, VersionRef, Want
from syncer.remote.parallel import one_error


@asynccontextmanager
async def serving(board: Blocks) -> AsyncIterator[None]:
    """Have the sources serve meanwhile."""
    with one_error():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(board.run)
            yield
            nursery.cancel_scope.cancel()


async def fetch_version(
    board: Blocks, version: VersionRef | None, blocks: BlockList, indexes: Sequence[int], receive: Receive
) -> None:
    """Have blocks received, wherever they come from.

    Args:
        board: The cycle's.
        version: The object that has them; None: no object is known to have them.
        blocks: Its block list, or of a file of here.
        indexes: Which blocks; of those with one id one is enough. Holes are received without being fetched.
        receive: See `ports.blocks`.

    Raises:
        SyncerError: Why one of them can't be had. What was there in time has been received.
    """
    wants: dict[bytes, Want] = {}
    for index in indexes:
        block = blocks[index]
        if block not in wants and block != ZERO_BLOCK:
            length = block_length(index, blocks.size_bytes, blocks.block_size)
            places = () if version is None else (Place(version=version, blocks=blocks, index=index),)
            wants[block] = Want(id=block, length=length, places=places)
    if any(blocks[index] == ZERO_BLOCK for index in indexes):
        await receive([(ZERO_BLOCK, b"")])
    urgency = Urgency.SMALL if len(blocks) == 1 else Urgency.LARGE
    every = list(wants.values())
    for first in range(0, len(every), MAX_WANTS):
        failed = await board.fetch(every[first : first + MAX_WANTS], receive, urgency=urgency)
        for error in failed.values():
            raise error
