"""Where contents are cut into chunks, and which cuts an edit leaves as they were.

A content is cut in windows of 4 MiB, each for itself. In a window, aligned blocks of 64 KiB that are all zeros (the
content's last one may be shorter) are *holes*: no chunk covers them, so what no chunk covers is zeros. Each run of
other blocks is cut by FastCDC, its gear table keyed by the repository: so what lies beyond a hole or a window never
decides, an edit's cost is bounded by its windows, and whoever can't read the chunks can't tell where they end.

FastCDC begins anew at each cut, and cuts *before* the byte that decides, looking at bytes in pairs. So a chunk [b, e)
of a run that ends at r is the same as before if the bytes [b, e], the one behind its end included, are the same, and if
either r is as it was or e + 2 <= r holds now and held then. `cut_window` reuses such chunks, and no others; the result
is that of a full pass, to the bit.

Source: docs/design/repository.md, section 6; Xia and others, "The Design of Fast Content-Defined Chunking for Data
Deduplication Based Storage Systems", 2020.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final, TypeAlias

import msgspec
from pyfastcdc import FastCDC

Range: TypeAlias = tuple[int, int]
"""Where something begins, and where it ends: bytes of a content."""

Read: TypeAlias = Callable[[Sequence[Range]], Sequence[bytes]]
"""Bytes of some ranges of a content, all of each: a call costs more than a range."""

WINDOW_BYTES: Final = 4 << 20  # a cost of 0.8 % in unique bytes, for edits that never cost more than this
HOLE_BYTES: Final = 64 << 10
_LOOK_AHEAD: Final = 1  # the byte that decides is not in the chunk
_END_MARGIN: Final = 2  # bytes are looked at in pairs


class Chunker:
    """Knows where to cut. Immutable: threads may share it. Releases the interpreter's lock in each chunk."""

    def __init__(
        self, seed: int, sizes: tuple[int, int, int], hole_bytes: int = HOLE_BYTES, window_bytes: int = WINDOW_BYTES
    ) -> None:
        """Prepare the gear table.

        Args:
            seed: Of the repository: `Keys.cut_seed`.
            sizes: Least, average and most bytes of a chunk: `Config.chunks`.
            hole_bytes: The repository's format has 64 KiB; others are for tests.
            window_bytes: A multiple of it; the format has 4 MiB.
        """
        least, average, self.most = sizes
        assert window_bytes % hole_bytes == 0
        self.hole_bytes: Final = hole_bytes
        self.window_bytes: Final = window_bytes
        self.zeros: Final = bytes(hole_bytes)
        self._cdc: Final = FastCDC(average, min_size=least, max_size=self.most, seed=seed)

    def lengths(self, data: memoryview) -> Iterator[int]:
        """How long the chunks of some bytes are, one by one; the last one ends with them. Not for no bytes at all."""
        for chunk in self._cdc.cut_buf(data):
            yield int(chunk.length)


