"""`blocksync flush`: everything sealed and durable."""

from __future__ import annotations

import click

from blockfs.cli.parameters import PATH, place_of
from blockfs.runtime.linux import syncfs


@click.command("flush")
@click.argument("path", type=PATH)
def command(path: bytes) -> None:
    """Turn all data written to the mount that PATH is on into blocks, and return when they are durable."""
    place = place_of(path)
    with place.client() as client:
        if place.mount is not None:
            # The kernel's pages first: the mount process can only seal what it has been given.
            syncfs(place.mount.mountpoint)
        client.flush()
