"""Writing to a file: into the newest staged generation, whole pages at a time.

The fast path is one pwrite and some arithmetic on bit masks. A page that is written in part is completed first from
what lies below it, so that after a crash every staged page is complete by itself. Staged zeros are written: a page that
SEEK_DATA finds is staged, one that it doesn't is not.
"""

from __future__ import annotations

import errno
import time

from blockfs.engine.content.bounds import MAX_SIZE
from blockfs.engine.content.filestate import FileState
from blockfs.engine.content.filetable import FileTable
from blockfs.engine.content.generation import StagedGeneration
from blockfs.engine.content.hostfile import punch, translated, write_pages
from blockfs.engine.content.pagemap import PAGE
from blockfs.engine.content.reader import ContentReader
from blockfs.engine.content.staging import RANGE, RANGE_SHIFT, StagingFile
from blockfs.engine.context import Stores
from blockfs.engine.durable.committer import Committer
from blockfs.engine.durable.seal_queue import SealQueue
from blockfs.engine.space.room import Room
from blockfs.errors import BlockfsError, FsError, NoSpaceError, QuotaError, WouldBlock

Edges = dict[int, bytes]
"""Page number → present content, up to the end of the file, of pages that a write changes in part."""


class ContentWriter:
    """Writes to the files of one mount. Thread-safe."""

    def __init__(
        self,
        stores: Stores,
        table: FileTable,
        reader: ContentReader,
        committer: Committer,
        seal_queue: SealQueue,
        room: Room,
    ) -> None:
        self._stores = stores
        self._table = table
        self._reader = reader
        self._committer = committer
        self._seal_queue = seal_queue
        self._room = room

    def write(self, ino: int, offset: int, data: bytes | memoryview, *, may_block: bool, stamps: bool) -> int:
        """See `Files.write`."""
        end = offset + len(data)
        if end > MAX_SIZE:
            raise FsError(errno.EFBIG, f"inode {ino}: a write to {end}")
        if not data:
            return 0
        seen: tuple[FileState, int] | None = None
        read: Edges = {}
        while True:
            self._wait_for_room(ino, len(data), may_block=may_block)
            with self._stores.lock:
                self._table.gate.enter(may_block=may_block)
                state = self._table.get_cold(ino)
                edges: Edges | None = read
                pages = _edge_pages(state, offset, end)
                # What was read outside counts while nothing has changed. A seal changes nothing, but it closes the
                # generation, which may have had the other edge.
                if seen != (state, state.stamp) or not read.keys() >= set(pages):
                    edges = self._read_edges(state, pages, may_block=may_block) if pages else {}
                if edges is not None:
                    try:
                        return self._stage(state, offset, data, edges, stamps=stamps)
                    except QuotaError as error:
                        self._room.met_quota(error)
                        raise
                seen = state, state.stamp
            # Nobody waits for this read but its writer. If the file changed meanwhile, what was read is void.
            read = {page: self._reader.read(ino, page * PAGE, PAGE, may_block=True) for page in pages}

    def ask(self, length: int) -> None:
        """Refuse if the host has no room for `length` more bytes now. Nothing is kept for whoever asks.

        Raises:
            NoSpaceError: It has not.
        """
        if length <= 0:
            return
        try:
            self._room.check(length)
        except NoSpaceError:
            self._committer.give_back()
            self._room.check(length)

    def _wait_for_room(self, ino: int, length: int, *, may_block: bool) -> None:
        """Hold writers back while too much is staged, and refuse them when the host is nearly full."""
        table = self._table
        if table.staged_bytes > table.staged_limit_bytes // 2:
            self._seal_queue.wanted.set()
        if not table.has_room(ino, length):
            if not may_block:
                raise WouldBlock("too much is staged")
            self._seal_queue.make_room(ino, length)
        try:
            free_bytes = self._room.check(length)
        except NoSpaceError:
            # What was removed a moment ago gives its room back when that is committed.
            if not may_block:
                raise WouldBlock("the host is nearly full") from None
            self._committer.give_back()
            free_bytes = self._room.check(length)
        if free_bytes is not None:
            table.fit_limit(free_bytes)

    def _read_edges(self, state: FileState, pages: list[int], *, may_block: bool) -> Edges | None:
        """Contents of pages from the page cache; None if that takes a disk and the caller can wait."""
        try:
            return {page: self._reader.read(state.ino, page * PAGE, PAGE) for page in pages}
        except WouldBlock:
            if not may_block:
                raise
            return None

    def _stage(self, state: FileState, offset: int, data: bytes | memoryview, edges: Edges, *, stamps: bool) -> int:
        """Write into the newest generation. Under the lock: what `edges` say is still so."""
        row = self._table.writable_row(state.ino)
        generation = self._table.open_generation(state)
        end = offset + len(data)
        parts: list[bytes | memoryview] = [data]
        start = offset
        first_page, last_page = offset // PAGE, end // PAGE
        if first_page in edges:
            start = first_page * PAGE
            parts.insert(0, edges[first_page][: offset - start].ljust(offset - start, b"\0"))
        if last_page in edges:
            parts.append(edges[last_page][end - last_page * PAGE :])
        length = len(data) if len(parts) == 1 else sum(map(len, parts))
        written = self._write_parts(state, generation, start, parts, length)
        done = min(written - (offset - start), len(data))
        assert done > 0, "whole pages were written, and the first one has a byte of the data"
        pages = (start + written - 1) // PAGE - start // PAGE + 1
        added = generation.mark(start // PAGE, pages)
        if state.failures is not None:
            state.failures.rewritten(start // PAGE, pages)
        self._room.used(added * PAGE)
        state.touch(row, self._stores.clock.now_ns() if stamps else None, time.monotonic())
        state.size_bytes = max(state.size_bytes, offset + done)
        return done

    def _write_parts(
        self,
        state: FileState,
        generation: StagedGeneration,
        start: int,
        parts: list[bytes | memoryview],
        length: int,
    ) -> int:
        """Write to the staging files, cut where a 1 TiB range ends; returns bytes that are certain, at least a page."""
        range_index, within = start >> RANGE_SHIFT, start & (RANGE - 1)
        if within + length <= RANGE:
            return self._write_range(state, generation, range_index, within, parts, length)
        first = RANGE - within
        joined = memoryview(b"".join(parts))
        written = self._write_range(state, generation, range_index, within, [joined[:first]], first)
        if written < first:
            return written
        try:
            return first + self._write_range(state, generation, range_index + 1, 0, [joined[first:]], length - first)
        except BlockfsError:
            return first  # that much is staged; the caller's next write meets the error

    def _write_range(
        self,
        state: FileState,
        generation: StagedGeneration,
        range_index: int,
        within: int,
        parts: list[bytes | memoryview],
        length: int,
    ) -> int:
        file = self._table.staging_file(state, generation, range_index)
        generation.will_change(range_index, (range_index * RANGE + within) // PAGE, -(-length // PAGE))
        staging = self._stores.staging
        fd = staging.acquire(file, writes=True)  # no context managers: they take as long as the system call
        try:
            written, failure = write_pages(fd, parts, within, length)
            if failure is None:
                return written
            # Whole pages only: a page that is staged in part would be completed with NUL bytes by a recovery.
            whole = max(0, (within + written) // PAGE * PAGE - within)
            _clear_unstaged(generation, file, fd, within + whole, length - whole)
        finally:
            staging.release(file)
        if not whole:
            with translated("staging"):
                raise failure
        return whole


def _edge_pages(state: FileState, offset: int, end: int) -> list[int]:
    """Pages that a write to [offset, end) changes in part and that are not staged in the newest generation.

    Where there is nothing but NUL bytes, at and beyond the end of the file, there is nothing to complete: the rest of a
    fresh page of a staging file is NUL.
    """
    size, newest = state.size_bytes, state.newest
    cut = {offset // PAGE} if offset % PAGE and offset // PAGE * PAGE < size else set()
    if end % PAGE and end < size:
        cut.add(end // PAGE)
    return [page for page in cut if newest is None or not newest.pages.has(page)]


def _clear_unstaged(generation: StagedGeneration, file: StagingFile, fd: int, within: int, length: int) -> None:
    """After a failed write: make pages holes again that are not staged, or a recovery would take them for data."""
    base = file.key[1] << RANGE_SHIFT
    for page in range(within // PAGE, -(-(within + length) // PAGE)):
        if not generation.pages.has(base // PAGE + page):
            punch(fd, page * PAGE, PAGE)
