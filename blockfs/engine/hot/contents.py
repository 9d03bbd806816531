"""What is done to the content of a file that has a hot file, by others than the kernel: all of it is done to that."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from blockfs.engine.content.bounds import check_size, checked_end
from blockfs.engine.content.filetable import FileTable
from blockfs.engine.content.hostfile import HostIoError, translated
from blockfs.engine.context import Stores
from blockfs.engine.hot.compare import changed_blocks
from blockfs.engine.hot.folder import Descriptor
from blockfs.errors import NoSpaceError, WouldBlock
from blockfs.runtime.failures import said
from blockfs.runtime.fiemap import OddMapError
from blockfs.runtime.linux import allocate, punch_hole
from blockfs.runtime.reflink import clone_range, unshared_bytes

_PAGE: Final = 4096


class HotContents:
    """Contents of the hot files of one mount. Thread-safe.

    Every method waits for disks unless it has `may_block`, and raises NoSpaceError where the host is full, HostIoError
    where it fails.
    """

    def __init__(self, stores: Stores, table: FileTable) -> None:
        self._stores = stores
        self._table = table

    def of(self, ino: int) -> Descriptor | None:
        """The hot file of a file, which stays open as long as this is referred to; None: it has none."""
        with self._stores.lock:
            state = self._table.peek(ino)
            return None if state is None or state.hot is None else state.hot.file

    def unsealed_bytes(self) -> int:
        """Bytes that hot files hold and no segment does, of what was written back: what is still to be sealed."""
        with self._stores.lock:
            states = [state for ino in self._table.hot if (state := self._table.peek(ino)) is not None]
            files = [state.hot.file for state in states if state.hot is not None and not state.is_sealed]
        total = 0
        for file in files:
            with suppress(OddMapError, OSError):
                total += unshared_bytes(file.fd, os.fstat(file.fd).st_size)
        return total

    def changed(self, ino: int) -> list[tuple[int, int]] | None:
        """Blocks of a hot file that may be other than its leaves say, as runs; None: the host does not tell.

        All of it is written back for that. Nothing is held: who seals it meanwhile, or writes to it, may make the
        answer older than the leaves. Good enough for who looks, and for nobody else.
        """
        with self._stores.lock:
            state = self._table.peek(ino)
            hot = None if state is None else state.hot
        if hot is None:
            return []
        with suppress(HostIoError, NoSpaceError, OSError):
            return changed_blocks(self._stores, ino, hot.file.fd, os.fstat(hot.file.fd).st_size)
        return None

    @contextmanager
    def changing(self, ino: int, *, may_block: bool, moves: bool = True) -> Iterator[Descriptor | None]:
        """The hot file of a file that is changed in the block: it is not given up meanwhile. None: it has none.

        Args:
            ino: The file.
            may_block: Wait for disks.
            moves: It is not only written to: what is there then may lie where the file had something before.

        Raises:
            WouldBlock: It has one, and `may_block` is false.
        """
        with self._stores.lock:
            state = self._table.peek(ino)
            hot = None if state is None else state.hot
            if hot is not None:
                if not may_block:
                    raise WouldBlock("a hot file may have to be read first")
                hot.opens += 1
                hot.opened += 1
                hot.moving += moves
                hot.moves += moves
        try:
            yield None if hot is None else hot.file
        finally:
            if hot is not None:
                with self._stores.lock:
                    hot.opens -= 1
                    hot.moving -= moves

    def read(self, file: Descriptor, offset: int, length: int, *, may_block: bool) -> bytes:
        """Read a range; fewer bytes only at the end."""
        if may_block:
            with translated("hot"):
                return os.pread(file.fd, length, offset)
        buffer = bytearray(length)
        return bytes(buffer[: self.read_into(file, offset, memoryview(buffer))])

    def read_into(self, file: Descriptor, offset: int, view: memoryview) -> int:
        """Read what the page cache has into a buffer; returns bytes, fewer than fit only at the end.

        Raises:
            WouldBlock: It has not all.
        """
        try:
            got = os.preadv(file.fd, [view], offset, os.RWF_NOWAIT)
        except OSError as error:
            raise WouldBlock("a hot file is not in the page cache") from error
        if got < len(view) and offset + got < os.fstat(file.fd).st_size:
            raise WouldBlock("a hot file is not in the page cache")
        return got

    def write(self, ino: int, file: Descriptor, offset: int, data: bytes | memoryview) -> int:
        """Write; fewer bytes than given only if the host became full on the way."""
        if data:
            checked_end(ino, offset, len(data))
        written = 0
        view = memoryview(data)
        with translated("hot"):
            while written < len(view):
                try:
                    written += os.pwrite(file.fd, view[written:], offset + written)
                except OSError:
                    if written:
                        return written
                    raise
        return written

    def truncate(self, ino: int, file: Descriptor, size_bytes: int) -> None:
        """Set the size."""
        check_size(ino, size_bytes)
        with translated("hot"):
            os.ftruncate(file.fd, size_bytes)

    def seek(self, file: Descriptor, offset: int, how: int) -> int | None:
        """The next data or hole from a byte on (SEEK_DATA, SEEK_HOLE); None: there is none."""
        try:
            return os.lseek(file.fd, offset, how)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise HostIoError(f"hot: {said(error)}") from error
            return None

    def zero(self, ino: int, file: Descriptor, offset: int, length: int, *, keeps_size: bool) -> None:
        """Make a hole of a range."""
        end = checked_end(ino, offset, length)
        with translated("hot"):
            punch_hole(file.fd, offset, length)
            if not keeps_size and os.fstat(file.fd).st_size < end:
                allocate(file.fd, end - 1, 1)  # not by its size: that could cut what somebody writes behind it just now

    def allocate(self, ino: int, file: Descriptor, offset: int, length: int, *, keeps_size: bool) -> None:
        """Have the host set aside room for a range."""
        checked_end(ino, offset, length)
        with translated("hot"):
            allocate(file.fd, offset, length, keeps_size=keeps_size)

    def copy(self, source: Descriptor, offset: int, destination: Descriptor, to: int, length: int) -> int:
        """Copy the beginning of a range by sharing it; 0: that can't be, or there is nothing."""
        with translated("hot"):
            size, there = os.fstat(source.fd).st_size, os.fstat(destination.fd).st_size
            length = min(length, size - offset)
            if length <= 0 or offset % _PAGE or to % _PAGE:
                return 0
            if length % _PAGE and not (offset + length == size and to + length >= there):
                length -= length % _PAGE
            return length if length and clone_range(source.fd, destination.fd, offset, length, to) else 0
