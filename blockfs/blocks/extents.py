"""Byte ranges to block spans. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """The part of one block that a byte range covers.

    Attributes:
        index: Block number within the file.
        start: First byte within the block.
        length: Bytes within the block, at least 1.
    """

    index: int
    start: int
    length: int


def block_count(size_bytes: int, block_size: int) -> int:
    """Number of blocks of a file; 0 for an empty one."""
    return -(-size_bytes // block_size)


def block_length(index: int, size_bytes: int, block_size: int) -> int:
    """Bytes of block `index` in a file of `size_bytes`: block_size, less for the last, 0 beyond the end."""
    return max(0, min(block_size, size_bytes - index * block_size))


def spans(offset: int, length: int, block_size: int) -> Iterator[Span]:
    """Cut a byte range at block borders, in order.

    Args:
        offset: First byte, at least 0.
        length: Bytes; 0 yields nothing.
        block_size: Bytes of a block.
    """
    end = offset + length
    while offset < end:
        index, start = divmod(offset, block_size)
        size = min(block_size - start, end - offset)
        yield Span(index=index, start=start, length=size)
        offset += size
