"""What the engine knows of a file beyond its row in the tree: live size and times, staged generations, handles.

A file has a `FileState` while it is open, has staged data, or has changes the tree does not know yet. All fields are
guarded by the engine's lock, unless they say otherwise.

Three stamps order a file's changes. `stamp` counts changes of content or size. `flushed_stamp` is the newest one whose
data are on disk. `published_stamp` is the newest one that the inode's row tells of. A change is published only after
its data are flushed or sealed: that is what keeps a crash from showing a size without its bytes.
"""

from __future__ import annotations

import errno
import threading
from _thread import RLock
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec
from msgspec.structs import replace

from blockfs.blocks.directory import BlockDirectory
from blockfs.engine.clock import Clock
from blockfs.engine.config import EngineConfig
from blockfs.engine.content.pagemap import PAGE, Layer, PageMap
from blockfs.engine.content.staging import StagingDirectory, StagingFile
from blockfs.engine.durable.failures import Failures
from blockfs.engine.fatal import Fatal
from blockfs.engine.gate import WriteGate
from blockfs.engine.priority import Priority
from blockfs.errors import FsError
from blockfs.tree.schema import NO_LIMIT, Generation, Inode, Kind
from blockfs.tree.store import Tree

MAX_SIZE: Final = 2**63 - 1  # loff_t

_FREE_SHARE: Final = 4  # of the host's free bytes may be staged
_MIN_LIMIT_BYTES: Final = 256 << 20
_LITTLE_SHARE: Final = 64  # of the limit: a file that has no more staged than this may go
_SPARE_SHARE: Final = 8  # this part of the limit beyond it


class Stores(msgspec.Struct, frozen=True, kw_only=True):
    """What all parts of the engine work on.

    Attributes:
        lock: Guards the tree's change sets and all file states. Never held across fdatasync, a cold read, hashing or an
            LMDB write.
        fatal: Whether the mount goes on.
        clock: For times of change.
        priority: Whether somebody waits for an fsync.
    """

    tree: Tree
    blocks: BlockDirectory
    staging: StagingDirectory
    lock: RLock
    config: EngineConfig
    fatal: Fatal
    clock: Clock = msgspec.field(default_factory=Clock)
    priority: Priority = msgspec.field(default_factory=Priority)

    @property
    def block_size(self) -> int:
        """Bytes of a block."""
        return self.blocks.block_size


class StagedGeneration:
    """Data staged between two closings, at most one staging file per 1 TiB range.

    Attributes:
        number: Higher is newer; unique within the volume.
        pages: Which pages it has.
        files: Range index → staging file.
        named: Ranges whose row is in the tree. A row comes only after the file's name and data are durable.
        unsynced: Range → pages that may have been written since its last fdatasync began.
        valid_below: Byte offset in the file from where on it is void.
    """

    __slots__ = ("files", "named", "number", "pages", "unsynced", "valid_below")

    def __init__(self, number: int, block_size: int) -> None:
        self.number = number
        self.pages = PageMap(block_size)
        self.files: dict[int, StagingFile] = {}
        self.named: set[int] = set()
        self.unsynced: dict[int, PageMap] = {}
        self.valid_below = NO_LIMIT

    def note_unsynced(self, range_index: int, pages: PageMap) -> None:
        """Pages of a range are not on the disk, for all that is known."""
        known = self.unsynced.get(range_index)
        if known is None:
            self.unsynced[range_index] = pages
        else:
            known.unite(pages)

    @property
    def layer(self) -> Layer:
        """For `pagemap.plan`."""
        return Layer(self.pages, self.valid_below)

    def row(self, ino: int, range_index: int) -> Generation:
        """Its row in the tree for one range."""
        return Generation(ino=ino, range_index=range_index, generation=self.number, valid_below=self.valid_below)


class LowWater:
    """What a flush or seal that began when this was made may still publish.

    Attributes:
        size_bytes: The smallest size that the file had since.
        failed: Pages that were failed when it began, or failed since; None: none.
    """

    __slots__ = ("failed", "size_bytes")

    def __init__(self, size_bytes: int, failed: PageMap | None = None) -> None:
        self.size_bytes = size_bytes
        self.failed = failed


