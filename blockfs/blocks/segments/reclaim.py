"""Giving payload without a row back to the host: punch holes, remove empty segments.

Nothing here decides what is dead: it follows the index. Each step first waits for the read transactions that may still
know a place, and each can be repeated after a crash.
"""

from __future__ import annotations

import errno
import os
from array import array
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Final

import msgspec

from blockfs.blocks.disk import Disk
from blockfs.blocks.epochs import try_exclusive
from blockfs.blocks.index import ADOPTED_LEAST_BYTES, BATCH_ROWS, Index, Reading, SegmentRow, SegmentState
from blockfs.blocks.layout import Layout
from blockfs.blocks.segment import (
    RECORD_BYTES,
    SEGMENT_HEADER_BYTES,
    SIDECAR_HEADER_BYTES,
    Record,
    align,
    decode_records,
    payload_end,
    unpack_place,
    whole_pages,
)
from blockfs.blocks.segments.freed import FreedPlaces

_BATCH: Final = 8192  # freed payloads per wait for readers
_SWEPT: Final = 1 << 18
"""Swept ones, which come sorted by id: so many that each segment is opened seldom and neighbours are punched in one
call. They take 16 MB of memory, for as long as the collector has them."""
_SIDECAR_READ_BYTES: Final = 4096 * RECORD_BYTES
_WASTE_SHARE: Final = 8
_WASTE_BYTES: Final = 64 << 10
"""A segment is worth moving when pages that can't be punched come to more than an eighth of its live payload. With half
of the payloads dead, 7/8 of their bytes are back then; below, each byte gained would cost 8 copied ones and more."""


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """What `Reclaimer.settle` did.

    Attributes:
        bytes_freed: Bytes given back.
        wasteful: Segments with too many pages that are half dead, which only moving the rest gives back; and adopted
            ones with little left.
    """

    bytes_freed: int
    wasteful: tuple[int, ...]


