"""What stagings of this cycle fetched and wrote to temp files: other devices may have it before a file is complete.

A file is kept open, so that a block is found through install and booking, whatever its name is by then. Whoever asks
compares a block with its id: the file may have been written to since.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from contextlib import suppress
from typing import Final

import msgspec

from blockfs.blocks.hashing import canonical
from blockfs.blocks.ids import BlockId
from syncer.local.folder.filehash import read_exactly

_FILES: Final = 32  # open at once; the one that received nothing for longest goes first

_MOST: Final = 1 << 18  # blocks, of 300 bytes in memory each: 16 GiB of blocks of 64 KiB


class _Spot(msgspec.Struct, frozen=True):
    file: int
    offset: int
    length: int


class Received:
    """Blocks by id. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spots: dict[BlockId, _Spot] = {}
        self._files: OrderedDict[int, list[BlockId]] = OrderedDict()  # ids by descriptor, ours
        self._of: dict[int, int] = {}  # descriptor by inode

    def placed(self, descriptor: int, blocks: list[tuple[BlockId, int, int]]) -> None:
        """Blocks were written to a file.

        Args:
            descriptor: Of the file; stays the caller's.
            blocks: Of each its id, offset and length in bytes.
        """
        inode = os.fstat(descriptor).st_ino
        with self._lock:
            file = self._of.get(inode)
            if file is None:
                file = self._of[inode] = os.dup(descriptor)
                self._files[file] = []
                if len(self._files) > _FILES:
                    self._close(next(iter(self._files)))
            self._files.move_to_end(file)
            for block, offset, length in blocks:
                if block not in self._spots:
                    self._files[file].append(block)
                self._spots[block] = _Spot(file, offset, length)
            while len(self._spots) > _MOST:
                del self._spots[next(iter(self._spots))]

    def read(self, block: BlockId) -> bytes | None:
        """A block, not verified; None: not received, or its file was closed meanwhile."""
        with self._lock:
            spot = self._spots.get(block)
            if spot is None:
                return None
            with suppress(OSError):
                return canonical(read_exactly(spot.file, spot.offset, spot.length))
            return None

    def forget(self, descriptor: int) -> None:
        """A file is given up: its space is not to be held."""
        inode = os.fstat(descriptor).st_ino
        with self._lock:
            if inode in self._of:
                self._close(self._of[inode])

    def clear(self) -> None:
        """Forget all and let go of the files: the cycle is over."""
        with self._lock:
            for file in list(self._files):
                self._close(file)

    def _close(self, file: int) -> None:
        for block in self._files.pop(file):
            spot = self._spots.get(block)
            if spot is not None and spot.file == file:
                del self._spots[block]
        self._of = {inode: each for inode, each in self._of.items() if each != file}
        os.close(file)
