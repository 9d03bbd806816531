"""Blocks of this machine's other roots: what is in one of their block directories need not travel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final

import trio

from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.ids import BlockId
from blockfs.errors import BlockfsError
from syncer.errors import SyncerError
from syncer.ports.blocks import Board, Given, Want

_ASKED: Final = 4096  # ids at once
_READ_BYTES: Final = 8 << 20  # of blocks at once


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
        while not (wants := board.peek(_ASKED)):
            if not await board.more():
                return
        opened = await trio.to_thread.run_sync(self._open)
        try:
            while opened:
                await self._serve(board, wants, opened)
                while not (wants := board.peek(_ASKED)):
                    if not await board.more():
                        return
        finally:
            for directory in opened:
                directory.close()

    async def _serve(self, board: Board, wants: Sequence[Want], opened: Sequence[BlockDirectory]) -> None:
        here = await trio.to_thread.run_sync(_holders, opened, [want.id for want in wants])
        board.lack(want for want in wants if want.id not in here)
        left = [want for want in wants if want.id in here]
        while left:
            taken = board.take(_READ_BYTES, among=[want.id for want in left])
            if not taken and not await board.more():
                return
            going = {want.id for want in taken}
            left = [want for want in left if want.id not in going and board.is_open(want)]
            read = await trio.to_thread.run_sync(_read, here, [want.id for want in taken])
            board.lack(want for want in taken if want.id not in read)
            got = [(want, read[want.id]) for want in taken if want.id in read]
            outcomes = await board.give(got)
            board.lack(want for (want, _), outcome in zip(got, outcomes, strict=True) if outcome is Given.WRONG)

    def _open(self) -> list[BlockDirectory]:
        opened: list[BlockDirectory] = []
        paths: list[str] = []
        with suppress(SyncerError, BlockfsError, OSError):
            paths += self._find()
        for path in paths:
            with suppress(BlockfsError, OSError):
                directory = BlockDirectory.open(path)
                if directory.block_size == self._block_size:
                    opened.append(directory)
                else:
                    directory.close()
        return opened


def _holders(opened: Sequence[BlockDirectory], ids: Sequence[BlockId]) -> dict[BlockId, BlockDirectory]:
    """Which of the blocks is where."""
    found: dict[BlockId, BlockDirectory] = {}
    left = list(ids)
    for directory in opened:
        with suppress(BlockfsError, OSError):
            missing = directory.missing(left)
            found.update(dict.fromkeys(set(left).difference(missing), directory))
            left = missing
    return found


def _read(here: dict[BlockId, BlockDirectory], ids: Sequence[BlockId]) -> dict[BlockId, bytes]:
    """Those that can be read, not verified."""
    found: dict[BlockId, bytes] = {}
    for block in ids:
        with suppress(BlockfsError, OSError):
            found[block] = here[block].get(block)
    return found
