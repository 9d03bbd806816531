"""What a repair can put right about segments before an index is read or made: headers and sidecar records."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.ids import BlockId
from blockfs.blocks.index import Row
from blockfs.blocks.layout import FORMAT, Format, Layout
from blockfs.blocks.maintenance.scrub import append_records
from blockfs.blocks.segment import (
    SEGMENT_HEADER_BYTES,
    SIDECAR_HEADER_BYTES,
    Record,
    check_segment_header,
    check_sidecar_header,
    encode_segment_header,
    encode_sidecar_header,
    is_whole_header,
)
from blockfs.blocks.segments.reclaim import read_sidecar
from blockfs.errors import CorruptionError
from blockfs.runtime.atomic import space_errors, write_all

_Check = Callable[[bytes, bytes, int, str], object]
_Encode = Callable[[bytes, int], bytes]


def repair_headers(path: str) -> list[str]:
    """Write damaged headers of segments and sidecars again; returns what was done, one sentence each.

    A header says only what the file's place says, too; what lies behind it is verified block by block. Nobody may
    have the directory open. A header that is whole but of another directory or number is left: the file is misplaced.

    Args:
        path: The block directory's folder.

    Raises:
        NotFoundError, FormatTooNewError, CorruptionError: As for blocks.toml; a segment made by a newer version.
        NoSpaceError: The host is full.
    """
    layout = Layout(os.path.abspath(path))
    expected = layout.read_format()
    return [done for number in layout.segment_numbers() for done in _repair(layout, expected, number)]


def _repair(layout: Layout, expected: Format, number: int) -> list[str]:
    done = []
    uuid = expected.uuid.bytes
    is_adopted = layout.is_adopted(number)
    if is_adopted is None:
        if expected.number >= FORMAT:
            return []  # where a header belongs there may be a block
        is_adopted = False
    files: list[tuple[str, int, _Check, _Encode]] = [
        (
            layout.sidecar(number),
            SIDECAR_HEADER_BYTES,
            check_sidecar_header,
            partial(encode_sidecar_header, adopted=is_adopted),
        )
    ]
    if not is_adopted:
        files.append((layout.segment(number), SEGMENT_HEADER_BYTES, check_segment_header, encode_segment_header))
    for name, size, check, encode in files:
        try:
            fd = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # a lost sidecar is written anew from the index; a lost segment is lost
        try:
            header = os.pread(fd, size, 0)
            try:
                check(header, uuid, number, name)
            except CorruptionError:
                if is_whole_header(header):
                    continue
                with space_errors(name):
                    write_all(fd, encode(uuid, number), 0)
                    os.fsync(fd)
                done.append(f"{name}: damaged header written again")
        finally:
            os.close(fd)
    return done


def complete_sidecars(blocks: BlockDirectory) -> int:
    """Write the sidecar records again that the index has rows for; returns how many.

    Then a rebuild finds what the index knows. Payloads are not read: a rebuild verifies them.
    """
    recorded: dict[int, set[int]] = {}  # of segments whose sidecars lack records: offsets they have
    with blocks.index.reading() as txn:
        rows_of = {number: row.rows for number, row in blocks.index.segments(txn)}
    for number, rows in rows_of.items():
        offsets = {record.offset for record in read_sidecar(blocks.layout, number) if _is_live(blocks, number, record)}
        if len(offsets) < rows:
            recorded[number] = offsets

    def lacks_record(_: bytes, row: Row) -> bool:
        return row.segment in recorded and row.offset not in recorded[row.segment]

    lacking: dict[int, list[Record]] = {}
    for found in blocks.index.scan(lacks_record):
        for block_id, row in found:
            lacking.setdefault(row.segment, []).append(row.record(BlockId(block_id)))
    done = 0
    for number, records in lacking.items():
        records.sort(key=lambda record: record.offset)
        done += append_records(blocks, number, records)
    return done


def _is_live(blocks: BlockDirectory, number: int, record: Record) -> bool:
    with blocks.index.reading() as txn:
        row = blocks.index.row(txn, record.block_id)
    return row is not None and (row.segment, row.offset) == (number, record.offset)
