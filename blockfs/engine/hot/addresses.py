"""Which blocks of a hot file may be other than its leaves say: found by where bytes lie, never by flags. Pure.

A block is clean only if all of it lies exactly where the segment has it now, both asked for at one time. Everything
else is dirty: a hole over a block, bytes over a hole, an extent whose place the host does not tell or that we can't
read. So defragmentation, deduplication by others, a copied volume only make work; a snapshot that somebody takes of the
host's volume makes none, and hides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from blockfs.runtime.fiemap import UNKNOWN, Extent, differing

PAGE: Final = 4096


class Stored(NamedTuple):
    """Where a block of a file is stored.

    Attributes:
        number: Of the block in the file.
        segment: Number of its segment.
        offset: First byte there, a multiple of `PAGE`.
        length: Bytes of the canonical block, at least 1. Its last page is its own.
    """

    number: int
    segment: int
    offset: int
    length: int


class Run(NamedTuple):
    """Pages that lie together in a segment and in the file.

    Attributes:
        segment: Its number.
        offset: First byte there.
        start: First byte in the file.
        length: Bytes, a multiple of `PAGE`.
    """

    segment: int
    offset: int
    start: int
    length: int


def runs(blocks: Iterable[Stored], block_size: int) -> Iterator[Run]:
    """Blocks of a file, ascending, as few runs."""
    segment = offset = start = length = 0  # of the run so far; its length is 0 before the first block
    for number, in_segment, at, size in blocks:
        if in_segment == segment and at == offset + length and number * block_size == start + length and length:
            length += -(-size // PAGE) * PAGE
            continue
        if length:
            yield Run(segment, offset, start, length)
        segment, offset, start, length = in_segment, at, number * block_size, -(-size // PAGE) * PAGE
    if length:
        yield Run(segment, offset, start, length)


def moved(extents: Iterable[Extent], run: Run) -> Iterator[Extent]:
    """Extents of a segment, in order, as those of the file that has a run of it. What lies outside does not count."""
    for logical, physical, length in extents:
        first, end = max(logical, run.offset), min(logical + length, run.offset + run.length)
        if first < end:
            there = UNKNOWN if physical == UNKNOWN else physical + first - logical
            yield run.start + first - run.offset, there, end - first


def dirty_blocks(
    ours: Iterable[Extent], theirs: Iterable[Extent], size_bytes: int, block_size: int
) -> list[tuple[int, int]]:
    """Blocks of a hot file that may be other than its leaves say.

    Args:
        ours: The hot file's extents, in order.
        theirs: Where the blocks lie that its leaves name, in order, as extents of the file.
        size_bytes: Its size. Its last block is compared up to the block's end: what is cut off is a hole.
        block_size: Bytes of a block.

    Returns:
        First and end of each run of blocks, ascending, with blocks between them.
    """
    end = -(-size_bytes // block_size) * block_size
    found: list[tuple[int, int]] = []
    for start, stop in differing(ours, theirs, end):
        first, last = start // block_size, -(-stop // block_size)
        if found and first <= found[-1][1]:
            found[-1] = found[-1][0], last
        else:
            found.append((first, last))
    return found
