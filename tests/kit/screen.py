"""A terminal of 80 columns and 24 rows: what a command prints on it, and how many rows that takes."""

from __future__ import annotations

import io
import re
from typing import Final

import pytest

from blockfs.runtime.terminal import rows_of

COLUMNS: Final = 80
ROWS: Final = 24
_COLOURS: Final = re.compile(r"\x1b\[[0-9]+m")


class Screen(io.StringIO):
    """Stands for stdout or stderr, or for both."""

    def isatty(self) -> bool:
        return True

    @property
    def lines(self) -> list[str]:
        """What was printed, without its colours."""
        return _COLOURS.sub("", self.getvalue()).splitlines()

    @property
    def height(self) -> int:
        """Rows that it takes, as lines are wrapped."""
        return sum(rows_of(line, COLUMNS) for line in self.lines)

    @property
    def width(self) -> int:
        """Columns of its longest line."""
        return max(map(len, self.lines))


def set_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where commands ask for the size of the terminal, it is that one's."""
    for name, value in {"COLUMNS": str(COLUMNS), "LINES": str(ROWS), "TERM": "xterm"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
