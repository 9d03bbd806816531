"""Making a segment of a file whose blocks lie in place: not a byte of them is written again (ADR 0014).

The caller has made the file durable, and nobody changes it any more. Order: format, where it is the first adoption →
sidecar → the file's second name → fsync of the folder → the segment's row → sidecar records → fdatasync → rows of the
blocks. The file keeps its own name until the caller is done with it: as long as it has two, whoever finds it under the
first may read all of it, and nothing of it is punched (`Reclaimer`).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from itertools import islice
from operator import attrgetter
from typing import Final, NamedTuple

from blockfs.blocks.disk import Disk
from blockfs.blocks.epochs import try_exclusive
from blockfs.blocks.ids import BlockId
from blockfs.blocks.index import Index, Row
from blockfs.blocks.layout import Layout
from blockfs.blocks.segment import ADOPTED, SIDECAR_HEADER_BYTES, encode_record
from blockfs.blocks.segments.writer import SegmentSource
from blockfs.errors import NoSpaceError

_BATCH_ROWS: Final = 4096  # per write transaction: tens of milliseconds, and others wait only with their group syncs


class Found(NamedTuple):
    """A block that lies in a file.

    Attributes:
        block_id: Its id.
        offset: Of its first byte, a multiple of 4096 below 1 TiB.
        length: Of the canonical block, at least 1.
    """

    block_id: BlockId
    offset: int
    length: int


class Recognised(NamedTuple):
    """What `BlockDirectory.recognise` says of a block: id, length of the canonical block, whether it is stored."""

    block_id: BlockId
    length: int
    is_stored: bool


class Adopter:
    """Adopts files into one block directory."""

    def __init__(self, layout: Layout, source: SegmentSource, index: Index, disk: Disk) -> None:
        self._layout = layout
        self._source = source
        self._index = index
        self._disk = disk

    def adopt(self, path: str, found: Iterable[Found], epoch: int) -> int | None:
        """Make a segment of a file.

        Args:
            path: The file, which is durable and does not change any more. It stays.
            found: The blocks in it that are to be stored, each once, at least one. Those that somebody stores meanwhile
                are his.
            epoch: Of the caller's hold.

        Returns:
            The segment's number; None if the file can't be adopted: it is on another filesystem or gone, or was adopted
            before.

        Raises:
            NoSpaceError: The host has no room for the sidecar or the rows.
        """
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            file = os.fstat(fd)
            is_elsewhere = file.st_dev != os.stat(self._layout.segments).st_dev
            if is_elsewhere or file.st_nlink != 1 or not try_exclusive(fd):
                return None
            made = self._source.adopt(path, fd)
            if made is None:
                return None
            number, sidecar_fd = made
            try:
                self._record(number, sidecar_fd, sorted(found, key=attrgetter("offset")), epoch)
            finally:
                os.close(sidecar_fd)
            return number
        finally:
            os.close(fd)  # with it the flock goes: until then nobody removes the segment for having no rows

    def _record(self, number: int, sidecar_fd: int, found: Sequence[Found], epoch: int) -> None:
        rows = [
            (block_id, Row(number, offset, length, length, ADOPTED, False, epoch)) for block_id, offset, length in found
        ]
        stored = 0
        try:
            data = b"".join([encode_record(row.record(block_id)) for block_id, row in rows])
            self._disk.write(sidecar_fd, data, SIDECAR_HEADER_BYTES)
            self._disk.fdatasync(sidecar_fd)
            by_id = iter(sorted(rows))
            while batch := list(islice(by_id, _BATCH_ROWS)):
                self._store(batch)
                stored += len(batch)
        except (NoSpaceError, OSError):
            if not stored:
                self._give_up(number)
            raise

    def _store(self, batch: list[tuple[BlockId, Row]]) -> None:
        with self._index.writing() as txn:
            added = sum(row.length for block_id, row in batch if self._index.add(txn, block_id, row))
            self._index.set_number(txn, b"appended", self._index.number(txn, b"appended") + added)

    def _give_up(self, number: int) -> None:
        """No row points here: let the file be as before, so that it can be adopted when there is room."""
        for path in (self._layout.segment(number), self._layout.sidecar(number)):
            with contextlib.suppress(OSError, NoSpaceError):
                self._disk.unlink(path)
