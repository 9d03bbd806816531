"""Which pages of a file are staged, and where the bytes of a range come from. Pure.

A page is 4096 bytes: what SEEK_DATA tells apart and what the kernel's cache hands over. A generation of staged data has
one `PageMap`: block index → bit mask of its staged pages (bit 0 is the block's first page). Generations overlay each
other: the newest one that has a page supplies it, whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

PAGE: Final = 4096
"""Bytes of a page."""

BELOW: Final = -1
"""`Piece.layer`: no generation has the page; the sealed block has it."""

ZEROS: Final = -2
"""`Piece.layer`: void since a shrink, so NUL bytes."""


class Piece(NamedTuple):  # a tuple: thousands are made per second on the read path
    """A run of bytes from one place.

    Attributes:
        layer: Index into the generations given to `plan`, or `BELOW`, or `ZEROS`.
        offset: First byte, within the file.
        length: Bytes, at least 1.
    """

    layer: int
    offset: int
    length: int


class PageMap:
    """The staged pages of one generation.

    Attributes:
        masks: Block index → non-empty mask of its pages.
        pages_per_block: 1 to 1024.
        count: Pages in all.
    """

    __slots__ = ("count", "masks", "pages_per_block")

    def __init__(self, block_size: int) -> None:
        self.masks: dict[int, int] = {}
        self.pages_per_block = block_size // PAGE
        self.count = 0

    def __bool__(self) -> bool:
        return bool(self.masks)

    def has(self, page: int) -> bool:
        """Whether page number `page` of the file is staged."""
        index, bit = divmod(page, self.pages_per_block)
        return bool(self.masks.get(index, 0) >> bit & 1)

    def add(self, first_page: int, pages: int) -> int:
        """Note pages as staged.

        Returns:
            How many of them were not staged before.
        """
        per_block, masks = self.pages_per_block, self.masks
        added = 0
        while pages > 0:
            index, bit = divmod(first_page, per_block)
            run = min(pages, per_block - bit)
            old = masks.get(index, 0)
            new = old | ((1 << run) - 1) << bit
            masks[index] = new
            added += (new ^ old).bit_count()
            first_page += run
            pages -= run
        self.count += added
        return added

    def cut(self, page: int) -> int:
        """Forget page number `page` and all after it.

        Returns:
            How many pages that were.
        """
        index, bit = divmod(page, self.pages_per_block)
        masks = self.masks
        removed = 0
        for beyond in [at for at in masks if at >= index]:
            old = masks.pop(beyond)
            kept = old & ((1 << bit) - 1) if beyond == index else 0
            removed += (old ^ kept).bit_count()
            if kept:
                masks[beyond] = kept
        self.count -= removed
        return removed

    def remove(self, first_page: int, pages: int) -> int:
        """Forget pages.

        Returns:
            How many of them it had.
        """
        gone = self.empty()
        gone.add(first_page, pages)
        return self.subtract(gone)

    def subtract(self, other: PageMap) -> int:
        """Forget the pages of another map; returns how many of them it had."""
        return self._combine(lambda index, mask: mask & ~other.masks.get(index, 0))

    def intersect(self, other: PageMap) -> int:
        """Forget the pages that another map lacks; returns how many."""
        return self._combine(lambda index, mask: mask & other.masks.get(index, 0))

    def _combine(self, kept: Callable[[int, int], int]) -> int:
        masks = {index: left for index, mask in self.masks.items() if (left := kept(index, mask))}
        count = sum(mask.bit_count() for mask in masks.values())
        removed, self.masks, self.count = self.count - count, masks, count
        return removed

    def unite(self, other: PageMap) -> int:
        """Note the pages of another map, too; returns how many of them it lacked."""
        before = self.count
        for index, mask in other.masks.items():
            old = self.masks.get(index, 0)
            self.masks[index] = old | mask
            self.count += (mask & ~old).bit_count()
        return self.count - before

    def empty(self) -> PageMap:
        """A map of no pages, for the same blocks."""
        return PageMap(self.pages_per_block * PAGE)

    def copy(self) -> PageMap:
        """A map of the same pages."""
        made = self.empty()
        made.masks, made.count = dict(self.masks), self.count
        return made

    def overlaps(self, first_page: int, pages: int) -> bool:
        """Whether it has any of these pages."""
        if len(self.masks) * self.pages_per_block < pages:
            end = first_page + pages
            return any(start < end and first_page < start + run for start, run in self.extents())
        wanted = self.empty()
        wanted.add(first_page, pages)
        return any(self.masks.get(index, 0) & mask for index, mask in wanted.masks.items())

    def extents(self) -> Iterator[tuple[int, int]]:
        """Maximal runs of staged pages as (first page, pages), in order."""
        start = end = 0
        for index in sorted(self.masks):
            base = index * self.pages_per_block
            for bit, run in _runs(self.masks[index]):
                if base + bit != end:
                    if end > start:
                        yield start, end - start
                    start = base + bit
                end = base + bit + run
        if end > start:
            yield start, end - start


class Layer(NamedTuple):
    """What `plan` needs to know of a generation.

    Attributes:
        pages: Its staged pages.
        valid_below: Byte offset in the file from where on its bytes are void, read as NUL.
    """

    pages: PageMap
    valid_below: int


def staged_blocks(maps: Iterable[PageMap]) -> list[int]:
    """Indices of the blocks that any of the generations touches, ascending."""
    indices: set[int] = set()
    for pages in maps:
        indices.update(pages.masks)
    return sorted(indices)


def block_runs(indices: Iterable[int]) -> list[tuple[int, int]]:
    """Ascending indices as first and end of each run."""
    found: list[tuple[int, int]] = []
    for index in indices:
        if found and found[-1][1] == index:
            found[-1] = found[-1][0], index + 1
        else:
            found.append((index, index + 1))
    return found


def plan(offset: int, length: int, layers: Sequence[Layer], block_size: int) -> list[Piece]:
    """Say where each byte of a range comes from.

    Args:
        offset: First byte.
        length: Bytes, at least 1.
        layers: Generations, newest first.
        block_size: Bytes of a block.

    Returns:
        Adjoining pieces in order, as few as possible: adjacent runs of one source are one piece, across blocks too.
    """
    if not layers:
        return [Piece(BELOW, offset, length)]
    end = offset + length
    composer = _Composer(layers)
    for index in range(offset // block_size, (end - 1) // block_size + 1):
        base = index * block_size
        first = max(offset - base, 0) // PAGE
        last = (min(end - base, block_size) - 1) // PAGE
        composer.add_block(index, base, first, last)
    return _clipped(composer.pieces, offset, end)


class _Composer:
    """Collects page-aligned pieces, joining neighbours of one source."""

    __slots__ = ("layers", "pieces")

    def __init__(self, layers: Sequence[Layer]) -> None:
        self.layers = layers
        self.pieces: list[Piece] = []

    def add_block(self, index: int, base: int, first: int, last: int) -> None:
        """Add pages `first` to `last` of the block that starts at byte `base`."""
        wanted = ((1 << (last - first + 1)) - 1) << first
        owners: list[tuple[int, int]] = []
        for number, layer in enumerate(self.layers):
            got = layer.pages.masks.get(index, 0) & wanted
            if got:
                owners.append((number, got))
                wanted &= ~got
                if not wanted:
                    break
        if wanted:
            owners.append((BELOW, wanted))
        if len(owners) == 1:  # the common case: one source for the whole stretch
            self._add(owners[0][0], base + first * PAGE, (last - first + 1) * PAGE)
            return
        runs = sorted((bit, run, number) for number, mask in owners for bit, run in _runs(mask))
        for bit, run, number in runs:
            self._add(number, base + bit * PAGE, run * PAGE)

    def _add(self, number: int, offset: int, length: int) -> None:
        if number >= 0:
            valid_below = self.layers[number].valid_below
            if offset + length > valid_below:
                valid = max(0, valid_below - offset)
                if valid:
                    self._join(number, offset, valid)
                self._join(ZEROS, offset + valid, length - valid)
                return
        self._join(number, offset, length)

    def _join(self, number: int, offset: int, length: int) -> None:
        if self.pieces and self.pieces[-1].layer == number:
            before = self.pieces[-1]
            self.pieces[-1] = Piece(number, before.offset, before.length + length)
        else:
            self.pieces.append(Piece(number, offset, length))


def _clipped(pieces: list[Piece], offset: int, end: int) -> list[Piece]:
    """Cut page-aligned pieces to the bytes asked for. A void tail may lie in front of `offset` or behind `end`."""
    clipped = []
    for layer, start, length in pieces:
        first, last = max(start, offset), min(start + length, end)
        if first < last:
            clipped.append(Piece(layer, first, last - first))
    return clipped


def _runs(mask: int) -> Iterator[tuple[int, int]]:
    """Runs of set bits as (first bit, bits), ascending."""
    at = 0
    while mask:
        skip = (mask & -mask).bit_length() - 1
        mask >>= skip
        at += skip
        run = (~mask & mask + 1).bit_length() - 1
        yield at, run
        mask >>= run
        at += run
