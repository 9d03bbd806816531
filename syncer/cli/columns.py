"""Tables whose last column is a path: never cut, never wrapped, whatever the terminal's width, so it can be copied."""

from __future__ import annotations

from collections.abc import Sequence

import click


def show(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows below headings on stdout, aligned; a heading that begins with ">" is a column of numbers."""
    right = [heading.startswith(">") for heading in headings]
    lines = [[heading.lstrip(">") for heading in headings], *(list(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    click.echo(title)
    for line in lines:
        cells = [
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(line, widths, right, strict=True)
        ]
        click.echo("  " + "  ".join(cells).rstrip())
