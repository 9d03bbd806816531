"""Asking the host which blocks of a hot file are not where their leaves' blocks lie."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from blockfs.blocks.hashing import LEAF_IDS
from blockfs.blocks.ids import ID_SIZE, ZERO_BLOCK, BlockId, LeafKey
from blockfs.engine.content.hostfile import data_extents, translated
from blockfs.engine.context import Stores
from blockfs.engine.hot.addresses import Run, Stored, dirty_blocks, moved, runs
from blockfs.engine.hot.places import LeafPlaces
from blockfs.errors import CorruptBlockError
from blockfs.runtime.fiemap import UNKNOWN, Extent, OddMapError
from blockfs.runtime.reflink import extents

_LEAVES_PER_HOLD: Final = 64  # of the engine's lock: below a millisecond
_NEAR_BYTES: Final = 1 << 20  # what lies between two ranges of a segment is asked for, too
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
            stored = _stored(stores, ino)
            try:
                before = _segments(stores, stored)
                ours = list(extents(fd, end))
                # Blocks move (a repack, defragmentation): a place counts that was the same before and after.
                if before == _segments(stores, stored):
                    dirty = dirty_blocks(ours, _extents_of(stored, before), size_bytes, block_size)
                    leaves = {leaf for first, last in dirty for leaf in range(first // LEAF_IDS, -(-last // LEAF_IDS))}
                    stores.places.forget(key for leaf, key in stored.keys if leaf in leaves)
                    last = size_bytes // block_size
                    if not (dirty and dirty[-1][1] > last) and _reaches_over(stores, ino, size_bytes):
                        dirty.append((last, last + 1))
                    return dirty
            except (OddMapError, OSError):
                pass
            stores.places.forget(key for _, key in stored.keys)
        ours = [(offset, UNKNOWN, length) for offset, length in data_extents(fd)]
    return dirty_blocks(ours, list(_all_unknown(stores, ino)), size_bytes, block_size)


def _reaches_over(stores: Stores, ino: int, size_bytes: int) -> bool:
    """Whether the leaves' last block is longer than in the file: btrfs may still share a page in which that was cut."""
    number, rest = divmod(size_bytes, stores.block_size)
    if not rest:
        return False
    leaf, place = divmod(number, LEAF_IDS)
    with stores.lock:
        index, key = next(iter(stores.tree.leaf_keys(ino, leaf)), (-1, None))
        ids = b"" if key is None or index != leaf else stores.tree.leaf_ids(key)
    block_id = BlockId(ids[place * ID_SIZE : (place + 1) * ID_SIZE])
    if not block_id or block_id == ZERO_BLOCK:
        return False
    with stores.blocks.places([block_id]) as (found,):
        return found is None or found.length > rest


def _all_unknown(stores: Stores, ino: int) -> Iterator[Extent]:
    for found in leaf_blocks(stores, ino):
        yield from ((number * stores.block_size, UNKNOWN, stores.block_size) for number, _ in found)


class _Stored(NamedTuple):
    """Where a file's blocks are stored.

    Attributes:
        keys: Of its leaves, with their numbers.
        runs: As few as there can be, ascending.
        unknown: Blocks of which nobody knows where they are, as extents of the file.
    """

    keys: list[tuple[int, LeafKey]]
    runs: list[Run]
    unknown: list[Extent]


def _stored(stores: Stores, ino: int) -> _Stored:
    """Where the index has the blocks of a file's leaves now, or had them when they were looked up last."""
    leaf_bytes, block_size = LEAF_IDS * stores.block_size, stores.block_size
    keys: list[tuple[int, LeafKey]] = []
    unknown: list[Extent] = []
    runs_: list[Run] = []
    segment = offset = start = length = 0  # of the run so far; its length is 0 before the first one
    for leaf, key, found in _leaves(stores, ino):
        keys.append((leaf, key))
        base = leaf * leaf_bytes
        unknown += [(base + number * block_size, UNKNOWN, block_size) for number in found.unknown]
        for in_segment, at, first, size in found.runs:
            if in_segment == segment and at == offset + length and base + first == start + length and length:
                length += size
                continue
            if length:
                runs_.append(Run(segment, offset, start, length))
            segment, offset, start, length = in_segment, at, base + first, size
    if length:
        runs_.append(Run(segment, offset, start, length))
    return _Stored(keys, runs_, unknown)