class Old(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a content before an edit.

    Attributes:
        size_bytes: How long it was.
        chunks: Offset and length of its chunks in the window, ascending.
        changed: What may have changed since, where both have bytes; in any order, and the window's share is enough.
    """

    size_bytes: int
    chunks: Sequence[Range]
    changed: Iterable[Range]


class Chunk(msgspec.Struct, frozen=True, gc=False):
    """A chunk of a content.

    Attributes:
        offset: Where it begins.
        length: How long it is.
        data: Its bytes; None: as the old chunk that lies there, with the same bytes.
    """

    offset: int
    length: int
    data: memoryview | None


def windows_to_cut(chunker: Chunker, size: int, old_size: int, changed: Iterable[Range]) -> Iterator[int]:
    """Where the windows begin that an edit may have changed, ascending. Others have the chunks that they had.

    Chunks from `size` on are gone with their windows, which are not told.

    Args:
        chunker: The repository's.
        size: Bytes of the content now.
        old_size: Bytes before.
        changed: Ranges that may differ.
    """
    step, told = chunker.window_bytes, 0
    for start, end in _merged([*changed, _tail(size, old_size)], 0, size + 1):
        for window in range(max(start // step * step, told), min(end, size), step):
            yield window
            told = window + step


def cut_window(
    chunker: Chunker, start: int, size: int, read: Read, *, zeros: Iterable[Range] = (), old: Old | None = None
) -> Iterator[Chunk]:
    """The chunks of a window, in order.

    What is read is what changed, by whole blocks of 64 KiB, and of the rest what decides the cuts next to it: one or
    two chunks for each range that changed. Almost all of it is asked for by one call, for the old chunks tell what it
    will be. Each byte is read once. Memory: what is read of the window.

    Args:
        chunker: The repository's.
        start: Where the window begins.
        size: Bytes of the content.
        read: Its bytes. Is asked for ranges within the window only, ascending, none of them empty.
        zeros: What is known to be zeros: blocks that lie in these ranges are not read. The window's share is enough.
        old: What is known of the content before; None: nothing, and all is read.
    """
    end = min(start + chunker.window_bytes, size)
    if end <= start:
        return
    step = chunker.hole_bytes
    old_end = max(start, min(start + chunker.window_bytes, old.size_bytes)) if old else start
    dirty = _merged([*(old.changed if old else ()), _tail(end, old_end)], start, max(end, old_end))
    known = _merged(zeros, start, end)
    touched = [at for at in range(start, end, step) if _meets(dirty, at, at + step)]
    unknown = [at for at in touched if not _contains(known, at, min(at + step, end))]
    covered: set[int] = set()  # blocks that did not change, and are no holes
    beside: set[int] = set()  # those that chunks reach into which are cut anew, or that decide where these end
    if old is not None and (unseen := set(range(start, end, step)).difference(touched)):
        for at, length in old.chunks:
            covered.update(unseen.intersection(range(at // step * step, at + length, step)))
            if _meets(dirty, at, at + length + _LOOK_AHEAD):
                beside.update(range(at // step * step, at + length + _END_MARGIN, step))
        beside &= covered
    asks = list(_runs(sorted(beside.union(unknown)), step, end))
    bytes_ = _Bytes(read, step, end, [(first, data) for (first, _), data in zip(asks, _read(read, asks), strict=True)])
    full = bytes_.blocks_with_data(chunker.zeros) | covered
    olds = _with_ends(old.chunks) if old and dirty != [(start, end)] else {}
    for first, last in _runs(sorted(full), step, end):
        yield from _cut_run(chunker, first, last, bytes_, _Reusable(olds, dirty, last))


class _Reusable:
    """Which old chunks lie in a run of blocks as they did, by where they begin."""

    def __init__(self, olds: dict[int, Range], dirty: Sequence[Range], end: int) -> None:
        self.olds: Final = olds
        self._dirty = dirty
        self._end = end

    def length_at(self, at: int) -> int:
        """The length of the old chunk here, if a cut would make it again; else 0."""
        length, old_end = self.olds[at]
        chunk_end = at + length
        if self._end != old_end and chunk_end + _END_MARGIN > min(self._end, old_end):
            return 0
        return 0 if _meets(self._dirty, at, min(chunk_end + _LOOK_AHEAD, self._end)) else length


def _cut_run(chunker: Chunker, at: int, end: int, data: _Bytes, reusable: _Reusable) -> Iterator[Chunk]:
    while at < end:
        if at in reusable.olds and (length := reusable.length_at(at)):
            yield Chunk(at, length, None)
            at += length
            continue
        view = data.view(at, end)
        view_start, view_end = at, at + len(view)
        for length in chunker.lengths(view):
            # The cut is that of the whole run only if the end of what was read did not decide it.
            if view_end < end and length < chunker.most and at + length + _END_MARGIN > view_end:
                data.extend(at)
                break
            yield Chunk(at, length, view[at - view_start : at - view_start + length])
            at += length
            if at in reusable.olds and reusable.length_at(at):
                break


class _Bytes:
    """What was read of a window, and reads on from there. Asked in ascending order."""

    def __init__(self, read: Read, step: int, end: int, runs: list[tuple[int, bytes]]) -> None:
        self._read = read
        self._step = step
        self._end = end
        self._runs = deque(runs)
        self._start = 0
        self._data = b""

    def blocks_with_data(self, zeros: bytes) -> set[int]:
        """Where the blocks begin that were read at first, and are not all zeros."""
        return {
            first + at
            for first, data in self._runs
            for at in range(0, len(data), self._step)
            if not data.startswith(zeros[: len(data) - at] if len(data) - at < len(zeros) else zeros, at)
        }

    def view(self, at: int, end: int) -> memoryview:
        """What is at hand from here on, at most to `end`; at least a byte."""
        if not self._start <= at < self._start + len(self._data):
            self._start, self._data = self._next(at)
        return memoryview(self._data)[at - self._start : end - self._start]

    def extend(self, at: int) -> None:
        """Read on, and let go what is before `at`."""
        behind = self._start + len(self._data)
        start, more = self._next(behind)
        assert start == behind
        self._start, self._data = at, b"".join((memoryview(self._data)[at - self._start :], more))

    def _next(self, at: int) -> tuple[int, bytes]:
        while self._runs and self._runs[0][0] + len(self._runs[0][1]) <= at:
            self._runs.popleft()
        if self._runs and self._runs[0][0] <= at:
            return self._runs.popleft()
        end = min((at // self._step + 1) * self._step, self._end)
        (data,) = self._read([(at, min(end, self._runs[0][0]) if self._runs else end)])
        return at, data


def _read(read: Read, ranges: Sequence[Range]) -> Sequence[bytes]:
    return read(ranges) if ranges else ()


def _tail(size: int, old_size: int) -> Range:
    """What only the longer one of two has."""
    return min(size, old_size), max(size, old_size)


def _merged(ranges: Iterable[Range], start: int, end: int) -> list[Range]:
    """What of these ranges lies here, ascending and apart from each other."""
    merged: list[Range] = []
    for first, last in sorted((max(first, start), min(last, end)) for first, last in ranges):
        if first >= last:
            continue
        if merged and first <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(last, merged[-1][1])
        else:
            merged.append((first, last))
    return merged


def _meets(ranges: Sequence[Range], start: int, end: int) -> bool:
    at = bisect_left(ranges, end, key=lambda each: each[0])
    return at > 0 and ranges[at - 1][1] > start


def _contains(ranges: Sequence[Range], start: int, end: int) -> bool:
    return any(first <= start and end <= last for first, last in ranges)


def _runs(blocks: Sequence[int], step: int, end: int) -> Iterator[Range]:
    """Ranges of blocks that lie side by side, by where they begin; none beyond `end`."""
    if not blocks:
        return
    first = blocks[0]
    for before, at in pairwise(blocks):
        if at != before + step:
            yield first, before + step
            first = at
    yield first, min(blocks[-1] + step, end)


def _with_ends(chunks: Sequence[Range]) -> dict[int, Range]:
    """By offset the length of each chunk, and the end of the run of blocks that it lies in."""
    ends: dict[int, Range] = {}
    start = end = -1
    for at, length in reversed(chunks):
        if at + length != start:
            end = at + length
        ends[at] = length, end
        start = at
    return ends
