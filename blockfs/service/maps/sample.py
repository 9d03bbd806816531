"""Which ids are looked at, of how many. Pure.

A volume may have more ids than can be looked at in a second, so of many a *sample* is taken, by the ids themselves: an
id belongs to it if its first bytes are below a limit. Ids are SHA-256 digests, so the sample is a fair one; and of
equal blocks all are in it, or none, so what is shared is seen as shared, wherever it lies. Up to `SAMPLED` blocks all
of them are looked at.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Final

from blockfs.blocks.ids import ID_SIZE, ZERO_BLOCK, LeafKey

SAMPLED: Final = 1 << 17
"""Ids that are looked at, at most, about: 8 GiB of blocks of 64 KiB are looked at whole. About 20 MB of memory."""

_WHOLE: Final = 1 << 16
_HEAD: Final = 8  # bytes of an id that tell it from nearly all others

IdsOf = Callable[[LeafKey], bytes]
"""The ids of a leaf, without trailing holes."""


Leaf = tuple[int, int, LeafKey]
"""Where a leaf stands: its file's ino, its number (it begins with block `number` * 256), its key."""


class Sample:
    """Which ids are looked at.

    Attributes:
        share: Of 65,536 ids.
    """

    def __init__(self, blocks: int, most: int = SAMPLED) -> None:
        """Choose.

        Args:
            blocks: How many there are, about.
            most: How many to look at, about.
        """
        self.share = max(1, min(_WHOLE, most * _WHOLE // max(1, blocks)))
        self._marks = bytes(byte << 8 < self.share for byte in range(256))
        self._limit = b"" if self.is_whole else self.share.to_bytes(2, "big")

    @property
    def is_whole(self) -> bool:
        """All ids are."""
        return self.share == _WHOLE

    def of(self, ids: bytes) -> list[tuple[int, bytes]]:
        """Those of a leaf, without holes: (place in the leaf, id)."""
        if self.is_whole:
            found = ((at // ID_SIZE, ids[at : at + ID_SIZE]) for at in range(0, len(ids), ID_SIZE))
            return [each for each in found if each[1] != ZERO_BLOCK]
        chosen = []
        marks = ids[::ID_SIZE].translate(self._marks)  # the first byte of each id: 0.5 µs for a leaf of which none is
        place, limit = marks.find(1), self._limit
        while place >= 0:
            each = ids[place * ID_SIZE : (place + 1) * ID_SIZE]
            if each < limit and each != ZERO_BLOCK:
                chosen.append((place, each))
            place = marks.find(1, place + 1)
        return chosen

    def whole(self, sampled: int) -> int:
        """How many there are in all, about, if so many of the sample are."""
        return sampled * _WHOLE // self.share


class Wanted:
    """Ids that are looked for in many leaves, most of which have none of them."""

    def __init__(self, sample: Sample, ids: Iterable[bytes]) -> None:
        """Look for these, all of which are in a sample."""
        self._sample = sample
        self._is_whole = sample.is_whole
        self._ids = frozenset(ids)
        heads = (int.from_bytes(each[:_HEAD], sys.byteorder) for each in self._ids)
        self._heads = frozenset(heads if self._is_whole else ())

    def of(self, ids: bytes) -> tuple[bytes, ...]:
        """Those that a leaf has."""
        if not self._is_whole:
            found = self._sample.of(ids)
            return tuple([each for _, each in found if each in self._ids]) if found else ()
        # The first 8 bytes of each id: 10 µs for a leaf that has none of them, 40 to look at whole ids.
        if self._heads.isdisjoint(memoryview(ids).cast("Q")[:: ID_SIZE // _HEAD].tolist()):
            return ()
        return tuple(each for _, each in self._sample.of(ids) if each in self._ids)
