"""Collecting blocks that no root, pin or hold names: mark and sweep, then punch.

The protocol and why it is safe is in docs/design/blocks.md, section "Collection".
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

import msgspec

from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.epochs import try_exclusive
from blockfs.blocks.ids import ID_SIZE
from blockfs.blocks.maintenance.repack import Repacker
from blockfs.blocks.segments.freed import FreedPlaces
from blockfs.blocks.segments.reclaim import Reclaimer
from blockfs.errors import BlockfsError

_MIN_BITS: Final = 1 << 24
"""2 MiB: small volumes, where somebody may count what went, hardly ever have two ids that share a bit."""

_BITS_PER_ROW: Final = 64
"""At most, and at least half as many. If all rows but one are live, the dead one shares its bit with a live one in 1.6
to 3.1 % of cases, and then stays until the next run, whose bits are others. 1 TiB of 64 KiB blocks takes 128 MiB."""

_PAUSE_S: Final = 0.01  # between looks at flocks and readers: they end in milliseconds, or wait for a commit of seconds

_REGION_SHIFT: Final = 15
_REGION_MASK: Final = (1 << _REGION_SHIFT) - 1
"""Bits of a region of the marks: a page of memory, so that it has nearly the same share of all ids as any other."""

_SWEPT_ROWS: Final = 4096
"""Rows deleted per transaction: about ten milliseconds, so that other processes' commits don't wait long, and so many
that the counters of a segment are changed for several rows at once also where there are a thousand segments."""

_DUE_BYTES: Final = 1 << 30
_DUE_SHARE: Final = 4
"""A collection is due when 1 GiB, and a quarter of what is stored, was appended since the last one (architecture)."""

_DEAD_BYTES: Final = 64 << 20
_DEAD_SHARE: Final = 8
"""It is also due when 64 MiB, and an eighth of what is stored, are known to be dead: then at most 8/7 of the live bytes
are stored, and a collection looks at no more than 8 blocks for each one that it removes."""


class CollectionStopped(BlockfsError):  # noqa: N818 - an answer to the caller's own request, not a failure
    """The caller's `stop` said so. Nothing is half-done: the next run starts over."""


class GcResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a collection did.

    Attributes:
        epoch: The epoch that it began.
        blocks_checked: Rows looked at.
        blocks_removed: Rows deleted.
        bytes_freed: Bytes given back to the host filesystem.
        segments_removed: Segments unlinked.
    """

    epoch: int
    blocks_checked: int
    blocks_removed: int
    bytes_freed: int
    segments_removed: int


class Marks:
    """A set of ids in bounded memory that may claim to hold more than was put in, never less.

    An id's bit is in the region that its first bytes choose, and where in there is chosen by others, in each run by
    others. So whoever asks in the order of the ids stays in one page of memory for hundreds of them, and does not wait
    for the memory at each; and ids that share a bit now don't the next time.

    Args:
        rows: Number of ids that the set is to tell apart.
        offset: Chooses the bytes that count within a region, 0 to 16; more begin again. Random in each run.
    """

    def __init__(self, rows: int, offset: int) -> None:
        count = _MIN_BITS
        while count * 2 <= rows * _BITS_PER_ROW:
            count *= 2
        self._regions = (count >> _REGION_SHIFT) - 1
        self._offset = 8 + offset % (ID_SIZE - 15)
        self._bits = bytearray(count // 8)

    def add(self, ids: bytes) -> None:
        """Mark concatenated ids."""
        bits, regions = self._bits, self._regions
        for first, second in self._words(ids):
            at = (first & regions) << _REGION_SHIFT | second & _REGION_MASK
            bits[at >> 3] |= 1 << (at & 7)

    def __contains__(self, block_id: bytes) -> bool:
        return not self.unmarked((block_id,))

    def unmarked(self, ids: Sequence[bytes]) -> list[bytes]:
        """Those of these ids that are certainly not in the set."""
        bits, regions = self._bits, self._regions
        found = []
        for known, (first, second) in zip(ids, self._words(b"".join(ids)), strict=True):
            at = (first & regions) << _REGION_SHIFT | second & _REGION_MASK
            if not bits[at >> 3] >> (at & 7) & 1:
                found.append(known)
        return found

    def _words(self, ids: bytes) -> Iterator[tuple[int, int]]:
        """The first 8 bytes of each of these ids and the 8 from `offset` on."""
        # 5 times as fast as slicing each id.
        from_offset = (ids + bytes(ID_SIZE))[self._offset : self._offset + len(ids)]
        return zip(memoryview(ids).cast("Q")[::4], memoryview(from_offset).cast("Q")[::4], strict=True)


def is_due(blocks: BlockDirectory, dead_bytes: int) -> bool:
    """Whether a collection is worth while, or one that has begun did not come to its end.

    Until an epoch is swept, each block that is stored already is appended once more when it is put again.

    Args:
        blocks: The directory.
        dead_bytes: Canonical bytes that are known to be dead, as far as the caller can tell.
    """
    with blocks.index.reading() as txn:
        if not blocks.index.is_swept(txn, blocks.index.number(txn, b"epoch")):
            return True
        appended = blocks.index.number(txn, b"appended") - blocks.index.number(txn, b"collected")
        stored = sum(row.length_bytes for _, row in blocks.index.segments(txn))
    return appended > max(_DUE_BYTES, stored // _DUE_SHARE) or dead_bytes > max(_DEAD_BYTES, stored // _DEAD_SHARE)


def unreferenced_bytes(blocks: BlockDirectory, references: int) -> int:
    """Canonical bytes of the blocks that are more than `references`, at their mean length; 0 if there are not more.

    What is dead at least if there are no pins: blocks that several references share make it more.
    """
    with blocks.index.reading() as txn:
        segments = [row for _, row in blocks.index.segments(txn)]
    rows = sum(row.rows for row in segments)
    return sum(row.length_bytes for row in segments) * max(0, rows - references) // max(1, rows)


def collect(
    blocks: BlockDirectory,
    live: Callable[[], Iterable[bytes]],
    *,
    commit: Callable[[], None] = lambda: None,
    stop: Callable[[], bool] = lambda: False,
) -> GcResult:
    """Delete the blocks that nobody needs. One collection at a time; a second one waits.

    Order: `commit` → begin a new epoch, durably → `commit` → wait for the holders of older epochs → mark → delete
    unmarked rows of older epochs, durably → wait for readers of older states → punch → unlink empty segments. It counts
    as done once the rows are deleted: one that fails before is due again, see `is_due`.

    Args:
        blocks: The directory. This process may go on using it.
        live: Names the ids of the roots, concatenated or single, in any order, holes included or not. Called once,
            after the wait: what was committed by then counts. Pins are added to it.
        commit: The mount commits its change sets here. First of all, because where that fails no epoch may begin; and
            before the wait, so that the holds of what came in between end.
        stop: Asked now and then while waiting and working.

    Raises:
        CollectionStopped: `stop` said so.
        MemoryError: The marks don't fit.
    """

    def pause() -> None:
        _check(stop)
        time.sleep(_PAUSE_S)

    fd = os.open(blocks.layout.gc_lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        while not try_exclusive(fd):
            pause()
        return _collect(blocks, live, commit, stop, pause)
    finally:
        os.close(fd)


def _collect(
    blocks: BlockDirectory,
    live: Callable[[], Iterable[bytes]],
    commit: Callable[[], None],
    stop: Callable[[], bool],
    pause: Callable[[], None],
) -> GcResult:
    commit()
    blocks.release_segments()
    epoch, rows, appended = _advance(blocks)
    commit()
    blocks.epochs.drain(epoch, pause)
    marks = Marks(rows, secrets.randbelow(ID_SIZE - 15))
    for ids in live():
        marks.add(ids)
        _check(stop)
    for ids in blocks.pins.all():
        marks.add(ids)
    places = FreedPlaces(blocks.index)
    checked, removed = _sweep(blocks, places, marks, epoch, stop)
    with blocks.index.writing() as txn:
        blocks.index.set_number(txn, b"swept", epoch)
        blocks.index.set_number(txn, b"collected", appended)
    del marks  # its memory is as much as all that comes needs
    reclaimer = Reclaimer(blocks.layout, blocks.index, blocks.disk)
    freed = reclaimer.punch_swept(places, pause) + reclaimer.punch(pause)
    settled = reclaimer.settle(pause)
    repacked = Repacker(blocks).repack(settled.wasteful, pause)
    segments_removed = reclaimer.remove_empty(pause)
    reclaimer.punch(pause)  # what was moved: mostly from segments that are gone by now
    return GcResult(
        epoch=epoch,
        blocks_checked=checked,
        blocks_removed=removed,
        bytes_freed=freed + settled.bytes_freed + repacked,
        segments_removed=segments_removed,
    )


def _advance(blocks: BlockDirectory) -> tuple[int, int, int]:
    """Begin a new epoch; returns it, the number of rows, and what was appended before it.

    From now on `swept` lags behind: dedup hits are careful.
    """
    index = blocks.index
    with index.writing() as txn:
        epoch = index.number(txn, b"epoch") + 1
        index.set_number(txn, b"epoch", epoch)
        appended = index.number(txn, b"appended")
        rows = sum(row.rows for _, row in index.segments(txn))
    return epoch, rows, appended


def _sweep(
    blocks: BlockDirectory, places: FreedPlaces, marks: Marks, epoch: int, stop: Callable[[], bool]
) -> tuple[int, int]:
    """Delete unmarked rows of older epochs in short transactions; returns rows checked and removed."""
    checked = removed = 0

    def unmarked() -> Iterator[bytes]:
        nonlocal checked
        for ids in blocks.index.scan_ids():
            checked += len(ids)
            _check(stop)
            yield from marks.unmarked(ids)

    dead = unmarked()
    while batch := list(islice(dead, _SWEPT_ROWS)):
        _check(stop)
        with blocks.index.writing() as txn:
            rows = blocks.index.remove_older(txn, batch, epoch)  # looks again: a put or pin may have raised an epoch
            places.add(txn, rows)
        removed += len(rows)
    return checked, removed


def _check(stop: Callable[[], bool]) -> None:
    if stop():
        raise CollectionStopped("collection stopped; the next one starts over")
