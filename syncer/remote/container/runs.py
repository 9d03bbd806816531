"""Blocks of an object as byte ranges: what is adjacent is one range, and several ranges are one request. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from blockfs.blocks.extents import block_length

MAX_RUNS: Final = 64
"""Ranges of one request: 64 blocks of 64 KiB are a reply of 4 MiB, and their header has 1.6 KB."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """Adjacent blocks of one object, to be fetched by one range.

    Attributes:
        first: Index of the first.
        count: How many, at least 1.
        start: First byte in the object.
        length_bytes: Bytes of all of them; the object's last block may be short.
    """

    first: int
    count: int
    start: int
    length_bytes: int


def runs(indexes: Sequence[int], size_bytes: int, block_size: int, max_bytes: int) -> list[Run]:
    """Join adjacent indexes to runs.

    Args:
        indexes: Distinct block indexes, ascending.
        size_bytes: Of the object.
        block_size: Bytes of a block.
        max_bytes: Longest run, except that one block is always allowed.
    """
    most = max(1, max_bytes // block_size)
    found: list[Run] = []
    at = 0
    while at < len(indexes):
        first = indexes[at]
        count = 1
        while count < most and at + count < len(indexes) and indexes[at + count] == first + count:
            count += 1
        length = (count - 1) * block_size + block_length(first + count - 1, size_bytes, block_size)
        found.append(Run(first=first, count=count, start=first * block_size, length_bytes=length))
        at += count
    return found


def gathered(jobs: Sequence[Run], max_bytes: int) -> list[list[Run]]:
    """Put runs together that can be fetched by one request of several ranges.

    Args:
        jobs: In order.
        max_bytes: Of one request, except that one run is always allowed.
    """
    found: list[list[Run]] = []
    room = 0
    for run in jobs:
        if not found or run.length_bytes > room or len(found[-1]) == MAX_RUNS:
            found.append([])
            room = max_bytes
        found[-1].append(run)
        room -= run.length_bytes
    return found
