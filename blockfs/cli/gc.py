"""`blocksync gc`: give back the space of blocks that nothing refers to."""

from __future__ import annotations

import click

from blockfs.cli.parameters import PATH, json_option, place_of
from blockfs.control.client import ControlClient
from blockfs.runtime.output import json_line
from blockfs.runtime.units import counted, format_size
from blockfs.service import offline


@click.command("gc")
@click.argument("path", metavar="VOLUME|MOUNTPOINT", type=PATH)
@json_option
def command(path: bytes, as_json: bool) -> None:
    """Remove blocks that no file refers to. A mount does this by itself; here it is done now."""
    result = place_of(path).ask(ControlClient.gc, offline.gc)
    if as_json:
        json_line("gc", {"blocks_removed": result.blocks_removed, "bytes_freed": result.bytes_freed})
    else:
        blocks = counted(result.blocks_removed, "block", "blocks")
        click.echo(f"{blocks} removed, {format_size(result.bytes_freed)} freed")
