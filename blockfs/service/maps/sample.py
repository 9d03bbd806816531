"""Which ids are looked at, of how many. Pure.

A volume may have more ids than can be looked at in a second, so of many a *sample* is taken, by the ids themselves: an
id belongs to it if its first bytes are below a limit. Ids are SHA-256 digests, so the sample is a fair one; and of
equal blocks all are in it, or none, so what is shared is seen as shared, wherever it lies. Up to `SAMPLED` blocks all
of them are looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from blockfs.blocks.ids import ID_SIZE, ZERO_BLOCK, LeafKey

SAMPLED: Final = 1 << 17
"""Ids that are looked at, at most, about: 8 GiB of blocks of 64 KiB are looked at whole. About 20 MB of memory."""

_WHOLE: Final = 1 << 16

IdsOf = Callable[[LeafKey], bytes]
"""The ids of a leaf, without trailing holes."""


class Leaf(NamedTuple):
    """Where a leaf stands: 256 blocks of a file, from `number` * 256 on."""

    ino: int
    number: int
    key: LeafKey


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
        marks = ids[::ID_SIZE].translate(self._marks)  # the first byte of each id: 2 µs for a leaf of which none is
        place = marks.find(1)
        while place >= 0:
            each = ids[place * ID_SIZE : (place + 1) * ID_SIZE]
            if each < self._limit and each != ZERO_BLOCK:
                chosen.append((place, each))
            place = marks.find(1, place + 1)
        return chosen

    def whole(self, sampled: int) -> int:
        """How many there are in all, about, if so many of the sample are."""
        return sampled * _WHOLE // self.share
