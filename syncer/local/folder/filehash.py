"""Block lists of ordinary files: read, hash, and never read a hole, but in a file of one block."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.extents import block_count
from blockfs.blocks.hashing import block_id
from blockfs.blocks.ids import ID_SIZE, ZERO_BLOCK

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
    found, read = _hash_part(descriptor, (0, size_bytes), size_bytes, block_size, seen)
    return BlockList(block_size=block_size, size_bytes=size_bytes, ids=found), read


def hash_changes(
    descriptor: int,
    size_bytes: int,
    old: BlockList,
    changed: Iterable[tuple[int, int]],
    seen: Callable[[bytes, bytes], None] | None = None,
) -> tuple[BlockList, int]:
    """Hash an open file where it is not what it was.

    Args:
        descriptor: As for `hash_file`.
        size_bytes: The size it has now.
        old: The block list of what it was.
        changed: Byte ranges in order, with all that is not what it was; from where one of the two ends, also the rest.
        seen: As for `hash_file`.

    Returns:
        As `hash_file`.
    """
    size, total = old.block_size, block_count(size_bytes, old.block_size)
    ids = bytearray(old.ids[: total * ID_SIZE].ljust(total * ID_SIZE, b"\0"))
    read = 0
    for start, end in widened(changed, size, size_bytes):
        found, more = _hash_part(descriptor, (start, end), size_bytes, size, seen)
        ids[start // size * ID_SIZE : start // size * ID_SIZE + len(found)] = found
        read += more
    return BlockList(block_size=size, size_bytes=size_bytes, ids=bytes(ids)), read


def widened(ranges: Iterable[tuple[int, int]], block_size: int, size_bytes: int) -> Iterator[tuple[int, int]]:
    """Byte ranges in order, widened to block borders, each block in one of them. The last may end with the file."""
    first = last = 0
    for start, end in ranges:
        if start >= end:
            continue
        begin = start // block_size * block_size
        if begin > last:
            if last > first:
                yield first, last
            first = begin
        last = max(last, min(block_count(end, block_size) * block_size, size_bytes))
    if last > first:
        yield first, last


def data_bytes(descriptor: int, ranges: Iterable[tuple[int, int]], block_size: int, size_bytes: int) -> int:
    """How much would be read to hash some ranges of a file: holes are not."""
    return sum(
        end - start
        for part in widened(ranges, block_size, size_bytes)
        for start, end in _data_runs(descriptor, part, block_size)
    )


def _hash_part(
    descriptor: int,
    part: tuple[int, int],
    size_bytes: int,
    block_size: int,
    seen: Callable[[bytes, bytes], None] | None,
) -> tuple[bytes, int]:
    """Ids of the blocks in a byte range that begins with a block, and how much was read."""
    pieces: list[bytes] = []
    done, read = part[0] // block_size, 0
    for start, end in _data_runs(descriptor, part, block_size):
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
    pieces.append(ZERO_BLOCK * (block_count(min(part[1], size_bytes), block_size) - done))
    return b"".join(pieces), read


def read_exactly(descriptor: int, offset: int, length: int) -> bytes:
    """Read `length` bytes; what lies beyond the end of the file reads as NULs."""
    data = os.pread(descriptor, length, offset)
    while len(data) < length:
        more = os.pread(descriptor, length - len(data), offset + len(data))
        if not more:
            return data.ljust(length, b"\0")
        data += more
    return data


def _data_runs(descriptor: int, part: tuple[int, int], block_size: int) -> Iterator[tuple[int, int]]:
    """Byte ranges that are not all hole, widened to block borders (the last ends with the part), in order."""
    at, last = part
    while at < last:
        try:
            data = os.lseek(descriptor, at, os.SEEK_DATA)
            hole = os.lseek(descriptor, data, os.SEEK_HOLE) if data < last else last
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole from here on
                return
            if error.errno == errno.EINVAL:  # its filesystem does not tell now
                yield at, last
                return
            raise
        if data >= last:
            return
        start = max(at, data // block_size * block_size)
        end = min(last, block_count(hole, block_size) * block_size)
        if start < end:
            yield start, end
        at = max(end, at + 1)
