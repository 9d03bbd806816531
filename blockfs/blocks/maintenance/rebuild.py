"""Making a new index from segments and sidecars, when the old one is damaged or gone."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import Final

import msgspec

from blockfs.blocks.codec import Payload, holds
from blockfs.blocks.disk import Disk
from blockfs.blocks.environment import structural_damage
from blockfs.blocks.ids import BlockId
from blockfs.blocks.index import Index, Row, SegmentRow, SegmentState
from blockfs.blocks.layout import Format, Layout
from blockfs.blocks.pins import Pins
from blockfs.blocks.segment import (
    PAGE,
    SEGMENT_HEADER_BYTES,
    SIDECAR_HEADER_BYTES,
    ZSTD,
    Record,
    align,
    check_segment_header,
    check_sidecar_header,
)
from blockfs.blocks.segments.reclaim import read_sidecar
from blockfs.errors import BlockfsError, CorruptionError, LockedError
from blockfs.runtime.atomic import space_errors, sync_directory

_BATCH: Final = 8192  # rows per transaction: nobody waits for the lock here
_OLD: Final = ".old"
_EPOCH: Final = 1  # of rebuilt rows: nobody holds anything, so they are as old as any


class RebuildResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a rebuild found.

    Attributes:
        blocks: Blocks in the new index, each one verified. Some may be dead: the next collection removes them.
        bytes_read: Payload bytes read.
        damaged: Blocks that a sidecar lists and of which no sound payload was found. They count as missing now.
        pins: Pins taken over from the old index; None if it could not be read: then pins are lost, and owners must
            pin again before the next collection.
        findings: Files that could not be used, one sentence each.
    """

    blocks: int
    bytes_read: int
    damaged: tuple[BlockId, ...]
    pins: int | None
    findings: tuple[str, ...]


@dataclass(slots=True)
class _Rebuild:
    layout: Layout
    format: Format
    index: Index
    bytes_read: int = 0
    damaged: set[BlockId] = field(default_factory=set)
    findings: list[str] = field(default_factory=list)


def rebuild_index(path: str) -> RebuildResult:
    """Write a new index and put it in the place of the old one, which stays as `index.old`.

    Order: new index, complete and durable, as `index.new` → old one renamed → new one renamed → fsync. A crash between
    leaves a directory that does not open and is rebuilt again.

    Args:
        path: The block directory's folder.

    Raises:
        LockedError: Somebody has it open.
        NotFoundError, FormatTooNewError, CorruptionError: As for blocks.toml.
        NoSpaceError: The old index stands.
    """
    layout = Layout(os.path.abspath(path))
    expected = layout.read_format()
    with space_errors(path), _alone(layout):
        return _rebuild(layout, expected)


def refuse_in_use(path: str) -> None:
    """Make sure that nobody has a block directory open at this moment.

    Raises:
        LockedError: Somebody has.
        NotFoundError, FormatTooNewError, CorruptionError: As for blocks.toml.
    """
    layout = Layout(os.path.abspath(path))
    layout.read_format()
    with _alone(layout):
        pass