class Reclaimer:
    """Punches and unlinks in one block directory."""

    def __init__(self, layout: Layout, index: Index, disk: Disk) -> None:
        self._layout = layout
        self._index = index
        self._disk = disk

    def punch(self, pause: Callable[[], None] | None = None) -> int:
        """Punch the payloads that the index lists as free.

        Order: listed → no older reader → punch → delisted. A crash in between punches again: a place is never reused.

        Args:
            pause: Called while older readers last; None: then leave the rest to the next call.

        Returns:
            Bytes given back.
        """
        freed_bytes = 0
        while True:
            with self._index.reading() as txn:
                snapshot = txn.id()
                entries = self._index.freed(txn, _BATCH)
            if not entries or not self.wait_for_readers(snapshot, pause):
                return freed_bytes
            for segment, ranges in _by_segment(entries):
                freed_bytes += self._punch_ranges(segment, ranges)
            with self._index.writing() as txn:
                self._index.forget_freed(txn, entries)

    def punch_swept(self, freed: FreedPlaces, pause: Callable[[], None]) -> int:
        """The same for what sweeps have listed. Only for the collector."""
        freed_bytes = 0
        while True:
            with self._index.reading() as txn:
                snapshot = txn.id()
                listed = freed.first(txn, _SWEPT)
            if not listed.keys:
                return freed_bytes
            self.wait_for_readers(snapshot, pause)
            for segment, ranges in _by_segment(listed.places()):
                freed_bytes += self._punch_ranges(segment, ranges)
            for at in range(0, len(listed.keys), BATCH_ROWS):
                with self._index.writing() as txn:
                    freed.forget(txn, listed.keys[at : at + BATCH_ROWS])

    def wait_for_readers(self, snapshot: int, pause: Callable[[], None] | None) -> bool:
        """Wait until no process reads from a state before commit `snapshot`; False if `pause` is None and one does."""
        while (oldest := self._index.oldest_reader()) is not None and oldest < snapshot:
            if pause is None:
                return False
            pause()
        return True

    def _punch_ranges(self, segment: int, ranges: Iterable[tuple[int, int]]) -> int:
        try:
            fd = os.open(self._layout.segment(segment), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return 0
        try:
            if _is_staged(fd):
                return 0  # to be settled when it is not any more
            before = os.fstat(fd).st_blocks
            for offset, length in _joined(ranges):
                start, end = whole_pages(offset, offset + length)
                if start < end:
                    self._disk.punch(fd, start, end - start)
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            return 0  # a host without holes: only empty segments give space back there
        else:
            return max(0, before - os.fstat(fd).st_blocks) * 512
        finally:
            os.close(fd)

    def settle(self, pause: Callable[[], None]) -> Settled:
        """Punch the pages between live payloads in segments that nobody appends to.

        That is what crashes and lost races left (appended but never committed, or recorded by somebody who came
        second), and the pages that several dead payloads shared, whenever each of them died. A segment is only touched
        if its sidecar leads to exactly as many rows as the index counts.
        """
        with self._index.reading() as txn:
            numbers = [number for number, row in self._index.segments(txn) if row.state is not SegmentState.SETTLED]
        wasteful: list[int] = []
        settle_one = partial(self._settle_one, wasteful=wasteful, pause=pause)
        freed_bytes = sum(self.exclusively(number, settle_one) for number in numbers)
        return Settled(bytes_freed=freed_bytes, wasteful=tuple(wasteful))

    def settle_adopted(self, number: int) -> None:
        """The same for one segment that was adopted, at once; left to the next collection if a reader is older."""
        settle_one = partial(self._settle_one, wasteful=[], pause=None)
        self.exclusively(number, lambda number, row, fd: settle_one(number, row, fd) if _has_gaps(row, fd) else 0)

    def _settle_one(
        self, number: int, row: SegmentRow, fd: int, *, wasteful: list[int], pause: Callable[[], None] | None
    ) -> int:
        with self._index.reading() as txn:
            snapshot = txn.id()
            live = self._live(txn, number)
        if fd < 0 or len(live) != row.rows or _is_staged(fd):
            return 0  # a damaged sidecar: scrub reports it
        if not self.wait_for_readers(snapshot, pause):
            return 0
        is_adopted = bool(self._layout.is_adopted(number))
        first = 0 if is_adopted else SEGMENT_HEADER_BYTES
        freed_bytes = self._punch_ranges(number, _gaps(live, first, align(os.fstat(fd).st_size)))
        live_bytes = sum(end - start for start, end in map(_extent, live))
        waste_bytes = os.fstat(fd).st_blocks * 512 - live_bytes
        is_small = is_adopted and live_bytes < ADOPTED_LEAST_BYTES
        if is_small or waste_bytes > max(_WASTE_BYTES, live_bytes // _WASTE_SHARE):
            wasteful.append(number)
        if row.state is SegmentState.SEALED:
            with self._index.writing() as txn:
                now = self._index.segment(txn, number)
                if now is not None:
                    self._index.set_segment(txn, number, now._replace(state=SegmentState.SETTLED))
        return freed_bytes

    def _live(self, txn: Reading, number: int) -> array[int]:
        """Places of the payloads that rows point to, ascending; see `_extent`. 8 bytes each: there may be a million."""
        live = array("Q")
        for record in read_sidecar(self._layout, number):
            row = self._index.row(txn, record.block_id)
            if row is not None and row.segment == number and row.offset == record.offset:
                live.append(row.offset << 24 | payload_end(row.offset, row.stored_length, row.codec) - row.offset)
        if any(before >= after for before, after in pairwise(live)):  # records that a scrub wrote again
            live = array("Q", sorted(set(live)))
        return live

    def remove_empty(self, pause: Callable[[], None]) -> int:
        """Remove the segments that have no rows and that nobody appends to.

        Order: cut and unlink the files → forget the segment. A crash in between leaves a row without files, and the
        next run comes here again.

        Returns:
            Number of segments removed.
        """
        with self._index.reading() as txn:
            snapshot = txn.id()
            empty = [number for number, row in self._index.segments(txn) if not row.rows]
        if not empty:
            return 0
        self.wait_for_readers(snapshot, pause)
        return sum(self.exclusively(number, self._remove_one) for number in empty)

    def _remove_one(self, number: int, row: SegmentRow, fd: int) -> int:
        with self._index.reading() as txn:
            if row.rows or self._live(txn, number):
                return 0
        if fd >= 0 and not _is_staged(fd):
            self._disk.truncate(fd, 0)  # other processes may have it open: give the space back now
        for path in (self._layout.segment(number), self._layout.sidecar(number)):
            try:
                self._disk.unlink(path)
            except FileNotFoundError:
                continue
        self._disk.sync_directory(self._layout.segments)
        with self._index.writing() as txn:
            self._index.remove_segment(txn, number)
        return 1

    def exclusively(self, number: int, act: Callable[[int, SegmentRow, int], int]) -> int:
        """Run `act` with the segment's number, row and descriptor (-1: no file) under its flock.

        Returns:
            What `act` returned; 0 if somebody appends to the segment, or if it is gone.
        """
        try:
            fd = os.open(self._layout.segment(number), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            fd = -1
        try:
            if fd >= 0 and not try_exclusive(fd):
                return 0
            with self._index.reading() as txn:
                row = self._index.segment(txn, number)
            return 0 if row is None else act(number, row, fd)
        finally:
            if fd >= 0:
                os.close(fd)


def read_sidecar(layout: Layout, number: int) -> Iterator[Record]:
    """The sound records of a segment's sidecar, in the order of appending; none if it is missing."""
    try:
        with open(layout.sidecar(number), "rb") as file:
            file.seek(SIDECAR_HEADER_BYTES)
            while data := file.read(_SIDECAR_READ_BYTES):
                yield from decode_records(data)
    except FileNotFoundError:
        return


def _by_segment(entries: Iterable[tuple[int, int, int]]) -> Iterator[tuple[int, Iterator[tuple[int, int]]]]:
    """(Segment, packed place), ascending, as segments with their ranges in bytes."""
    for segment, found in groupby(entries, itemgetter(0)):
        yield segment, (unpack_place(offset, length) for _, offset, length in found)


def _has_gaps(row: SegmentRow, fd: int) -> bool:
    """Whether a segment of raw payload takes much more of the host than its rows account for."""
    return fd >= 0 and os.fstat(fd).st_blocks * 512 - row.length_bytes > _WASTE_BYTES


def _is_staged(fd: int) -> bool:
    """Whether a segment was adopted from a file that still has its own name: somebody may read it there, all of it."""
    return os.fstat(fd).st_nlink > 1


def _joined(ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Adjacent (offset, length) ranges as one; ascending offsets expected."""
    start = end = 0
    for offset, length in ranges:
        if offset != end:
            if end > start:
                yield start, end - start
            start = offset
        end = offset + length
    if end > start:
        yield start, end - start


def _extent(place: int) -> tuple[int, int]:
    """A place of `Reclaimer._live` as (start, end)."""
    return place >> 24, (place >> 24) + (place & 0xFFFFFF)


def _gaps(live: Iterable[int], at: int, size_bytes: int) -> Iterator[tuple[int, int]]:
    """What lies between the live payloads of a segment from `at` on and behind the last, as (offset, length)."""
    for start, end in map(_extent, live):
        if start > at:
            yield at, start - at
        at = max(at, end)
    if size_bytes > at:
        yield at, size_bytes - at
