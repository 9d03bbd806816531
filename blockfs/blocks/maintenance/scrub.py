"""Reading every stored block from the disk and comparing it with its id."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.epochs import try_exclusive
from blockfs.blocks.ids import BlockId
from blockfs.blocks.index import Row
from blockfs.blocks.segment import (
    ADOPTED,
    RECORD_BYTES,
    SIDECAR_HEADER_BYTES,
    Record,
    encode_record,
    encode_sidecar_header,
)
from blockfs.blocks.segments.reclaim import read_sidecar
from blockfs.errors import BlockfsError, CorruptBlockError
from blockfs.runtime.atomic import space_errors, sync_directory, write_all

Step = Callable[[int, int], None]
"""Told how many blocks are checked, and of how many."""

_DROP_BYTES: Final = 64 << 20  # page cache given back per step: a scrub must not push everything else out of memory


class ScrubStopped(BlockfsError):  # noqa: N818 - an answer to the caller's own request, not a failure
    """The caller's `stop` said so. What was found so far is quarantined."""


class ScrubResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a scrub found.

    Attributes:
        blocks_checked: Blocks read.
        bytes_read: Their bytes.
        corrupt: Blocks whose payload is not what the id says, or can't be read. They are quarantined: `get` fails, they
            count as missing, and the next put replaces them.
        restored: Blocks that were quarantined and read well now; they are in use again.
        repaired_records: Sidecar records that were missing and were written again.
        findings: Other damage, one sentence each.
    """

    blocks_checked: int
    bytes_read: int
    corrupt: tuple[BlockId, ...]
    restored: tuple[BlockId, ...]
    repaired_records: int
    findings: tuple[str, ...]

    @property
    def is_clean(self) -> bool:
        """Whether nothing was wrong."""
        return not (self.corrupt or self.findings or self.repaired_records)


@dataclass(slots=True)
class _Scrub:
    blocks: BlockDirectory
    stop: Callable[[], bool]
    step: Step
    blocks_all: int = 0
    blocks_checked: int = 0
    bytes_read: int = 0
    corrupt: list[BlockId] = field(default_factory=list)
    restored: list[BlockId] = field(default_factory=list)
    repaired_records: int = 0
    findings: list[str] = field(default_factory=list)


def _tell_nobody(_done: int, _all: int) -> None:
    pass


def scrub(
    blocks: BlockDirectory, *, stop: Callable[[], bool] = lambda: False, step: Step = _tell_nobody
) -> ScrubResult:
    """Check all stored blocks, segment by segment in the order of their bytes. The directory may be in use.

    One that was opened read-only is only looked at: nothing is quarantined, restored or repaired.

    Args:
        blocks: The directory.
        stop: Asked now and then.
        step: Told after each block; others may store blocks meanwhile, so the second number is about right.

    Raises:
        ScrubStopped: `stop` said so.
        CorruptionError: The index itself is damaged.
    """
    run = _Scrub(blocks=blocks, stop=stop, step=step)
    with blocks.index.reading() as txn:
        segments = list(blocks.index.segments(txn))
    numbers = [number for number, _ in segments]
    run.blocks_all = sum(row.rows for _, row in segments)
    incomplete: dict[int, set[int]] = {}  # segment → offsets that were checked, where the sidecar lacks records
    for number in numbers:
        checked = _scrub_recorded(run, number)
        with blocks.index.reading() as txn:
            row = blocks.index.segment(txn, number)
        if row is not None and row.rows > len(checked):
            incomplete[number] = checked
    if incomplete:
        _scrub_unrecorded(run, incomplete)
    return ScrubResult(
        blocks_checked=run.blocks_checked,
        bytes_read=run.bytes_read,
        corrupt=tuple(run.corrupt),
        restored=tuple(run.restored),
        repaired_records=run.repaired_records,
        findings=tuple(run.findings),
    )


def cut_segments(blocks: BlockDirectory) -> list[str]:
    """Segments that are gone or end before blocks they should hold, one sentence each. The directory may be in use.

    No payload is read. Rows that are quarantined are known to be damaged, and do not count.
    """
    last: dict[int, tuple[BlockId, Row]] = {}  # the row of each segment that ends last
    for rows in blocks.index.scan(lambda _, row: not row.quarantined):
        for block_id, row in rows:
            if row.segment not in last or row.offset > last[row.segment][1].offset:
                last[row.segment] = (block_id, row)
    findings = []
    for number, (block_id, row) in sorted(last.items()):
        with blocks.index.reading() as txn:  # open while the file is looked at: a collector waits
            current = blocks.index.row(txn, block_id)
            if current is not None and current.is_at(row):
                findings += _cut(blocks.layout.segment(number), row.offset + row.stored_length)
    return findings


def _cut(path: str, end: int) -> list[str]:
    try:
        size = os.stat(path).st_size
    except FileNotFoundError:
        return [f"{path} is gone"]
    return [f"{path} ends at {size}, and has blocks up to {end}"] if size < end else []


def _scrub_recorded(run: _Scrub, number: int) -> set[int]:
    """Check the blocks that a segment's sidecar lists; returns their offsets."""
    _drop_cache(run.blocks.layout.segment(number))
    checked: set[int] = set()
    since_drop = 0
    for record in read_sidecar(run.blocks.layout, number):
        if record.offset not in checked and _check(run, record.block_id, number, record.offset):
            checked.add(record.offset)
            since_drop += record.stored_length
        if since_drop >= _DROP_BYTES:
            _drop_cache(run.blocks.layout.segment(number))
            since_drop = 0
    return checked


