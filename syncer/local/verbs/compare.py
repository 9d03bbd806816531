"""How two versions of a file differ: line by line where they are short texts, else where in them. Blocking."""

from __future__ import annotations

import difflib
import errno
import os
from typing import Final

import msgspec

CELLS: Final = 512
"""Of the picture: a file is drawn in so many pieces, whatever its size."""

MAX_TEXT_BYTES: Final = 128 << 10
MAX_TEXT_LINES: Final = 3000  # difflib takes up to the product of both
PAGE: Final = 4096
_PIECE: Final = 1 << 20

EQUAL: Final = 0
DIFFERS: Final = 1
ONLY_ONE: Final = 2
ONLY_OTHER: Final = 3


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two files, side by side.

    Attributes:
        diff: As `diff -u` has it, without the names; None: they are no short texts.
        cells: For each piece of the longer file EQUAL, DIFFERS, ONLY_ONE or ONLY_OTHER: the worst of what is in it.
        cell_bytes: How long a piece is.
        differing_bytes: In pages of 4 KiB that differ, or that only one has.
    """

    diff: tuple[str, ...] | None
    cells: bytes
    cell_bytes: int
    differing_bytes: int


def compare(one: int, other: int) -> Comparison:
    """Compare two open files; where both have a hole nothing is read."""
    sizes = os.fstat(one).st_size, os.fstat(other).st_size
    longest, shortest = max(sizes), min(sizes)
    cell_bytes = max(PAGE, -(-longest // (CELLS * PAGE)) * PAGE)
    cells = bytearray(-(-longest // cell_bytes))
    differing = 0
    rest = ONLY_ONE if sizes[0] > sizes[1] else ONLY_OTHER
    for at in _pieces((one, other), shortest):
        length = min(_PIECE, shortest - at)
        left, right = os.pread(one, length, at), os.pread(other, length, at)
        if left == right:
            continue
        for start in range(0, length, PAGE):
            end = min(start + PAGE, length)
            if left[start:end] != right[start:end]:
                differing += end - start
                cells[(at + start) // cell_bytes] = DIFFERS
    for number in range(shortest // cell_bytes, len(cells)):
        if cells[number] == EQUAL and (number + 1) * cell_bytes > shortest and longest > shortest:
            cells[number] = rest
    return Comparison(
        diff=_diff(one, other) if longest <= MAX_TEXT_BYTES else None,
        cells=bytes(cells),
        cell_bytes=cell_bytes,
        differing_bytes=differing + longest - shortest,
    )


def _pieces(files: tuple[int, int], size_bytes: int) -> list[int]:
    """Where a piece begins in which one of them has data."""
    found, at = [], 0
    while at < size_bytes:
        data = min(_next_data(file, at) for file in files)
        at = max(at, data // _PIECE * _PIECE)
        if at < size_bytes:
            found.append(at)
        at += _PIECE
    return found


def _next_data(file: int, at: int) -> int:
    """Where the next data begin; far away if there are none."""
    try:
        return os.lseek(file, at, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return 1 << 62
        return at  # a filesystem that knows no holes


def _diff(one: int, other: int) -> tuple[str, ...] | None:
    new, old = _lines(one), _lines(other)  # `+` is what is in the copy
    if new is None or old is None:
        return None
    return tuple(difflib.unified_diff(old, new, lineterm=""))[2:]


def _lines(file: int) -> list[str] | None:
    """Of a short text; None: it is none."""
    try:
        text = os.pread(file, MAX_TEXT_BYTES + 1, 0).decode()
    except UnicodeDecodeError:
        return None
    lines = text.splitlines()
    return None if "\0" in text or len(lines) > MAX_TEXT_LINES else lines
