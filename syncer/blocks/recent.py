"""What came in lately for a share: blocks that a cycle got, and that no row names yet. Others may have them from here.

They are of versions that the server named, so they are the share's. Of most the bytes are where the cycle put them,
and `find` of whoever runs it knows where. Contents of one block are written by many at once: until then, and until
they have rows, the bytes are here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from blockfs.blocks.ids import ZERO_BLOCK, BlockId

MOST: Final = 1 << 18  # ids, of 250 bytes in memory each: 16 GiB of blocks of 64 KiB. Older ones are in files by then
HELD_BYTES: Final = 16 << 20  # of contents of one block: 16,000 files of 1 KiB. Older ones are in files by then
_PREFIX: Final = 8

Find = Callable[[BlockId], bytes | None]
"""Reads a block from where a cycle put it; None: it is no longer there. In a thread of trio's."""


class RecentBlocks:
    """The ids of one share, oldest first. Any thread."""

    def __init__(self, most: int = MOST, held_bytes: int = HELD_BYTES) -> None:
        self._most = most
        self._held_bytes = held_bytes
        self._held: dict[BlockId, bytes] = {}
        self._holding = 0  # bytes of them
        self._lock = threading.Lock()
        self._numbers: dict[BlockId, int] = {}
        self._prefixes: dict[bytes, int] = {}
        self._last = 0
        self._stopped = False
        self._find: Find | None = None

    def use(self, find: Find | None) -> None:
        """Say where the blocks of a cycle are read; None when it is over: what it got is indexed, or is not had."""
        with self._lock:
            self._find = find
            if find is None:
                self._numbers.clear()
                self._prefixes.clear()
                self._held.clear()
                self._holding = 0

    def stop(self) -> None:
        """Nobody will ask: forget all, and take nothing in from now on."""
        self._stopped = True
        self.use(None)

    def came(self, blocks: Iterable[BlockId]) -> None:
        """Take blocks in that can be read from now on."""
        with self._lock:
            for block in blocks:
                self._add(block)

    def hold(self, got: Sequence[tuple[BlockId, bytes]]) -> None:
        """Take blocks in that can't be read elsewhere yet. When they are too many, the oldest must be by then."""
        with self._lock:
            for block, data in got:
                if self._add(block):
                    self._held[block] = data
                    self._holding += len(data)
            while self._holding > self._held_bytes:
                self._holding -= len(self._held.pop(next(iter(self._held))))

    def _add(self, block: BlockId) -> bool:
        """Whether it is new."""
        if self._stopped or block == ZERO_BLOCK or block in self._numbers:
            return False
        self._last += 1
        self._numbers[block] = self._last
        prefix = block[:_PREFIX]
        self._prefixes[prefix] = self._prefixes.get(prefix, 0) + 1
        if len(self._numbers) > self._most:
            self._forget(next(iter(self._numbers)))
        return True

    def _forget(self, block: BlockId) -> None:
        del self._numbers[block]
        self._holding -= len(self._held.pop(block, b""))
        prefix = block[:_PREFIX]
        self._prefixes[prefix] -= 1
        if not self._prefixes[prefix]:
            del self._prefixes[prefix]

    def __len__(self) -> int:
        """How many there are."""
        return len(self._numbers)

    def has(self, prefix: bytes) -> bool:
        """Whether an id begins with these 8 bytes."""
        return prefix in self._prefixes

    def read(self, block: BlockId) -> bytes | None:
        """One of them."""
        with self._lock:
            held = self._held.get(block)
            find = self._find if block in self._numbers else None
        if held is not None:
            return held
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
