"""Which files of a volume share most: what `stats --map` and the page list. Pure; see `sample.py`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from blockfs.blocks.ids import LeafKey
from blockfs.service.maps.sample import IdsOf, Leaf, Sample


class Sharer(msgspec.Struct, frozen=True, kw_only=True):
    """How much of one file is shared.

    Attributes:
        ino: The file.
        blocks: Its distinct blocks.
        shared: Those of them that another file has, too.
        other: The file with which it shares most of them.
    """

    ino: int
    blocks: int
    shared: int
    other: int


class Sharing(msgspec.Struct, frozen=True, kw_only=True):
    """Which files of a volume share.

    Attributes:
        files: Those that share most, the first most.
        blocks: Distinct blocks of all files.
        sampled: Ids of those that were looked at.
        is_whole: They are all of them; else figures are estimates.
    """

    files: tuple[Sharer, ...]
    blocks: int
    sampled: tuple[bytes, ...]
    is_whole: bool


def sharing(leaves: Iterable[Leaf], kept: Iterable[LeafKey], ids_of: IdsOf, *, sample: Sample, most: int) -> Sharing:
    """Which files share most.

    Args:
        leaves: Those of all files, file by file.
        kept: Leaves that may be in none of them, as those of snapshots are: their blocks only count.
        ids_of: See there.
        sample: Which ids are looked at.
        most: How many files are named.
    """
    holders = _Holders()
    known: dict[LeafKey, list[bytes]] = {}
    for ino, _, key in leaves:
        ids = known.get(key)
        if ids is None:
            ids = known[key] = [each for _, each in sample.of(ids_of(key))]
        holders.add(ino, ids)
    for key in kept:
        if key not in known:
            holders.keep(each for _, each in sample.of(ids_of(key)))
    return Sharing(
        files=tuple(holders.ranked(most, sample)),
        blocks=sample.whole(len(holders.first)),
        sampled=tuple(holders.first),
        is_whole=sample.is_whole,
    )


class _Holders:
    """Who has which ids.

    Attributes:
        first: Of each id the first file that has it; 0: only a snapshot has; negative: others have it, too.
    """

    def __init__(self) -> None:
        self.first: dict[bytes, int] = {}
        self._current = 0
        self._had: set[bytes] = set()
        self._blocks: Counter[int] = Counter()
        self._shared: Counter[int] = Counter()
        self._pairs: Counter[tuple[int, int]] = Counter()

    def add(self, ino: int, ids: Iterable[bytes]) -> None:
        """A file has these; files come one after the other."""
        if ino != self._current:
            self._current, self._had = ino, set()
        for each in ids:
            if each in self._had:
                continue
            self._had.add(each)
            self._blocks[ino] += 1
            first = self.first.setdefault(each, ino)
            if abs(first) == ino:
                continue
            if first > 0:
                self._shared[first] += 1
                self.first[each] = -first
            self._shared[ino] += 1
            self._pairs[abs(first), ino] += 1

    def keep(self, ids: Iterable[bytes]) -> None:
        """There are these, too."""
        for each in ids:
            self.first.setdefault(each, 0)

    def ranked(self, most: int, sample: Sample) -> list[Sharer]:
        """Files that share most."""
        best: dict[int, tuple[int, int]] = {}
        for (one, other), count in self._pairs.items():
            for ino, mate in ((one, other), (other, one)):
                if count > best.get(ino, (0, 0))[0]:
                    best[ino] = (count, mate)
        ranked = sorted(self._shared.items(), key=lambda each: (-each[1], each[0]))[:most]
        return [
            Sharer(
                ino=ino,
                blocks=sample.whole(self._blocks[ino]),
                shared=sample.whole(shared),
                other=best[ino][1],
            )
            for ino, shared in ranked
        ]
