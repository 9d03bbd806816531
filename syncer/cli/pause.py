"""`blocksync pause`: the daemon leaves a root alone."""

from __future__ import annotations

import os

import click

from blockfs.runtime.output import note, shown
from syncer.cli.roots import PATH, Registry
from syncer.watch import control


@click.command("pause")
@click.argument("root", type=PATH, required=False)
def command(root: bytes | None) -> None:
    """Make `blocksync watch` leave ROOT (default: every linked root) alone, also after a restart, until `resume`."""
    registry = Registry(os.environ)
    for linked in registry.all() if root is None else [registry.get(root)]:
        linked.pause(paused=True)
        note(f"paused {shown(linked.path)}")
    control.reload(registry.socket)
