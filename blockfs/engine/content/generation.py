"""A generation: what is staged of a file between two closings, and which pages that are.

How its pages are known is the generation's own business. Whoever needs them asks it, and nobody else keeps account of
them: readers and seals overlay `layer`, back-pressure counts `StagedPages`, a flush takes `unsynced`, cuts and losses
go through `cut` and `lose`. Two ways lead there, and both end in the same map:

- *marked*: write() tells each page as it stages it (`will_change`, `mark`);
- *found*: nobody told, as for a generation that an earlier mount has left; the host is asked (`find`).

What they promise:

1. Not one page less than was written; pages too many are only work. Each is complete by itself.
2. Finding waits for disks, so it happens without the engine's lock; before that the generation is closed: nothing
   changes its files any more, whoever has them open writes elsewhere.
3. What is found counts as staged, and as unsynced unless the host has said that it is on the disk.
4. A name is in the tree, durably, before anybody writes to the file: a recovery finds the pages again by itself, and
   voids what lies beyond the size that it takes for the file's.

Files that the kernel writes itself have no generations, but a hot file (docs/design/hot-files.md).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from blockfs.engine.content.hostfile import written_extents
from blockfs.engine.content.pagemap import PAGE, Layer, PageMap
from blockfs.engine.content.staging import RANGE, RANGE_SHIFT, StagingDirectory, StagingFile
from blockfs.tree.schema import NO_LIMIT, Generation


@dataclass(slots=True)
class StagedPages:
    """How many pages are staged in a mount. Changed by its generations alone, under the engine's lock."""

    count: int = 0


class StagedGeneration:
    """Data staged between two closings, at most one staging file per 1 TiB range.

    Attributes:
        number: Higher is newer; unique within the volume.
        pages: Which pages it has. To be read only: what changes them also counts them.
        files: Range index → staging file.
        named: Ranges whose row is in the tree. A row comes only after the file's name and data are durable.
        unsynced: Range → pages that may have been written since its last fdatasync began.
        valid_below: Byte offset in the file from where on it is void.
    """

    __slots__ = ("_lost", "_staged", "files", "named", "number", "pages", "unsynced", "valid_below")

    def __init__(self, number: int, block_size: int, staged: StagedPages) -> None:
        self.number = number
        self.pages = PageMap(block_size)
        self.files: dict[int, StagingFile] = {}
        self.named: set[int] = set()
        self.unsynced: defaultdict[int, PageMap] = defaultdict(self.pages.empty)
        self.valid_below = NO_LIMIT
        self._staged = staged
        self._lost = self.pages.empty()

    # --- how its pages are known ---

    def will_change(self, range_index: int, first_page: int, pages: int) -> None:
        """Somebody is about to write pages of a range. More than is written in the end does no harm."""
        self.unsynced[range_index].add(first_page, pages)

    def mark(self, first_page: int, pages: int) -> int:
        """Pages were written, whole; returns how many of them were not staged here before."""
        added = self.pages.add(first_page, pages)
        self._staged.count += added
        return added

    def find(self, staging: StagingDirectory, *, is_synced: bool) -> None:
        """Learn from the host what the files hold: every page that somebody has written.

        Args:
            staging: Where the files are.
            is_synced: All of it is on the disk.

        Raises:
            OSError: The host failed.
        """
        for range_index, file in self.files.items():
            found = self.pages.empty()
            file.is_dirty = not is_synced
            with staging.using(file) as fd:
                for offset, length in written_extents(fd):
                    found.add(((range_index << RANGE_SHIFT) + offset) // PAGE, length // PAGE)
            self._staged.count += self.pages.unite(found)
            if not is_synced:
                self.note_unsynced(range_index, found)

    # --- what becomes of them ---

    def note_unsynced(self, range_index: int, pages: PageMap) -> None:
        """Pages of a range are not on the disk, for all that is known."""
        self.unsynced[range_index].unite(pages)

    def cut(self, size_bytes: int) -> bool:
        """All bytes from an offset on are void; returns whether it has some, so that the next mount must be told."""
        limit = min(size_bytes, self.valid_below)
        straddles = limit % PAGE and self.pages.has(limit // PAGE)
        removed = self.pages.cut(-(-limit // PAGE))
        self._staged.count -= removed
        is_news = limit < self.valid_below and bool(removed or straddles)
        if is_news:
            self.valid_below = limit
        return is_news

    def lose(self, lost: PageMap) -> None:
        """The host failed to write these pages: they are staged no more."""
        self._staged.count -= self.pages.subtract(lost)
        self._lost.unite(lost)

    def take_lost(self) -> list[tuple[StagingFile, int, int]]:
        """Where the files still have what was lost since this was asked last: file, offset in it, length."""
        lost, self._lost = self._lost, self._lost.empty()
        found: list[tuple[StagingFile, int, int]] = []
        for range_index, file in self.files.items():
            start = range_index << RANGE_SHIFT
            for page, count in lost.extents():
                first, end = max(page * PAGE, start), min((page + count) * PAGE, start + RANGE)
                if first < end:
                    found.append((file, first - start, end - first))
        return found

    def drop(self) -> None:
        """Its data are elsewhere, or void: nothing of it counts any more. What reads it just now goes on."""
        self._staged.count -= self.pages.count

    # --- for others ---

    @property
    def layer(self) -> Layer:
        """For `pagemap.plan`."""
        return Layer(self.pages, self.valid_below)

    def row(self, ino: int, range_index: int) -> Generation:
        """Its row in the tree for one range."""
        return Generation(ino=ino, range_index=range_index, generation=self.number, valid_below=self.valid_below)
