"""Blocks that this object has put and not yet made durable: append, group sync, and what happens when a sync fails."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from blockfs.blocks.codec import Payload, holds
from blockfs.blocks.disk import Disk
from blockfs.blocks.epochs import EpochHold
from blockfs.blocks.ids import BlockId
from blockfs.blocks.index import BATCH_ROWS, Index, Row, SegmentState
from blockfs.blocks.layout import Layout
from blockfs.blocks.segment import RAW, align
from blockfs.blocks.segments.writer import SegmentSource, SegmentWriter
from blockfs.errors import BlockfsError, CorruptBlockError, NoSpaceError

_SYNC_ROUNDS: Final = 3  # tries on other segments when an fdatasync fails, before the callers hear of it


class Pending:
    """A block between put and commit.

    Attributes:
        row: Its place now; replaced as a whole when the payload moves, so that readers see one or the other.
        holds: The holds under which it was put; the row gets the newest one's epoch.
        committing: A group has taken it: a newer epoch would come too late.
        recorded: Its sidecar record is durable.
        adrift: The payload must be appended again: its place may be lost, or free by now.
    """

    __slots__ = ("adrift", "committing", "holds", "recorded", "row")

    def __init__(self, row: Row, hold: EpochHold) -> None:
        self.row = row
        self.holds = {hold}
        self.committing = False
        self.recorded = False
        self.adrift = False

    def join(self, hold: EpochHold) -> bool:
        """Let another put share this payload. False if its epoch would not reach the row."""
        if hold.epoch > self.row.epoch:
            if self.committing:
                return False
            self.row = self.row._replace(epoch=hold.epoch)
        self.holds.add(hold)
        return True


class Appender:
    """Appends payloads and makes them durable in groups.

    Two locks: `_lock` for appending and the pending blocks, never held across a sync, and `_sync_lock` for the group.
    Readers look into `pending` without a lock.

    After a failed fdatasync the kernel may have dropped the unsynced pages and forgotten them. So the segment is given
    up, and its unsynced payloads are read back, verified by their ids and appended to another one. A payload that
    doesn't verify is lost: `sync` fails until it is put again or until nobody holds an epoch for it.
    """

    def __init__(self, layout: Layout, source: SegmentSource, index: Index, disk: Disk, limit_bytes: int) -> None:
        self.pending: Final[dict[bytes, Pending]] = {}
        self._layout = layout
        self._source = source
        self._index = index
        self._disk = disk
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._sync_lock = threading.Lock()
        self._writers: dict[int, SegmentWriter] = {}  # all that hold a flock
        self._open: SegmentWriter | None = None  # the one that takes payloads
        self._lost: dict[bytes, Pending] = {}
        self._appended = 0  # payloads put since the object was made
        self._synced = 0  # of these, a prefix that is durable

    def add(self, blocks: Mapping[BlockId, Payload], hold: EpochHold) -> None:
        """Append blocks, but those that are pending already.

        Raises:
            NoSpaceError: Nothing was appended.
        """
        with self._lock:
            new: dict[BlockId, Payload] = {}
            for block_id, payload in blocks.items():
                known = self.pending.get(block_id)
                if known is None or not known.join(hold):
                    new[block_id] = payload
            if not new:
                return
            for block_id, row in zip(new, self._append(list(new.values()), hold.epoch), strict=True):
                self.pending[block_id] = Pending(row, hold)
                self._lost.pop(block_id, None)
            self._appended += len(new)

    def share(self, blocks: Sequence[tuple[BlockId, int]], source: int, start: int, hold: EpochHold) -> bool:
        """Add raw blocks by sharing the pages in which another file has them, but those that are pending already.

        Args:
            blocks: Their ids and the lengths of the canonical blocks, in the file one after the other, each on pages of
                its own: what these hold has that id, what follows in the last one is NUL, nobody changes them there.
            source: Descriptor of the file.
            start: First byte there, a multiple of 4096.
            hold: As for `add`.

        Returns:
            False if the host can't: some of them may be added all the same.

        Raises:
            NoSpaceError: As above.
        """
        with self._lock:
            run: dict[BlockId, int] = {}
            end = start
            for block_id, length in blocks:
                known = self.pending.get(block_id)
                end += align(length)
                if block_id not in run and (known is None or not known.join(hold)):
                    run[block_id] = length
                elif self._share(run, source, start, hold):
                    run, start = {}, end
                else:
                    return False
            return self._share(run, source, start, hold)

    def _share(self, run: Mapping[BlockId, int], source: int, start: int, hold: EpochHold) -> bool:
        if not run:
            return True
        self._disk.check_room(self._layout.segments, 0)
        writer = self._writer()
        offset = writer.share(source, start, sum(map(align, run.values())))
        if offset is None:
            return False
        for block_id, length in run.items():
            self.pending[block_id] = Pending(Row(writer.number, offset, length, length, RAW, False, hold.epoch), hold)
            self._lost.pop(block_id, None)
            offset += align(length)
        self._appended += len(run)
        return True

    def join(self, block_id: bytes, hold: EpochHold) -> bool:
        """Rely on a pending block; False if there is none, or if it is too late for this hold's epoch."""
        with self._lock:
            known = self.pending.get(block_id)
            return known is not None and known.join(hold)

    def _append(self, payloads: Sequence[Payload], epoch: int) -> list[Row]:
        """Append to the open segment, or to the next one if it is full."""
        self._disk.check_room(self._layout.segments, sum(len(payload.data) for payload in payloads))
        writer = self._writer()
        return [
            Row(writer.number, offset, len(payload.data), payload.length, payload.codec, False, epoch)
            for payload, offset in zip(payloads, writer.append(payloads), strict=True)
        ]

    def _writer(self) -> SegmentWriter:
        """The open segment, or the next one if it is full."""
        writer = self._open
        if writer is None or writer.failed or writer.end >= self._limit_bytes:
            self._open = None
            writer = self._source.next(self._limit_bytes, set(self._writers))
            self._writers[writer.number] = self._open = writer
        return writer

    def sync(self) -> bool:
        """Make all blocks durable that were added before the call. Concurrent callers share one group.

        Returns:
            Whether there are payloads to punch now, because somebody else stored the same blocks first.

        Raises:
            NoSpaceError: Nothing is lost; call again when there is space.
            CorruptBlockError: A block must be put again, see the class.
            OSError: The host failed again and again. The blocks stay pending.
        """
        with self._lock:
            target = self._appended
        with self._sync_lock:
            if self._synced >= target and not self._lost:
                return False  # the group before this one took ours along
            with self._lock:
                target = self._appended
                group = dict(self.pending)
                for writer in self._writers.values():
                    writer.finish_page()
                for entry in group.values():
                    entry.committing = True
            try:
                self._make_durable(group)
                losers = list(self._commit(group))
            finally:
                for entry in group.values():
                    entry.committing = False
            self._free(losers)
            self._close_idle()
            self._raise_lost()
            self._synced = target
            return bool(losers)

    # --- payload and sidecar

    def _make_durable(self, group: dict[bytes, Pending]) -> None:
        """Order: payload → fdatasync → sidecar record → fdatasync. On failure elsewhere again."""
        for attempt in range(_SYNC_ROUNDS):
            self._move_adrift(group)
            try:
                for number, entries in self._by_segment(group).items():
                    entries.sort(key=lambda item: item[1].row.offset)
                    self._writers[number].make_durable([entry.row.record(block_id) for block_id, entry in entries])
                    for _, entry in entries:
                        entry.recorded = True
                return
            except (OSError, NoSpaceError):
                failed = {number for number, writer in self._writers.items() if writer.failed}
                for entry in group.values():
                    entry.adrift = entry.adrift or (not entry.recorded and entry.row.segment in failed)
                if attempt == _SYNC_ROUNDS - 1 or not any(entry.adrift for entry in group.values()):
                    raise

    @staticmethod
    def _by_segment(group: dict[bytes, Pending]) -> dict[int, list[tuple[bytes, Pending]]]:
        found: dict[int, list[tuple[bytes, Pending]]] = {}
        for block_id, entry in group.items():
            if not entry.recorded:
                found.setdefault(entry.row.segment, []).append((block_id, entry))
        return found

    def _move_adrift(self, group: dict[bytes, Pending]) -> None:
        """Append payloads again whose place can't be trusted. Unreadable ones leave the group."""
        for block_id, entry in [item for item in group.items() if item[1].adrift]:
            row = entry.row
            data = self._writers[row.segment].read_back(row.offset, row.stored_length)
            payload = Payload(data, row.length, row.codec)
            with self._lock:
                if holds(payload, block_id):
                    (entry.row,) = self._append([payload], row.epoch)
                    entry.adrift = entry.recorded = False
                    continue
                del group[block_id]
                if self.pending.get(block_id) is entry:
                    del self.pending[block_id]
                    self._lost[block_id] = entry

    # --- index

    def _commit(self, group: dict[bytes, Pending]) -> Iterator[Row]:
        """Write the rows; yields the places of payloads that somebody else had stored first.

        Pending entries go as soon as their transaction is durable: a collector may delete the row any time after, and
        writing it again would point to a punched place.
        """
        items = iter(sorted(group.items()))  # by id: neighbours share index pages
        while batch := list(islice(items, BATCH_ROWS)):
            try:
                losers = self._commit_batch(batch)
            except BlockfsError:
                raise  # the transaction was rolled back
            except BaseException:
                for _, entry in batch:
                    entry.adrift = True  # nobody knows whether it was committed
                raise
            with self._lock:
                for block_id, entry in batch:
                    if self.pending.get(block_id) is entry:
                        del self.pending[block_id]
            yield from losers

    def _commit_batch(self, batch: list[tuple[bytes, Pending]]) -> list[Row]:
        losers = []
        appended = 0
        with self._index.writing() as txn:
            for block_id, entry in batch:
                if self._index.add(txn, block_id, entry.row):
                    appended += entry.row.length
                else:
                    losers.append(entry.row)
            self._index.set_number(txn, b"appended", self._index.number(txn, b"appended") + appended)
        return losers

    def _free(self, losers: list[Row]) -> None:
        """List the losers' payloads to be punched.

        A transaction later than the one that took them from `pending`: a reader that saw the pending place began before
        this commit, so waiting for readers older than it is enough.
        """
        if losers:
            with self._index.writing() as txn:
                for row in losers:
                    self._index.free(txn, row)

    def release_segments(self) -> None:
        """Let go of the segment that takes payloads, as soon as nothing in it is pending: a collector can look at it.

        The next payload goes to a segment that nobody has then: this one again, or another.
        """
        with self._sync_lock:
            with self._lock:
                self._open = None
            self._close_idle()

    def _close_idle(self) -> None:
        """Let go of segments that take no more and have no pending payloads, for ever if they are full.

        Failed ones stay locked: readers may still know places.
        """
        with self._lock:
            busy = {entry.row.segment for entry in self.pending.values()}
            idle = [
                writer
                for number, writer in self._writers.items()
                if number not in busy and writer is not self._open and not writer.failed
            ]
            for writer in idle:
                del self._writers[writer.number]
        for writer in idle:
            if writer.end >= self._limit_bytes:
                with self._index.writing() as txn:
                    row = self._index.segment(txn, writer.number)
                    if row is not None:
                        self._index.set_segment(txn, writer.number, row._replace(state=SegmentState.SEALED))
            writer.close()

    def _raise_lost(self) -> None:
        with self._lock:
            for block_id, entry in list(self._lost.items()):
                if all(hold.released for hold in entry.holds):
                    del self._lost[block_id]
            if self._lost:
                raise CorruptBlockError(next(iter(self._lost)), "the host failed to write it; it must be put again")

    def close(self) -> None:
        """Forget what is not durable, and let other processes have the segments."""
        with self._sync_lock, self._lock:
            self.pending.clear()
            while self._writers:
                self._writers.popitem()[1].close()
            self._open = None
