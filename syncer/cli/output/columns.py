"""Tables whose last column is a path: never cut, never wrapped, whatever the terminal's width, so it can be copied."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from blockfs.runtime.output import printable
from blockfs.runtime.terminal import Paint, Painted, Painter, width_of

Cell = str | Painted


def show(title: Cell, headings: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    """Print rows below headings on stdout, aligned; a heading that begins with ">" is a column of numbers."""
    right = [heading.startswith(">") for heading in headings]
    head = [Painted(heading.lstrip(">"), Paint.FAINT) for heading in headings]
    lines = [head, *([_cell(cell) for cell in row] for row in rows)]
    widths = [max(width_of(cells[column].text) for cells in lines) for column in range(len(headings))]
    line(title)
    for cells in lines:
        parts: list[Cell] = []
        for cell, width, number in zip(cells, widths, right, strict=True):
            space = " " * (width - width_of(cell.text))
            parts += ["  ", space, cell] if number else ["  ", cell, space]
        while isinstance(parts[-1], str) and not parts[-1].strip():
            parts.pop()
        line(*parts)


def pairs(title: Cell, rows: Sequence[tuple[str, Cell]], *, numbers: bool = False) -> None:
    """Print names and what belongs to them on stdout, aligned.

    Args:
        title: The line above.
        rows: Names and texts.
        numbers: The texts are, and end below one another.
    """
    found = [(name, _cell(cell)) for name, cell in rows]
    first = max(len(name) for name, _ in found)
    second = max(width_of(cell.text) for _, cell in found) if numbers else 0
    line(title)
    for name, cell in found:
        space = " " * (second - width_of(cell.text))
        line(Painted(name.ljust(first), Paint.FAINT), "  ", space, cell)


def line(*cells: Cell) -> None:
    """Print one line on stdout, in colours where it can have them."""
    painter = Painter.of(sys.stdout, os.environ)
    click.echo("".join(painter(*_cell(cell)) for cell in cells), color=painter.is_on)


def _cell(cell: Cell) -> Painted:
    text, paint = cell if isinstance(cell, Painted) else (cell, None)
    return Painted(printable(text), paint)
