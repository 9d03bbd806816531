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
from blockfs.engine.content.hostfile import read_range, read_range_into
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
        if not may_block:
            segments = self._found(ino, offset, length)
            buffer = bytearray(sum(segment.length for segment in segments))
            self._fill(segments, memoryview(buffer))
            return bytes(buffer)
        missed: list[Segment] | None = None
        while True:
            segments = self._found(ino, offset, length)
            try:
                return self.gather(segments)
            except MissingBlockError:
                # A block may have been sealed anew and collected between the lookup and the read, again and again. That
                # what is still named is not there, is a fault.
                if segments == missed:
                    raise
                missed = segments

    def read_into(self, ino: int, offset: int, view: memoryview) -> int:
        """See `Files.read_into`."""
        length = len(view)
        block_id = self._only_block(ino, offset, length)
        if block_id is not None:
            self._stores.blocks.read_into(((block_id, offset % self._stores.block_size, length),), view)
            return length
        return self._fill(self._found(ino, offset, len(view)), view)

    def _only_block(self, ino: int, offset: int, length: int) -> BlockId | None:
        """The block that has all of a range; None: there may be more to it. Pages at random are read so."""
        index, start = divmod(offset, self._stores.block_size)
        if start + length > self._stores.block_size:
            return None
        with self._stores.lock:
            state = self._table.peek(ino)
            if state is None or offset + length > state.size_bytes or state.failures is not None:
                return None
            for generation in state.generations:
                if index in generation.pages.masks:
                    return None
            leaf_index, within = divmod(index, LEAF_IDS)
            ids = self._stores.tree.leaf(ino, leaf_index) or b""
        block_id = BlockId(ids[within * ID_SIZE : (within + 1) * ID_SIZE])
        return block_id if block_id and block_id != ZERO_BLOCK else None

    def _fill(self, segments: Sequence[Segment], view: memoryview) -> int:
        """Read resolved segments from the page cache, in order, and unpin them; returns how many bytes they are."""
        parts: list[Part] = []  # of blocks that follow each other
        done = at = 0
        try:
            for segment in segments:
                source, start, length = segment
                if isinstance(source, bytes):
                    parts.append((source, start, length))
                else:
                    if parts:
                        self._stores.blocks.read_into(parts, view[done:at])
                        parts = []
                    done = at + length
                    if source is None:
                        view[at:done] = bytes(length)
                    else:
                        read_range_into(source.fd, start, view[at:done])
                at += length
            if parts:
                self._stores.blocks.read_into(parts, view[done:at])
        finally:
            self._let_go(segments)
        return at

    def _found(self, ino: int, offset: int, length: int) -> list[Segment]:
        """Sources of what the file has of a range, pinned."""
        with self._stores.lock:
            state = self._table.peek(ino)
            size = self._table.row(ino).size_bytes if state is None else state.size_bytes
            length = min(length, size - offset)
            if length <= 0:
                return []
            if state is None:
                return self.resolve(ino, (), offset, length)
            check_readable(self._stores, state, offset, length)
            return self.resolve(ino, state.generations, offset, length)

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

    def gather(self, segments: list[Segment]) -> bytes:
        """Read resolved segments, in order, and unpin them. Waits for disks.

        Raises:
            MissingBlockError: A block is not stored.
            CorruptBlockError: A block is quarantined or unreadable.
            HostIoError: The host failed.
        """
        try:
            if len(segments) == 1:
                return self._read(segments[0])
            return b"".join(self._read_each(segments))
        finally:
            self._let_go(segments)

    def _let_go(self, segments: Sequence[Segment]) -> None:
        for segment in segments:
            if isinstance(segment.source, StagingFile):
                self._stores.staging.release(segment.source)

    def _read_each(self, segments: Sequence[Segment]) -> Iterator[bytes]:
        for are_blocks, group in groupby(segments, lambda segment: type(segment.source) is bytes):
            together = list(group)
            if are_blocks and len(together) > 1:
                yield self._stores.blocks.read_all(cast("list[Part]", together))
            else:
                yield from [self._read(segment) for segment in together]

    def _read(self, segment: Segment) -> bytes:
        source, start, length = segment
        if source is None:
            return bytes(length)
        if isinstance(source, StagingFile):
            return read_range(source.fd, start, length)
        return self._stores.blocks.read(source, start, length)


def _staged(generation: StagedGeneration, offset: int, length: int) -> Iterator[Segment]:
    """Staging files of a range, cut where a 1 TiB range ends."""
    end = offset + length
    while offset < end:
        range_index = offset >> RANGE_SHIFT
        size = min(end, (range_index + 1) << RANGE_SHIFT) - offset
        yield Segment(generation.files[range_index], offset & (RANGE - 1), size)
        offset += size
