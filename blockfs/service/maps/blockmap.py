"""The map of a file: what `stats --map FILE` and the page draw. Pure.

It is made of the tree alone: leaves say which block is where, no block is read. Holes and what is staged are counted;
what is shared is counted, or estimated from a sample (`sample.py`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Final

import msgspec

from blockfs.blocks.hashing import LEAF_IDS
from blockfs.blocks.ids import ID_SIZE, ZERO_BLOCK, LeafKey
from blockfs.service.maps.sample import IdsOf, Leaf, Sample, Wanted

MOST_OTHERS: Final = 16
"""Files that a map names; a person tells no more colours apart."""


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a map: blocks that lie together. Numbers of blocks, which add up to its length.

    Attributes:
        holes: Never written, or all NUL.
        staged: Written, not sealed yet: nobody knows what it shares.
        own: Of no other file.
        shared: Of other files, too.
        other: With which of `BlockMap.others` most of it; -1: with none that is named there, or none at all.
    """

    holes: int
    staged: int
    own: int
    shared: int
    other: int = -1


class BlockMap(msgspec.Struct, frozen=True, kw_only=True):
    """The map of one file.

    Attributes:
        blocks: Of the file.
        cells: Its pieces, in order.
        others: Files that share blocks with it: (inode, how many of its distinct blocks); those with most first.
        is_whole: Each block was looked at; else own and shared are estimates.
    """

    blocks: int
    cells: tuple[Cell, ...]
    others: tuple[tuple[int, int], ...]
    is_whole: bool


def block_map(
    target: Iterable[Leaf],
    others: Iterable[Leaf],
    ids_of: IdsOf,
    *,
    blocks: int,
    cells: int,
    staged: Sequence[tuple[int, int]] = (),
    sample: Sample,
) -> BlockMap:
    """The map of a file.

    Args:
        target: Its leaves.
        others: Those of all files, file by file; of its own it takes no notice.
        ids_of: See there.
        blocks: How long it is.
        cells: In how many pieces, at most.
        staged: Which blocks are staged: first and end of each run, ascending.
        sample: Which ids are looked at.
    """
    canvas = _Canvas(blocks, cells, staged)
    ino = 0
    for of, number, key in target:
        ino = of
        canvas.add(number, key, ids_of(key), sample)
    counts = _find_others(canvas, ino, others, ids_of, sample)
    ranked = sorted(counts.items(), key=lambda each: (-each[1], each[0]))[:MOST_OTHERS]
    return BlockMap(
        blocks=blocks,
        cells=canvas.cells({other: place for place, (other, _) in enumerate(ranked)}),
        others=tuple(ranked),
        is_whole=sample.is_whole,
    )


