"""Block lists of ordinary files: read, hash, and never read a hole, but in a file of one block."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from typing import Final

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.extents import block_count
from blockfs.blocks.hashing import block_id
from blockfs.blocks.ids import ZERO_BLOCK

_READ_BYTES: Final = 4 << 20  # per read: large enough that the system call costs nothing, small enough for any memory


def hash_file(
    descriptor: int, size_bytes: int, block_size: int, seen: Callable[[bytes, bytes], None] | None = None
) -> tuple[BlockList, int]:
    """Hash an open file.

    Args:
        descriptor: Open for reading. Its offset is moved.
        size_bytes: The size that was observed. A file that is shorter by now is padded with NULs: the caller looks
            again afterwards and throws the result away.
        block_size: Bytes of a block.
        seen: Given each block that was read: its id and its bytes.

    Returns:
        The block list and the number of content bytes that were read.
    """
    if 0 < size_bytes <= min(block_size, _READ_BYTES):  # one read takes less time than asking where the holes are
        data = read_exactly(descriptor, 0, size_bytes)
        ids = block_id(data)
        if seen is not None:
            seen(ids, data)
        return BlockList(block_size=block_size, size_bytes=size_bytes, ids=ids), size_bytes
    pieces: list[bytes] = []
    done = read = 0
    for start, end in _data_runs(descriptor, size_bytes, block_size):
        pieces.append(ZERO_BLOCK * (start // block_size - done))
        for at in range(start, end, max(_READ_BYTES, block_size)):
            data = read_exactly(descriptor, at, min(max(_READ_BYTES, block_size), end - at))
            read += len(data)
            for cut in range(0, len(data), block_size):
                block = data[cut : cut + block_size]
                pieces.append(block_id(block))
                if seen is not None:
                    seen(pieces[-1], block)
        done = block_count(end, block_size)
    pieces.append(ZERO_BLOCK * (block_count(size_bytes, block_size) - done))
    return BlockList(block_size=block_size, size_bytes=size_bytes, ids=b"".join(pieces)), read


def read_exactly(descriptor: int, offset: int, length: int) -> bytes:
    """Read `length` bytes; what lies beyond the end of the file reads as NULs."""
    data = os.pread(descriptor, length, offset)
    while len(data) < length:
        more = os.pread(descriptor, length - len(data), offset + len(data))
        if not more:
            return data.ljust(length, b"\0")
        data += more
    return data


def _data_runs(descriptor: int, size_bytes: int, block_size: int) -> Iterator[tuple[int, int]]:
    """Byte ranges that are not all hole, widened to block borders (the last ends with the file), in order."""
    at = 0
    while at < size_bytes:
        try:
            data = os.lseek(descriptor, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole from here on
                return
            raise
        hole = os.lseek(descriptor, data, os.SEEK_HOLE)
        start = max(at, data // block_size * block_size)
        end = min(size_bytes, block_count(hole, block_size) * block_size)
        if start < end:
            yield start, end
        at = max(end, at + 1)
