"""The map of a file: what `stats --map FILE` and the page draw. Pure.

It is made of the tree alone: leaves say which block is where, no block is read. Holes and what is staged are counted;
what is shared is counted, or estimated from a sample (`sample.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from blockfs.blocks.hashing import LEAF_IDS
from blockfs.blocks.ids import ID_SIZE, ZERO_BLOCK, LeafKey
from blockfs.service.maps.sample import IdsOf, Leaf, Sample

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
    staged: Iterable[int] = (),
    sample: Sample,
) -> BlockMap:
    """The map of a file.

    Args:
        target: Its leaves.
        others: Those of all files, file by file; of its own it takes no notice.
        ids_of: See there.
        blocks: How long it is.
        cells: In how many pieces, at most.
        staged: Which blocks are staged.
        sample: Which ids are looked at.
    """
    canvas = _Canvas(blocks, cells, staged)
    ino = 0
    for leaf in target:
        ino = leaf.ino
        canvas.add(leaf, ids_of(leaf.key), sample)
    counts = _find_others(canvas, ino, others, ids_of, sample)
    ranked = sorted(counts.items(), key=lambda each: (-each[1], each[0]))[:MOST_OTHERS]
    return BlockMap(
        blocks=blocks,
        cells=canvas.cells({other: place for place, (other, _) in enumerate(ranked)}),
        others=tuple((other, sample.whole(count)) for other, count in ranked),
        is_whole=sample.is_whole,
    )


class _Canvas:
    """A map in the making.

    Attributes:
        first: For each id that was looked at the first other file that has it; 0: none has.
        ids: The ids that were looked at, of each leaf.
    """

    def __init__(self, blocks: int, cells: int, staged: Iterable[int]) -> None:
        self._blocks = blocks
        self._count = min(cells, blocks)
        self._filled = [0] * self._count
        self._staged = [0] * self._count
        self._seen: list[tuple[int, bytes]] = []  # cell, id
        self._staged_places: dict[int, set[int]] = {}
        self.first: dict[bytes, int] = {}
        self.ids: dict[LeafKey, list[bytes]] = {}
        for block in staged:
            if block < blocks:
                self._staged[self._cell(block)] += 1
                self._staged_places.setdefault(block // LEAF_IDS, set()).add(block % LEAF_IDS)

    def _cell(self, block: int) -> int:
        return block * self._count // self._blocks

    def _start(self, cell: int) -> int:
        return -(-cell * self._blocks // self._count)

    def add(self, leaf: Leaf, ids: bytes, sample: Sample) -> None:
        """Take in a leaf of the file."""
        start = leaf.number * LEAF_IDS
        ids = ids[: max(0, self._blocks - start) * ID_SIZE]
        covered = self._staged_places.get(leaf.number)
        filled = self._count_filled(start, ids, covered or ())
        chosen = sample.of(ids)
        if covered:
            chosen = [each for each in chosen if each[0] not in covered]
        if filled and not chosen:  # one block stands for a leaf that would be missing
            chosen = [next(each for each in _ids(ids) if each[1] != ZERO_BLOCK and each[0] not in (covered or ()))]
        for place, each in chosen:
            self._seen.append((self._cell(start + place), each))
            self.first.setdefault(each, 0)
        self.ids[leaf.key] = [each for _, each in chosen]

    def _count_filled(self, start: int, ids: bytes, covered: Iterable[int]) -> int:
        """Count what is no hole and not staged; returns how much of the leaf is."""
        at, count, filled = 0, len(ids) // ID_SIZE, 0
        cell = self._cell(start)
        if not covered and start + count <= self._start(cell + 1):  # of a large file most leaves are
            filled = count - ids.count(ZERO_BLOCK)
            self._filled[cell] += filled
            return filled
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
        seen: list[Counter[int]] = [Counter() for _ in range(self._count)]
        for cell, each in self._seen:
            seen[cell][self.first[each]] += 1
        return tuple(self._made(cell, seen[cell], places) for cell in range(self._count))

    def _made(self, cell: int, seen: Counter[int], places: dict[int, int]) -> Cell:
        filled, staged = self._filled[cell], self._staged[cell]
        looked_at, own = seen.total(), seen.pop(0, 0)
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
    """Note who else has the ids; returns how many of them each other file has."""
    counts: Counter[int] = Counter()
    known: dict[LeafKey, Sequence[bytes]] = dict(canvas.ids)
    current, had = 0, set[bytes]()
    for leaf in leaves:
        if leaf.ino == ino:
            continue
        if leaf.ino != current:
            current, had = leaf.ino, set()
        ids = known.get(leaf.key)
        if ids is None:
            ids = known[leaf.key] = tuple(each for _, each in sample.of(ids_of(leaf.key)) if each in canvas.first)
        for each in ids:
            if each not in had:
                had.add(each)
                counts[current] += 1
                canvas.first[each] = canvas.first[each] or current
    return counts


def _ids(ids: bytes) -> Iterable[tuple[int, bytes]]:
    return ((at // ID_SIZE, ids[at : at + ID_SIZE]) for at in range(0, len(ids), ID_SIZE))
