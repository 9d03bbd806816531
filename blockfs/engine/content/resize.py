"""Setting a file's size.

Growing changes the size only: bytes past the end of a file are NUL wherever they are stored. Cutting keeps that so. It
closes the newest generation, marks all of them void from the new end on, truncates the leaf map and, if the new end
lies inside a sealed block, stores that block again without its tail. All of it is one change set: a crash finds the old
file or the new one.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from msgspec.structs import replace

from blockfs.blocks.epochs import EpochHold
from blockfs.blocks.extents import block_count
from blockfs.blocks.ids import ZERO_BLOCK, BlockId
from blockfs.engine.content.bounds import check_size
from blockfs.engine.content.filestate import FileState
from blockfs.engine.content.filetable import FileTable
from blockfs.engine.content.leaves import set_blocks
from blockfs.engine.context import Stores
from blockfs.engine.durable.failing import record
from blockfs.errors import MissingBlockError, WouldBlock


class _CutBlock(NamedTuple):
    """A block stored again without its tail: valid while the file's last block is still `old`."""

    old: BlockId
    new: BlockId
    hold: EpochHold


class Resizer:
    """Truncates files of one mount."""

    def __init__(self, stores: Stores, table: FileTable) -> None:
        self._stores = stores
        self._table = table

    def truncate(self, ino: int, size_bytes: int, *, may_block: bool) -> None:
        """See `Files.truncate`."""
        check_size(ino, size_bytes)
        cut: _CutBlock | None = None
        try:
            while True:
                with self._stores.lock:
                    self._table.writable_row(ino)
                    state = self._table.get_cold(ino)
                    if size_bytes >= state.size_bytes:
                        self._grow(state, size_bytes)
                        return
                    tail = self._tail(ino, size_bytes)
                    if tail == ZERO_BLOCK:
                        self._shrink(state, size_bytes, None)
                        return
                    if cut is not None and cut.old == tail:
                        self._shrink(state, size_bytes, cut)
                        cut = None  # its hold is the tree's now
                        return
                if not may_block:
                    raise WouldBlock("the last block must be cut")
                _let_go(cut)
                cut = self._cut_block(ino, tail, size_bytes)
        finally:
            _let_go(cut)

    def grow(self, ino: int, size_bytes: int) -> None:
        """Extend a file by a hole, if it is shorter; never waits.

        Raises:
            FsError: No such file; EROFS: it is in a snapshot.
        """
        with self._stores.lock:
            self._table.writable_row(ino)
            state = self._table.get_cold(ino)
            if size_bytes > state.size_bytes:
                self._grow(state, size_bytes)
            self._table.settle(state)

    def _tail(self, ino: int, size_bytes: int) -> BlockId:
        """The sealed block that a file of this size would end inside of; ZERO_BLOCK if none."""
        index, within = divmod(size_bytes, self._stores.block_size)
        return BlockId(self._stores.tree.block_ids(ino, index, 1)) if within else ZERO_BLOCK

    def _cut_block(self, ino: int, tail: BlockId, size_bytes: int) -> _CutBlock | None:
        """Store the tail block cut. None: it was replaced and collected meanwhile, look again."""
        within = size_bytes % self._stores.block_size
        blocks = self._stores.blocks
        hold = blocks.hold()
        try:
            new = blocks.put(blocks.read(tail, 0, within, may_block=True), hold)
            self._stores.config.checkpoint("blocks.sync")
            blocks.sync()  # a leaf map never refers to a block that is not durable, not even in memory
        except MissingBlockError:
            hold.release()
            with self._stores.lock:
                if self._tail(ino, size_bytes) == tail:
                    raise
            return None
        except BaseException:
            hold.release()
            raise
        return _CutBlock(tail, new, hold)

    def _grow(self, state: FileState, size_bytes: int) -> None:
        row = self._table.row(state.ino)
        was_published = state.is_published
        state.touch(row, self._stores.clock.now_ns(), time.monotonic())
        state.size_bytes = size_bytes
        if was_published and not any(generation.unsynced for generation in state.generations):
            # No data wait to be flushed: the size can go at once.
            self._publish(state)

    def _shrink(self, state: FileState, size_bytes: int, cut: _CutBlock | None) -> None:
        tree = self._stores.tree
        row = self._table.row(state.ino)
        was_published = state.is_published
        state.touch(row, self._stores.clock.now_ns(), time.monotonic())
        state.size_bytes = size_bytes
        state.note_cut(size_bytes)
        record(self._stores, state)
        voided = self._table.cut_generations(state, size_bytes)
        if voided:
            state.close_generation()
        self._table.drop_generations(state, [generation for generation in voided if not generation.pages])
        tree.truncate_leaves(state.ino, block_count(size_bytes, self._stores.block_size))
        if cut is not None:
            tree.keep(cut.hold)
            set_blocks(tree, state.ino, {size_bytes // self._stores.block_size: cut.new})
        if was_published:
            self._publish(state)
        elif row.size_bytes > size_bytes:
            # What is not flushed yet stays unpublished, but the size must not promise bytes that are cut.
            tree.put_inode(replace(state.live(row), size_bytes=size_bytes), content_changed=True)

    def _publish(self, state: FileState) -> None:
        """Put the present size and times into the tree; all data are flushed, or void."""
        row = self._table.row(state.ino)
        self._stores.tree.put_inode(state.live(row), content_changed=True)
        state.published(state.stamp)
        self._table.settle(state)


def _let_go(cut: _CutBlock | None) -> None:
    if cut is not None:
        cut.hold.release()
