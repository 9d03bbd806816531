"""fsx in Python: random operations on one file, each read compared with a model in memory. Needs nothing but Linux."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import random
from collections.abc import Callable
from pathlib import Path

_KEEP_SIZE, _PUNCH_HOLE, _ZERO_RANGE = 1, 2, 16  # linux/falloc.h
_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


class Exerciser:
    """One file and what must be in it.

    Args:
        path: The file; made anew.
        seed: Of the sequence of operations.
        size_max: The file never grows beyond.
        length_max: Longest single operation.
        holes: The filesystem can make and find holes.
    """

    def __init__(
        self, path: Path, seed: int, *, size_max: int = 1 << 20, length_max: int = 1 << 16, holes: bool = False
    ) -> None:
        self.path = path
        self.content = bytearray()
        self._noise = random.Random(seed)
        self._size_max = size_max
        self._length_max = length_max
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        weights: dict[Callable[[], None], int] = {
            self._read: 40,
            self._write: 40,
            self._append: 6,
            self._truncate: 12,
            self._map_and_read: 12,
            self._map_and_write: 16,
            self._copy_range: 4,
            self._allocate: 1,
            self._sync: 1,  # it waits for the disk
            self._drop_pages: 1,  # likewise
            self.reopen: 4,
        }
        if holes:
            weights |= {self._punch: 8, self._zero: 4, self._seek: 8}
        self._operations, self._weights = list(weights), list(weights.values())

    def run(self, operations: int) -> None:
        """Do so many random operations.

        Raises:
            AssertionError: The file told something else than what was written.
        """
        for operation in self._noise.choices(self._operations, self._weights, k=operations):
            operation()

    def reopen(self) -> None:
        """Close and open the file."""
        self.close()
        self.open()

    def open(self) -> None:
        """Open the file: only after a `close`."""
        self._descriptor = os.open(self.path, os.O_RDWR)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def check(self) -> None:
        """Compare the whole file.

        Raises:
            AssertionError: It differs.
        """
        found = self.path.read_bytes()
        assert len(found) == len(self.content), f"{len(found)} bytes instead of {len(self.content)}"
        assert found == self.content, f"byte {next(i for i, b in enumerate(found) if b != self.content[i])} differs"

    def _range(self, size: int) -> tuple[int, int]:
        """Offset and end of some bytes below `size`, often near the file's pages and blocks."""
        offset = self._noise.randrange(max(1, size))
        if self._noise.random() < 0.3:
            offset = offset // mmap.PAGESIZE * mmap.PAGESIZE
        return offset, min(size, offset + self._noise.randrange(1, self._length_max))

    def _put(self, offset: int, data: bytes) -> None:
        self.content.extend(bytes(max(0, offset + len(data) - len(self.content))))
        self.content[offset : offset + len(data)] = data

    def _read(self) -> None:
        offset, end = self._range(self._size_max)
        found = os.pread(self._descriptor, end - offset, offset)
        assert found == self.content[offset:end], f"read of {offset}-{end}"

    def _write(self) -> None:
        offset, end = self._range(self._size_max)
        data = self._noise.randbytes(end - offset) if self._noise.random() < 0.9 else bytes(end - offset)
        assert os.pwrite(self._descriptor, data, offset) == len(data)
        self._put(offset, data)

    def _append(self) -> None:
        room = self._size_max - len(self.content)
        data = self._noise.randbytes(self._noise.randrange(1, min(room, self._length_max))) if room > 1 else b""
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        os.write(descriptor, data)
        os.close(descriptor)
        self._put(len(self.content), data)

    def _truncate(self) -> None:
        size = self._noise.randrange(self._size_max)
        os.ftruncate(self._descriptor, size)
        del self.content[size:]
        self.content.extend(bytes(size - len(self.content)))

    def _map_and_read(self) -> None:
        if self.content:
            offset, end = self._range(len(self.content))
            with mmap.mmap(self._descriptor, len(self.content), prot=mmap.PROT_READ) as mapped:
                assert mapped[offset:end] == self.content[offset:end], f"mapped read of {offset}-{end}"

    def _map_and_write(self) -> None:
        if self.content:
            offset, end = self._range(len(self.content))
            data = self._noise.randbytes(end - offset)
            with mmap.mmap(self._descriptor, len(self.content)) as mapped:
                mapped[offset:end] = data
                if self._noise.random() < 0.05:
                    mapped.flush()
            self._put(offset, data)

    def _copy_range(self) -> None:
        """copy_file_range(2) within the file, between ranges that do not overlap."""
        middle = len(self.content) // 2
        offset, end = self._range(middle)
        if end - offset > 0:
            copied = os.copy_file_range(self._descriptor, self._descriptor, end - offset, offset, middle)
            self._put(middle, bytes(self.content[offset : offset + copied]))

    def _allocate(self) -> None:
        """posix_fallocate(3): the size grows, no content changes."""
        offset, end = self._range(self._size_max)
        os.posix_fallocate(self._descriptor, offset, end - offset)
        self.content.extend(bytes(max(0, end - len(self.content))))

    def _punch(self) -> None:
        """FALLOC_FL_PUNCH_HOLE: zeros, and the size stays."""
        offset, end = self._range(self._size_max)
        _fallocate(self._descriptor, _PUNCH_HOLE | _KEEP_SIZE, offset, end - offset)
        end = min(end, len(self.content))
        self.content[offset:end] = bytes(max(0, end - offset))

    def _zero(self) -> None:
        """FALLOC_FL_ZERO_RANGE: zeros, and the file grows."""
        offset, end = self._range(self._size_max)
        _fallocate(self._descriptor, _ZERO_RANGE, offset, end - offset)
        self._put(offset, bytes(end - offset))

    def _seek(self) -> None:
        """SEEK_DATA, SEEK_HOLE: what is called a hole is zeros."""
        at = 0
        while at < len(self.content):
            try:
                start = os.lseek(self._descriptor, at, os.SEEK_DATA)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                start = len(self.content)
            assert not any(self.content[at:start]), f"data in the hole {at}-{start}"
            if start == len(self.content):
                break
            at = os.lseek(self._descriptor, start, os.SEEK_HOLE)
            assert start < at <= len(self.content), f"a hole at {at} after data at {start}"

    def _sync(self) -> None:
        if self._noise.random() < 0.5:
            os.fsync(self._descriptor)
        else:
            os.fdatasync(self._descriptor)

    def _drop_pages(self) -> None:
        """Make the next reads come from the filesystem."""
        os.fdatasync(self._descriptor)
        os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def _fallocate(descriptor: int, mode: int, offset: int, length: int) -> None:
    if _libc.fallocate(descriptor, mode, offset, length) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