def _leaves(stores: Stores, ino: int) -> Iterator[tuple[int, LeafKey, LeafPlaces]]:
    """The leaves of a file, ascending, and where their blocks lie."""
    at = 0
    while True:
        with stores.lock:
            leaves = stores.tree.leaf_keys(ino, at)
            taken = [leaf for leaf, _ in zip(leaves, range(_LEAVES_PER_HOLD), strict=False)]
            known = {key: stores.places.get(key) for _, key in taken}
            ids = {key: stores.tree.leaf_ids(key) for key, found in known.items() if found is None}
        if not taken:
            return
        for leaf, key in taken:
            found = known[key]
            if found is None:
                found = known[key] = _looked_up(stores, ids[key])
                stores.places.put(key, found)
            yield leaf, key, found
        at = taken[-1][0] + 1


def _looked_up(stores: Stores, ids: bytes) -> LeafPlaces:
    """Where the index has the blocks of a leaf."""
    all_ids = [(one, BlockId(ids[one * ID_SIZE : (one + 1) * ID_SIZE])) for one in range(len(ids) // ID_SIZE)]
    found = [(number, block_id) for number, block_id in all_ids if block_id != ZERO_BLOCK]
    stored: list[Stored] = []
    unknown: list[int] = []
    with stores.blocks.places([block_id for _, block_id in found]) as places:
        for (number, _), place in zip(found, places, strict=True):
            if place is None:
                unknown.append(number)
            else:
                stored.append(Stored(number, place.segment, place.offset, place.length))
    return LeafPlaces(tuple(runs(stored, stores.block_size)), tuple(unknown))


def _extents_of(stored: _Stored, segments: Mapping[int, list[Extent]]) -> Iterator[Extent]:
    """Where these lie, as extents of the file, by what is known of the segments. What can't be opened lies nowhere."""
    unknown = iter(stored.unknown)
    following = next(unknown, None)
    starts = {segment: [extent[0] for extent in found] for segment, found in segments.items()}
    for run in stored.runs:
        while following is not None and following[0] < run.start:
            yield following
            following = next(unknown, None)
        if run.segment not in segments:
            yield run.start, UNKNOWN, run.length
            continue
        found = segments[run.segment]
        at = max(0, bisect_right(starts[run.segment], run.offset) - 1)
        until = bisect_left(starts[run.segment], run.offset + run.length, at)
        yield from moved(found[at:until], run)
    while following is not None:
        yield following
        following = next(unknown, None)


def _segments(stores: Stores, stored: _Stored) -> dict[int, list[Extent]]:
    """Where the pages lie on the host now that are needed of each segment that can be opened, in order."""
    wanted: dict[int, list[tuple[int, int]]] = {}
    for segment, offset, _, length in stored.runs:
        wanted.setdefault(segment, []).append((offset, offset + length))
    found: dict[int, list[Extent]] = {}
    for segment, ranges in wanted.items():
        try:
            file = stores.blocks.reader.file(b"", segment)
        except CorruptBlockError:
            continue
        there = found[segment] = []
        for start, end in _together(sorted(ranges)):
            # Not written back: pages of durable blocks are never written again.
            for extent in extents(file.fd, end, sync=False, start=start):
                _add(there, extent)
    return found


def _add(found: list[Extent], extent: Extent) -> None:
    """Add what follows to extents; one with the last if it goes on there. XFS parts them by how many share them."""
    first, place, length = extent
    if found:
        last, its_place, its_length = found[-1]
        over = max(0, last + its_length - first)
        first, place, length = first + over, place if place == UNKNOWN else place + over, length - over
        if length <= 0:
            return
        if first == last + its_length and UNKNOWN not in {place, its_place} and place == its_place + its_length:
            found[-1] = last, its_place, its_length + length
            return
    found.append((first, place, length))


def _together(ranges: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Ranges, by their first byte, with what is not far from each other as one."""
    start, end = ranges[0]
    for first, last in ranges:
        if first > end + _NEAR_BYTES:
            yield start, end
            start = first
        end = max(end, last)
    yield start, end
