"""Flushing a hot file, and then telling the tree: its row first of all, if it is new.

Order: take its status → fdatasync → fsync of the folder, if it is new → size, times and the row of the hot file in one
change set → commit. So a row names a hot file only when its name and what it had are durable. From then on fsync of the
file is fdatasync of the hot file: a recovery takes size and content from there.
"""

from __future__ import annotations

import os

from blockfs.blocks.extents import block_count
from blockfs.engine.content.filestate import FileState
from blockfs.engine.context import Stores
from blockfs.engine.durable.failing import hot_failure_of
from blockfs.engine.hot.folder import HotFolder
from blockfs.engine.hot.hotfile import HotFile, with_status
from blockfs.errors import BlockfsError


class HotFlusher:
    """Flushes hot files of one mount. Thread-safe; a file's `publishing` is held by the caller."""

    def __init__(self, stores: Stores, folder: HotFolder) -> None:
        self._stores = stores
        self._folder = folder

    def flush(self, state: FileState, *, publishes: bool) -> None:
        """Make what was written durable, and put it into the current change set. Does not commit.

        Args:
            state: Of the file.
            publishes: Size and times, too. Without it a hot file that has a row is written back only.

        Raises:
            NoSpaceError: The host is full.
            HostIoError: The host failed, now or before: something that was written is lost.
        """
        with self._stores.lock:
            hot = state.hot
            if hot is None or state.discarded:
                return
            status = state.look()
            assert status is not None
            stamp, is_new = state.stamp, not hot.is_named
            needs_row = is_new or (publishes and not state.is_published)
            if hot.failed:
                raise hot_failure_of(self._stores, state.ino)
        try:
            self._folder.sync(hot.file)
        except BlockfsError:
            # The kernel marks pages clean after a failed write-back: the next fdatasync would lie.
            with self._stores.lock:
                hot.failed = True
            raise
        if not needs_row:
            return
        if is_new:
            self._folder.sync_names()
        with self._stores.lock:
            if not state.discarded and state.hot is hot:
                self._tell(state, hot, status, stamp)

    def _tell(self, state: FileState, hot: HotFile, status: os.stat_result, stamp: int) -> None:
        tree = self._stores.tree
        row = tree.inode(state.ino)
        assert row is not None
        is_news = stamp > state.published_stamp
        told = with_status(row, status)
        if is_news or told != row or not hot.is_named:
            if told.size_bytes < row.size_bytes:  # no leaf lies beyond the end
                tree.truncate_leaves(state.ino, block_count(told.size_bytes, self._stores.block_size))
                hot.cuts += 1
            tree.put_inode(told, content_changed=is_news)
        hot.is_behind = hot.is_behind or is_news
        hot.see(status)
        state.published(stamp)
        self.name(hot)

    def name(self, hot: HotFile) -> None:
        """Put the row of a hot file into the current change set. Under the lock; its name is durable."""

        def done() -> None:
            hot.is_durable = True

        self._stores.tree.put_hot(hot.row())
        if not hot.is_named:
            hot.is_named = True
            self._stores.tree.on_durable(done)
