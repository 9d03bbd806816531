"""Where a file has data: staged pages, and sealed blocks that are no holes. All else reads as NUL bytes.

To the page where it is staged, to the block where it is sealed. Pages that the host failed to write count as data: they
can't be read, and must not be taken for holes. Costs time for what is there, none for the holes in between.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final, NamedTuple

from blockfs.blocks.hashing import LEAF_IDS
from blockfs.blocks.ids import ID_SIZE, ZERO_BLOCK
from blockfs.engine.content.filestate import FileState
from blockfs.engine.content.filetable import FileTable
from blockfs.engine.content.pagemap import PAGE, PageMap, staged_blocks
from blockfs.engine.context import Stores
from blockfs.errors import WouldBlock

_LEAVES_PER_HOLD: Final = 64  # of the engine's lock: below a millisecond


class _Staged(NamedTuple):
    """What is staged of a file.

    Attributes:
        state: Of the file; None: it has none, so nothing is.
        stamp: Of the state when `blocks` was made.
        maps: Its pages.
        blocks: Ascending: all blocks with a page of them, and perhaps some that have been sealed since.
    """

    state: FileState | None
    stamp: int
    maps: list[PageMap]
    blocks: list[int]

    def mask(self, index: int) -> int:
        """Pages of a block."""
        found = 0
        for pages in self.maps:
            found |= pages.masks.get(index, 0)
        return found

    def next_block(self, index: int) -> int | None:
        """The first block from here on that may have a page."""
        at = bisect_left(self.blocks, index)
        return self.blocks[at] if at < len(self.blocks) else None


class Extents:
    """Where the files of one mount have data. Thread-safe."""

    def __init__(self, stores: Stores, table: FileTable) -> None:
        self._stores = stores
        self._table = table
        self._all_pages = (1 << stores.block_size // PAGE) - 1
        self._last = _Staged(None, 0, [], [])

    def next_data(self, ino: int, offset: int, *, may_block: bool = True) -> int | None:
        """The first byte from `offset` on that is data; None: there is none up to the end of the file.

        Raises:
            FsError: No such file.
            WouldBlock: It is far, and `may_block` is false.
        """
        return self._find(ino, offset, is_data=True, may_block=may_block)

    def next_hole(self, ino: int, offset: int, *, may_block: bool = True) -> int | None:
        """The first byte from `offset` on that is none, at the latest the end of the file; None: `offset` is past it.

        Raises:
            FsError: No such file.
            WouldBlock: It is far, and `may_block` is false.
        """
        return self._find(ino, offset, is_data=False, may_block=may_block)

    def next_run(self, ino: int, offset: int, end: int) -> tuple[int, int] | None:
        """The first run of data in [offset, end), as (start, end); None: there is none.

        Raises:
            FsError: No such file.
        """
        start = self.next_data(ino, offset)
        if start is None or start >= end:
            return None
        stop = self.next_hole(ino, start)
        return None if stop is None else (start, min(stop, end))  # None: it was cut meanwhile

    def _find(self, ino: int, offset: int, *, is_data: bool, may_block: bool) -> int | None:
        """Look leaf by leaf, and let others have the lock now and then: what changes meanwhile is told as it was."""
        block_size = self._stores.block_size
        at = offset
        while True:
            with self._stores.lock:
                state = self._table.peek(ino)
                size = self._table.row(ino).size_bytes if state is None else state.size_bytes
                if at >= size:
                    return None if is_data or offset >= size else size
                staged = self._staged(state)
                for _ in range(_LEAVES_PER_HOLD):
                    index, within = divmod(at, block_size)
                    if is_data:
                        found, at = self._data_in_leaf(ino, staged, index, within // PAGE)
                    else:
                        found, at = self._hole_in_leaf(ino, staged, index, within // PAGE)
                    if found:
                        at = max(at, offset)
                        return None if is_data and at >= size else min(at, size)
                    if at >= size:
                        break
            if not may_block and at < size:
                raise WouldBlock("a file of many blocks")

    def _staged(self, state: FileState | None) -> _Staged:
        """Sorting is kept from call to call: a file in many pieces is asked as often."""
        if state is None:
            return _Staged(None, 0, [], [])
        maps = [generation.pages for generation in state.generations]
        if state.failures is not None:
            maps.append(state.failures.pages)
        last = self._last
        # New pages come with a new stamp; what was sealed or cut since is only too much.
        blocks = last.blocks if last.state is state and last.stamp == state.stamp else staged_blocks(maps)
        self._last = _Staged(state, state.stamp, maps, blocks)
        return self._last

    def _data_in_leaf(self, ino: int, staged: _Staged, index: int, page: int) -> tuple[bool, int]:
        """Look for data from a page of a block to the end of its leaf; (found, its byte, or where to go on)."""
        leaf_index, within = divmod(index, LEAF_IDS)
        ids = self._stores.tree.leaf(ino, leaf_index)
        stop = (leaf_index + 1) * LEAF_IDS
        sealed = stop if ids is None else leaf_index * LEAF_IDS + _next_block(ids, within)
        candidate = staged.next_block(index)
        while candidate is not None and candidate < min(sealed, stop):
            first = page if candidate == index else 0
            mask = staged.mask(candidate) >> first
            if mask:
                return True, self._byte(candidate, first + (mask & -mask).bit_length() - 1)
            candidate = staged.next_block(candidate + 1)
        if sealed < stop:
            return True, self._byte(sealed, page if sealed == index else 0)
        if ids is None:  # over the holes of a sparse file, however wide
            following = next((at for at, _ in self._stores.tree.leaf_keys(ino, leaf_index + 1)), None)
            stop = min([1 << 63] + [leaf * LEAF_IDS for leaf in (following,) if leaf is not None])
            stop = stop if candidate is None else min(stop, candidate // LEAF_IDS * LEAF_IDS)
        return False, self._byte(stop, 0)

    def _hole_in_leaf(self, ino: int, staged: _Staged, index: int, page: int) -> tuple[bool, int]:
        """Look for a hole, likewise."""
        leaf_index, within = divmod(index, LEAF_IDS)
        ids = self._stores.tree.leaf(ino, leaf_index) or b""
        base = leaf_index * LEAF_IDS
        while within < LEAF_IDS:
            hole = _next_hole(ids, within)
            if hole >= LEAF_IDS:
                break
            first = page if hole == index - base else 0
            missing = (~staged.mask(base + hole) & self._all_pages) >> first
            if missing:
                return True, self._byte(base + hole, first + (missing & -missing).bit_length() - 1)
            within = hole + 1
        return False, self._byte(base + LEAF_IDS, 0)

    def _byte(self, index: int, page: int) -> int:
        return index * self._stores.block_size + page * PAGE


def _next_block(ids: bytes, at: int) -> int:
    """The first id from here on that is no hole; LEAF_IDS: there is none."""
    for index in range(at, len(ids) // ID_SIZE):
        if ids[index * ID_SIZE : (index + 1) * ID_SIZE] != ZERO_BLOCK:
            return index
    return LEAF_IDS


def _next_hole(ids: bytes, at: int) -> int:
    """The first id from here on that is a hole; ids past the end of a leaf are."""
    start = at * ID_SIZE
    while (found := ids.find(ZERO_BLOCK, start)) >= 0:
        if found % ID_SIZE == 0:
            return found // ID_SIZE
        start = found + 1
    return max(at, len(ids) // ID_SIZE)
