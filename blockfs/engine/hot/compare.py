"""Asking the host which blocks of a hot file are not where their leaves' blocks lie."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from blockfs.blocks.hashing import LEAF_IDS
from blockfs.blocks.ids import ID_SIZE, ZERO_BLOCK, BlockId
from blockfs.blocks.reader import SegmentFile
from blockfs.engine.content.hostfile import data_extents, translated
from blockfs.engine.context import Stores
from blockfs.engine.hot.addresses import Run, Stored, dirty_blocks, moved, runs
from blockfs.runtime.fiemap import UNKNOWN, Extent, OddMapError
from blockfs.runtime.reflink import extents

_LEAVES_PER_HOLD: Final = 64  # of the engine's lock: below a millisecond
_TRIES: Final = 3  # against somebody who moves data about just then


def leaf_blocks(stores: Stores, ino: int) -> Iterator[list[tuple[int, BlockId]]]:
    """The blocks of a file that are no holes, by number: ascending, some leaves at a time."""
    at = 0
    while True:
        found: list[tuple[int, BlockId]] = []
        with stores.lock:
            leaves = stores.tree.leaf_keys(ino, at)
            taken = [leaf for leaf, _ in zip(leaves, range(_LEAVES_PER_HOLD), strict=False)]
            for index, key in taken:
                ids = stores.tree.leaf_ids(key)
                numbers = range(len(ids) // ID_SIZE)
                all_ids = ((index * LEAF_IDS + one, ids[one * ID_SIZE : (one + 1) * ID_SIZE]) for one in numbers)
                found += [(number, BlockId(block_id)) for number, block_id in all_ids if block_id != ZERO_BLOCK]
        if not taken:
            return
        yield found
        at = taken[-1][0] + 1


def changed_blocks(stores: Stores, ino: int, fd: int, size_bytes: int) -> list[tuple[int, int]]:
    """Blocks of a hot file, or of a copy of it, that may be other than the file's leaves say.

    Nobody but the caller changes the leaves meanwhile. In all doubt a block is among them.

    Returns:
        First and end of each run of blocks, ascending.

    Raises:
        HostIoError: The host failed.
        NoSpaceError: There is no room to write back what was written.
    """
    block_size = stores.block_size
    end = -(-size_bytes // block_size) * block_size
    with translated("hot"):
        for _ in range(_TRIES):
            try:
                newest = stores.blocks.index.newest()
                stored = list(_stored(stores, ino))
                before = list(_extents_of(stored))
                ours = list(extents(fd, end))
                # Blocks move (a repack, defragmentation): a place counts that was the same before and after.
                if newest != stores.blocks.index.newest():
                    stored = list(_stored(stores, ino))
                if before == list(_extents_of(stored)):
                    return dirty_blocks(ours, before, size_bytes, block_size)
            except (OddMapError, OSError):
                continue
        ours = [(offset, UNKNOWN, length) for offset, length in data_extents(fd)]
    return dirty_blocks(ours, list(_all_unknown(stores, ino)), size_bytes, block_size)


def _all_unknown(stores: Stores, ino: int) -> Iterator[Extent]:
    for found in leaf_blocks(stores, ino):
        yield from ((number * stores.block_size, UNKNOWN, stores.block_size) for number, _ in found)


class _Stored(NamedTuple):
    """Where some of a file's blocks are stored.

    Attributes:
        places: Runs of blocks, each with its segment.
        unknown: Blocks of which nobody knows where they are, as extents of the file.
    """

    places: list[tuple[SegmentFile, Run]]
    unknown: list[Extent]


def _stored(stores: Stores, ino: int) -> Iterator[_Stored]:
    """Where the index has the blocks of a file's leaves now."""
    block_size = stores.block_size
    for found in leaf_blocks(stores, ino):
        stored: list[Stored] = []
        unknown: list[Extent] = []
        files: dict[int, SegmentFile] = {}
        with stores.blocks.places([block_id for _, block_id in found]) as places:
            for (number, _), place in zip(found, places, strict=True):
                if place is None:
                    unknown.append((number * block_size, UNKNOWN, block_size))
                else:
                    stored.append(Stored(number, place.segment, place.offset, place.length))
                    files[place.segment] = place.file
        yield _Stored([(files[run.segment], run) for run in runs(stored, block_size)], unknown)


def _extents_of(stored: Iterable[_Stored]) -> Iterator[Extent]:
    """Where these lie on the host now, as extents of the file."""
    for each in stored:
        found = list(each.unknown)
        for segment, run in each.places:
            # Not written back: pages of durable blocks are never written again.
            found += moved(extents(segment.fd, run.offset + run.length, sync=False, start=run.offset), run)
        yield from sorted(found)
