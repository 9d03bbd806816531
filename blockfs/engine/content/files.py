"""The regular files of a mount: handles, and the one place for all that is done to their contents."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import msgspec

from blockfs.engine.content.extents import Extents
from blockfs.engine.content.filestate import FileState
from blockfs.engine.content.filetable import FileTable, HasHotFileError
from blockfs.engine.content.holes import Holes
from blockfs.engine.content.pagemap import block_runs, staged_blocks
from blockfs.engine.content.reader import ContentReader
from blockfs.engine.content.resize import Resizer
from blockfs.engine.content.writer import ContentWriter
from blockfs.engine.context import Stores
from blockfs.engine.durable.committer import Committer
from blockfs.engine.durable.failing import FlushFailedError, check_sound, failure_of, hot_failure_of, tell
from blockfs.engine.durable.flush import Flusher
from blockfs.engine.durable.sealer import Sealer
from blockfs.engine.hot.contents import HotContents
from blockfs.engine.hot.folder import Descriptor
from blockfs.engine.portions import Stop, never
from blockfs.errors import WouldBlock
from blockfs.tree.schema import HotState, Inode


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


class Staged(msgspec.Struct, frozen=True, kw_only=True):
    """What of a file is not in the tree.

    Attributes:
        size_bytes: How long it is; None: as the tree says.
        blocks: Which of its blocks were written and are not sealed: first and end of each run, ascending. Of a hot
            file those that may have been.
        is_behind: It is a hot file: the kernel has written to it, and the host does not tell where.
    """

    size_bytes: int | None = None
    blocks: tuple[tuple[int, int], ...] = ()
    is_behind: bool = False


class Files:
    """Open, read, write and truncate. Thread-safe; see the package for `may_block`."""

    def __init__(
        self,
        stores: Stores,
        table: FileTable,
        reader: ContentReader,
        writer: ContentWriter,
        committer: Committer,
        flusher: Flusher,
        sealer: Sealer,
    ) -> None:
        self._stores = stores
        self._table = table
        self._reader = reader
        self._writer = writer
        self._committer = committer
        self._flusher = flusher
        self._sealer = sealer
        self._resizer = Resizer(stores, table)
        self._extents = Extents(stores, table)
        self._holes = Holes(stores, table, self._extents, writer, self._resizer)
        self._hot = HotContents(stores, table)
        self._handles: dict[int, _Handle] = {}
        self._last_handle = 0

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
        hot = self._hot.of(ino) if ino in self._table.hot else None
        if hot is not None:
            return self._hot.read(hot, offset, length, may_block=may_block)
        return self._reader.read(ino, offset, length, may_block=may_block)

    def read_into(self, ino: int, offset: int, view: memoryview) -> int:
        """As `read` without `may_block`, into a buffer, where nothing is copied on the way.

        Args:
            ino: The file.
            offset: First byte.
            view: Takes up to its length; what it has where WouldBlock is raised is of no meaning.

        Returns:
            Bytes that are in it now; fewer than its length only at the end of the file.
        """
        hot = self._hot.of(ino) if ino in self._table.hot else None
        if hot is not None:
            return self._hot.read_into(hot, offset, view)
        return self._reader.read_into(ino, offset, view)

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
        while True:
            if ino in self._table.hot:
                with self._hot.changing(ino, may_block=may_block, moves=False) as hot:
                    if hot is not None:
                        return self._hot.write(ino, hot, offset, data)
            try:
                return self._writer.write(ino, offset, data, may_block=may_block, stamps=stamps)
            except HasHotFileError:
                continue

    # --- size ---

    def truncate(self, ino: int, size_bytes: int, *, may_block: bool = False) -> None:
        """Set the size: cut, or extend by a hole.

        Raises:
            WouldBlock: The last block must be cut, and `may_block` is false.
            FsError: EFBIG beyond 2**63-1; EINVAL below 0; no such file; EROFS: it is in a snapshot.
            NoSpaceError: The cut block could not be stored.
        """
        self._change(
            ino,
            lambda hot: self._hot.truncate(ino, hot, size_bytes),
            lambda: self._resizer.truncate(ino, size_bytes, may_block=may_block),
            may_block=may_block,
        )

    # --- holes ---

    def next_data(self, ino: int, offset: int, *, may_block: bool = True) -> int | None:
        """The first byte from `offset` on that is data; None: there is none up to the end of the file.

        Raises:
            FsError: No such file.
            WouldBlock: It is far, and `may_block` is false.
        """
        hot = self._hot.of(ino) if ino in self._table.hot else None
        if hot is not None:
            return self._hot.seek(hot, offset, os.SEEK_DATA)
        return self._extents.next_data(ino, offset, may_block=may_block)

    def next_hole(self, ino: int, offset: int, *, may_block: bool = True) -> int | None:
        """The first byte from `offset` on that is none, at the latest the end of the file; None: `offset` is past it.

        Raises:
            FsError: No such file.
            WouldBlock: It is far, and `may_block` is false.
        """
        hot = self._hot.of(ino) if ino in self._table.hot else None
        if hot is not None:
            return self._hot.seek(hot, offset, os.SEEK_HOLE)
        return self._extents.next_hole(ino, offset, may_block=may_block)

    def zero(self, ino: int, offset: int, length: int, *, keeps_size: bool) -> None:
        """Make a hole of a range: whole blocks are free at once. Waits for disks: call it in a thread.

        Until it returns, and if it fails, each page of the range is what it was, or NUL.

        Args:
            ino: The file.
            offset: First byte.
            length: Bytes.
            keeps_size: Past the end of the file there is nothing to do; else it grows to the end of the range.

        Raises:
            FsError: EINVAL: no range; EFBIG: beyond 2**63-1; no such file; EROFS: it is in a snapshot.
            NoSpaceError: There is no room for the zeros over pages that are staged, or of blocks that are hit in part.
            HostIoError: The host failed.
            CorruptBlockError: A block of which a page is zeroed in part is unreadable.
        """
        self._change(
            ino,
            lambda hot: self._hot.zero(ino, hot, offset, length, keeps_size=keeps_size),
            lambda: self._holes.zero(ino, offset, length, keeps_size=keeps_size),
        )

    def allocate(self, ino: int, offset: int, length: int, *, keeps_size: bool) -> None:
        """Ask for room for a range. What it lacks on the host now is told; nothing is kept. May commit: in a thread.

        Args:
            ino: The file.
            offset: First byte.
            length: Bytes.
            keeps_size: Else the file grows to the end of the range.

        Raises:
            FsError: As `zero`.
            NoSpaceError: The host lacks the room for what the file has not yet of so many bytes.
        """
        self._change(
            ino,
            lambda hot: self._hot.allocate(ino, hot, offset, length, keeps_size=keeps_size),
            lambda: self._holes.allocate(ino, offset, length, keeps_size=keeps_size),
        )

    # --- hot files ---

    def unsealed_bytes(self) -> int:
        """Bytes that were written and are not blocks yet. Asks the host."""
        with self._stores.lock:
            staged_bytes = self._table.staged_bytes
        return staged_bytes + self._hot.unsealed_bytes()

    def staged(self, ino: int) -> Staged:
        """Which blocks of a file are not in the tree, as it is now. What the kernel has written is written back."""
        with self._stores.lock:
            state = self._table.peek(ino)
            if state is None:
                return Staged()
            is_hot = state.hot is not None and not state.is_sealed
            size_bytes = state.hot.status().st_size if state.hot is not None else state.size_bytes
            blocks = block_runs(staged_blocks(generation.pages for generation in state.generations))
        changed = self._hot.changed(ino) if is_hot else blocks
        return Staged(size_bytes=size_bytes, blocks=tuple(changed or ()), is_behind=changed is None)

    def _change(
        self, ino: int, hotly: Callable[[Descriptor], None], coldly: Callable[[], None], *, may_block: bool = True
    ) -> None:
        """Change a file's content by one of two ways, whichever is its way at that moment."""
        while True:
            if ino in self._table.hot:
                with self._hot.changing(ino, may_block=may_block) as hot:
                    if hot is not None:
                        hotly(hot)
                        return
            try:
                coldly()
            except HasHotFileError:
                continue
            return

    def is_hot(self, ino: int) -> bool:
        """Whether a hot file is a file's content."""
        return ino in self._table.hot

    def share(self, source: int, offset: int, destination: int, to: int, length: int) -> int:
        """Copy the beginning of a range between files that both have hot files; waits for disks.

        Returns:
            Bytes; 0: it must be copied by bytes, or there is nothing.

        Raises:
            NoSpaceError: The host is full.
            HostIoError: The host failed.
        """
        taken = self._hot.of(source)
        with self._hot.changing(destination, may_block=True) as given:
            return 0 if taken is None or given is None else self._hot.copy(taken, offset, given, to, length)

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
        with self._stores.lock:
            # The gate can't hold who writes a hot file. But what is written because an fsync has come to its end must
            # not be in a snapshot that lacks what was synced: as after a power cut.
            self._table.gate.enter(may_block=True)
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
                self._sealer.seal_all(stop, may_mix=True)
            else:
                self._sealer.seal([ino])
        except FlushFailedError as error:
            failure = error
        self._committer.commit()
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
                if state is None or (ino is None and next(self._stores.tree.places(state.ino), None) is None):
                    continue
                if state.hot is not None and state.hot.failed:
                    return hot_failure_of(self._stores, state.ino)
                failures = state.failures
                if failures is not None and failures.pages and not (is_new and not failures.is_new):
                    return failure_of(self._stores, state)
        return None

    def call_on_failure(self, forget_pages: Callable[[int], None]) -> None:
        """Have something called for each inode of which the host failed to write pages: whoever else holds them."""
        self._table.on_failure = forget_pages

    # --- FileSizes, for the namespace: called under the engine's lock ---

    def live(self, inode: Inode) -> Inode:
        """The inode as readers see it: unpublished size and mtime, and the later of both ctimes."""
        state = self._table.peek(inode.ino)
        if state is None:
            return inode
        live = state.live(inode)
        if state.hot is not None:
            self._stores.clock.seen(max(live.mtime_ns, live.ctime_ns))  # the host's clock is finer than ours
        return live

    def staged_bytes(self, ino: int) -> int:
        """Bytes that are staged and not sealed yet."""
        state = self._table.peek(ino)
        return 0 if state is None else state.staged_bytes

    def host_bytes(self, ino: int) -> int | None:
        """What a hot file occupies on the host; None: it has none."""
        state = self._table.peek(ino)
        return None if state is None or state.hot is None else state.hot.status().st_blocks * 512

    def forget_times(self, ino: int, atime_ns: int | None, mtime_ns: int | None) -> None:
        """The namespace sets explicit times in the tree: an unpublished mtime is void if there is one."""
        state = self._table.peek(ino)
        if state is None:
            return
        if state.hot is not None:
            state.look()  # before the time goes that tells of a write
            state.hot.set_times(atime_ns, mtime_ns)
        if mtime_ns is not None:
            state.mtime_ns = None
            self._flusher.note_times(state)

    def discard(self, ino: int) -> None:
        """The inode is being removed: drop its staged data and state, and what was left to programs of a dead mount."""
        for row in self._stores.tree.hot(ino):
            if row.state is HotState.LEFT:
                for number in (row.number, row.base):
                    self._stores.tree.on_durable(partial(self._table.on_cold, (ino, number)))
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
            if state.hot is not None:  # a snapshot has the name of a later moment than the content, else
                self._table.gate.enter(may_block=may_block)
        if not may_block:
            raise WouldBlock("data must be flushed before the rename")
        self._flusher.publish(state)
