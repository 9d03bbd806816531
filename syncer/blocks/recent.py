"""What came in lately for a share: blocks that a cycle got, and that no row names yet. Others may have them from here.

They are of versions that the server named, so they are the share's. Ids only: the bytes are where the cycle put them,
and `find` of whoever runs it knows where.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Final

from blockfs.blocks.ids import ZERO_BLOCK, BlockId

MOST: Final = 1 << 18  # ids, of 250 bytes in memory each: 16 GiB of blocks of 64 KiB. Older ones are in files by then
_PREFIX: Final = 8

Find = Callable[[BlockId], bytes | None]
"""Reads a block from where a cycle put it; None: it is no longer there. Any thread."""


class Recent:
    """The ids of one share, oldest first. Any thread."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._numbers: dict[BlockId, int] = {}
        self._prefixes: dict[bytes, int] = {}
        self._last = 0
        self._find: Find | None = None

    def use(self, find: Find | None) -> None:
        """Say where the blocks of a cycle are read; None when it ends: what it got has its rows, or is not had."""
        with self._lock:
            self._find = find
            if find is None:
                self._numbers.clear()
                self._prefixes.clear()

    def came(self, blocks: Iterable[BlockId]) -> None:
        """Take blocks in that can be read from now on."""
        with self._lock:
            for block in blocks:
                if block == ZERO_BLOCK or block in self._numbers:
                    continue
                self._last += 1
                self._numbers[block] = self._last
                prefix = block[:_PREFIX]
                self._prefixes[prefix] = self._prefixes.get(prefix, 0) + 1
                if len(self._numbers) > self._most:
                    self._forget(next(iter(self._numbers)))

    def _forget(self, block: BlockId) -> None:
        del self._numbers[block]
        prefix = block[:_PREFIX]
        self._prefixes[prefix] -= 1
        if not self._prefixes[prefix]:
            del self._prefixes[prefix]

    def has(self, prefix: bytes) -> bool:
        """Whether an id begins with these 8 bytes."""
        return prefix in self._prefixes

    def read(self, block: BlockId) -> bytes | None:
        """One of them."""
        with self._lock:
            find = self._find if block in self._numbers else None
        return None if find is None else find(block)

    def since(self, number: int) -> tuple[int, list[BlockId]]:
        """See `ports.blocks.ShareIndex.recent`."""
        with self._lock:
            newest: list[BlockId] = []
            for block, at in reversed(self._numbers.items()):
                if at <= number:
                    break
                newest.append(block)
            return self._last, newest[::-1]
