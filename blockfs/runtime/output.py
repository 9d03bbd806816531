"""What commands print: results on stdout, everything else on stderr, JSON lines on request."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

JSON_VERSION: Final = 1
"""Version of every JSON line: rises when a key changes its meaning or goes away, not when one is added."""

_UNSEEN: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\u2028\u2029]")
"""C0, DEL, C1; what turns the direction of text, and ends of lines and paragraphs."""

JsonValue = str | int | float | bool | None | list["JsonValue"] | dict[str, "JsonValue"]


def json_line(kind: str, fields: Mapping[str, JsonValue], *, flush: bool = True) -> None:
    """Print one JSON object on stdout: {"type": kind, "version": 1, …}.

    Args:
        kind: Its type.
        fields: The rest.
        flush: Now; else with the next line that is, at the latest.
    """
    line: dict[str, JsonValue] = {"type": kind, "version": JSON_VERSION, **fields}
    sys.stdout.write(msgspec.json.encode(line).decode() + "\n")  # click.echo looks at the stream anew for each line
    if flush:
        sys.stdout.flush()


def table(rows: Iterable[tuple[str, str]]) -> None:
    """Print names and values in two aligned columns on stdout."""
    from rich.console import Console  # noqa: PLC0415 - 25 ms, where nobody looks at a table
    from rich.table import Table  # noqa: PLC0415 - the same

    grid = Table.grid(padding=(0, 2))
    grid.add_column()
    grid.add_column(justify="right")
    for name, value in rows:
        grid.add_row(printable(name), printable(value))
    Console(file=sys.stdout, highlight=False, markup=False).print(grid)


def note(message: str) -> None:
    """Tell the user something that is no result, on stderr."""
    import click  # noqa: PLC0415 - 2 MB, where nothing is told

    click.echo(printable(message), err=True)


def tell(text: str) -> None:
    """Print a line of a result on stdout."""
    import click  # noqa: PLC0415 - the same

    click.echo(printable(text))


def printable(text: str) -> str:
    r"""One line for who reads: control characters, ends of lines too, appear as `\xNN`, marks of direction as `\uNNNN`.

    Names of files come from other computers; an escape sequence in one would be carried out by the terminal, and a
    newline in one would make a line that whoever reads the output takes for another message. A mark would turn what
    follows: `invoice<U+202E>fdp.exe` would read as a PDF.
    """
    return _UNSEEN.sub(_named, text)


def _named(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def shown(path: bytes) -> str:
    r"""A path for messages and JSON: bytes that are not UTF-8 appear as `\xNN`."""
    return path.decode("utf-8", "backslashreplace")
