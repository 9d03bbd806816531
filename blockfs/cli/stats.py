"""`blocksync stats`: what a volume holds and what it costs."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

import click
import msgspec

from blockfs.cli.parameters import PATH, json_option, place_of
from blockfs.control.protocol import StatsReply
from blockfs.errors import UsageError
from blockfs.runtime.output import json_line, shown, tell
from blockfs.runtime.terminal import Paint, Painter
from blockfs.runtime.units import format_size


@click.command("stats")
@click.argument("path", type=PATH)
@json_option
@click.option("--metrics", "as_metrics", is_flag=True, help="Print all figures in the text format of Prometheus.")
@click.option("--map", "as_map", is_flag=True, help="Draw what PATH shares: a file block by block, or all files.")
def command(path: bytes, as_json: bool, as_metrics: bool, as_map: bool) -> None:
    """Show files, logical, unique and stored bytes of the mount that PATH is on.

    Figures are of the last commit, at most a second old, of what the kernel has handed over; `blocksync flush` first
    for exact ones.
    """
    if as_metrics and (as_json or as_map):
        raise UsageError("--metrics is text for Prometheus: it goes with neither --json nor --map")
    place = place_of(path)
    if as_map:
        importlib.import_module("blockfs.cli.maps").show(place, path, as_json=as_json)
        return
    with place.client() as client:
        stats = client.stats()
    if as_metrics:
        # Imported when asked for: the library costs more than all the rest of this command.
        metrics = importlib.import_module("blockfs.cli.metrics")
        click.echo(metrics.exposition(shown(place.volume), stats), nl=False)
    elif as_json:
        json_line("stats", msgspec.structs.asdict(stats))
    else:
        _tell(stats)


def _tell(stats: StatsReply) -> None:
    _show(_rows(stats))
    if stats.mode_reason:
        tell(f"{stats.mode}: {stats.mode_reason}")


def _show(rows: Sequence[tuple[str, str, str]]) -> None:
    """Print names, figures and what they mean, aligned."""
    painter = Painter.of(sys.stdout, os.environ)
    first, second = (max(len(row[column]) for row in rows) for column in (0, 1))
    for name, figure, meaning in rows:
        line = f"{name.ljust(first)}  {figure.rjust(second)}"
        click.echo(f"{line}  {painter(meaning, Paint.FAINT)}" if meaning else line, color=painter.is_on)


def _rows(stats: StatsReply) -> list[tuple[str, str, str]]:
    return [
        ("files", str(stats.files), ""),
        ("logical", format_size(stats.logical_bytes), "what programs see, holes included"),
        ("unique", format_size(stats.unique_bytes), "what is left of it without holes and repetitions"),
        ("stored", format_size(stats.stored_bytes), "what the volume takes on its host"),
        ("blocks", str(stats.blocks), ""),
        ("staged", format_size(stats.staged_bytes), "written, and not blocks yet"),
        ("dedup ratio", f"{stats.dedup_ratio:.2f}", "how often a byte is used"),
        ("front-end", stats.frontend or "?", ""),  # "?": its mount process is older than the figure
        ("mode", stats.mode or "?", ""),
    ]
