"""What a terminal shows: colours and what they mean, how wide a text is, how much fits.

One place decides about colours. There are none where the output is no terminal, where `NO_COLOR` is set
(https://no-color.org), and where the terminal can't (`TERM=dumb`, or no TERM). A colour repeats what a word beside it
says: nothing is told by colour alone.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple, TextIO

import click

from blockfs.runtime.output import printable

_USUAL_SIZE: Final = (80, 24)
_CUT: Final = "…"


class Paint(Enum):
    """What a colour means; the value is what SGR (ECMA-48) calls it. The terminal's own palette chooses the shade."""

    GOOD = "32"  # as it should be
    BUSY = "36"  # something is at work
    WARN = "33"  # it is coped with; worth a look
    BAD = "31"  # a person must act
    FAINT = "2"  # of less concern than what is beside it
    STRONG = "1"  # what the lines below are about

    @property
    def style(self) -> str:
        """The same as rich calls it."""
        return {"32": "green", "36": "cyan", "33": "yellow", "31": "red", "2": "dim", "1": "bold"}[self.value]


class Painted(NamedTuple):
    """A text and what it means; None: nothing in particular."""

    text: str
    paint: Paint | None = None


class Painter:
    """Paints, or does not.

    Attributes:
        is_on: Whether it does.
    """

    def __init__(self, *, is_on: bool) -> None:
        self.is_on: Final = is_on

    @classmethod
    def of(cls, stream: TextIO, environment: Mapping[str, str]) -> Painter:
        """What fits a stream.

        Args:
            stream: Where the text goes.
            environment: Of the process: NO_COLOR, TERM.
        """
        able = environment.get("TERM", "dumb") != "dumb" and not environment.get("NO_COLOR")
        return cls(is_on=able and stream.isatty())

    def __call__(self, text: str, paint: Paint | None = None) -> str:
        """A text for this stream. Control characters that are in it appear as `printable` has them."""
        plain = printable(text)
        return f"\x1b[{paint.value}m{plain}\x1b[0m" if self.is_on and paint is not None and plain else plain


def complain(message: str) -> None:
    """Tell on stderr what went wrong, in one line."""
    painter = Painter.of(sys.stderr, os.environ)
    click.echo(painter(f"blocksync: {message}", Paint.BAD), err=True, color=painter.is_on)


def size_of(stream: TextIO) -> tuple[int, int] | None:
    """Columns and rows of the terminal that a stream writes to; None: it is none, and nothing has to fit."""
    if not stream.isatty():
        return None
    import shutil  # noqa: PLC0415 - with all that packs files, for who looks

    columns, rows = shutil.get_terminal_size(_USUAL_SIZE)
    return columns, rows


def width_of(text: str) -> int:
    """How many columns a text takes: letters of East Asia take two, marks above a letter none."""
    if text.isascii():
        return len(text)
    return sum(_width(character) for character in text)


def rows_of(text: str, columns: int) -> int:
    """How many rows of a terminal a line takes, as it is wrapped there."""
    return max(1, -(-width_of(printable(text)) // columns))


def fitting(lines: Sequence[str], columns: int, rows: int) -> int:
    """How many lines a terminal has room for, from the first on, which counts in any case.

    Where these are not all of them, a row is left for a line that says so.
    """
    left = rows
    for done, text in enumerate(lines):
        takes = rows_of(text, columns)
        if done and takes > left - (done + 1 < len(lines)):
            return done
        left -= takes
    return len(lines)


def _width(character: str) -> int:
    import unicodedata  # noqa: PLC0415 - its tables, for names that are not ASCII

    if unicodedata.combining(character) or unicodedata.category(character) in {"Cf", "Me", "Mn"}:
        return 0
    return 2 if unicodedata.east_asian_width(character) in {"F", "W"} else 1


def cut(text: str, columns: int) -> str:
    """The beginning of a text that takes at most so many columns; an ellipsis says that there is more."""
    if width_of(text) <= columns:
        return text
    taken, kept = width_of(_CUT), []
    for character in text:
        taken += _width(character)
        if taken > columns:
            break
        kept.append(character)
    return "".join(kept) + _CUT
