"""What files lack, as wants on a board."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.extents import block_length
from blockfs.blocks.ids import BlockId
from syncer.errors import SyncerError
from syncer.ports.blocks import Fetcher, Place, Priority, Receive, VersionRef, Want

MAX_WANTS: Final = 65_536  # of one `fetch`: about 60 MB of books


async def fetch_files(
    blocks: Fetcher,
    files: Sequence[tuple[VersionRef | None, BlockList]],
    lacking: Mapping[int, Sequence[int]],
    receive: Receive,
) -> dict[int, SyncerError]:
    """Have what some files lack received, each block once, wherever it comes from.

    Args:
        blocks: The cycle's.
        files: Of each an object that has it (None: no object is known to), and its block list.
        lacking: For files, by their places, which blocks: of those with one id one is enough. No holes.
        receive: See `ports.blocks`.

    Returns:
        For which of the files that failed, and why. What else was there in time has been received.
    """
    places: dict[BlockId, list[tuple[int, int]]] = {}
    for at, indexes in lacking.items():
        ids = files[at][1]
        for index in indexes:
            places.setdefault(ids[index], []).append((at, index))
    priority = Priority.SMALL if all(len(files[at][1]) == 1 for at in lacking) else Priority.LARGE
    failed: dict[int, SyncerError] = {}
    every = list(places)
    for first in range(0, len(every), MAX_WANTS):
        wants = [_want(block, files, places[block]) for block in every[first : first + MAX_WANTS]]
        for block, error in (await blocks.fetch(wants, receive, priority=priority)).items():
            for at, _ in places[block]:
                failed.setdefault(at, error)
        if len(failed) == len(lacking):
            break
    return failed


def _want(
    block: BlockId, files: Sequence[tuple[VersionRef | None, BlockList]], places: Sequence[tuple[int, int]]
) -> Want:
    found: list[Place] = []
    lengths: list[int] = []
    for at, index in places:
        version, blocks = files[at]
        lengths.append(block_length(index, blocks.size_bytes, blocks.block_size))
        if version is not None:
            found.append(Place(version=version, blocks=blocks, index=index))
    return Want(id=block, length=min(lengths), places=tuple(found))
