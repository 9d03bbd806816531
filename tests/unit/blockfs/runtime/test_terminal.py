"""Colours, and where there are none; how wide texts are."""

from __future__ import annotations

import io

import pytest
from rich.style import Style

from blockfs.runtime.terminal import Paint, Painter, cut, fitting, rows_of, size_of, width_of


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_colours() -> None:
    painter = Painter.of(Terminal(), {"TERM": "xterm"})
    assert painter("ok", Paint.GOOD) == "\x1b[32mok\x1b[0m"
    assert painter("ok") == "ok"
    assert painter("", Paint.GOOD) == ""


def test_rich_knows_each_of_them() -> None:
    assert all(Style.parse(paint.style) for paint in Paint)


@pytest.mark.parametrize(
    ("stream", "environment"),
    [
        (io.StringIO(), {"TERM": "xterm"}),
        (Terminal(), {"TERM": "dumb"}),
        (Terminal(), {}),
        (Terminal(), {"TERM": "xterm", "NO_COLOR": "1"}),
    ],
    ids=["no terminal", "dumb", "no TERM", "NO_COLOR"],
)
def test_nothing_else_gets_any(stream: io.StringIO, environment: dict[str, str]) -> None:
    assert Painter.of(stream, environment)("bad", Paint.BAD) == "bad"


def test_an_empty_variable_says_nothing() -> None:
    """https://no-color.org: "when present and not an empty string"."""
    assert Painter.of(Terminal(), {"TERM": "xterm", "NO_COLOR": ""}).is_on


def test_what_a_name_brings_is_no_colour() -> None:
    """A name from another computer paints nothing, and ends no colour of ours."""
    assert Painter(is_on=True)("a\x1b[0mb", Paint.BAD) == "\x1b[31ma\\x1b[0mb\x1b[0m"
    assert Painter(is_on=False)("a\x1b[0mb\n", Paint.BAD) == "a\\x1b[0mb\\x0a"


@pytest.mark.parametrize(
    ("text", "width"), [("", 0), ("abc", 3), ("é", 1), ("e\u0301", 1), ("日本", 4), ("a\u200bb", 2), ("한", 2)]
)
def test_widths_are_columns(text: str, width: int) -> None:
    assert width_of(text) == width


@pytest.mark.parametrize(
    ("text", "columns", "expected"),
    [("abc", 3, "abc"), ("abcd", 3, "ab…"), ("日本語", 5, "日本…"), ("日本語", 4, "日…"), ("日本語", 6, "日本語")],
)
def test_what_is_cut_fits(text: str, columns: int, expected: str) -> None:
    assert cut(text, columns) == expected
    assert width_of(expected) <= columns


def test_what_is_no_terminal_has_no_size() -> None:
    assert size_of(io.StringIO()) is None


@pytest.mark.parametrize(("text", "rows"), [("", 1), ("x" * 10, 1), ("x" * 11, 2), ("語" * 6, 2), ("\x1b" * 5, 2)])
def test_a_line_takes_the_rows_in_which_it_is_wrapped(text: str, rows: int) -> None:
    assert rows_of(text, 10) == rows


@pytest.mark.parametrize(
    ("lengths", "rows", "kept"),
    [
        ([], 3, 0),
        ([1, 1, 1], 3, 3),
        ([1, 1, 1, 1], 3, 2),  # and a row for a word on the rest
        ([11, 1, 1], 3, 1),
        ([11, 1], 3, 2),
        ([50, 1], 3, 1),
        ([50], 3, 1),
        ([1, 1], 0, 1),
    ],
)
def test_what_does_not_fit_leaves_a_row_for_a_word_on_it(lengths: list[int], rows: int, kept: int) -> None:
    assert fitting(["x" * length for length in lengths], 10, rows) == kept
