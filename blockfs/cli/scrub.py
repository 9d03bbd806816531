"""`blocksync scrub`: read and hash every stored block."""

from __future__ import annotations

import click

from blockfs.cli.parameters import PATH, json_option, place_of
from blockfs.control.protocol import ScrubReply
from blockfs.fuse import offline, upkeep
from blockfs.runtime.exitcodes import ExitCode
from blockfs.runtime.output import json_line, shown
from blockfs.runtime.units import format_size


@click.command("scrub")
@click.argument("path", metavar="VOLUME|MOUNTPOINT", type=PATH)
@json_option
@click.pass_context
def command(context: click.Context, path: bytes, as_json: bool) -> None:
    """Hash all stored blocks. Exit code 0: clean, 15: something is damaged; each corrupt block is named."""
    result = _scrub(path)
    if as_json:
        json_line(
            "scrub",
            {
                "clean": result.clean,
                "blocks_checked": result.blocks_checked,
                "bytes_read": result.bytes_read,
                "corrupt": [block_id.hex() for block_id in result.corrupt],
                "paths": [shown(path) for path in result.paths],
                "findings": list(result.findings),
            },
        )
    else:
        for block_id in result.corrupt:
            click.echo(f"corrupt: {block_id.hex()}")
        for damaged in result.paths:
            click.echo(f"damaged file: {shown(damaged)}")
        for finding in result.findings:
            click.echo(finding)
        read = format_size(result.bytes_read)
        click.echo(f"{result.blocks_checked} blocks checked, {read} read, {len(result.corrupt)} corrupt")
    if not result.clean:
        context.exit(ExitCode.CORRUPTION)


def _scrub(path: bytes) -> ScrubReply:
    place = place_of(path)
    client = place.client_if_mounted()
    if client is not None:
        with client:
            return client.scrub()
    with offline.opened(place.volume) as volume:
        return upkeep.scrub(volume.blocks, volume.tree)
