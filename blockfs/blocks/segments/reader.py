"""Reading payloads: descriptors of segments, and the one place that calls pread."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple
from uuid import UUID

from blockfs.blocks.codec import DecodeError, Payload, decode
from blockfs.blocks.ids import BlockId
from blockfs.blocks.index import Index, Row
from blockfs.blocks.layout import Layout
from blockfs.blocks.segment import (
    SEGMENT_HEADER_BYTES,
    SIDECAR_HEADER_BYTES,
    ZSTD,
    check_segment_header,
    check_sidecar_header,
)
from blockfs.errors import CorruptBlockError, CorruptionError, WouldBlock

_OPEN_SEGMENTS: Final = 256  # a quarter of the usual limit of 1024 descriptors; 256 GiB of blocks
_CACHE_BYTES: Final = 16 << 20  # of decompressed blocks: 256 of 64 KiB, more than there are readers in order
_INLINE_BYTES: Final = 128 << 10
"""Up to this length a block is decompressed where nobody may wait: 36 to 80 µs for 64 KiB, while the way through a
thread took 130 µs."""


class Run(NamedTuple):
    """Bytes of a segment that are asked for at once.

    Attributes:
        block_id: Of the first block.
        segment: Its number.
        offset: First byte.
        length: Bytes.
    """

    block_id: bytes
    segment: int
    offset: int
    length: int


Place = tuple[int, int]
"""Segment and offset. Never used again, so an entry of the cache can't become wrong."""


class BlockCache:
    """The blocks that were decompressed last, at most `limit_bytes` of them. Thread-safe."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._blocks: OrderedDict[Place, bytes] = OrderedDict()
        self._bytes = 0

    def get(self, place: Place) -> bytes | None:
        """The block, if it is here."""
        with self._lock:
            block = self._blocks.get(place)
            if block is not None:
                self._blocks.move_to_end(place)
            return block

    def add(self, place: Place, block: bytes) -> None:
        """Keep a block, and let go of those that were not used for longest."""
        with self._lock:
            if place not in self._blocks:
                self._bytes += len(block)
            self._blocks[place] = block
            while self._bytes > self._limit_bytes:
                self._bytes -= len(self._blocks.popitem(last=False)[1])

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._blocks.clear()
            self._bytes = 0


class SegmentFile:
    """A segment open for reading, closed when the last user lets go of it: eviction can't hit a running pread."""

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self) -> None:
        os.close(self.fd)


class Located(NamedTuple):
    """Where a raw block lies.

    Attributes:
        file: Its segment, open as long as this refers to it.
        segment: Its number.
        offset: First byte, a multiple of 4096.
        length: Bytes of the canonical block. The rest of its last page was never written by anybody else.
        quarantined: A scrub found other bytes there.
    """

    file: SegmentFile
    segment: int
    offset: int
    length: int
    quarantined: bool


