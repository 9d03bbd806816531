"""Pictures of dedup for a terminal, in characters that every terminal has: `stats --map`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final

import click

from blockfs.cli.parameters import Place
from blockfs.control.client import ControlClient
from blockfs.control.maps import BlockMapReply, CellMsg, SharerMsg, SharingReply
from blockfs.errors import UsageError
from blockfs.runtime.output import JsonValue, json_line, printable, shown, tell
from blockfs.runtime.terminal import Paint, Painter, fitting, rows_of, size_of
from blockfs.runtime.units import format_size

COLUMNS: Final = 64
ROWS: Final = 16
MOST: Final = 20
"""Files that are listed."""

_HOLE, _STAGED, _OWN, _MORE = ".", "~", "#", "+"
_LETTERS: Final = "abcdefghijklmnop"
_BAR: Final = 20
_ABOVE: Final = 2  # lines of `drawn` before the map
_AROUND: Final = 2  # rows of the screen that are not ours: the command, and the next prompt
_KEY: Final = 10  # rows for what the characters of a map mean, before half of the screen is the map
_LEAST: Final = 4
_PAINTS: Final = {_HOLE: Paint.FAINT, _STAGED: Paint.BUSY, _OWN: None}


def show(place: Place, path: bytes, *, as_json: bool) -> None:
    """Draw the map of a file, or list which files of a mount share most.

    Args:
        place: Where the path is.
        path: A file on a mount; else the whole mount is meant.
        as_json: Print one JSON object.

    Raises:
        UsageError: The mount is of a release that draws no maps.
    """
    with place.client() as client:
        if not client.draws_maps:
            raise UsageError("the mount is of an older release, which draws no maps; unmount it and mount it again")
        inside = None if os.path.isdir(path) or place.mount is None else place.mount.inside(os.path.realpath(path))
        if inside is None:
            _show_sharing(client, as_json=as_json)
        else:
            _show_map(client, inside, as_json=as_json)


def _show_map(client: ControlClient, path: bytes, *, as_json: bool) -> None:
    size = None if as_json else size_of(sys.stdout)
    found = client.block_map(path, COLUMNS * rows_on(size))
    if as_json:
        json_line("map", map_fields(found))
    else:
        painter = Painter.of(sys.stdout, os.environ)
        rows = range(_ABOVE, _ABOVE + -(-len(found.cells) // COLUMNS))
        for number, line in enumerate(drawn(found, size)):
            click.echo(painted(line, painter) if number in rows else painter(line), color=painter.is_on)


def painted(marks: str, painter: Painter) -> str:
    """A row of the map in colours, which repeat what its characters say: shared ones are what dedup saves."""
    runs = groupby(marks, key=lambda mark: _PAINTS.get(mark, Paint.GOOD))
    return "".join(painter("".join(run), paint) for paint, run in runs)


def _show_sharing(client: ControlClient, *, as_json: bool) -> None:
    found = client.sharing(MOST)
    if as_json:
        json_line("sharing", sharing_fields(found))
    else:
        for line in listed(found, size_of(sys.stdout)):
            tell(line)


def map_fields(found: BlockMapReply) -> dict[str, JsonValue]:
    """The keys of `stats --map FILE --json`; a cell: holes, staged, own, shared, which of the others."""
    return {
        "path": shown(found.path),
        "size_bytes": found.size_bytes,
        "block_size": found.block_size,
        "blocks": found.blocks,
        "cells": [[each.holes, each.staged, each.own, each.shared, each.other] for each in found.cells],
        "others": [{"path": shown(each.path), "blocks": each.blocks} for each in found.others],
        "is_whole": found.is_whole,
        "is_behind": found.is_behind,
    }


def sharing_fields(found: SharingReply) -> dict[str, JsonValue]:
    """The keys of `stats --map --json` of a mount."""
    return {
        "files": found.files,
        "logical_bytes": found.logical_bytes,
        "filled_bytes": found.filled_bytes,
        "unique_bytes": found.unique_bytes,
        "stored_bytes": found.stored_bytes,
        "staged_bytes": found.staged_bytes,
        "block_size": found.block_size,
        "sharers": [
            {
                "path": shown(each.path),
                "size_bytes": each.size_bytes,
                "blocks": each.blocks,
                "shared": each.shared,
                "other": shown(each.other),
            }
            for each in found.sharers
        ],
        "is_whole": found.is_whole,
    }


def rows_on(size: tuple[int, int] | None) -> int:
    """How many rows a map has on a terminal of so many columns and rows; None: it is none."""
    return ROWS if size is None else max(_LEAST, min(ROWS, (size[1] - _KEY) // 2))


def drawn(found: BlockMapReply, size: tuple[int, int] | None = None) -> list[str]:
    """The map of a file, line by line; on a terminal of so many columns and rows it fits, unless that is tiny. Pure."""
    if not found.cells:
        return [f"{shown(found.path)} is empty"]
    each = -(-found.blocks // len(found.cells))
    scale = format_size(found.block_size)
    scale = f"a block of {scale}" if each == 1 else f"{each} blocks of {scale}: what most of them are"
    marks = "".join(_mark(cell) for cell in found.cells)
    totals = [
        sum(numbers) for numbers in zip(*((c.holes, c.staged, c.own, c.shared) for c in found.cells), strict=True)
    ]
    lines = [
        f"{shown(found.path)}: {format_size(found.size_bytes)}",
        f"each character is {scale}",
        *(marks[at : at + COLUMNS] for at in range(0, len(marks), COLUMNS)),
        "",
    ]
    names = ((_HOLE, "holes"), (_STAGED, "staged, not sealed yet"), (_OWN, "its own"), (" ", "shared"))
    lines += [
        f"{mark} {_amount(count, found)}  {name}" for (mark, name), count in zip(names, totals, strict=True) if count
    ]
    others = [
        f"{letter} {_amount(other.blocks, found)}  with {shown(other.path)}"
        for letter, other in zip(_LETTERS, found.others, strict=False)
    ]
    below = [f"{_MORE} with others"] if any(cell.shared and cell.other < 0 for cell in found.cells) else []
    below += _remarks(is_whole=found.is_whole, is_behind=found.is_behind)
    return [*lines, *_some(others, size, (*lines, *below), "by the letters that follow; `--json` names them"), *below]


def listed(found: SharingReply, size: tuple[int, int] | None = None) -> list[str]:
    """Files that share most, a line each; on a terminal of so many columns and rows those that fit. Pure."""
    if not found.sharers:
        return ["no file shares a block with another one", *_remarks(is_whole=found.is_whole)]
    width = min(40, max(len(printable(shown(each.path))) for each in found.sharers))
    lines = [
        f"{printable(shown(each.path)):<{width}}  {format_size(each.size_bytes):>9}  [{_bar(each)}] "
        f"{100 * each.shared // each.blocks:3} % shared, most with {shown(each.other)}"
        for each in found.sharers
    ]
    below = [*_remarks(is_whole=found.is_whole)]
    return [*_some(lines, size, below, "`--json` has them"), *below]


def _some(lines: list[str], size: tuple[int, int] | None, about: Sequence[str], where: str) -> list[str]:
    """The lines for which a terminal has room beside others, and how many are left."""
    if size is None:
        return lines
    taken = _AROUND + sum(rows_of(line, size[0]) for line in about)
    kept = fitting(lines, size[0], size[1] - taken)
    return lines if kept == len(lines) else [*lines[:kept], f"… and {len(lines) - kept} more, {where}"]


def _mark(cell: CellMsg) -> str:
    """The character of a cell: what most of its blocks are."""
    shared = _LETTERS[cell.other] if 0 <= cell.other < len(_LETTERS) else _MORE
    marks = ((cell.staged, _STAGED), (cell.own, _OWN), (cell.shared, shared), (cell.holes, _HOLE))
    return max(marks, key=lambda each: each[0])[1]


def _amount(blocks: int, found: BlockMapReply) -> str:
    return f"{format_size(blocks * found.block_size):>9} {100 * blocks / found.blocks:5.1f} %"


def _bar(sharer: SharerMsg) -> str:
    full = round(_BAR * sharer.shared / sharer.blocks)
    return "=" * full + " " * (_BAR - full)


def _remarks(*, is_whole: bool, is_behind: bool = False) -> Iterable[str]:
    if not is_whole:
        yield "shared and own are estimated, from blocks chosen by chance"
    if is_behind:
        yield "it is being written, and the host does not tell where: what is staged is not told apart"
