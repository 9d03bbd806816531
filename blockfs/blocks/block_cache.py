"""The blocks that were decompressed last: a page of a compressed block costs all of it, and its neighbours follow."""

from __future__ import annotations

import threading
from collections import OrderedDict

Place = tuple[int, int]
"""Segment and offset. Never used again, so an entry can't become wrong."""


class BlockCache:
    """Canonical blocks by place, at most `limit_bytes` of them. Thread-safe."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._blocks: OrderedDict[Place, bytes] = OrderedDict()
        self._bytes = 0

    def get(self, place: Place) -> bytes | None:
        """The block, if it is here."""
        with self._lock:
            block = self._blocks.get(place)
            if block is not None:
                self._blocks.move_to_end(place)
            return block

    def add(self, place: Place, block: bytes) -> None:
        """Keep a block, and let go of those that were not used for longest."""
        with self._lock:
            if place not in self._blocks:
                self._bytes += len(block)
            self._blocks[place] = block
            while self._bytes > self._limit_bytes:
                self._bytes -= len(self._blocks.popitem(last=False)[1])

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._blocks.clear()
            self._bytes = 0