class FileState:
    """One file.

    Attributes:
        ino: The inode.
        size_bytes: Live size.
        mtime_ns: Of the last write or truncate, while the row doesn't know it; None: the row's counts.
        ctime_ns: Of the last write or truncate; the row's counts if it is later.
        generations: Oldest first.
        is_open: Whether the newest generation takes writes. Closed ones never change, but for being cut.
        stamp: See the module.
        flushed_stamp: See the module.
        published_stamp: See the module.
        changed_at_s: Monotonic time of the oldest unpublished change.
        written_at_s: Monotonic time of the newest write.
        times_version: Version of the row if all that it has over the durable one are times; else of no meaning.
        low_waters: Of flushes and seals under way.
        failures: What the host failed to write of it; None: never anything that matters still.
        handles: Open handles.
        writers: Those of them that may write.
        discarded: The inode is removed: whoever finds this after a wait lets go.
        publishing: Held by the one thread that flushes this file. Taken before the engine's lock.
        sealing: Held by the one thread that seals this file. Taken before `publishing` and the engine's lock.
    """

    __slots__ = (
        "changed_at_s",
        "ctime_ns",
        "discarded",
        "failures",
        "flushed_stamp",
        "generations",
        "handles",
        "ino",
        "is_open",
        "low_waters",
        "mtime_ns",
        "published_stamp",
        "publishing",
        "sealing",
        "size_bytes",
        "stamp",
        "times_version",
        "writers",
        "written_at_s",
    )

    def __init__(self, inode: Inode) -> None:
        self.ino = inode.ino
        self.size_bytes = inode.size_bytes
        self.mtime_ns: int | None = None
        self.ctime_ns = 0
        self.generations: list[StagedGeneration] = []
        self.is_open = False
        self.stamp = 0
        self.flushed_stamp = 0
        self.published_stamp = 0
        self.changed_at_s = 0.0
        self.written_at_s = 0.0
        self.times_version = 0
        self.low_waters: list[LowWater] = []
        self.failures: Failures | None = None
        self.handles = 0
        self.writers = 0
        self.discarded = False
        self.publishing = threading.Lock()
        self.sealing = threading.Lock()

    @property
    def layers(self) -> list[Layer]:
        """For `pagemap.plan`: newest first."""
        return [generation.layer for generation in reversed(self.generations)]

    @property
    def newest(self) -> StagedGeneration | None:
        """The generation that takes writes, if there is one."""
        return self.generations[-1] if self.is_open else None

    @property
    def staged_bytes(self) -> int:
        """Bytes of its staged pages; one that was written again meanwhile counts in each generation."""
        return sum(generation.pages.count for generation in self.generations) * PAGE

    @property
    def is_published(self) -> bool:
        """Whether the inode's row tells of every change."""
        return self.published_stamp >= self.stamp

    @property
    def is_idle(self) -> bool:
        """Whether the row in the tree says all there is to say."""
        is_sound = self.failures is None or self.failures.row is None
        return not (self.handles or self.generations or self.low_waters) and self.is_published and is_sound

    def touch(self, row: Inode, now_ns: int | None, now_s: float) -> None:
        """Note a change of content or size, and its time if it is known here. ctime never steps back."""
        if self.is_published:
            self.changed_at_s = now_s
        self.written_at_s = now_s
        self.stamp += 1
        if now_ns is not None:
            self.mtime_ns = now_ns
            self.ctime_ns = max(now_ns, self.ctime_ns, row.ctime_ns)

    def live(self, row: Inode) -> Inode:
        """The row as it would be if everything were published."""
        if self.size_bytes == row.size_bytes and self.mtime_ns is None and self.ctime_ns <= row.ctime_ns:
            return row  # a copy takes longer than a read of 4 KiB from the page cache
        return replace(
            row,
            size_bytes=self.size_bytes,
            mtime_ns=row.mtime_ns if self.mtime_ns is None else self.mtime_ns,
            ctime_ns=max(row.ctime_ns, self.ctime_ns),
        )

    def published(self, stamp: int) -> None:
        """Note that the row tells of all changes up to `stamp`, whose data are on disk."""
        self.published_stamp = max(self.published_stamp, stamp)
        self.flushed_stamp = max(self.flushed_stamp, stamp)
        if self.is_published:
            self.mtime_ns = None

    def watch(self) -> LowWater:
        """Begin to note the smallest size from now on; end it with `unwatch`."""
        mark = self.mark()
        self.low_waters.append(mark)
        return mark

    def mark(self) -> LowWater:
        """What may be published of the present state."""
        return LowWater(self.size_bytes, None if self.failures is None else self.failures.pages.copy())

    def note_failure(self, pages: PageMap, code: int, block_size: int) -> None:
        """The host failed to write these pages."""
        if self.failures is None:
            self.failures = Failures(self.ino, block_size)
        self.failures.note(pages, code)
        for mark in self.low_waters:
            if mark.failed is None:
                mark.failed = pages.copy()
            else:
                mark.failed.unite(pages)

    def note_cut(self, size_bytes: int) -> None:
        """The size shrinks."""
        first_void = -(-size_bytes // PAGE)
        for mark in self.low_waters:
            mark.size_bytes = min(mark.size_bytes, size_bytes)
            if mark.failed is not None:
                mark.failed.cut(first_void)
        if self.failures is not None:
            self.failures.cut(first_void)

    def unwatch(self, mark: LowWater) -> None:
        """End a watch. Idempotent."""
        self.low_waters = [other for other in self.low_waters if other is not mark]


class FileTable:
    """All file states of a mount, and how much is staged. Guarded by the engine's lock."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self._states: dict[int, FileState] = {}
        self._last_generation = 0
        self.staged_pages = 0
        self.staged_limit_bytes = stores.config.staged_limit_bytes
        self.gate = WriteGate(stores.lock)
        self.on_failure: Callable[[int], None] = lambda _ino: None
        """Called after the host failed to write pages of an inode, without any lock: the kernel still shows them."""
        self.room = threading.Condition(stores.lock)
        """Notified when staged data went away."""

    @property
    def staged_bytes(self) -> int:
        """Bytes of all staged pages."""
        return self.staged_pages * PAGE

    def fit_limit(self, free_bytes: int) -> None:
        """Stage less where the host has little room: the blocks that sealing makes come on top."""
        share = max((free_bytes + self.staged_bytes) // _FREE_SHARE, _MIN_LIMIT_BYTES)
        self.staged_limit_bytes = min(self._stores.config.staged_limit_bytes, share)

    def has_room(self, ino: int, length: int) -> bool:
        """Whether `length` more bytes of a file may be staged now.

        A file that has little staged waits later than others: a database's page need not stand behind somebody's
        stream, for as long as it takes to seal a group of blocks.
        """
        staged_bytes, limit = self.staged_bytes, self.staged_limit_bytes
        if not staged_bytes or staged_bytes + length <= limit:
            return True
        state = self._states.get(ino)
        has_little = state is None or state.staged_bytes <= limit // _LITTLE_SHARE
        return has_little and staged_bytes + length <= limit + limit // _SPARE_SHARE

    def all(self) -> list[FileState]:
        """The states of now: a copy, to be looked through without the lock."""
        return list(self._states.values())

    def peek(self, ino: int) -> FileState | None:
        """The state of a file, if it has one."""
        return self._states.get(ino)

    def get(self, ino: int) -> FileState:
        """The state of a file; made from its row if it has none.

        Raises:
            FsError: ENOENT: no such inode; EISDIR or EINVAL: not a regular file.
        """
        state = self._states.get(ino)
        if state is None:
            state = self._states[ino] = FileState(self.row(ino))
        return state

    def row(self, ino: int) -> Inode:
        """The inode's row of a regular file.

        Raises:
            FsError: ENOENT: no such inode; EISDIR or EINVAL: not a regular file.
        """
        inode = self._stores.tree.inode(ino)
        if inode is None:
            raise FsError(errno.ENOENT, f"inode {ino}")
        if inode.kind is not Kind.FILE:
            raise FsError(errno.EISDIR if inode.kind is Kind.DIRECTORY else errno.EINVAL, f"inode {ino}")
        return inode

    def writable_row(self, ino: int) -> Inode:
        """The inode's row of a regular file that may change.

        Raises:
            FsError: As `row`; EROFS: it is in a snapshot.
        """
        inode = self.row(ino)
        if inode.is_frozen:
            raise FsError(errno.EROFS, f"inode {ino} is in a snapshot")
        return inode

    def settle(self, state: FileState) -> None:
        """Forget a state that says nothing the tree doesn't. One that was forgotten may have a successor: not that."""
        if state.is_idle and self._states.get(state.ino) is state:
            del self._states[state.ino]

    # --- staged generations ---

    def adopt(self, generation: StagedGeneration) -> None:
        """Count a generation that recovery found."""
        self._last_generation = max(self._last_generation, generation.number)
        self.staged_pages += generation.pages.count

    def open_generation(self, state: FileState) -> StagedGeneration:
        """The generation that takes a file's writes; a new one if there is none."""
        if not state.is_open:
            self._last_generation += 1
            state.generations.append(StagedGeneration(self._last_generation, self._stores.block_size))
            state.is_open = True
        return state.generations[-1]

    def staging_file(self, state: FileState, generation: StagedGeneration, range_index: int) -> StagingFile:
        """The staging file of a range; made if there is none.

        Raises:
            NoSpaceError: The host is full.
        """
        file = generation.files.get(range_index)
        if file is None:
            file = self._stores.staging.create((state.ino, range_index, generation.number))
            generation.files[range_index] = file
        return file

    def drop_generations(self, state: FileState, dropped: list[StagedGeneration]) -> None:
        """Take generations out of a file whose data are elsewhere, or void.

        Their rows go with the current change set; their files go when that is durable: a crash before finds both.
        """
        tree, staging = self._stores.tree, self._stores.staging
        for generation in dropped:
            for range_index in generation.named:
                tree.drop_generation(generation.row(state.ino, range_index))
            self.staged_pages -= generation.pages.count
            for file in generation.files.values():
                tree.on_durable(partial(staging.doom, file))
        numbers = {generation.number for generation in dropped}
        if state.is_open and state.generations[-1].number in numbers:
            state.is_open = False
        state.generations = [kept for kept in state.generations if kept.number not in numbers]
        self.room.notify_all()

    def discard(self, state: FileState) -> None:
        """Drop everything of a file whose inode is being removed."""
        state.discarded = True
        self.drop_generations(state, list(state.generations))
        self._states.pop(state.ino, None)
