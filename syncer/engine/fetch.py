"""What a file lacks, as wants on the cycle's board."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import trio

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.extents import block_length
from blockfs.blocks.ids import ZERO_BLOCK, BlockId
from syncer.blocks.board import MAX_WANTS, Blocks
from syncer.errors import SyncerError
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
    wants: dict[BlockId, Want] = {}
    for index in indexes:
        block = blocks[index]
        if block not in wants and block != ZERO_BLOCK:
            places = () if version is None else (Place(version=version, blocks=blocks, index=index),)
            wants[block] = Want(id=block, length=_length(blocks, index), places=places)
    if any(blocks[index] == ZERO_BLOCK for index in indexes):
        await receive([(ZERO_BLOCK, b"")])
    urgency = Urgency.SMALL if len(blocks) == 1 else Urgency.LARGE
    every = list(wants.values())
    for first in range(0, len(every), MAX_WANTS):
        failed = await board.fetch(every[first : first + MAX_WANTS], receive, urgency=urgency)
        for error in failed.values():
            raise error


async def fetch_small(
    board: Blocks, files: Sequence[tuple[VersionRef, BlockList]], receive: Receive
) -> Mapping[int, SyncerError]:
    """Have the only blocks of several files received.

    Args:
        board: The cycle's.
        files: At most 65,536. Of each an object that has it, and its block list, of one block that is no hole.
        receive: See `ports.blocks`.

    Returns:
        For which of the files, by their places, that failed, and why.
    """
    equal: dict[BlockId, list[int]] = {}
    for at, (_, blocks) in enumerate(files):
        equal.setdefault(blocks[0], []).append(at)
    wants = [
        Want(
            id=block,
            length=min(_length(files[at][1], 0) for at in several),
            places=tuple(Place(version=files[at][0], blocks=files[at][1], index=0) for at in several),
        )
        for block, several in equal.items()
    ]
    failed = await board.fetch(wants, receive, urgency=Urgency.SMALL)
    return {at: error for block, error in failed.items() for at in equal[block]}


def _length(blocks: BlockList, index: int) -> int:
    return block_length(index, blocks.size_bytes, blocks.block_size)
