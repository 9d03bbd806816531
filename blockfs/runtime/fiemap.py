"""Where the bytes of a host's file lie: what FIEMAP answers, and where two files do not share. Pure.

Two files share a byte if both have it at the same place of the disk at one time. The flag SHARED says something else:
that anybody shares it, a snapshot for example. It is not looked at.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

Extent: TypeAlias = tuple[int, int, int]
"""First byte in the file, its place (in bytes; `UNKNOWN`: none that could be relied on), length in bytes."""

UNKNOWN: Final = -1
_HOLE: Final = -2

# struct fiemap and struct fiemap_extent, linux/fiemap.h: start, length, flags, mapped extents, room for extents,
# reserved; then of each extent: logical, physical and length in bytes, two reserved, flags, three reserved.
_HEADER: Final = struct.Struct("=QQIIIxxxx")
_EXTENT: Final = struct.Struct("=QQQ16xI12x")
_FLAG_SYNC: Final = 1
_LAST: Final = 0x1
_UNWRITTEN: Final = 0x800
_SHARED: Final = 0x2000
# Any other flag means that the place is not there yet (delayed, unwritten), or is not that of these very bytes
# (encoded, inline, packed with others), or one that we do not know.
_HARMLESS: Final = _LAST | _SHARED


class OddMapError(ValueError):
    """What the host answered can't be: extents out of order, empty, or more than asked for."""


def request(start: int, length: int, count: int, *, sync: bool = True) -> bytearray:
    """The buffer for one call.

    Args:
        start: First byte that is asked about.
        length: How many bytes.
        count: For how many extents there is room.
        sync: Dirty pages are written back first: without that most of what was written lately is missed.
    """
    buffer = bytearray(_HEADER.size + count * _EXTENT.size)
    _HEADER.pack_into(buffer, 0, start, length, _FLAG_SYNC if sync else 0, 0, count)
    return buffer


def parse(buffer: bytes | bytearray) -> tuple[list[Extent], bool]:
    """The extents in an answered buffer, in order, and whether the last of the file is among them.

    Raises:
        OddMapError: It is no answer.
    """
    if len(buffer) < _HEADER.size:
        raise OddMapError("too short")
    mapped = _HEADER.unpack_from(buffer)[3]
    end = _HEADER.size + mapped * _EXTENT.size
    if end > len(buffer):
        raise OddMapError("more extents than there is room for")
    found: list[Extent] = []
    at, flags = 0, 0
    for logical, physical, length, flags in _EXTENT.iter_unpack(memoryview(buffer)[_HEADER.size : end]):
        if logical < at or not length:
            raise OddMapError("extents out of order")
        at = logical + length
        found.append((logical, UNKNOWN if flags & ~_HARMLESS else physical, length))
    return found, bool(flags & _LAST)


def unshared(buffer: bytes | bytearray) -> tuple[int, int]:
    """Bytes of the extents in an answered buffer that nobody else has, and where the next ones begin; 0: all are told.

    Raises:
        OddMapError: It is no answer.
    """
    found, is_last = parse(buffer)
    end = _HEADER.size + len(found) * _EXTENT.size
    fields = _EXTENT.iter_unpack(memoryview(buffer)[_HEADER.size : end])
    total = sum(length for _, _, length, flags in fields if not flags & _SHARED)
    return total, 0 if is_last or not found else found[-1][0] + found[-1][2]


def unwritten(buffer: bytes | bytearray) -> tuple[list[tuple[int, int]], int]:
    """Ranges of room that was taken and never written, in an answered buffer, and where to go on; 0: all are told.

    Raises:
        OddMapError: It is no answer.
    """
    found, is_last = parse(buffer)
    end = _HEADER.size + len(found) * _EXTENT.size
    fields = _EXTENT.iter_unpack(memoryview(buffer)[_HEADER.size : end])
    ranges = [(logical, logical + length) for logical, _, length, flags in fields if flags & _UNWRITTEN]
    return ranges, 0 if is_last or not found else found[-1][0] + found[-1][2]


def counted(buffer: bytes | bytearray) -> int:
    """How many extents there are, from an answered buffer that has room for none."""
    return int(_HEADER.unpack_from(buffer)[3])


def differing(ours: Iterable[Extent], theirs: Iterable[Extent], end: int) -> Iterator[tuple[int, int]]:
    """Where two files do not share, or may not.

    Args:
        ours: Extents of a file, in order, without overlaps.
        theirs: Those of another one.
        end: Bytes from here on are not looked at.

    Yields:
        First and end of each range, in order, with bytes between them. A hole in both is shared, a hole in one is not.
    """
    one, other = _Places(ours, end), _Places(theirs, end)
    at = 0
    first = -1  # of the range that is not told yet
    while at < end:
        mine, until = one.at(at)
        its, its_until = other.at(at)
        if mine == its and mine != UNKNOWN:
            if first >= 0:
                yield first, at
                first = -1
        elif first < 0:
            first = at
        at = min(until, its_until)
    if first >= 0:
        yield first, end


def overlap(extents: Iterable[Extent], ranges: Iterable[tuple[int, int]]) -> int:
    """How many bytes of a file that are no hole lie in some ranges. Both in order."""
    total = 0
    left = iter(ranges)
    now = next(left, None)
    for logical, _, length in extents:
        while now is not None and now[1] <= logical:
            now = next(left, None)
        while now is not None and now[0] < logical + length:
            total += min(now[1], logical + length) - max(now[0], logical)
            if now[1] > logical + length:
                break
            now = next(left, None)
    return total


class _Places:
    """Where the bytes of one file lie, asked for from the first to the last."""

    def __init__(self, extents: Iterable[Extent], end: int) -> None:
        self._extents = iter(extents)
        self._end = end
        self._now: Extent | None = None
        self._advance()

    def _advance(self) -> None:
        self._now = next(self._extents, None)

    def at(self, offset: int) -> tuple[int, int]:
        """The place of a byte, and up to where those behind it lie in the same way."""
        while self._now is not None and self._now[0] + self._now[2] <= offset:
            self._advance()
        if self._now is None:
            return _HOLE, self._end
        logical, physical, length = self._now
        if offset < logical:
            return _HOLE, min(logical, self._end)
        return UNKNOWN if physical == UNKNOWN else physical + offset - logical, min(logical + length, self._end)
