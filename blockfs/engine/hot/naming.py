"""What the blocks of a file are called: their hashes, by two threads where there are many."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from blockfs.blocks.ids import ZERO_BLOCK, BlockId
from blockfs.engine.content.hostfile import translated

_READ_BYTES: Final = 1 << 20
_THREADS: Final = 2
_WORTH_IT: Final = 4  # reads: fewer are done before threads have begun


class Named(NamedTuple):
    """A block's id, and the length of its canonical bytes: without NUL bytes at the end."""

    block_id: BlockId
    length: int


def named(
    fd: int, numbers: Sequence[int], size_bytes: int, block_size: int, give_way: Callable[[], None]
) -> dict[int, Named]:
    """Hash blocks of a file that is cut at a size.

    Args:
        fd: Descriptor of the file.
        numbers: Of the blocks, ascending.
        size_bytes: Of the file.
        block_size: Bytes of a block.
        give_way: Called before each read, in any thread.

    Raises:
        HostIoError: The host failed.
    """

    def work(run: tuple[int, int]) -> list[tuple[int, Named]]:
        first, count = run
        give_way()
        with translated("hot"):
            data = memoryview(
                os.pread(fd, min(count * block_size, size_bytes - first * block_size), first * block_size)
            )
        return [(first + one, _named(data[one * block_size : (one + 1) * block_size])) for one in range(count)]

    runs = list(_runs(numbers, max(1, _READ_BYTES // block_size)))
    if len(runs) < _WORTH_IT:
        return dict(pair for run in runs for pair in work(run))
    with ThreadPoolExecutor(_THREADS) as threads:
        return dict(pair for pairs in threads.map(work, runs) for pair in pairs)


def block_id_of(data: bytes) -> BlockId:
    """The id of a block; what follows in it is NUL."""
    return _named(memoryview(data)).block_id


def _named(data: memoryview) -> Named:
    if data and not data[-1]:  # else nothing is copied
        data = memoryview(bytes(data).rstrip(b"\0"))
    return Named(BlockId(hashlib.sha256(data).digest()) if data else ZERO_BLOCK, len(data))


def _runs(numbers: Sequence[int], most: int) -> Iterator[tuple[int, int]]:
    """Blocks that lie together as (first, count), of at most `most` each."""
    at = 0
    while at < len(numbers):
        count = 1
        while count < most and at + count < len(numbers) and numbers[at + count] == numbers[at] + count:
            count += 1
        yield numbers[at], count
        at += count
