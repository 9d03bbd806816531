"""Where two versions of a file differ."""

from __future__ import annotations

import os
import random
from pathlib import Path

from syncer.local.verbs.compare import (
    CELLS,
    DIFFERS,
    EQUAL,
    MAX_TEXT_BYTES,
    ONLY_ONE,
    ONLY_OTHER,
    PAGE,
    Comparison,
    compare,
)


def compared(folder: Path, one: bytes, other: bytes) -> Comparison:
    (folder / "one").write_bytes(one)
    (folder / "other").write_bytes(other)
    with (folder / "one").open("rb") as first, (folder / "other").open("rb") as second:
        return compare(first.fileno(), second.fileno())


def test_a_short_text_is_told_line_by_line(tmp_path: Path) -> None:
    found = compared(tmp_path, b"a\nnew\nc\n", b"a\nold\nc\n")
    assert found.diff == ("@@ -1,3 +1,3 @@", " a", "-old", "+new", " c")


def test_what_is_no_text_or_a_long_one_is_not(tmp_path: Path) -> None:
    for one in (b"a\0b", b"\xff", b"a" * (MAX_TEXT_BYTES + 1), b"\n" * 4000):
        assert compared(tmp_path, one, b"a").diff is None


def test_each_piece_says_whether_its_pages_are_equal(tmp_path: Path) -> None:
    """Against the definition, with changes and ends wherever they may be."""
    draw = random.Random(17)
    for size, other_size in ((0, 0), (1, 0), (PAGE, PAGE), (5_000_000, 5_000_000), (3_000_001, 2_999_000), (10, 9000)):
        one = bytearray(draw.randbytes(max(size, other_size)))
        other = bytearray(one[:other_size])
        one = one[:size]
        for at in (draw.randrange(len(other)) for _ in range(5) if other):
            other[at] ^= 1
        found = compared(tmp_path, bytes(one), bytes(other))
        step = found.cell_bytes
        shortest = min(size, other_size)
        assert len(found.cells) <= CELLS
        for number, cell in enumerate(found.cells):
            start, end = number * step, (number + 1) * step
            if one[start : min(end, shortest)] != other[start : min(end, shortest)]:
                assert cell == DIFFERS
            elif size == other_size or end <= shortest:
                assert cell == EQUAL
            else:
                assert cell == (ONLY_ONE if size > other_size else ONLY_OTHER)
        pages = [at for at in range(0, shortest, PAGE) if one[at:shortest][:PAGE] != other[at:shortest][:PAGE]]
        wanted = sum(min(PAGE, shortest - at) for at in pages) + abs(size - other_size)
        assert found.differing_bytes == wanted


def test_holes_are_zeros_and_are_not_read(tmp_path: Path) -> None:
    """A terabyte of nothing on both sides takes no time."""
    for name, at in (("one", 1 << 40), ("other", (1 << 40) - (8 << 30))):
        with (tmp_path / name).open("wb") as file:
            os.pwrite(file.fileno(), b"x" * PAGE, at)
            file.truncate((1 << 40) + PAGE)
    with (tmp_path / "one").open("rb") as first, (tmp_path / "other").open("rb") as second:
        found = compare(first.fileno(), second.fileno())
    assert found.differing_bytes == 2 * PAGE
    assert sum(cell == DIFFERS for cell in found.cells) == 2
