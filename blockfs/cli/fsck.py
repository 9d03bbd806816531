"""`blocksync fsck`: check the metadata."""

from __future__ import annotations

import os

import click

from blockfs.cli.parameters import PATH, Place, json_option, place_of
from blockfs.control.protocol import FsckReply
from blockfs.errors import LockedError
from blockfs.fuse import offline, upkeep
from blockfs.runtime.exitcodes import ExitCode
from blockfs.runtime.output import JsonValue, json_line, shown


@click.command("fsck")
@click.argument("path", metavar="VOLUME|MOUNTPOINT", type=PATH)
@click.option("--repair", is_flag=True, help="Rebuild the block index first. Not while mounted.")
@json_option
@click.pass_context
def command(context: click.Context, path: bytes, repair: bool, as_json: bool) -> None:
    """Check names, inodes, leaves and reference counts. Exit code 0: clean, 15: something is wrong."""
    place = place_of(path)
    if repair:
        _repair(place)
    result = _check(place)
    if as_json:
        findings: list[JsonValue] = [{"kind": found.kind, "message": found.message} for found in result.findings]
        json_line("fsck", {"clean": not findings, "inodes_checked": result.inodes_checked, "findings": findings})
    else:
        for finding in result.findings:
            click.echo(f"{finding.kind}: {finding.message}")
        click.echo(f"{result.inodes_checked} inodes checked, {len(result.findings)} findings")
    if result.findings:
        context.exit(ExitCode.CORRUPTION)


def _repair(place: Place) -> None:
    client = place.client_if_mounted()
    if client is not None:
        with client:
            raise LockedError(shown(place.volume), client.server_pid)
    offline.rebuild(place.volume)


def _check(place: Place) -> FsckReply:
    client = place.client_if_mounted()
    if client is not None:
        with client:
            return client.fsck()
    with offline.opened(place.volume) as volume:
        return upkeep.fsck(volume.blocks, volume.tree, os.path.join(place.volume, b"staging"))
