"""Copies of a hot file that change no more: of one instant, or piece by piece. They share its pages, and have no name.

While the host shares a file nobody writes to it. XFS takes 50 µs for each extent, but next to nothing where the copy
shares it already (fs/xfs/xfs_reflink.c, xfs_reflink_remap_extent): so a copy of many extents is first filled piece by
piece, and then made one of an instant. btrfs takes 10 to 20 µs for each extent, whether it is shared or not.
"""

from __future__ import annotations

import os
from typing import Final

from blockfs.engine.content.hostfile import HostIoError, translated
from blockfs.engine.context import Stores
from blockfs.engine.hot.addresses import PAGE
from blockfs.engine.hot.compare import changed_blocks
from blockfs.engine.hot.folder import Descriptor, HotFolder
from blockfs.runtime.linux import filesystem_magic
from blockfs.runtime.reflink import clone_range, extent_count

PIECE_BYTES: Final = 4 << 20  # shared at once: 3 ms on XFS, in which nobody writes to the file
_MANY: Final = 2000  # extents: 0.1 s on XFS, 0.04 on btrfs
_XFS: Final = 0x58465342


class Captures:
    """Makes copies of the hot files of one mount. Thread-safe."""

    def __init__(self, stores: Stores, folder: HotFolder) -> None:
        self._stores = stores
        self._folder = folder

    def is_scattered(self, file: Descriptor) -> bool:
        """Whether a file has so many extents that a copy of one instant would hold its writers for long."""
        try:
            return extent_count(file.fd, os.fstat(file.fd).st_size) > _MANY
        except OSError:
            return False

    def fill(self, file: Descriptor) -> Descriptor | None:
        """A file that shares most of a hot file, piece by piece, for `whole`; None: that would be of no use.

        Raises:
            NoSpaceError: The host is full.
            HostIoError: The host failed.
        """
        # All but the last page: so `whole` can tell that the file became no shorter than this.
        end = (os.fstat(file.fd).st_size - 1) // PAGE * PAGE
        if end <= 0 or filesystem_magic(file.fd) != _XFS or not self.is_scattered(file):
            return None
        filled = self._folder.nameless()
        with translated("hot"):
            for at in range(0, end, PIECE_BYTES):
                self._stores.priority.give_way()
                if not clone_range(file.fd, filled.fd, at, min(PIECE_BYTES, end - at)):
                    return None  # it was cut off meanwhile
        return filled

    def whole(self, file: Descriptor, filled: Descriptor | None = None) -> Descriptor:
        """A copy of one instant. It is short only if all was written back just before.

        Args:
            file: The hot file.
            filled: From `fill`; it becomes the copy, or is of no use.

        Raises:
            NoSpaceError: The host is full.
            HostIoError: The host failed.
        """
        length = 0 if filled is None else os.fstat(filled.fd).st_size
        copy = self._folder.capture(file, filled)
        if length and (copy is None or os.fstat(copy.fd).st_size <= length):
            copy = self._folder.capture(file)  # it was cut off: what the copy had behind its end may be there still
        if copy is None:
            raise HostIoError("the host can't share a hot file")
        return copy

    def changed(self, ino: int, file: Descriptor, size_bytes: int) -> tuple[Descriptor, list[tuple[int, int]]] | None:
        """A copy of what its leaves may not tell, piece by piece: of one instant only if nobody wrote meanwhile.

        Args:
            ino: Whose leaves.
            file: The hot file, written back just now.
            size_bytes: Its size.

        Returns:
            The copy, and first and end of each run of blocks that it has; None: the file was cut off meanwhile.

        Raises:
            NoSpaceError: The host is full.
            HostIoError: The host failed.
        """
        copy = self._folder.nameless()
        with translated("hot"):
            os.ftruncate(copy.fd, size_bytes)
        # Waits for direct writes that are under way. Their times were told when they began, and what they write comes
        # to lie elsewhere when they end: without this one could be missed by both looks.
        if not self._share(file, copy, 0, min(PAGE, size_bytes)):
            return None
        changed = changed_blocks(self._stores, ino, file.fd, size_bytes)
        block_size = self._stores.block_size
        most = max(1, PIECE_BYTES // block_size)
        for first, end in changed:
            for at in range(first, end, most):
                self._stores.priority.give_way()
                start = at * block_size
                if not self._share(file, copy, start, min(min(at + most, end) * block_size, size_bytes) - start):
                    return None
        return copy, changed

    def _share(self, file: Descriptor, copy: Descriptor, start: int, length: int) -> bool:
        whole = length // PAGE * PAGE
        with translated("hot"):
            if whole and not clone_range(file.fd, copy.fd, start, whole):
                return False
            if whole < length:
                os.pwrite(copy.fd, os.pread(file.fd, length - whole, start + whole), start + whole)
        return True
