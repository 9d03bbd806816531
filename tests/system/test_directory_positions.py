"""What generic/676 of xfstests does to a directory, on a mount and on ext4: tell, seek and rewind, and read again.

Positions come from telldir(3), and from lseek(2) beside getdents64(2). Valid ones give the entry they gave before, also
after a rewind; any other ones give something, or the end. Whoever may read a directory can ask for all of them.
"""

from __future__ import annotations

import ctypes
import os
import random
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

import pytest

from tests.system.posix import Dirent, Pair

FILES: Final = 400
SYS_GETDENTS64: Final = 217  # x86-64
_HEADER: Final = struct.Struct("<QqHB")  # d_ino, d_off, d_reclen, d_type of linux_dirent64

_libc = ctypes.CDLL(None, use_errno=True)
_libc.opendir.restype = _libc.readdir.restype = ctypes.c_void_p
_libc.telldir.restype = ctypes.c_long
for _function in ("readdir", "telldir", "closedir", "rewinddir"):
    getattr(_libc, _function).argtypes = [ctypes.c_void_p]
_libc.seekdir.argtypes = [ctypes.c_void_p, ctypes.c_long]

Entry = tuple[int, bytes]
"""Inode and name."""


class Reader(Protocol):
    """One way to read a directory entry by entry."""

    def tell(self) -> int: ...
    def seek(self, position: int) -> None: ...
    def rewind(self) -> None: ...
    def read(self) -> Entry | None: ...


class LibraryReader:
    """opendir(3) and its relatives."""

    def __init__(self, path: Path) -> None:
        self._stream = _libc.opendir(os.fsencode(path))
        assert self._stream

    def tell(self) -> int:
        return int(_libc.telldir(self._stream))

    def seek(self, position: int) -> None:
        _libc.seekdir(self._stream, position)

    def rewind(self) -> None:
        _libc.rewinddir(self._stream)

    def read(self) -> Entry | None:
        ctypes.set_errno(0)
        found = _libc.readdir(self._stream)
        assert found or ctypes.get_errno() == 0, os.strerror(ctypes.get_errno())
        if not found:
            return None
        entry = Dirent.from_address(found)
        return entry.d_ino, entry.d_name

    def close(self) -> None:
        _libc.closedir(self._stream)


class KernelReader:
    """getdents64(2) with a buffer for few entries; goes on behind the first of them."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        self._buffer = ctypes.create_string_buffer(280)

    def tell(self) -> int:
        return os.lseek(self._descriptor, 0, os.SEEK_CUR)

    def seek(self, position: int) -> None:
        os.lseek(self._descriptor, position, os.SEEK_SET)

    def rewind(self) -> None:
        self.seek(0)

    def read(self) -> Entry | None:
        size = _libc.syscall(SYS_GETDENTS64, self._descriptor, self._buffer, len(self._buffer))
        assert size >= 0, os.strerror(ctypes.get_errno())
        if not size:
            return None
        ino, following, length, _ = _HEADER.unpack_from(self._buffer)
        self.seek(following)
        return ino, self._buffer.raw[_HEADER.size : length].split(b"\0", 1)[0]

    def close(self) -> None:
        os.close(self._descriptor)


READERS: dict[str, Callable[[Path], LibraryReader | KernelReader]] = {
    "libc": LibraryReader,
    "getdents": KernelReader,
}


@contextmanager
def reading(kind: str, path: Path) -> Iterator[Reader]:
    reader = READERS[kind](path)
    try:
        yield reader
    finally:
        reader.close()


@pytest.fixture(params=["mount", "ext4"])
def directory(pair: Pair, request: pytest.FixtureRequest) -> Path:
    path: Path = getattr(pair, request.param)
    chooser = random.Random(676)
    for number in range(FILES):
        letters = "".join(chooser.choices("abcdefghijklmnopqrstuvwxyz", k=chooser.randrange(8, 70)))
        (path / f"{letters}{number}").touch()
    return path


@pytest.fixture(params=list(READERS))
def reader(directory: Path, request: pytest.FixtureRequest) -> Iterator[Reader]:
    with reading(request.param, directory) as opened:
        yield opened


def entries_of(reader: Reader) -> list[tuple[int, Entry]]:
    """All entries, each with the position before it."""
    found = []
    while True:
        position = reader.tell()
        entry = reader.read()
        if entry is None:
            return found
        found.append((position, entry))


def test_told_positions_give_the_same_entries_in_any_order_and_after_a_rewind(reader: Reader) -> None:
    entries = entries_of(reader)
    assert len({name for _, (_, name) in entries}) == len(entries) == FILES + 2
    chooser = random.Random(1)
    for rewinds in (False, True):
        for position, entry in chooser.sample(entries, len(entries)):
            if rewinds:
                reader.rewind()
                reader.read()
            reader.seek(position)
            assert reader.read() == entry


def test_the_position_of_the_last_entry_gives_it_after_a_rewind(reader: Reader) -> None:
    """It ended the mount, and with it everybody's unsynced data."""
    (_, first), *_, (position, last) = entries_of(reader)
    reader.rewind()
    assert reader.read() == first
    reader.seek(position)
    assert reader.read() == last
    assert reader.read() is None


def test_any_other_position_gives_something_or_the_end(reader: Reader, directory: Path) -> None:
    positions = [position for position, _ in entries_of(reader)]
    names = set(os.listdir(directory)) | {".", ".."}
    chooser = random.Random(2)
    for position in [chooser.randrange(max(positions)) for _ in range(FILES)] + [1, 2, FILES + 2, FILES + 3, 2**62]:
        reader.seek(position)
        entry = reader.read()
        assert entry is None or os.fsdecode(entry[1]) in names
    reader.rewind()
    assert len(entries_of(reader)) == FILES + 2


def test_positions_in_a_directory_that_changes_meanwhile_end_nothing(reader: Reader, directory: Path) -> None:
    entries = entries_of(reader)
    chooser = random.Random(3)
    for position, (_, name) in chooser.sample(entries[2:], 100):
        (directory / os.fsdecode(name)).unlink(missing_ok=True)
        reader.rewind()
        reader.read()
        reader.seek(position)
        reader.read()
    reader.rewind()
    left = {os.fsdecode(name) for _, (_, name) in entries_of(reader)}
    assert left == set(os.listdir(directory)) | {".", ".."}
