"""`blocksync resume`: the daemon goes on with a root."""

from __future__ import annotations

import os

import click

from blockfs.runtime.output import note, shown
from syncer.cli.roots import PATH, Registry
from syncer.watch import control


@click.command("resume")
@click.argument("root", type=PATH, required=False)
def command(root: bytes | None) -> None:
    """Make `blocksync watch` go on with ROOT (default: every linked root) after `pause`."""
    registry = Registry(os.environ)
    for linked in registry.all() if root is None else [registry.get(root)]:
        linked.pause(paused=False)
        note(f"resumed {shown(linked.path)}")
    control.reload(registry.socket)
