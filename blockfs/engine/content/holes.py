"""Making holes, and asking for room: fallocate(2).

A hole is made in two steps. First whole blocks become holes of the leaf map: they are free at once, and nothing is read
or written. Then zeros are written, as by any writer, over what is data still: pages that are staged over the blocks,
and those of blocks that are concerned in part only. So at each moment, and after a crash at any, each page of the range
is what it was, or NUL.

A generation that has nothing outside of the range goes whole, with the last of these blocks, if no older one would show
through. Others keep what they have, below the zeros: which pages of a generation count is told by its file alone.
"""

from __future__ import annotations

import time
from itertools import islice
from typing import Final

from msgspec.structs import replace

from blockfs.blocks.extents import block_count
from blockfs.blocks.hashing import LEAF_IDS
from blockfs.engine.content.bounds import checked_end
from blockfs.engine.content.extents import Extents
from blockfs.engine.content.filestate import FileState
from blockfs.engine.content.filetable import FileTable
from blockfs.engine.content.generation import StagedGeneration
from blockfs.engine.content.leaves import void_blocks
from blockfs.engine.content.resize import Resizer
from blockfs.engine.content.writer import ContentWriter
from blockfs.engine.context import Stores

_LEAVES_PER_HOLD: Final = 128  # of the engine's lock: some 6 ms; 2 at least, the first one may stay
_ZEROS: Final = memoryview(bytes(1 << 20))  # of one write: it holds the engine's lock


class Holes:
    """Makes holes in the files of one mount. Thread-safe."""

    def __init__(
        self, stores: Stores, table: FileTable, extents: Extents, writer: ContentWriter, resizer: Resizer
    ) -> None:
        self._stores = stores
        self._table = table
        self._extents = extents
        self._writer = writer
        self._resizer = resizer

    def allocate(self, ino: int, offset: int, length: int, *, keeps_size: bool) -> None:
        """See `Files.allocate`."""
        end = checked_end(ino, offset, length)
        with self._stores.lock:
            self._table.writable_row(ino)
            state = self._table.get(ino)
            there = self._stores.tree.allocated_blocks(ino) * self._stores.block_size + state.staged_bytes
            size = state.size_bytes
            self._table.settle(state)
        # What is there may lie elsewhere in the file: then too little is asked for, never too much.
        self._writer.ask(length - there)
        if not keeps_size and end > size:
            self._resizer.grow(ino, end)

    def zero(self, ino: int, offset: int, length: int, *, keeps_size: bool) -> None:
        """See `Files.zero`."""
        end = checked_end(ino, offset, length)
        while not self._void_some(ino, offset, end):
            pass
        at = offset
        while (run := self._extents.next_run(ino, at, end)) is not None:
            start, stop = run
            data = _ZEROS[: min(stop - start, len(_ZEROS))]
            at = start + self._writer.write(ino, start, data, may_block=True, stamps=True)
        if not keeps_size:
            self._resizer.grow(ino, end)

    def _void_some(self, ino: int, offset: int, end: int) -> bool:
        """Make holes of whole blocks, as many as one hold of the lock is good for; returns whether these were all."""
        tree, block_size = self._stores.tree, self._stores.block_size
        with self._stores.lock:
            self._table.writable_row(ino)
            start = self._extents.next_data(ino, offset)
            if start is None or start >= end:
                return True
            state = self._table.get_cold(ino)
            first = block_count(offset, block_size)
            # Past the end of the file there is nothing that could be spared.
            stop = block_count(end, block_size) if end >= state.size_bytes else end // block_size
            leaves = list(islice(tree.leaf_keys(ino, first // LEAF_IDS), _LEAVES_PER_HOLD + 1))
            following = leaves[-1][0] * LEAF_IDS if len(leaves) > _LEAVES_PER_HOLD else stop
            is_all = following >= stop
            if first < stop:
                # Generations go with the last blocks: below one that goes there must be nothing.
                self._void(state, first, min(stop, following), _inside(state, first, stop) if is_all else [])
            return is_all

    def _void(self, state: FileState, first: int, stop: int, dropped: list[StagedGeneration]) -> None:
        """Make blocks holes and drop generations, all in one change set. Under the engine's lock."""
        tree, row = self._stores.tree, self._table.row(state.ino)
        was_published = state.is_published
        state.touch(row, self._stores.clock.now_ns(), time.monotonic())
        state.note_void(first, stop)
        for generation in dropped:
            generation.lose(generation.pages.copy())  # a seal under way must not look into its files any more
        self._table.drop_generations(state, dropped)
        void_blocks(tree, state.ino, first, stop)
        if was_published:
            tree.put_inode(state.live(row), content_changed=True)
            state.published(state.stamp)
        else:
            # What is not flushed stays unpublished, but the leaves are not what the old version had.
            tree.put_inode(replace(state.live(row), size_bytes=row.size_bytes), content_changed=True)
        self._table.settle(state)


def _inside(state: FileState, first: int, stop: int) -> list[StagedGeneration]:
    """Generations that have nothing outside of these blocks, and below which no older one has anything there."""
    found = []
    for generation in state.generations:
        touched = [first <= index < stop for index in generation.pages.masks]
        if all(touched):
            found.append(generation)
        elif any(touched):
            break
    return found
