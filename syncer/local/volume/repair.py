"""Damaged blocks of a volume, as the blocks of a share: the same ones, or in the share's own grid what covers them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from blockfs.blocks.ids import ZERO_BLOCK, BlockId
from syncer.core.reblock import Piece, joined, pieces
from syncer.local.volume.reblock import Pair


class BlockRepair:
    """Which blocks of a share are wanted for some of a volume, and what they make once they are there."""

    def __init__(self, lacking: Sequence[BlockId], pairs: Iterable[Pair]) -> None:
        """Work out what is wanted.

        Args:
            lacking: Damaged or missing here, in the volume's grid.
            pairs: Contents of the share in both grids, where these are two; the first one with a block counts. What
                is in none is wanted by its own name: a file of one short block has the same one in both.
        """
        self._made: dict[BlockId, tuple[list[Piece], Pair]] = {}
        left = {block for block in lacking if block != ZERO_BLOCK}
        for pair in pairs:
            if not left:
                break
            for index, block in enumerate(pair.near):
                if block in left:
                    left.discard(block)
                    near, far = pair.near.block_size, pair.far.block_size
                    self._made[block] = pieces(index, near, far, pair.near.size_bytes), pair
        self._users: dict[BlockId, set[BlockId]] = {}
        for block, (parts, pair) in self._made.items():
            for name in self._named(parts, pair):
                self._users.setdefault(name, set()).add(block)
        for block in left:
            self._users.setdefault(block, set())
        self._plain = left
        self._here: dict[BlockId, bytes] = {ZERO_BLOCK: b""}

    @property
    def wanted(self) -> list[BlockId]:
        """Blocks of the share; what is made of the same ones stands together."""
        return list(self._users)

    def came(self, got: Iterable[tuple[BlockId, bytes]]) -> list[tuple[BlockId, bytes]]:
        """Blocks of the share are here; returns those of the volume that are complete with them, not verified."""
        ready: list[tuple[BlockId, bytes]] = []
        for name, data in got:
            if name in self._plain:
                ready.append((name, data))
            self._here[name] = data
            for block in sorted(self._users.get(name, ())):
                parts, pair = self._made[block]
                needed = self._named(parts, pair)
                if needed <= self._here.keys():
                    by_index = {part.index: self._here[pair.far[part.index]] for part in parts}
                    ready.append((block, joined(parts, by_index, pair.far.block_size)))
                    self._done(block, needed)
            if not self._users.get(name):
                self._here.pop(name, None)
        return ready

    def _done(self, block: BlockId, needed: set[BlockId]) -> None:
        """Let go of what nobody else is made of."""
        for name in needed:
            self._users[name].discard(block)
            if not self._users[name]:
                self._here.pop(name, None)

    def _named(self, parts: Iterable[Piece], pair: Pair) -> set[BlockId]:
        return {pair.far[part.index] for part in parts} - {ZERO_BLOCK}
