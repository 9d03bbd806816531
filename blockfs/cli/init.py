"""`blocksync init`: make an empty volume."""

from __future__ import annotations

import time

import click

from blockfs.cli.parameters import PATH
from blockfs.engine import volume as volumes
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
def command(volume: bytes, block_size: str, compression: str) -> None:
    """Make an empty VOLUME: a new or empty directory that will hold one filesystem."""
    volumes.init(volume, block_size=parse_size(block_size), compression=compression, now_ns=time.time_ns())
