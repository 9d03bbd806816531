"""The map of a file, and the files that share most, as a terminal shows them."""

from __future__ import annotations

import re

import pytest

from blockfs.cli.maps import COLUMNS, MOST, drawn, listed, painted, rows_on
from blockfs.control.maps import BlockMapReply, CellMsg, OtherMsg, SharerMsg, SharingReply
from blockfs.runtime.terminal import Painter, rows_of
from blockfs.service.maps.blockmap import MOST_OTHERS
from tests.kit import screen

ROW = "..~~##aab+##."
LONG = b"/virtual-machines/" + b"x" * 100
TERMINAL = (screen.COLUMNS, screen.ROWS)


def height(lines: list[str]) -> int:
    return sum(rows_of(line, screen.COLUMNS) for line in lines)


def full(rows: int, path: bytes = LONG) -> BlockMapReply:
    """Each kind of block is in it, as many others as may be, and all there is to remark."""
    kinds = [(1, 0, 0, 0, -1), (0, 1, 0, 0, -1), (0, 0, 1, 0, -1), (0, 0, 0, 1, 0), (0, 0, 0, 1, -1)]
    cells = [CellMsg(holes=h, staged=s, own=o, shared=a, other=b) for h, s, o, a, b in kinds] * COLUMNS * rows
    return BlockMapReply(
        path=path, block_size=65536, size_bytes=1 << 40, blocks=1 << 24, cells=cells[: COLUMNS * rows],
        others=[OtherMsg(path=path, blocks=9) for _ in range(MOST_OTHERS)], is_whole=False, is_behind=True,
    )  # fmt: skip


def sharing(path: bytes) -> SharingReply:
    sharer = SharerMsg(path=path, size_bytes=1 << 30, blocks=9, shared=9, other=path)
    return SharingReply(
        files=9, logical_bytes=9, filled_bytes=9, unique_bytes=9, stored_bytes=9, staged_bytes=9, block_size=65536,
        sharers=[sharer] * MOST, is_whole=False,
    )  # fmt: skip


@pytest.mark.parametrize("path", [LONG, b"/web.img"])
def test_the_map_of_a_large_image_is_one_screen(path: bytes) -> None:
    rows = rows_on(TERMINAL)
    lines = drawn(full(rows, path), TERMINAL)
    assert height(lines) <= screen.ROWS - 2  # the command above, the prompt below
    assert rows == 7
    (left,) = [line for line in lines if line.startswith("…")]
    named = sum(" with /" in line for line in lines)
    assert left == f"… and {MOST_OTHERS - named} more, by the letters that follow; `--json` names them"
    assert lines[2] == ".~#a+" * 12 + ".~#a"


def test_what_is_no_terminal_gets_the_whole_map() -> None:
    lines = drawn(full(rows_on(None)))
    assert sum(" with /" in line for line in lines) == MOST_OTHERS
    assert rows_on(None) == rows_on((80, 60)) == 16


def test_the_files_that_share_most_are_one_screen() -> None:
    lines = listed(sharing(LONG), TERMINAL)
    assert height(lines) <= screen.ROWS - 2
    assert any(line.startswith("… and ") and line.endswith(" more, `--json` has them") for line in lines)
    assert len(listed(sharing(LONG))) == MOST + 1
    lines = listed(sharing(b"/web.img"), TERMINAL)
    assert height(lines) == len(lines) == MOST + 1


def test_colours_repeat_what_the_characters_say() -> None:
    assert painted(ROW, Painter(is_on=False)) == ROW
    shown = painted(ROW, Painter(is_on=True))
    assert re.sub(r"\x1b\[[0-9]+m", "", shown) == ROW
    assert shown == "\x1b[2m..\x1b[0m\x1b[36m~~\x1b[0m##\x1b[32maab+\x1b[0m##\x1b[2m.\x1b[0m"