@contextmanager
def _alone(layout: Layout) -> Iterator[None]:
    fd = os.open(layout.lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LockedError(layout.path, None) from None
        yield
    finally:
        os.close(fd)


def _rebuild(layout: Layout, expected: Format) -> RebuildResult:
    new, old = layout.index + ".new", layout.index + _OLD
    shutil.rmtree(new, ignore_errors=True)
    os.mkdir(new, 0o700)
    for folder in (layout.segments, layout.epochs):
        os.makedirs(folder, mode=0o700, exist_ok=True)
    index = Index.create(new, expected, Disk())
    try:
        run = _Rebuild(layout=layout, format=expected, index=index)
        numbers = layout.segment_numbers()
        for number in numbers:
            _add_segment(run, number)
        pins = _copy_pins(layout, expected, index)
        with index.writing() as txn:
            index.set_number(txn, b"next_segment", max(numbers, default=0) + 1)
            blocks = sum(row.rows for _, row in index.segments(txn))
            damaged = tuple(sorted(found for found in run.damaged if index.row(txn, found) is None))
    finally:
        index.close()
    _install(layout, new, old)
    return RebuildResult(
        blocks=blocks, bytes_read=run.bytes_read, damaged=damaged, pins=pins, findings=tuple(run.findings)
    )


def _install(layout: Layout, new: str, old: str) -> None:
    """Swap the indexes; see `rebuild_index` for the order. Epoch files go: nobody holds one."""
    sync_directory(new)
    if os.path.isdir(layout.index):
        shutil.rmtree(old, ignore_errors=True)
        os.rename(layout.index, old)
    os.rename(new, layout.index)
    sync_directory(layout.path)
    for name in os.listdir(layout.epochs):
        os.unlink(os.path.join(layout.epochs, name))


def _add_segment(run: _Rebuild, number: int) -> None:
    try:
        fd = os.open(run.layout.segment(number), os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        run.findings.append(f"{run.layout.segment(number)}: {error.strerror}")
        run.damaged.update(record.block_id for record in read_sidecar(run.layout, number))
        return
    try:
        _check_headers(run, number, fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        rows = _sound_rows(run, number, fd)
        with run.index.writing() as txn:
            run.index.set_segment(txn, number, SegmentRow(SegmentState.SEALED, 0, 0))
        while batch := list(islice(rows, _BATCH)):
            with run.index.writing() as txn:
                for block_id, row in batch:
                    if not run.index.add(txn, block_id, row):
                        run.index.free(txn, row)
    except CorruptionError as error:
        run.findings.append(str(error))
    finally:
        os.close(fd)


def _check_headers(run: _Rebuild, number: int, fd: int) -> None:
    uuid = run.format.uuid.bytes
    try:
        with open(run.layout.sidecar(number), "rb") as file:
            header = file.read(SIDECAR_HEADER_BYTES)
    except OSError as error:
        raise CorruptionError(f"{run.layout.sidecar(number)}: {error.strerror}; its segment can't be read") from error
    if not check_sidecar_header(header, uuid, number, run.layout.sidecar(number)):
        check_segment_header(os.pread(fd, SEGMENT_HEADER_BYTES, 0), uuid, number, run.layout.segment(number))


def _sound_rows(run: _Rebuild, number: int, fd: int) -> Iterator[tuple[BlockId, Row]]:
    """The rows of a segment whose payloads verify. NUL bytes instead of a payload are a block that was collected."""
    for record in read_sidecar(run.layout, number):
        stored = _stored(run, fd, record)
        if holds(Payload(stored, record.length, record.codec), record.block_id):
            row = Row(number, record.offset, record.stored_length, record.length, record.codec, False, _EPOCH)
            yield record.block_id, row
        elif not _is_collected(record, stored):
            run.damaged.add(record.block_id)


def _stored(run: _Rebuild, fd: int, record: Record) -> bytes:
    """The bytes of a payload, fewer if there are no more."""
    block_size = run.format.block_size
    if not (0 < record.length <= block_size and 0 < record.stored_length <= block_size):
        return b""
    try:
        stored = os.pread(fd, record.stored_length, record.offset)
    except OSError:
        return b""
    run.bytes_read += len(stored)
    return stored


def _is_collected(record: Record, stored: bytes) -> bool:
    """Whether a payload that is not sound is one whose pages were punched: of a raw one all, of a packed one some."""
    if len(stored) < record.stored_length:
        return False
    if record.codec != ZSTD:
        return not stored.strip(b"\0")
    borders = [0, *range(align(record.offset) - record.offset or PAGE, len(stored), PAGE), len(stored)]
    return any(not stored[start:end].strip(b"\0") for start, end in pairwise(borders))


def _copy_pins(layout: Layout, expected: Format, index: Index) -> int | None:
    """Take over the pins if the old index is sound enough to be opened; None: it is not.

    If there is none, the one before it has at least the pins of then: all of them, if a rebuild died between its two
    renames.
    """
    is_there = os.path.exists(os.path.join(layout.index, "data.mdb"))
    path = layout.index if is_there else layout.index + _OLD
    if not os.path.exists(os.path.join(path, "data.mdb")) or structural_damage(path):
        return None
    try:
        old = Index(path, expected, Disk())
    except BlockfsError:
        return None
    try:
        source, target = Pins(old), Pins(index)
        for owner in source.owners():
            target.add(owner, source.of(owner))
        return sum(1 for _ in target.all()) if is_there else None
    finally:
        old.close()
