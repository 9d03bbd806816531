"""What the engine knows of a file beyond its row in the tree: live size and times, staged generations, handles.

A file has a `FileState` while it is open, has staged data, or has changes the tree does not know yet. All fields are
guarded by the engine's lock, unless they say otherwise.

Three stamps order a file's changes. `stamp` counts changes of content or size. `flushed_stamp` is the newest one whose
data are on disk. `published_stamp` is the newest one that the inode's row tells of. A change is published only after
its data are flushed or sealed: that is what keeps a crash from showing a size without its bytes.
"""

from __future__ import annotations

import math
import os
import threading
import time
from dataclasses import dataclass, field

from msgspec.structs import replace

from blockfs.engine.content.generation import StagedGeneration
from blockfs.engine.content.pagemap import PAGE, PageMap
from blockfs.engine.durable.failures import Failures
from blockfs.engine.hot.hotfile import HotFile
from blockfs.tree.schema import Inode


@dataclass(slots=True)
class LowWater:
    """What a flush or seal that began when this was made may still publish.

    Attributes:
        size_bytes: The smallest size that the file had since.
        failed: Pages that were failed when it began, or failed since; None: none.
        void: Blocks with staged pages that became holes since: what was staged of them then counts no more.
    """

    size_bytes: int
    failed: PageMap | None = None
    void: set[int] = field(default_factory=set)


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
        seal_failed_at_s: Monotonic time of the newest seal that failed for this file's sake.
        times_version: Version of the row if all that it has over the durable one are times; else of no meaning.
        low_waters: Of flushes and seals under way.
        failures: What the host failed to write of it; None: never anything that matters still.
        hot: The hot file that is its content, all of it; None: that is in generations and leaves.
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
        "hot",
        "ino",
        "is_open",
        "low_waters",
        "mtime_ns",
        "published_stamp",
        "publishing",
        "seal_failed_at_s",
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
        self.seal_failed_at_s = -math.inf
        self.times_version = 0
        self.low_waters: list[LowWater] = []
        self.failures: Failures | None = None
        self.hot: HotFile | None = None
        self.handles = 0
        self.writers = 0
        self.discarded = False
        self.publishing = threading.Lock()
        self.sealing = threading.Lock()

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
        return self._is_told and not (self.hot is not None and self.hot.is_ahead())

    @property
    def has_to_publish(self) -> bool:
        """Whether publishing it may do any good: there are changes, and the host has not failed for ever."""
        return not self.is_published and not (self.hot is not None and self.hot.failed)

    @property
    def _is_told(self) -> bool:
        """Whether the row tells of every change that is noted."""
        return self.published_stamp >= self.stamp

    @property
    def is_sealed(self) -> bool:
        """Whether the tree tells all of it: the leaves are its content, the row its size and times."""
        return not self.generations and self.is_published and not (self.hot is not None and self.hot.is_behind)

    @property
    def is_idle(self) -> bool:
        """Whether the row in the tree says all there is to say."""
        is_sound = self.failures is None or self.failures.row is None
        return self.hot is None and self.is_sealed and not (self.handles or self.low_waters) and is_sound

    def close_generation(self) -> None:
        """What is written from now on goes to a new generation: the newest one changes no more, but for being cut."""
        self.is_open = False

    def touch(self, row: Inode, now_ns: int | None, now_s: float) -> None:
        """Note a change of content or size, and its time if it is known here. ctime never steps back."""
        if self._is_told:
            self.changed_at_s = now_s
        self.written_at_s = now_s
        self.stamp += 1
        if now_ns is not None:
            self.mtime_ns = now_ns
            self.ctime_ns = max(now_ns, self.ctime_ns, row.ctime_ns)

    def look(self) -> os.stat_result | None:
        """Note what the kernel has written into its hot file, if it has one.

        Returns:
            The hot file's status: `stamp` covers what had been written when it was that.
        """
        if self.hot is None:
            return None
        now_s, status = time.monotonic(), self.hot.status()
        if self.hot.has_moved(status):
            self.written_at_s = now_s
        if self._is_told and self.hot.is_ahead(status):
            self.changed_at_s = now_s
            self.stamp += 1
        return status

    def live(self, row: Inode) -> Inode:
        """The row as it would be if everything were published."""
        if self.hot is not None:
            return self.hot.live(row)
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
        if self._is_told:
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

    def note_void(self, first: int, stop: int) -> None:
        """Blocks from `first` up to `stop` become holes."""
        for mark in self.low_waters:
            for generation in self.generations:
                mark.void.update(index for index in generation.pages.masks if first <= index < stop)

    def unwatch(self, mark: LowWater) -> None:
        """End a watch. Idempotent."""
        self.low_waters = [other for other in self.low_waters if other is not mark]
