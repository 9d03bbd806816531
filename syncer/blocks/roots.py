"""Blocks of this machine's other roots: what is in one of their block directories need not travel."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress

import trio

from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.ids import BlockId
from blockfs.errors import BlockfsError
from syncer.blocks.near import serve
from syncer.errors import EXPECTED
from syncer.ports.blocks import Board


class OtherRoots:
    """The near source `roots`. Their block directories are opened when a block is wanted, and closed with the cycle.

    What can't be looked up, opened or read is no source, and no failure.
    """

    name = "roots"
    near = True

    def __init__(self, find: Callable[[], Iterable[str]], block_size: int) -> None:
        """Keep what is needed to open them.

        Args:
            find: Their paths; blocking.
            block_size: Of the blocks that are wanted; directories with another one can't have them.
        """
        self._find = find
        self._block_size = block_size

    async def run(self, board: Board) -> None:
        """See BlockSource."""
        directories = Directories(self._find, self._block_size)
        try:
            # Mostly there is no other root: who has nothing ends, or each want would be looked up here in vain.
            if await board.more() and await trio.to_thread.run_sync(directories.open):
                await serve(board, directories)
        finally:
            directories.close()


class Directories:
    """`NearBlocks`: several block directories. For one cycle."""

    def __init__(self, find: Callable[[], Iterable[str]], block_size: int) -> None:
        """See OtherRoots."""
        self._find = find
        self._block_size = block_size
        self._opened: list[BlockDirectory] = []
        self._holders: dict[BlockId, BlockDirectory] = {}  # of what was looked up and not read yet

    def which(self, ids: Sequence[BlockId]) -> Collection[BlockId]:
        """See NearBlocks."""
        found: dict[BlockId, BlockDirectory] = {}
        left = list(ids)
        for directory in self._opened:
            with suppress(BlockfsError, OSError):
                missing = directory.missing(left)
                found.update(dict.fromkeys(set(left).difference(missing), directory))
                left = missing
        self._holders.update(found)
        return found

    def read(self, ids: Sequence[BlockId], *, checked: bool) -> Mapping[BlockId, bytes]:
        """See NearBlocks."""
        found: dict[BlockId, bytes] = {}
        if checked:  # each was read from the only place that is known
            return found
        for block in ids:
            directory = self._holders.pop(block, None)
            with suppress(BlockfsError, OSError):
                if directory is not None:
                    found[block] = directory.get(block)
        return found

    def close(self) -> None:
        """Close them all."""
        for directory in self._opened:
            directory.close()

    def open(self) -> bool:
        """Open them; False: there are none that could have a block."""
        paths: list[str] = []
        with suppress(*EXPECTED):
            paths += self._find()
        for path in paths:
            with suppress(BlockfsError, OSError):
                directory = BlockDirectory.open(path)
                if directory.block_size == self._block_size:
                    self._opened.append(directory)
                else:
                    directory.close()
        return bool(self._opened)
