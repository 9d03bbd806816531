"""Giving payload without a row back to the host: punch holes, remove empty segments. No compaction.

Nothing here decides what is dead: it follows the index. Each step first waits for the read transactions that may still
know a place, and each can be repeated after a crash.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

from blockfs.blocks.disk import Disk
from blockfs.blocks.epochs import try_exclusive
from blockfs.blocks.index import Index, Reading, Row, SegmentRow, SegmentState
from blockfs.blocks.layout import Layout
from blockfs.blocks.segment import SEGMENT_HEADER_BYTES, SIDECAR_HEADER_BYTES, Record, align, decode_records, extent

_BATCH: Final = 8192  # freed payloads per wait for readers


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

    def wait_for_readers(self, snapshot: int, pause: Callable[[], None] | None) -> bool:
        """Wait until no process reads from a state before commit `snapshot`; False if `pause` is None and one does."""
        while (oldest := self._index.oldest_reader()) is not None and oldest < snapshot:
            if pause is None:
                return False
            pause()
        return True

    def _punch_ranges(self, segment: int, ranges: Iterable[tuple[int, int]]) -> int:
        try:
            fd = os.open(self._layout.segment(segment), os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return 0
        try:
            before = os.fstat(fd).st_blocks
            for offset, length in _joined(ranges):
                self._disk.punch(fd, offset, length)
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            return 0  # a host without holes: only empty segments give space back there
        else:
            return max(0, before - os.fstat(fd).st_blocks) * 512
        finally:
            os.close(fd)

    def settle(self, pause: Callable[[], None]) -> int:
        """Punch what crashes and lost races left in segments that nobody appends to.

        That is payload between the ones that have rows: appended but never committed, or recorded by somebody who came
        second. A segment is only touched if its sidecar leads to exactly as many rows as the index counts.

        Returns:
            Bytes given back.
        """
        with self._index.reading() as txn:
            numbers = [number for number, row in self._index.segments(txn) if row.state is not SegmentState.SETTLED]
        return sum(self._exclusively(number, partial(self._settle_one, pause=pause)) for number in numbers)

    def _settle_one(self, number: int, row: SegmentRow, fd: int, *, pause: Callable[[], None]) -> int:
        records = read_sidecar(self._layout, number)
        with self._index.reading() as txn:
            snapshot = txn.id()
            live = list(self._live(txn, number, records))
        if len(live) != row.rows:
            return 0  # a damaged sidecar: scrub reports it
        self.wait_for_readers(snapshot, pause)
        size_bytes = align(os.fstat(fd).st_size)
        freed_bytes = self._punch_ranges(number, _gaps(live, size_bytes))
        if row.state is SegmentState.SEALED:
            with self._index.writing() as txn:
                now = self._index.segment(txn, number)
                if now is not None:
                    self._index.set_segment(txn, number, now._replace(state=SegmentState.SETTLED))
        return freed_bytes

    def _live(self, txn: Reading, number: int, records: Iterable[Record]) -> Iterator[Row]:
        """Rows that point to payloads of these records, each once, by offset."""
        seen = set()
        for record in sorted(records, key=lambda record: record.offset):
            row = self._index.row(txn, record.block_id)
            if row is not None and row.segment == number and row.offset == record.offset and row.offset not in seen:
                seen.add(row.offset)
                yield row

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
        return sum(self._exclusively(number, self._remove_one) for number in empty)

    def _remove_one(self, number: int, row: SegmentRow, fd: int) -> int:
        with self._index.reading() as txn:
            if row.rows or any(True for _ in self._live(txn, number, read_sidecar(self._layout, number))):
                return 0
        if fd >= 0:
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

    def _exclusively(self, number: int, act: Callable[[int, SegmentRow, int], int]) -> int:
        """Run `act` with the segment's flock and its row as it is then; 0 if somebody appends to it."""
        try:
            fd = os.open(self._layout.segment(number), os.O_RDWR | os.O_CLOEXEC)
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


def read_sidecar(layout: Layout, number: int) -> list[Record]:
    """The sound records of a segment's sidecar, in the order of appending; none if it is missing."""
    try:
        with open(layout.sidecar(number), "rb") as file:
            return list(decode_records(file.read()[SIDECAR_HEADER_BYTES:]))
    except FileNotFoundError:
        return []


def _by_segment(entries: Iterable[tuple[int, int, int]]) -> Iterator[tuple[int, list[tuple[int, int]]]]:
    found: dict[int, list[tuple[int, int]]] = {}
    for segment, offset, length in entries:
        found.setdefault(segment, []).append((offset, length))
    yield from found.items()


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


def _gaps(live: Iterable[Row], size_bytes: int) -> Iterator[tuple[int, int]]:
    """What lies between the live payloads of a segment and behind the last, as (offset, length)."""
    at = SEGMENT_HEADER_BYTES
    for row in live:
        offset, length = extent(row.offset, row.stored_length)
        if offset > at:
            yield at, offset - at
        at = max(at, offset + length)
    if size_bytes > at:
        yield at, size_bytes - at
