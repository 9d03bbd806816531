"""Blocks of this machine's other roots: what is in one of their block directories need not travel."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress

from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.ids import BlockId
from blockfs.errors import BlockfsError


class Neighbours:
    """Block directories to look into before a block is fetched. Opened when first asked. Safe for many threads.

    A block is verified wherever it comes from. A directory that can't be opened or read is no source, and no failure.
    """

    def __init__(self, find: Callable[[], Iterable[str]], block_size: int) -> None:
        """Keep what is needed to open them.

        Args:
            find: Their paths, called once.
            block_size: Of the blocks that will be asked for; directories with another one can't have them.
        """
        self._find = find
        self._block_size = block_size
        self._opened: list[BlockDirectory] | None = None
        self._lock = threading.Lock()

    def get(self, wanted: BlockId) -> bytes | None:
        """A block, verified; None if none of them has it."""
        for directory in self._directories():
            with suppress(BlockfsError, OSError):
                return directory.get(wanted, verify=True)
        return None

    def _directories(self) -> list[BlockDirectory]:
        with self._lock:
            if self._opened is None:
                self._opened = []
                for path in self._find():
                    with suppress(BlockfsError, OSError):
                        self._take(BlockDirectory.open(path), self._opened)
            return self._opened

    def _take(self, directory: BlockDirectory, opened: list[BlockDirectory]) -> None:
        if directory.block_size == self._block_size:
            opened.append(directory)
        else:
            directory.close()

    def close(self) -> None:
        """Close them. Idempotent."""
        with self._lock:
            opened, self._opened = self._opened or [], []
        for directory in opened:
            directory.close()


def no_neighbours() -> Iterable[str]:
    """There are none."""
    return ()
