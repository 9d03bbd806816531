"""Flushing staged data and then telling the tree about them.

Order, per file: fdatasync of its staging files → fsync of the staging directory if there are new ones → generation rows
and the new size in one change set → commit. So a size or a generation that the tree knows has its bytes on disk, and
fsync of one file flushes only that file. Nothing is hashed.

What the host fails to write is noted (`failing`), and the rest is published nevertheless: with the failure in the same
change set the size promises no byte that is not there.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from blockfs.engine.content.filestate import FileState, LowWater
from blockfs.engine.content.filetable import FileTable
from blockfs.engine.content.generation import StagedGeneration
from blockfs.engine.content.pagemap import PageMap
from blockfs.engine.content.staging import StagingFile
from blockfs.engine.context import Stores
from blockfs.engine.durable.committer import Committer
from blockfs.engine.durable.failing import FlushFailedError, note_failure, record, write_down
from blockfs.engine.hot.flush import HotFlusher
from blockfs.errors import BlockfsError
from blockfs.tree.schema import Inode


class _Target(NamedTuple):
    """A staging file of a flush, pinned for its duration."""

    generation: StagedGeneration
    range_index: int
    file: StagingFile
    pages: PageMap


class _Flush(NamedTuple):
    """What a flush has to do: taken under the lock, done without it."""

    stamp: int
    size_bytes: int
    low_water: LowWater
    unsynced: list[_Target]
    unnamed: list[_Target]
    needs_row: bool


class Flusher:
    """Flushes and publishes files of one mount. Thread-safe."""

    def __init__(self, stores: Stores, table: FileTable, committer: Committer) -> None:
        self._stores = stores
        self._table = table
        self._committer = committer
        self.hot: HotFlusher | None = None
        """Flushes files that have a hot file."""

    def fsync(self, ino: int, *, datasync: bool) -> None:
        """See `Files.fsync`."""
        with self._stores.lock:
            state = self._table.peek(ino)
        if state is not None:
            # fdatasync of pages that were staged before changes no size and no name: no commit. The times follow
            # within `publish_s`.
            self._flush(state, publishes=not datasync)
        with self._stores.lock:
            row = self._stores.tree.inode(ino)
            hot = None if state is None else state.hot
            is_named_only = hot is not None and hot.is_named and not hot.is_durable
        if is_named_only:
            self._committer.commit()  # a hot file that no durable row names is nothing after a crash
        if row is None or (datasync and state is not None and row.version == state.times_version):
            return
        self._committer.commit_up_to(row.version)

    def note_times(self, state: FileState) -> None:
        """The next change of the row sets times only. Under the engine's lock, right before that change.

        A kernel with a writeback cache sends a file's times before each fdatasync: they alone are worth no commit.
        """
        row = self._table.row(state.ino)
        if row.version == state.times_version or self._committer.is_durable(row.version):
            state.times_version = self._stores.tree.last_sequence + 1

    def publish(self, state: FileState) -> None:
        """Flush a file and put its size and times into the current change set. Does not commit.

        Raises:
            NoSpaceError: The host is full; the file stays unpublished.
            FlushFailedError: The host failed to write it. The rest is published, and the failure with it.
            HostIoError: The host failed otherwise; likewise.
        """
        self._flush(state, publishes=True)

    def publish_older(self, age_s: float) -> None:
        """Publish the files whose oldest unpublished change is at least this old.

        Raises:
            BlockfsError: The first failure; the others were tried.
        """
        failure: BlockfsError | None = None
        with self._stores.lock:
            self._table.look()
            before_s = time.monotonic() - age_s
            due = [one for one in self._table.all() if one.changed_at_s <= before_s and one.has_to_publish]
        for state in due:
            try:
                self._flush(state, publishes=True, pace=self._stores.priority.give_way)
            except BlockfsError as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def _flush(self, state: FileState, *, publishes: bool, pace: Callable[[], None] | None = None) -> None:
        with state.publishing:
            failure = self._flush_alone(state, publishes=publishes, pace=pace)
        if failure is not None:
            write_down(self._stores, self._table, self._committer, state.ino)
            raise failure

    def _flush_alone(
        self, state: FileState, *, publishes: bool, pace: Callable[[], None] | None
    ) -> FlushFailedError | None:
        """Flush and publish; `publishing` is held. Returns the failure, which is noted."""
        if state.hot is not None and self.hot is not None:
            self.hot.flush(state, publishes=publishes)
            return None
        with self._stores.lock:
            flush = self._begin(state, publishes=publishes)
        if flush is None:
            return None
        failure: FlushFailedError | None = None
        done = 0
        try:
            for target in flush.unsynced:
                failure = self._sync(state, target, pace) or failure
                done += 1
            if flush.unnamed:
                self._stores.staging.sync_names()
        except BaseException:
            with self._stores.lock:
                for target in flush.unsynced[done:]:
                    target.generation.note_unsynced(target.range_index, target.pages)
            raise
        else:
            with self._stores.lock:
                self._end(state, flush, publishes=publishes)
        finally:
            with self._stores.lock:
                state.unwatch(flush.low_water)
                self._table.settle(state)
            for target in {target.file: target for target in flush.unsynced + flush.unnamed}.values():
                self._stores.staging.release(target.file)
        return failure

    def _sync(self, state: FileState, target: _Target, pace: Callable[[], None] | None) -> FlushFailedError | None:
        try:
            self._stores.staging.sync(target.file, pace)
        except BlockfsError as error:
            if not target.file.failed:
                raise  # nothing was tried: nothing is lost
            place = (target.generation, target.range_index)
            with self._stores.lock:
                return note_failure(self._stores, self._table, state, place, target.pages, error.errno)
        return None

    def _begin(self, state: FileState, *, publishes: bool) -> _Flush | None:
        """Take what is to be flushed; None if nothing is."""
        if state.discarded or state.is_published or state.hot is not None:
            return None
        unnamed = [
            _Target(generation, range_index, file, PageMap(self._stores.block_size))
            for generation in state.generations
            for range_index, file in generation.files.items()
            if range_index not in generation.named
        ]
        needs_row = bool(unnamed) or self._table.row(state.ino).size_bytes != state.size_bytes
        if not (publishes or needs_row) and state.flushed_stamp >= state.stamp:
            return None
        unsynced = [
            _Target(generation, range_index, generation.files[range_index], pages)
            for generation in state.generations
            for range_index, pages in generation.unsynced.items()
        ]
        for generation in state.generations:
            generation.unsynced.clear()
        # Pinned: a seal may drop the generation meanwhile, and its file must not be closed under the fdatasync.
        for file in {target.file for target in unsynced + unnamed}:
            self._stores.staging.acquire(file)
        return _Flush(state.stamp, state.size_bytes, state.watch(), unsynced, unnamed, needs_row)

    def _end(self, state: FileState, flush: _Flush, *, publishes: bool) -> None:
        """The data are on disk: tell the tree."""
        if state.discarded:
            return
        state.flushed_stamp = max(state.flushed_stamp, flush.stamp)
        if not (publishes or flush.needs_row):
            confirm(self._stores, state, flush.low_water)
            return
        for generation, range_index, _, _ in flush.unnamed:
            if generation in state.generations:  # else it was sealed or cut away meanwhile
                generation.named.add(range_index)
                self._stores.tree.put_generation(generation.row(state.ino, range_index))
        publish_size(self._stores, self._table.row(state.ino), state, flush.stamp, flush.size_bytes, flush.low_water)


def confirm(stores: Stores, state: FileState, mark: LowWater) -> None:
    """All is on disk that was written before a mark: what was failed and written again is well. Under the lock."""
    if state.failures is not None:
        assert mark.failed is not None
        state.failures.flushed(mark.failed)
        record(stores, state)


def publish_size(
    stores: Stores, row: Inode, state: FileState, stamp: int, size_bytes: int, low_water: LowWater
) -> None:
    """Put a file's row into the current change set, up to a stamp whose data are on disk. Under the engine's lock.

    The size must not promise bytes that a shrink has cut since the stamp, nor take back what somebody else published
    since.
    """
    certain = max(row.size_bytes, min(size_bytes, low_water.size_bytes))
    is_news = stamp > state.published_stamp
    if is_news or certain != row.size_bytes:
        stores.tree.put_inode(replace(state.live(row), size_bytes=certain), content_changed=is_news)
    state.published(stamp)
    confirm(stores, state, low_water)