def _scrub_unrecorded(run: _Scrub, incomplete: dict[int, set[int]]) -> None:
    """Check the blocks of segments whose sidecars lack records, by a walk over the index; write the records again."""
    lacking: dict[int, list[Record]] = {}

    def is_unrecorded(_: bytes, row: Row) -> bool:
        return row.segment in incomplete and row.offset not in incomplete[row.segment]

    for rows in run.blocks.index.scan(is_unrecorded):
        for block_id, row in rows:
            if _check(run, block_id, row.segment, row.offset):
                lacking.setdefault(row.segment, []).append(row.record(block_id))
    for number, records in lacking.items():
        records.sort(key=lambda record: record.offset)
        run.repaired_records += append_records(run.blocks, number, records)


def _check(run: _Scrub, block_id: BlockId, segment: int, offset: int) -> bool:
    """Check one block if its row points here, and quarantine or restore it. Whether the row points here."""
    if run.stop():
        raise ScrubStopped("scrub stopped")
    index = run.blocks.index
    with index.reading() as txn:  # open until the payload is read: a collector waits
        row = index.row(txn, block_id)
        if row is None or row.segment != segment or row.offset != offset:
            return False
        try:
            data = run.blocks.reader.read(block_id, row, 0, row.length)
        except CorruptBlockError:
            data = b""
    run.blocks_checked += 1
    run.bytes_read += len(data)
    run.step(run.blocks_checked, max(run.blocks_all, run.blocks_checked))
    is_sound = hashlib.sha256(data).digest() == block_id
    if is_sound == row.quarantined and not run.blocks.read_only:
        index.set_quarantined(block_id, row, quarantined=not is_sound)
    if not is_sound:
        run.corrupt.append(block_id)
    elif row.quarantined and not run.blocks.read_only:
        run.restored.append(block_id)
    return True


def append_records(blocks: BlockDirectory, number: int, records: Iterable[Record]) -> int:
    """Write lost sidecar records again, so that a rebuild finds the blocks; 0 if somebody appends to the segment."""
    if blocks.read_only:
        return 0
    try:
        segment_fd = os.open(blocks.layout.segment(number), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return 0
    path = blocks.layout.sidecar(number)
    try:
        if not try_exclusive(segment_fd):
            return 0
        lost = list(records)
        data = b"".join(map(encode_record, lost))
        is_adopted = any(record.codec == ADOPTED for record in lost)
        with space_errors(path):
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                end = max(-(-os.fstat(fd).st_size // RECORD_BYTES) * RECORD_BYTES, SIDECAR_HEADER_BYTES)
                write_all(fd, encode_sidecar_header(blocks.format.uuid.bytes, number, adopted=is_adopted), 0)
                write_all(fd, data, end)
                os.fsync(fd)
            finally:
                os.close(fd)
            sync_directory(blocks.layout.segments)
        return len(data) // RECORD_BYTES
    finally:
        os.close(segment_fd)


def _drop_cache(path: str) -> None:
    """Ask the kernel to forget a file's clean pages, so that the disk is read and not the memory."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return  # the check of its blocks says so
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)
