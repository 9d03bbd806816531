"""A root's blocks for other devices of its share: the index follows the base, and answers are given from it.

`ShareKeeper` works beside a cycle, with the state's lock. `SharedRoot` answers, in any process that serves the root.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Final, TypeVar

import trio

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.ids import BlockId
from blockfs.runtime.logs import Log
from syncer.blocks.recent import RecentBlocks
from syncer.core.model import Content, Nid, RelPath
from syncer.engine.root_state import RootState
from syncer.errors import EXPECTED, CorruptionError, NotFoundError
from syncer.local.sharedblocks import SharedLists, SharedReader
from syncer.state.rows import RowReader
from syncer.state.shareindex import IdIndex, Spot, follow
from syncer.state.statedb import StateDB

T = TypeVar("T")

log = Log()
_END: Final = object()


class ShareKeeper:
    """Makes the index what the base says, after a cycle. It never fails a cycle: a lost index is made anew."""

    def __init__(
        self, folder: str, books: RootState, local: SharedLists, block_size: int, recent: RecentBlocks | None = None
    ) -> None:
        """Take a cycle's books.

        Args:
            folder: The index's.
            books: Open for writing: they hold the state's lock.
            local: Tells block lists.
            block_size: Of the share.
            recent: What the cycle notes that it got; ended here.
        """
        self._folder = folder
        self._books = books
        self._local = local
        self._block_size = block_size
        self._recent = recent

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Run a cycle inside. What it recorded is in the index afterwards, also if it was broken off.

        What it got counts as recent until then: who was told of a block in between would find that we lack it.
        """
        try:
            changed = await trio.to_thread.run_sync(self._begin)
            try:
                yield
            except Exception:
                await self._follow(changed)
                raise
            await self._follow(changed)
        finally:
            if self._recent is not None:
                self._recent.use(None)

    def _begin(self) -> bool:
        """Note what is recorded from here on; returns whether the index was current until now."""
        self._books.note_changes()
        with (
            suppress(*EXPECTED),
            IdIndex.open(self._folder) as index,
            self._books.rows() as rows,
        ):
            return index.is_current(rows)
        return False

    async def _follow(self, was_current: bool) -> None:
        changed = self._books.noted() if was_current else None
        if changed is not None and not changed:
            return
        try:
            await self._write(changed)
        except CorruptionError as error:
            log.info("share.index_dropped", folder=self._folder, reason=str(error))
            IdIndex.remove(self._folder)
        except EXPECTED as error:
            log.info("share.index_behind", folder=self._folder, reason=str(error))

    async def _write(self, changed: set[Nid] | None) -> None:
        index = await trio.to_thread.run_sync(IdIndex.make, self._folder)
        try:
            steps = follow(index, self._books.rows, self._list_of, self._block_size, changed)
            # Step by step: cancelling waits for one of them, and the next cycle goes on with the rest.
            while await trio.to_thread.run_sync(partial(next, steps, _END)) is not _END:
                pass
        finally:
            index.close()

    def _list_of(self, nid: Nid, content: Content) -> BlockList | None:
        with self._books.rows() as rows:
            row = rows.row(nid)
        try:
            return self._local.list_of(content, None if row is None else row.local)
        except EXPECTED:
            return None  # not offered now; a look at all rows asks again


class SharedRoot:
    """One root's `ports.blocks.ShareIndex`. Close it when the root is no longer served.

    Attributes:
        share: Which share.
        recent_blocks: What a cycle under way got.
    """

    def __init__(self, share: str, state: str, folder: str, reader: SharedReader, paused: Callable[[], bool]) -> None:
        """Keep what is needed to answer; nothing is opened yet.

        Args:
            share: Names the share.
            state: The root's state.
            folder: Its index.
            reader: Reads its blocks.
            paused: Whether the root is paused now: then it has nothing.
        """
        self.share = share
        self.recent_blocks = RecentBlocks()
        self._state_path = state
        self._folder = folder
        self._reader = reader
        self._paused = paused
        self._lock = threading.Lock()
        self._state: StateDB | None = None
        self._index: IdIndex | None = None

    def match(self, prefixes: Sequence[bytes]) -> list[bool]:
        """See ShareIndex."""
        if self._paused():
            return [False] * len(prefixes)
        found = self._ask(lambda index, rows: index.match(prefixes, rows)) or [False] * len(prefixes)
        recent = self.recent_blocks
        if not recent:  # mostly no cycle is under way
            return found
        return [there or recent.has(prefix) for there, prefix in zip(found, prefixes, strict=True)]

    def read(self, block: BlockId) -> bytes | None:
        """See ShareIndex."""
        if self._paused():
            return None
        for spot, path in self._ask(partial(_spots, block)) or ():
            data = self._reader.read(block, path, spot.content, spot.index)
            if data is not None:
                return data
        return self.recent_blocks.read(block)

    def recent(self, since: int) -> tuple[int, Sequence[BlockId]]:
        """See ShareIndex."""
        return (since, ()) if self._paused() else self.recent_blocks.since(since)

    def rest(self) -> None:
        """Nobody asked for some seconds: let go of the root's files."""
        self._reader.rest()

    def close(self) -> None:
        """Let go of everything. Idempotent."""
        self.rest()
        with self._lock:
            self._close()

    def _close(self) -> None:
        index, self._index = self._index, None
        state, self._state = self._state, None
        if index is not None:
            index.close()
        if state is not None:
            state.close()

    def _ask(self, question: Callable[[IdIndex, RowReader], T]) -> T | None:
        """Put a question to index and base; None if either is not there, or can't be read: then nothing is told.

        One question at a time: they take microseconds each, and what they use may be another one afterwards.
        """
        with self._lock:
            try:
                state, index = self._opened()
                with state.rows() as rows:
                    return question(index, rows)
            except EXPECTED as error:
                if not isinstance(error, NotFoundError):
                    log.info("share.not_answering", share=self.share, reason=str(error))
                self._close()
                return None

    def _opened(self) -> tuple[StateDB, IdIndex]:
        if self._index is not None and self._index.replaced:
            self._close()
        if self._state is None:
            self._state = StateDB.open(self._state_path, read_only=True)
        if self._index is None:
            self._index = IdIndex.open(self._folder)
        return self._state, self._index


def _spots(block: BlockId, index: IdIndex, rows: RowReader) -> list[tuple[Spot, RelPath]]:
    """Where the base says that a block is."""
    found: list[tuple[Spot, RelPath]] = []
    for spot in index.spots(block, rows):
        row = rows.row(spot.nid)
        path = None if row is None else rows.path(row)
        if path is not None:
            found.append((spot, path))
    return found
