"""Contents of regular files: handles, reads and writes.

The fast path is one pwrite and some arithmetic on bit masks. A write goes to the newest staged generation, whole pages
at a time: a page that is written in part is completed first from what lies below it, so that after a crash every staged
page is complete by itself. Staged zeros are written: a page that SEEK_DATA finds is staged, one that it doesn't is not.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from blockfs.engine.content.filestate import MAX_SIZE, FileState
from blockfs.engine.content.filetable import FileTable
from blockfs.engine.content.generation import StagedGeneration
from blockfs.engine.content.pagemap import PAGE
from blockfs.engine.content.reader import Reader
from blockfs.engine.content.resize import Resizer
from blockfs.engine.content.staging import RANGE, RANGE_SHIFT, StagingFile, punch, translated, write_pages
from blockfs.engine.context import Stores
from blockfs.engine.durable.failing import FlushFailedError, check_readable, check_sound, failure_of, tell
from blockfs.engine.durable.flush import Flusher
from blockfs.engine.durable.sealer import Sealer
from blockfs.engine.portions import Stop, never
from blockfs.engine.space.room import Room
from blockfs.errors import BlockfsError, FsError, MissingBlockError, NoSpaceError, QuotaError, WouldBlock
from blockfs.tree.schema import Inode


@dataclass(slots=True)
class _Handle:
    """An open file.

    Attributes:
        state: Of the file.
        writes: It may write.
        told: What it remembers of failed flushes, see `Failures`.
    """

    state: FileState
    writes: bool
    told: int


Edges = dict[int, bytes]
"""Page number → present content, up to the end of the file, of pages that a write changes in part."""


class Files:
    """Open, read, write and truncate. Thread-safe; see the package for `may_block`."""

    def __init__(
        self, stores: Stores, table: FileTable, reader: Reader, flusher: Flusher, sealer: Sealer, room: Room
    ) -> None:
        self._stores = stores
        self._table = table
        self._reader = reader
        self._flusher = flusher
        self._sealer = sealer
        self._resizer = Resizer(stores, table)
        self._handles: dict[int, _Handle] = {}
        self._last_handle = 0
        self._room = room

    # --- handles ---

    def open(self, ino: int, flags: int = os.O_RDONLY) -> int:
        """Open a file. O_TRUNC is the caller's: `truncate`.

        Returns:
            A handle, for `release`.

        Raises:
            FsError: ENOENT, EISDIR, or EINVAL for what is no regular file; EROFS: to be written, and in a snapshot.
        """
        writes = (flags & os.O_ACCMODE) != os.O_RDONLY
        with self._stores.lock:
            if writes:
                self._table.writable_row(ino)
            state = self._table.get(ino)
            state.handles += 1
            state.writers += writes
            self._last_handle += 1
            told = 0 if state.failures is None else state.failures.sample()
            self._handles[self._last_handle] = _Handle(state, writes, told)
            return self._last_handle

    def release(self, handle: int) -> None:
        """Close a handle. Whether an unlinked inode goes now is the namespace's to say."""
        with self._stores.lock:
            opened = self._handles.pop(handle)
            state = opened.state
            state.handles -= 1
            state.writers -= opened.writes
            if not state.discarded:
                self._table.settle(state)

    def writers(self, ino: int) -> int:
        """Handles that are open for writing."""
        with self._stores.lock:
            state = self._table.peek(ino)
            return 0 if state is None else state.writers

    def written(self) -> list[int]:
        """Files that are open for writing."""
        with self._stores.lock:
            return [state.ino for state in self._table.all() if state.writers]

    # --- reading ---

    def read(self, ino: int, offset: int, length: int, *, may_block: bool = False) -> bytes:
        """Read up to `length` bytes; fewer only at the end of the file.

        Raises:
            WouldBlock: Not all is in the page cache and `may_block` is false.
            FsError: No such file.
            MissingBlockError: A block is not stored.
            CorruptBlockError: A block is quarantined or unreadable.
            FlushFailedError: What was written there did not get to the disk.
            HostIoError: The host failed.
        """
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
            segments = self._reader.resolve(ino, state.generations if state is not None else [], offset, length)
        return self._reader.gather(segments, may_block=may_block)

    # --- writing ---

    def write(
        self, ino: int, offset: int, data: bytes | memoryview, *, may_block: bool = False, stamps: bool = True
    ) -> int:
        """Write at a byte offset; the file grows as needed.

        Args:
            ino: The file.
            offset: First byte.
            data: What to write.
            may_block: Wait for disks.
            stamps: Set mtime and ctime. A kernel with a writeback cache sets them itself, when the program writes, and
                tells them after the data; it tells nothing if they are what it knows already.

        Returns:
            Bytes written; fewer than given only if the host became full on the way.

        Raises:
            WouldBlock: A page must be completed from a cold disk, too much is staged, or a snapshot is being taken, and
                `may_block` is false.
            FsError: EFBIG beyond 2**63-1; no such file; EROFS: it is in a snapshot.
            NoSpaceError: The host is full, or nearly so.
            HostIoError: The host failed.
        """
        end = offset + len(data)
        if end > MAX_SIZE:
            raise FsError(errno.EFBIG, f"inode {ino}: a write to {end}")
        if not data:
            return 0
        known: tuple[int, Edges | None] = (-1, None)
        while True:
            self._wait_for_room(ino, len(data), may_block=may_block)
            with self._stores.lock:
                self._table.gate.enter(may_block=may_block)
                state = self._table.get(ino)
                stamp, edges = known
                pages = _edge_pages(state, offset, end)
                if stamp != state.stamp:
                    edges = self._read_edges(state, pages, may_block=may_block)
                if edges is not None:
                    try:
                        return self._stage(state, offset, data, edges, stamps=stamps)
                    except QuotaError as error:
                        self._room.met_quota(error)
                        raise
                stamp = state.stamp
            # Nobody waits for this read but its writer. If the file changed meanwhile, what was read is void.
            known = (stamp, {page: self.read(ino, page * PAGE, PAGE, may_block=True) for page in pages})

    def _wait_for_room(self, ino: int, length: int, *, may_block: bool) -> None:
        """Hold writers back while too much is staged, and refuse them when the host is nearly full."""
        table = self._table
        if table.staged_bytes > table.staged_limit_bytes // 2:
            self._sealer.kick()
        if not table.has_room(ino, length):
            if not may_block:
                raise WouldBlock("too much is staged")
            self._sealer.make_room(ino, length)
        try:
            free_bytes = self._room.check(length)
        except NoSpaceError:
            # What was removed a moment ago gives its room back when that is committed.
            if not may_block:
                raise WouldBlock("the host is nearly full") from None
            self._flusher.give_back()
            free_bytes = self._room.check(length)
        if free_bytes is not None:
            table.fit_limit(free_bytes)

    def _read_edges(self, state: FileState, pages: list[int], *, may_block: bool) -> Edges | None:
        """Contents of pages from the page cache; None if that takes a disk and the caller can wait."""
        try:
            return {page: self._cached_page(state, page) for page in pages}
        except WouldBlock:
            if not may_block:
                raise
            return None

    def _cached_page(self, state: FileState, page: int) -> bytes:
        length = min(PAGE, state.size_bytes - page * PAGE)
        check_readable(self._stores, state, page * PAGE, length)
        segments = self._reader.resolve(state.ino, state.generations, page * PAGE, length)
        return self._reader.gather(segments, may_block=False)

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
        length = sum(len(part) for part in parts)
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
            return self._write_range(state, generation, range_index, within, parts)
        first = RANGE - within
        joined = memoryview(b"".join(parts))
        written = self._write_range(state, generation, range_index, within, [joined[:first]])
        if written < first:
            return written
        try:
            return first + self._write_range(state, generation, range_index + 1, 0, [joined[first:]])
        except BlockfsError:
            return first  # that much is staged; the caller's next write meets the error

    def _write_range(
        self,
        state: FileState,
        generation: StagedGeneration,
        range_index: int,
        within: int,
        parts: list[bytes | memoryview],
    ) -> int:
        file = self._table.staging_file(state, generation, range_index)
        length = sum(len(part) for part in parts)
        generation.will_change(range_index, (range_index * RANGE + within) // PAGE, -(-length // PAGE))
        with self._stores.staging.using(file) as fd, translated("staging"):
            written, failure = write_pages(fd, parts, within)
            if failure is None:
                return written
            # Whole pages only: a page that is staged in part would be completed with NUL bytes by a recovery.
            whole = max(0, (within + written) // PAGE * PAGE - within)
            _clear_unstaged(generation, file, fd, within + whole, length - whole)
            if not whole:
                raise failure
            return whole

    # --- size ---

    def truncate(self, ino: int, size_bytes: int, *, may_block: bool = False) -> None:
        """Set the size: cut, or extend by a hole.

        Raises:
            WouldBlock: The last block must be cut, and `may_block` is false.
            FsError: EFBIG beyond 2**63-1; EINVAL below 0; no such file; EROFS: it is in a snapshot.
            NoSpaceError: The cut block could not be stored.
        """
        self._resizer.truncate(ino, size_bytes, may_block=may_block)

    # --- durability ---

    def fsync(self, ino: int, *, datasync: bool = False, handle: int | None = None) -> None:
        """Make a file's content, size and names durable. Waits for disks: call it in a thread.

        Args:
            ino: Any inode.
            datasync: Leave out times, as fdatasync(2) does.
            handle: The caller's, from `open`; None: like one that was opened just now.

        Raises:
            FlushFailedError: Something that was written is lost. Each handle that was open when that happened is told
                once, or else the first later one; and everybody each time, until that range was written again.
            NoSpaceError: The host is full; nothing is lost that was durable.
            HostIoError: The host failed.
            TreeIoError: The host failed.
        """
        try:
            self._flusher.fsync(ino, datasync=datasync)
        except FlushFailedError:
            self._tell(ino, handle)  # all failures at once
            raise
        failure = self._tell(ino, handle)
        if failure is not None:
            raise failure

    def _tell(self, ino: int, handle: int | None) -> FlushFailedError | None:
        """The failure that a handle has to be told of now."""
        with self._stores.lock:
            opened = self._handles.get(handle) if handle is not None else None
            state = self._table.peek(ino) if opened is None else opened.state
            if state is None or state.failures is None:
                return None
            told = state.failures.sample() if opened is None else opened.told
            failure, told = tell(self._stores, self._table, state, told)
            if opened is not None:
                opened.told = told
            return failure

    def flush(self, ino: int | None = None, *, stop: Stop = never) -> None:
        """Seal one file, or all, and commit durably. Waits for disks: call it in a thread. `stop`: asked between files.

        Raises:
            StoppedError: `stop` said so; what is not sealed stays staged.
            FlushFailedError: Something that was written to one of them is lost; all else is done.
            NoSpaceError: The host is full; what was staged stays staged.
            BlockfsError: A block below staged data is missing or corrupt.
        """
        failure: FlushFailedError | None = None
        try:
            if ino is None:
                self._sealer.seal_all(stop)
            else:
                self._sealer.seal([ino])
        except FlushFailedError as error:
            failure = error
        self._flusher.commit()
        failure = self.failure(ino) or failure
        if failure is not None:
            raise failure

    def failure(self, ino: int | None = None, *, is_new: bool = False) -> FlushFailedError | None:
        """The failure that names one file with a failed range, or the first of all; None: there is none.

        Args:
            ino: Which file; None: any that has a name. Of one without, those hear that have it open.
            is_new: Only what failed in this mount.
        """
        with self._stores.lock:
            states = self._table.all() if ino is None else [self._table.peek(ino)]
            for state in states:
                failures = None if state is None else state.failures
                if state is None or failures is None or not failures.pages or (is_new and not failures.is_new):
                    continue
                if ino is not None or next(self._stores.tree.places(state.ino), None) is not None:
                    return failure_of(self._stores, state)
        return None

    def call_on_failure(self, forget_pages: Callable[[int], None]) -> None:
        """Have something called for each inode of which the host failed to write pages: whoever else holds them."""
        self._table.on_failure = forget_pages

    # --- FileSizes, for the namespace: called under the engine's lock ---

    def live(self, inode: Inode) -> Inode:
        """The inode as readers see it: unpublished size and mtime, and the later of both ctimes."""
        state = self._table.peek(inode.ino)
        return inode if state is None else state.live(inode)

    def staged_bytes(self, ino: int) -> int:
        """Bytes that are staged and not sealed yet."""
        state = self._table.peek(ino)
        return 0 if state is None else state.staged_bytes

    def forget_times(self, ino: int) -> None:
        """The namespace set an explicit mtime in the tree: an unpublished one is void."""
        state = self._table.peek(ino)
        if state is not None:
            state.mtime_ns = None
            self._flusher.note_times(state)

    def discard(self, ino: int) -> None:
        """The inode is being removed: drop its staged data and state."""
        state = self._table.peek(ino)
        if state is not None:
            self._table.discard(state)

    def publish_before_replace(self, ino: int, *, may_block: bool) -> None:
        """Make sure that the size in the tree is the present one, its data being flushed.

        "Write a temporary file, rename it over the old one" must never end as an empty file. Only the renamed file is
        flushed: nobody waits for somebody else's data.

        Raises:
            FlushFailedError: Something that was written to it is lost.
            WouldBlock: Data must be flushed first, and `may_block` is false.
        """
        with self._stores.lock:
            state = self._table.peek(ino)
            check_sound(self._stores, state)  # what it would replace is better
            if state is None or state.is_published:
                return
        if not may_block:
            raise WouldBlock("data must be flushed before the rename")
        self._flusher.publish(state)


def _edge_pages(state: FileState, offset: int, end: int) -> list[int]:
    """Pages that a write to [offset, end) changes in part and that are not staged in the newest generation.

    Where there is nothing but NUL bytes, at and beyond the end of the file, there is nothing to complete: the rest of a
    fresh page of a staging file is NUL.
    """
    pages = []
    newest = state.newest
    first, last = offset // PAGE, end // PAGE
    size = state.size_bytes
    if offset % PAGE and first * PAGE < size and not (newest and newest.pages.has(first)):
        pages.append(first)
    if end % PAGE and end < size and not (newest and newest.pages.has(last)) and last not in pages:
        pages.append(last)
    return pages


def _clear_unstaged(generation: StagedGeneration, file: StagingFile, fd: int, within: int, length: int) -> None:
    """After a failed write: make pages holes again that are not staged, or a recovery would take them for data."""
    base = file.key[1] << RANGE_SHIFT
    for page in range(within // PAGE, -(-(within + length) // PAGE)):
        if not generation.pages.has(base // PAGE + page):
            punch(fd, page * PAGE, PAGE)
