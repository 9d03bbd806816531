"""What of a file the host failed to write, and who has been told. Pure.

A page whose flush failed is lost: the kernel marks it clean and may drop it, so neither what is read there now nor a
later successful flush means anything. It stays failed until it is written again or cut away.

Two maps, because a crash may come at any time. `pages` is what readers must not get now. `recorded` is what the tree's
row says: a page leaves it only when what was written there again is on disk, so a crash before that finds the failure.

The error is told as Linux tells it (errseq_t): to each handle that was open, by its next fsync, and as long as nobody
has been told, to each that is opened later.
"""

from __future__ import annotations

from blockfs.engine.content.pagemap import PageMap
from blockfs.tree.schema import FailedFlush


class Failures:
    """The failed flushes of one file.

    Args:
        ino: The file.
        block_size: The volume's.

    Attributes:
        pages: What readers must not get.
        recorded: What the tree's row says, at least `pages`.
        is_told: Somebody was told of the newest failure.
        is_new: There was one in this mount.
        code: The errno of the newest one.
    """

    __slots__ = ("_count", "_ino", "code", "is_new", "is_told", "pages", "recorded")

    def __init__(self, ino: int, block_size: int) -> None:
        self._ino = ino
        self._count = 0
        self.code = 0
        self.is_told = True
        self.is_new = False
        self.pages = PageMap(block_size)
        self.recorded = PageMap(block_size)

    @classmethod
    def found(cls, row: FailedFlush, block_size: int) -> Failures:
        """Those that an earlier mount has recorded."""
        made = cls(row.ino, block_size)
        made._count = 1
        made.code = row.code
        made.is_told = row.is_told
        for first_page, pages in row.runs:
            made.pages.add(first_page, pages)
        made.recorded = made.pages.copy()
        return made

    @property
    def row(self) -> FailedFlush | None:
        """For the tree; None if there is nothing that the next mount would have to know."""
        if self.is_told and not self.recorded:
            return None
        runs = tuple(self.recorded.extents())
        return FailedFlush(ino=self._ino, code=self.code, is_told=self.is_told, runs=runs)

    # --- pages ---

    def note(self, pages: PageMap, code: int) -> None:
        """A flush of these pages failed."""
        self._count += 1
        self.code = code
        self.is_told = False
        self.is_new = True
        self.pages.unite(pages)
        self.recorded.unite(pages)

    def rewritten(self, first_page: int, pages: int) -> None:
        """Pages were written again, whole; they are not on disk yet."""
        if self.pages:
            self.pages.remove(first_page, pages)

    def flushed(self, failed_before: PageMap) -> None:
        """All is on disk that was written before the moment in which exactly these pages were failed.

        Failures since then are in `failed_before`, too.
        """
        self.recorded.intersect(failed_before)

    def cut(self, page: int) -> None:
        """The file ends before this page: what lay there is void."""
        self.pages.cut(page)
        self.recorded.cut(page)

    # --- who has been told ---

    def sample(self) -> int:
        """What a handle that is opened now remembers."""
        return self._count if self.is_told else 0

    def tell(self, sample: int) -> tuple[bool, int]:
        """Somebody syncs.

        Args:
            sample: What its handle remembers.

        Returns:
            Whether that is told of a failure, and what it remembers now.
        """
        is_news = sample != self._count
        if is_news or self.pages:
            self.is_told = True
        return is_news, self._count