class SegmentReader:
    """Reads payloads of one block directory. Thread-safe without locks: each step is one operation on one dict."""

    def __init__(self, layout: Layout, uuid: UUID) -> None:
        self._layout = layout
        self._uuid = uuid.bytes
        self._files: dict[int, SegmentFile] = {}
        self._cache = BlockCache(_CACHE_BYTES)

    def read(self, block_id: bytes, row: Row, start: int, length: int) -> bytes:
        """Read a part of a canonical block. The caller holds the read transaction in which it found the row.

        Args:
            block_id: For the message of an error.
            row: Place of the block.
            start: First byte within the canonical block.
            length: Bytes, at least 1; `start + length` is at most the row's length.

        Raises:
            CorruptBlockError: The segment is too short, missing, not ours or unreadable; never short data.
        """
        if row.codec != ZSTD:
            return self._pread(block_id, row.segment, row.offset + start, length)
        is_whole = length == row.length  # then it is not asked for again soon, and a scrub must see the disk
        block = None if is_whole else self._cache.get((row.segment, row.offset))
        if block is None:
            data = self._pread(block_id, row.segment, row.offset, row.stored_length)
            block = self._unpacked(block_id, row, data, keep=not is_whole)
        return block[start : start + length]

    def read_into(self, block_id: bytes, row: Row, start: int, view: memoryview) -> None:
        """As `read`, from the page cache alone, into a buffer.

        Raises:
            WouldBlock: It is not all there; who can wait finds out why.
            CorruptBlockError: It can't be decompressed.
        """
        if row.codec != ZSTD:
            self.fill(row.segment, row.offset + start, view)
            return
        is_whole = len(view) == row.length
        block = None if is_whole else self._cache.get((row.segment, row.offset))
        if block is None:
            if row.length > _INLINE_BYTES:
                raise WouldBlock
            data = bytearray(row.stored_length)
            self.fill(row.segment, row.offset, memoryview(data))
            block = self._unpacked(block_id, row, bytes(data), keep=not is_whole)
        view[:] = block[start : start + len(view)]

    def fill(self, segment: int, offset: int, view: memoryview) -> None:
        """Read a part of a segment from the page cache; the caller holds the transaction in which it found the place.

        Raises:
            WouldBlock: It is not all there.
        """
        file = self._files.get(segment)
        if file is None:
            raise WouldBlock
        try:
            count = os.preadv(file.fd, (view,), offset, os.RWF_NOWAIT)
        except OSError as error:  # EAGAIN: cold; EOPNOTSUPP: this filesystem can't tell; EIO: the slow path says
            raise WouldBlock from error
        if count != len(view):
            raise WouldBlock  # the rest is cold, or the file is cut off: the slow path finds out

    def read_run(self, run: Run) -> bytes:
        """Read raw payloads that lie together. The caller holds the read transaction in which it found their rows.

        Raises:
            CorruptBlockError: As `read`; the error names the first block.
        """
        return self._pread(*run)

    def _unpacked(self, block_id: bytes, row: Row, data: bytes, *, keep: bool) -> bytes:
        try:
            block = decode(Payload(data, row.length, row.codec))
        except DecodeError as error:
            raise CorruptBlockError(block_id, str(error)) from error
        if keep:
            self._cache.add((row.segment, row.offset), block)
        return block

    def _pread(self, block_id: bytes, segment: int, offset: int, length: int) -> bytes:
        file = self._files.get(segment)
        if file is None:
            file = self.file(block_id, segment)
        try:
            data = os.pread(file.fd, length, offset)
        except OSError as error:
            raise CorruptBlockError(block_id, f"segment {segment} is unreadable: {error.strerror}") from error
        if len(data) != length:
            raise CorruptBlockError(block_id, f"segment {segment} is cut off: it ends before byte {offset + length}")
        return data

    def file(self, block_id: bytes, segment: int) -> SegmentFile:
        """A segment, open for reading.

        Raises:
            CorruptBlockError: It is missing, not ours or unreadable.
        """
        return self._files.get(segment) or self._open(block_id, segment)

    @contextmanager
    def places(self, index: Index, ids: Sequence[BlockId]) -> Iterator[list[Located | None]]:
        """Where durable blocks lie, as bytes that a reflink could share. Nothing of them is given back in the block.

        Yields:
            One for each id; None of those that are holes, not stored, compressed, or of segments that can't be opened.
        """
        with index.reading() as txn:
            yield [self._located(index.row(txn, block_id)) for block_id in ids]

    def _located(self, row: Row | None) -> Located | None:
        if row is None or row.codec == ZSTD:
            return None
        try:
            file = self.file(b"", row.segment)
        except CorruptBlockError:
            return None
        return Located(file, row.segment, row.offset, row.length, row.quarantined)

    def forget(self) -> None:
        """Let go of all descriptors and blocks."""
        self._files.clear()
        self._cache.clear()

    def _open(self, block_id: bytes, segment: int) -> SegmentFile:
        try:
            file = SegmentFile(os.open(self._layout.segment(segment), os.O_RDONLY | os.O_CLOEXEC))
            header = os.pread(file.fd, SEGMENT_HEADER_BYTES, 0)
        except OSError as error:
            raise CorruptBlockError(block_id, f"segment {segment} can't be opened: {error.strerror}") from error
        try:
            check_segment_header(header, self._uuid, segment, self._layout.segment(segment))
        except CorruptionError as error:
            if not self._is_adopted(segment):
                raise CorruptBlockError(block_id, str(error)) from error
        self._forget_removed()
        while len(self._files) >= _OPEN_SEGMENTS:
            self._files.pop(next(iter(self._files), segment), None)  # the oldest; another thread may be faster
        self._files[segment] = file
        return file

    def _is_adopted(self, segment: int) -> bool:
        """Whether a segment has no header because it was adopted, and the one of its sidecar is sound."""
        path = self._layout.sidecar(segment)
        try:
            with open(path, "rb") as file:
                return check_sidecar_header(file.read(SIDECAR_HEADER_BYTES), self._uuid, segment, path)
        except (OSError, CorruptionError):
            return False

    def _forget_removed(self) -> None:
        """Let go of segments that a collection, in whichever process, has removed."""
        for number, file in list(self._files.items()):
            if not os.fstat(file.fd).st_nlink:
                self._files.pop(number, None)
