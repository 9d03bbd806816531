"""`blocksync init`: make an empty volume."""

from __future__ import annotations

import time

import click

from blockfs.cli.parameters import PATH, json_option
from blockfs.engine import volume as volumes
from blockfs.runtime.output import JsonValue, json_line, shown
from blockfs.runtime.units import parse_size


@click.command("init")
@click.argument("volume", type=PATH)
@click.option("--block-size", default="64KiB", show_default=True, help="A power of two, 4KiB to 4MiB; fixed for ever.")
@click.option(
    "--compression",
    type=click.Choice(volumes.COMPRESSIONS),
    default=volumes.DEFAULT_COMPRESSION,
    show_default=True,
    help="Of new blocks; fixed for ever.",
)
@json_option
def command(volume: bytes, block_size: str, compression: str, as_json: bool) -> None:
    """Make an empty VOLUME: a new or empty directory that will hold one filesystem."""
    made = volumes.init(volume, block_size=parse_size(block_size), compression=compression, now_ns=time.time_ns())
    if as_json:
        fields: dict[str, JsonValue] = {"volume": shown(made.path), "uuid": made.uuid}
        json_line("init", {**fields, "block_size": made.block_size, "compression": made.compression})
