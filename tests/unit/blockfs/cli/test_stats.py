"""What `stats` prints: one screen, however much a volume holds."""

from __future__ import annotations

import contextlib

import pytest

from blockfs.cli import stats
from blockfs.control.protocol import StatsReply
from tests.kit import screen

MUCH = StatsReply(
    files=123_456_789, logical_bytes=(1 << 60) - 1, unique_bytes=(1 << 50) - 1, stored_bytes=(1 << 50) - 1,
    blocks=1 << 34, staged_bytes=(1 << 40) - 1, dedup_ratio=12_345.67, frontend="pyfuse3", mode="writeback",
    mode_reason="writes go through the mount process into staging: " + "a reason of many words " * 6,
)  # fmt: skip


def test_a_volume_with_millions_of_files_is_one_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    screen.set_terminal(monkeypatch)
    seen = screen.Screen()
    with contextlib.redirect_stdout(seen):
        stats._tell(MUCH)
    assert seen.height < screen.ROWS - 1
    assert max(map(len, seen.lines[:-1])) <= screen.COLUMNS  # only the reason is wrapped
    assert seen.lines[0].split() == ["files", "123456789"]
    assert seen.lines[-1].startswith("writeback: writes go through")
