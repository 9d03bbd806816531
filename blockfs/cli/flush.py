"""`blocksync flush`: everything sealed and durable."""

from __future__ import annotations

import click

from blockfs.cli.parameters import PATH, json_option, place_of
from blockfs.runtime.linux import syncfs
from blockfs.runtime.output import JsonValue, json_line, shown


@click.command("flush")
@click.argument("path", type=PATH)
@json_option
def command(path: bytes, as_json: bool) -> None:
    """Turn all data written to the mount that PATH is on into blocks, and return when they are durable."""
    place = place_of(path)
    with place.client() as client:
        if place.mount is not None:
            # The kernel's pages first: the mount process can only seal what it has been given.
            syncfs(place.mount.mountpoint)
        client.flush()
        status = client.status()
    if as_json:
        cursor: dict[str, JsonValue] = {
            "generation": status.cursor.mount_generation,
            "sequence": status.cursor.sequence,
        }
        json_line("flush", {"volume": shown(status.volume), "mountpoint": shown(status.mountpoint), "cursor": cursor})