class _Canvas:
    """A map in the making.

    Attributes:
        first: For each id that was looked at the first other file that has it; 0: none has.
        ids: The ids that were looked at, of each leaf.
        outside: Those that are not in the sample: each stands for a leaf that would be missing, and for no more.
    """

    def __init__(self, blocks: int, cells: int, staged: Sequence[tuple[int, int]]) -> None:
        self._blocks = blocks
        self._count = min(cells, blocks)
        self._filled = [0] * self._count
        self._staged = [0] * self._count
        self._seen_cells: list[int] = []  # of the ids that were looked at, …
        self._seen_ids: list[bytes] = []  # … and they: two lists, as a million pairs would be a million objects
        self._current, self._end = 0, 0  # the cell of the leaf before, and where it ends
        self._runs = [(max(0, first), min(end, blocks)) for first, end in staged if end > 0 and first < blocks]
        self.first: dict[bytes, int] = {}
        self.ids: dict[LeafKey, tuple[bytes, ...]] = {}
        self.outside: set[bytes] = set()
        for first, end in self._runs:
            for cell in range(self._cell(first), self._cell(end - 1) + 1):
                self._staged[cell] += min(end, self._start(cell + 1)) - max(first, self._start(cell))

    def _cell(self, block: int) -> int:
        return block * self._count // self._blocks

    def _start(self, cell: int) -> int:
        return -(-cell * self._blocks // self._count)

    def add(self, number: int, key: LeafKey, ids: bytes, sample: Sample) -> None:
        """Take in a leaf of the file."""
        start = number * LEAF_IDS
        if start + LEAF_IDS > self._blocks:
            ids = ids[: max(0, self._blocks - start) * ID_SIZE]
        covered = self._covered(start) if self._runs else ()
        if start >= self._end:  # leaves come in order
            self._current = self._cell(start)
            self._end = self._start(self._current + 1)
        cell, filled = self._current, len(ids) // ID_SIZE
        is_in_one = start + filled <= self._end  # of a large file most leaves are
        if is_in_one and not covered:
            filled -= ids.count(ZERO_BLOCK)
            self._filled[cell] += filled
        else:
            filled = self._count_filled(start, ids, covered)
        chosen = sample.of(ids)
        if covered:
            chosen = [each for each in chosen if each[0] not in covered]
        if filled and not chosen:
            one = 0, ids[:ID_SIZE]
            if one[1] == ZERO_BLOCK or covered:
                one = next(each for each in _ids(ids) if each[1] != ZERO_BLOCK and each[0] not in covered)
            chosen = [one]
            self.outside.add(one[1])
        for place, each in chosen:
            self._seen_cells.append(cell if is_in_one else self._cell(start + place))
            self._seen_ids.append(each)
            self.first[each] = 0  # nobody else was asked yet
        self.ids[key] = tuple([each for _, each in chosen])

    def _covered(self, start: int) -> Collection[int]:
        """Places of a leaf that are staged."""
        found: set[int] = set()
        for at in range(max(0, bisect_right(self._runs, (start, 0)) - 1), len(self._runs)):
            first, end = self._runs[at]
            if first >= start + LEAF_IDS:
                break
            found.update(range(max(first, start) - start, min(end - start, LEAF_IDS)))
        return found

    def _count_filled(self, start: int, ids: bytes, covered: Collection[int]) -> int:
        """Count what is no hole and not staged; returns how much of the leaf is."""
        at, count, filled = 0, len(ids) // ID_SIZE, 0
        while at < count:
            cell = self._cell(start + at)
            end = min(count, self._start(cell + 1) - start)
            piece = end - at - ids.count(ZERO_BLOCK, at * ID_SIZE, end * ID_SIZE)
            self._filled[cell] += piece
            filled += piece
            at = end
        for place in covered:
            if place < count and ids[place * ID_SIZE : (place + 1) * ID_SIZE] != ZERO_BLOCK:
                self._filled[self._cell(start + place)] -= 1
                filled -= 1
        return filled

    def cells(self, places: dict[int, int]) -> tuple[Cell, ...]:
        """All of them.

        Args:
            places: Of the other files that are named.
        """
        seen: list[dict[int, int]] = [{} for _ in range(self._count)]
        pairs = Counter(zip(self._seen_cells, map(self.first.__getitem__, self._seen_ids), strict=True))
        for (cell, first), count in pairs.items():
            seen[cell][first] = count
        return tuple(self._made(cell, seen[cell], places) for cell in range(self._count))

    def _made(self, cell: int, seen: dict[int, int], places: dict[int, int]) -> Cell:
        filled, staged = self._filled[cell], self._staged[cell]
        looked_at, own = sum(seen.values()), seen.pop(0, 0)
        shared = round(filled * (looked_at - own) / looked_at) if looked_at else 0
        other = max(seen, key=lambda ino: (seen[ino], -ino), default=0)
        return Cell(
            holes=self._start(cell + 1) - self._start(cell) - filled - staged,
            staged=staged,
            own=filled - shared,
            shared=shared,
            other=places.get(other, -1) if shared else -1,
        )


def _find_others(canvas: _Canvas, ino: int, leaves: Iterable[Leaf], ids_of: IdsOf, sample: Sample) -> Counter[int]:
    """Note who else has the ids; returns how many blocks that are each other file has, about."""
    counts: Counter[int] = Counter()
    known = dict(canvas.ids)
    wanted = Wanted(sample, canvas.first)
    nobodys = set(canvas.first)

    def note(other: int, had: set[bytes]) -> None:
        """A file has these."""
        outside = len(had & canvas.outside)
        counts[other] = outside + sample.whole(len(had) - outside)
        canvas.first.update(dict.fromkeys(had & nobodys, other))
        nobodys.difference_update(had)

    current, had = 0, set[bytes]()
    for of, _, key in leaves:
        if of == ino:
            continue
        if of != current:
            note(current, had)
            current, had = of, set()
        ids = known.get(key)
        if ids is None:
            ids = known[key] = wanted.of(ids_of(key))
        if ids:
            had.update(ids)
    note(current, had)
    return +counts


def _ids(ids: bytes) -> Iterable[tuple[int, bytes]]:
    return ((at // ID_SIZE, ids[at : at + ID_SIZE]) for at in range(0, len(ids), ID_SIZE))
