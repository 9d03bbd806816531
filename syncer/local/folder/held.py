"""Blocks that were read to be hashed, in memory until they are sent: what is held is not read again.

Memory is bounded. In a first push somebody takes blocks early (`Spill`), so that there is room for those that follow;
else what has no room is read again. Files of a few KiB travel together in one request, with their contents: their
blocks stay, and those of larger files make room for them.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Final

import trio

from blockfs.blocks.hashing import canonical
from blockfs.blocks.ids import BlockId
from syncer.ports.localvalues import HeldBlock, Spill

HELD_BYTES: Final = 256 << 20
"""Of blocks in memory, at most; less on a machine that has less than four times as much to spare."""

STAY_BYTES: Final = 64 << 10
"""Up to this size a file's block is never spilled: a request of its own costs more than to read it again."""

_SPILL_BYTES: Final = 16 << 20  # at once: some requests of 4 MiB side by side


class HeldBlocks:
    """Blocks in memory. Each is given out once. Safe for many threads.

    Attributes:
        spill: Where blocks go that others need the room of; None: nowhere.
    """

    def __init__(self) -> None:
        self.spill: Spill | None = None
        self._lock = threading.Lock()
        self._staying: dict[BlockId, HeldBlock] = {}
        self._spillable: dict[BlockId, HeldBlock] = {}
        self._room = held_bytes()

    def take(self, name: BlockId) -> bytes | None:
        """A block that was read a while ago, canonical; None if it must be read again."""
        with self._lock:
            block = self._staying.pop(name, None) or self._spillable.pop(name, None)
            if block is None:
                return None
            self._room += len(block.data)
            return block.data

    def keep(self, name: BlockId, data: bytes, *, file_bytes: int) -> None:
        """Hold a block of a file of so many bytes, if there is room.

        Called in a worker thread of trio; waits there until enough was spilled.
        """
        block = HeldBlock(data=canonical(data), is_file=len(data) == file_bytes)
        blocks = self._staying if file_bytes <= STAY_BYTES else self._spillable
        while True:
            with self._lock:
                if name in self._staying or name in self._spillable:
                    return
                if len(block.data) <= self._room:
                    blocks[name] = block
                    self._room -= len(block.data)
                    return
                # A block that alone is too much would send all others away for nothing.
                some = self._oldest() if self.spill is not None else {}
            if not some:
                return
            trio.from_thread.run(self._send, some)

    def _oldest(self) -> dict[BlockId, HeldBlock]:
        """Take some out, still counted as held: they are in memory until they have arrived."""
        some: dict[BlockId, HeldBlock] = {}
        size = 0
        for name, block in self._spillable.items():
            if size and size + len(block.data) > _SPILL_BYTES:
                break
            some[name] = block
            size += len(block.data)
        for name in some:
            del self._spillable[name]
        return some

    async def _send(self, some: Mapping[BlockId, HeldBlock]) -> None:
        if self.spill is not None and await self.spill(some):
            with self._lock:
                self._room += sum(len(block.data) for block in some.values())
            return
        self.spill = None
        with self._lock:
            for name, block in some.items():  # back, for the push
                if name in self._staying or name in self._spillable:
                    self._room += len(block.data)
                else:
                    self._spillable[name] = block


def held_bytes() -> int:
    """How much of what is read may stay in memory: a quarter of what the machine has to spare, up to `HELD_BYTES`."""
    try:
        with open("/proc/meminfo", "rb") as file:
            spare = next(int(line.split()[1]) << 10 for line in file if line.startswith(b"MemAvailable:"))
    except (OSError, StopIteration):  # not Linux, or a very old one
        return HELD_BYTES
    return min(HELD_BYTES, spare // 4)
