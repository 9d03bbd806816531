"""Moving what is left of a segment, when pages that are half dead keep too many dead bytes from the host.

Compressed payloads share pages, and a page goes only when all of it is dead. Of an adopted segment little may be left.
Order, for some hundred blocks at a time: copied, each one verified → fdatasync → sidecar records → fdatasync → rows
point to the copies, old places free, in one transaction. A crash leaves copies that nobody refers to; readers of the
old places are waited for before these go.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from typing import Final

from blockfs.blocks.codec import Payload, holds
from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.ids import BlockId
from blockfs.blocks.index import BATCH_ROWS, Row, SegmentRow
from blockfs.blocks.segment import ADOPTED, RAW, SEGMENT_LIMIT_BYTES, Record
from blockfs.blocks.segments.reclaim import Reclaimer, read_sidecar
from blockfs.blocks.segments.writer import SegmentSource, SegmentWriter
from blockfs.errors import NoSpaceError


class Repacker:
    """Moves the live payloads of segments to another one. For the one collector."""

    def __init__(self, blocks: BlockDirectory) -> None:
        self._blocks = blocks
        self._index: Final = blocks.index
        self._reclaimer = Reclaimer(blocks.layout, blocks.index, blocks.disk)
        self._source = SegmentSource(blocks.layout, blocks.format.uuid, blocks.index, blocks.disk)
        self._target: SegmentWriter | None = None

    def repack(self, numbers: Iterable[int], pause: Callable[[], None]) -> int:
        """Move what is live in these segments; they are empty then, but for blocks that do not verify.

        Stops without an error where the host has no room for the copies.

        Args:
            numbers: Segments that nobody appends to; others are left out.
            pause: Asked between two steps whether to go on; raises to give up.

        Returns:
            Bytes that the host gets back when the empty segments are removed, less those of the copies.
        """
        excluded = set(numbers)
        try:
            return sum(
                self._reclaimer.exclusively(number, partial(self._move_all, excluded=excluded, pause=pause))
                for number in sorted(excluded)
            )
        except NoSpaceError:
            return 0
        finally:
            if self._target is not None:
                self._target.close()

    def _move_all(
        self, number: int, _row: SegmentRow, fd: int, *, excluded: set[int], pause: Callable[[], None]
    ) -> int:
        if fd < 0:
            return 0  # its file is gone: scrub's business
        allocated_bytes = os.fstat(fd).st_blocks * 512
        copied_bytes = 0
        records = read_sidecar(self._blocks.layout, number)
        while batch := list(islice(records, BATCH_ROWS)):
            pause()
            target = self._open_target(excluded)
            moves = self._copy(number, fd, batch, target)
            if moves:
                target.finish_page()
                target.make_durable([new.record(block_id) for block_id, _, new in moves])
                with self._index.writing() as txn:
                    for block_id, old, new in moves:
                        self._index.move(txn, block_id, old, new)
            copied_bytes += sum(new.stored_length for _, _, new in moves)
        return allocated_bytes - copied_bytes

    def _open_target(self, excluded: set[int]) -> SegmentWriter:
        if self._target is not None and self._target.end >= SEGMENT_LIMIT_BYTES:
            self._target.close()
            self._target = None
        if self._target is None:
            self._target = self._source.next(SEGMENT_LIMIT_BYTES, excluded)
        return self._target

    def _copy(
        self, number: int, fd: int, records: Iterable[Record], target: SegmentWriter
    ) -> list[tuple[BlockId, Row, Row]]:
        """Append the payloads of these records that rows point to; returns ids, old and new rows."""
        moves = []
        with self._index.reading() as txn:
            for record in records:
                row = self._index.row(txn, record.block_id)
                if row is None or row.segment != number or row.offset != record.offset or row.quarantined:
                    continue
                codec = RAW if row.codec == ADOPTED else row.codec
                payload = Payload(os.pread(fd, row.stored_length, row.offset), row.length, codec)
                if not holds(payload, record.block_id):
                    continue  # a scrub will find it where it is
                if self._blocks.disk.room_bytes(self._blocks.layout.segments) < row.stored_length:
                    raise NoSpaceError(f"{self._blocks.path}: no room to move payloads")
                (offset,) = target.append([payload])
                moves.append((record.block_id, row, row._replace(segment=target.number, offset=offset, codec=codec)))
        return moves
