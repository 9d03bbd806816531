"""Blocks that were read to be hashed, in memory until they are sent: what is held is not read again.

Memory is bounded. In a first push somebody takes blocks early (`Spill`), while others are still read: neither end waits
for the other, and there is room for those that follow. Else what has no room is read again. Files of a few KiB travel
together in one request, with their contents: their blocks stay, and those of larger files make room for them.
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
_SPILLS_AT_ONCE: Final = 2  # while one asks what is lacking, the other travels


class HeldBlocks:
    """Blocks in memory. Each is given out once. Safe for many threads.

    Attributes:
        spill: Where blocks go early; None: nowhere.
        nursery: Where they are sent while others are read; set as long as `keep` is called.
    """

    def __init__(self) -> None:
        self.spill: Spill | None = None
        self.nursery: trio.Nursery | None = None
        self._guard = threading.Lock()
        self._staying: dict[BlockId, HeldBlock] = {}
        self._spillable: dict[BlockId, HeldBlock] = {}
        self._spillable_bytes = 0
        self._room = held_bytes()
        self._going = 0  # spills under way
        self._arrived = trio.Event()  # set when the next of them ends

    def take(self, name: BlockId) -> bytes | None:
        """A block that was read a while ago, canonical; None if it must be read again."""
        with self._guard:
            block = self._staying.pop(name, None)
            if block is None:
                block = self._spillable.pop(name, None)
                if block is None:
                    return None
                self._spillable_bytes -= len(block.data)
            self._room += len(block.data)
            return block.data

    def keep(self, name: BlockId, data: bytes, *, file_bytes: int) -> None:
        """Hold a block of a file of so many bytes, if there is room.

        Called in a worker thread of trio; waits there until enough was spilled.
        """
        block = HeldBlock(data=canonical(data), is_file=len(data) == file_bytes)
        stays = file_bytes <= STAY_BYTES
        while not self._keep(name, block, stays=stays):
            if not self._send_early(1) and not self._going:
                # Nothing makes room any more; but the last one may have arrived since we looked.
                self._keep(name, block, stays=stays)
                return
            trio.from_thread.run(self._one_arrived)
        self._send_early(_SPILL_BYTES)

    def _keep(self, name: BlockId, block: HeldBlock, *, stays: bool) -> bool:
        """Hold a block, if it is not held yet; False: there is no room."""
        with self._guard:
            if name in self._staying or name in self._spillable:
                return True
            if len(block.data) > self._room:
                return False
            self._room -= len(block.data)
            if stays:
                self._staying[name] = block
            else:
                self._spillable[name] = block
                self._spillable_bytes += len(block.data)
            return True

    def _send_early(self, least_bytes: int) -> bool:
        """Begin to send some, if there are so many bytes of them; False: not now."""
        nursery = self.nursery
        with self._guard:
            is_enough = self._spillable_bytes >= least_bytes and self._going < _SPILLS_AT_ONCE
            if self.spill is None or nursery is None or not is_enough:
                return False
            some = self._oldest()
        try:
            trio.from_thread.run_sync(self._begin, nursery, some)
        except BaseException:  # cancelled, so it was not called
            self._put_back(some)
            raise
        return True

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
        self._spillable_bytes -= size
        return some

    def _begin(self, nursery: trio.Nursery, some: Mapping[BlockId, HeldBlock]) -> None:
        self._going += 1
        nursery.start_soon(self._send, some)

    async def _send(self, some: Mapping[BlockId, HeldBlock]) -> None:
        sent = False
        try:
            sent = self.spill is not None and await self.spill(some)
        finally:
            if sent:
                with self._guard:
                    self._room += sum(len(block.data) for block in some.values())
            else:
                self.spill = None
                self._put_back(some)
            self._going -= 1  # after there is room: who sees none going looks for room once more
            self._arrived.set()
            self._arrived = trio.Event()

    async def _one_arrived(self) -> None:
        """Wait until one of the spills under way has ended, if there is any."""
        if self._going:
            await self._arrived.wait()

    def _put_back(self, some: Mapping[BlockId, HeldBlock]) -> None:
        """What was not sent stays for the push."""
        with self._guard:
            for name, block in some.items():
                if name in self._staying or name in self._spillable:
                    self._room += len(block.data)
                else:
                    self._spillable[name] = block
                    self._spillable_bytes += len(block.data)


def held_bytes() -> int:
    """How much of what is read may stay in memory: a quarter of what the machine has to spare, up to `HELD_BYTES`."""
    try:
        with open("/proc/meminfo", "rb") as file:
            spare = next(int(line.split()[1]) << 10 for line in file if line.startswith(b"MemAvailable:"))
    except (OSError, StopIteration):  # not Linux, or a very old one
        return HELD_BYTES
    return min(HELD_BYTES, spare // 4)
