"""`blocksync stats`: what a volume holds and what it costs."""

from __future__ import annotations

import click
import msgspec

from blockfs.cli.parameters import PATH, json_option, place_of
from blockfs.control.protocol import StatsReply
from blockfs.runtime.output import json_line, table
from blockfs.runtime.units import format_size


@click.command("stats")
@click.argument("path", type=PATH)
@json_option
def command(path: bytes, as_json: bool) -> None:
    """Show files, logical, unique and stored bytes of the mount that PATH is on.

    Figures are of the last commit, at most a second old, of what the kernel has handed over; `blocksync flush` first
    for exact ones.
    """
    with place_of(path).client() as client:
        stats = client.stats()
    if as_json:
        json_line("stats", msgspec.structs.asdict(stats))
    else:
        table(_rows(stats))


def _rows(stats: StatsReply) -> list[tuple[str, str]]:
    return [
        ("files", str(stats.files)),
        ("logical", format_size(stats.logical_bytes)),
        ("unique", format_size(stats.unique_bytes)),
        ("stored", format_size(stats.stored_bytes)),
        ("blocks", str(stats.blocks)),
        ("staged", format_size(stats.staged_bytes)),
        ("dedup ratio", f"{stats.dedup_ratio:.2f}"),
    ]
