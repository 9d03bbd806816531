"""Reading a range of a file: staged pages, else sealed blocks, else NUL bytes.

A read has two steps. `resolve` runs under the engine's lock: it decides where each byte comes from and pins what it
found. `gather` runs without it and does the reading, so a cold disk keeps nobody else waiting.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple, cast

from blockfs.blocks.directory import Part
from blockfs.blocks.hashing import LEAF_IDS
from blockfs.blocks.ids import ID_SIZE, ZERO_BLOCK, BlockId
from blockfs.engine.content.filetable import FileTable
from blockfs.engine.content.generation import StagedGeneration
from blockfs.engine.content.hostfile import read_range
from blockfs.engine.content.pagemap import BELOW, ZEROS, plan
from blockfs.engine.content.staging import RANGE, RANGE_SHIFT, StagingFile
from blockfs.engine.context import Stores
from blockfs.engine.durable.failing import check_readable
from blockfs.errors import MissingBlockError


class Segment(NamedTuple):
    """A run of bytes and its source.

    Attributes:
        source: A staging file, a block, or None for NUL bytes.
        start: First byte within the source.
        length: Bytes.
    """

    source: StagingFile | BlockId | None
    start: int
    length: int


class ContentReader:
    """Reads file contents of one mount. Thread-safe."""

    def __init__(self, stores: Stores, table: FileTable) -> None:
        self._stores = stores
        self._table = table

    def read(self, ino: int, offset: int, length: int, *, may_block: bool = False) -> bytes:
        """See `Files.read`."""
        try:
            return self._read_once(ino, offset, length, may_block=may_block)
        except MissingBlockError:
            # The block may have been sealed anew and collected between the lookup and the read. Twice is a fault.
            return self._read_once(ino, offset, length, may_block=may_block)

    def _read_once(self, ino: int, offset: int, length: int, *, may_block: bool) -> bytes:
        with self._stores.lock:
            state = self._table.peek(ino)
            size = self._table.row(ino).size_bytes if state is None else state.size_bytes
            length = min(length, size - offset)
            if length <= 0:
                return b""
            check_readable(self._stores, state, offset, length)
            segments = self.resolve(ino, state.generations if state is not None else [], offset, length)
        return self.gather(segments, may_block=may_block)

    def resolve(self, ino: int, generations: Sequence[StagedGeneration], offset: int, length: int) -> list[Segment]:
        """Find the sources of a range, and pin them. Call under the engine's lock; pair it with `gather`.

        Args:
            ino: The file.
            generations: Its staged data, oldest first.
            offset: First byte.
            length: Bytes, at least 1; the caller has cut the range at the end of the file.
        """
        if not generations:
            return self._sealed(ino, offset, length)
        block_size = self._stores.block_size
        newest_first = generations[::-1]
        segments: list[Segment] = []
        for layer, start, size in plan(offset, length, [one.layer for one in newest_first], block_size):
            if layer == BELOW:
                segments += self._sealed(ino, start, size)
            elif layer == ZEROS:
                segments.append(Segment(None, 0, size))
            else:
                segments += _staged(newest_first[layer], start, size)
        for segment in segments:
            if isinstance(segment.source, StagingFile):
                self._stores.staging.acquire(segment.source)
        return segments

    def _sealed(self, ino: int, offset: int, length: int) -> list[Segment]:
        """Blocks and holes of a range; adjacent holes are one segment, over any distance."""
        index, start = divmod(offset, self._stores.block_size)
        if start + length > self._stores.block_size:
            return list(self._sealed_blocks(ino, offset, length))
        leaf_index, within = divmod(index, LEAF_IDS)
        ids = self._stores.tree.leaf(ino, leaf_index) or b""
        block_id = ids[within * ID_SIZE : (within + 1) * ID_SIZE]
        return [Segment(BlockId(block_id) if block_id and block_id != ZERO_BLOCK else None, start, length)]

    def _sealed_blocks(self, ino: int, offset: int, length: int) -> Iterator[Segment]:
        tree, block_size = self._stores.tree, self._stores.block_size
        end = offset + length
        hole = 0
        while offset < end:
            leaf_index = offset // block_size // LEAF_IDS
            leaf_end = min(end, (leaf_index + 1) * LEAF_IDS * block_size)
            ids = tree.leaf(ino, leaf_index)
            if ids is None:
                leaf_end = min(end, self._next_leaf(ino, leaf_index))
                hole += leaf_end - offset
                offset = leaf_end
                continue
            at = offset // block_size % LEAF_IDS * ID_SIZE
            start = offset % block_size
            while offset < leaf_end:
                length = min(block_size - start, leaf_end - offset)
                block_id = ids[at : at + ID_SIZE]
                if not block_id or block_id == ZERO_BLOCK:
                    hole += length
                else:
                    if hole:
                        yield Segment(None, 0, hole)
                        hole = 0
                    yield Segment(BlockId(block_id), start, length)
                offset += length
                at += ID_SIZE
                start = 0
        if hole:
            yield Segment(None, 0, hole)

    def _next_leaf(self, ino: int, leaf_index: int) -> int:
        """Byte offset of the first leaf after `leaf_index`: skips the holes of sparse files."""
        for index, _ in self._stores.tree.leaf_keys(ino, leaf_index + 1):
            return index * LEAF_IDS * self._stores.block_size
        return 1 << 63

    def gather(self, segments: list[Segment], *, may_block: bool) -> bytes:
        """Read resolved segments, in order, and unpin them.

        Raises:
            WouldBlock: Not all is in the page cache and `may_block` is false.
            MissingBlockError: A block is not stored.
            CorruptBlockError: A block is quarantined or unreadable.
            HostIoError: The host failed.
        """
        try:
            if len(segments) == 1:
                return self._read(segments[0], may_block=may_block)
            if all(type(segment.source) is bytes for segment in segments):
                return self._stores.blocks.read_all(cast("list[Part]", segments), may_block=may_block)
            return b"".join(self._read_mixed(segments, may_block=may_block))
        finally:
            for segment in segments:
                if isinstance(segment.source, StagingFile):
                    self._stores.staging.release(segment.source)

    def _read_mixed(self, segments: list[Segment], *, may_block: bool) -> Iterator[bytes]:
        for are_blocks, group in groupby(segments, lambda segment: type(segment.source) is bytes):
            together = list(group)
            if are_blocks and len(together) > 1:
                yield self._stores.blocks.read_all(cast("list[Part]", together), may_block=may_block)
            else:
                yield from [self._read(segment, may_block=may_block) for segment in together]

    def _read(self, segment: Segment, *, may_block: bool) -> bytes:
        source, start, length = segment
        if source is None:
            return bytes(length)
        if isinstance(source, StagingFile):
            return read_range(source.fd, start, length, may_block=may_block)
        return self._stores.blocks.read(source, start, length, may_block=may_block)


def _staged(generation: StagedGeneration, offset: int, length: int) -> Iterator[Segment]:
    """Staging files of a range, cut where a 1 TiB range ends."""
    end = offset + length
    while offset < end:
        range_index = offset >> RANGE_SHIFT
        size = min(end, (range_index + 1) << RANGE_SHIFT) - offset
        yield Segment(generation.files[range_index], offset & (RANGE - 1), size)
        offset += size
