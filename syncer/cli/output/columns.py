"""Tables whose last column is a path: never cut, never wrapped, whatever the terminal's width, so it can be copied."""

from __future__ import annotations

from collections.abc import Sequence

from blockfs.runtime.output import printable, tell


def show(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows below headings on stdout, aligned; a heading that begins with ">" is a column of numbers."""
    right = [heading.startswith(">") for heading in headings]
    lines = [[heading.lstrip(">") for heading in headings], *([printable(cell) for cell in row] for row in rows)]
    widths = [max(len(cells[column]) for cells in lines) for column in range(len(headings))]
    tell(title)
    for each in lines:
        cells = [
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(each, widths, right, strict=True)
        ]
        tell("  " + "  ".join(cells).rstrip())


def pairs(title: str, rows: Sequence[tuple[str, str]], *, numbers: bool = False) -> None:
    """Print names and what belongs to them on stdout, aligned.

    Args:
        title: The line above.
        rows: Names and texts.
        numbers: The texts are, and end below one another.
    """
    first = max(len(name) for name, _ in rows)
    second = max(len(text) for _, text in rows) if numbers else 0
    tell(title)
    for name, text in rows:
        tell(f"{name.ljust(first)}  {printable(text).rjust(second)}")
