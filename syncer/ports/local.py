"""What the engine and the remote may ask of the local side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.ids import BlockId
from syncer.core.model import FileStat


class Piece(msgspec.Struct, frozen=True, kw_only=True, eq=False, gc=False):
    """One block of an observed file. Compared by identity: a block list is long.

    Attributes:
        stat: The file as it was observed.
        blocks: Its block list in the share's grid.
        index: Of the block in it.
    """

    stat: FileStat
    blocks: BlockList
    index: int

    @property
    def id(self) -> BlockId:
        """The block's id."""
        return self.blocks[self.index]


class Reader(Protocol):
    """Reads blocks for a push. Whoever sends need not compare them with their ids once more."""

    async def read(self, pieces: Sequence[Piece]) -> list[bytes | Exception]:
        """Blocks of observed files, all of them read in one thread.

        A file of several blocks is looked at before its first one is read: what was written to since it was observed
        costs no traffic.

        Returns:
            For each the block, canonical and verified; or why it can't be had: LocalChangedError (the file is not what
            was observed), OSError, BlockfsError.
        """
        ...
