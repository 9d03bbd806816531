"""`blocksync resume`: the daemon goes on with a root."""

from __future__ import annotations

import os

import click

from blockfs.runtime.output import note, shown
from syncer.cli.roots import PATH, LinkedRoot, Registry
from syncer.cli.several import for_each
from syncer.watch import control


@click.command("resume")
@click.argument("root", type=PATH, required=False)
def command(root: bytes | None) -> int:
    """Make `blocksync watch` go on with ROOT (default: every linked root) after `pause`."""
    registry = Registry(os.environ)

    def work(linked: LinkedRoot) -> None:
        linked.pause(paused=False)
        note(f"resumed {shown(linked.path)}")

    code = for_each(registry.chosen(root), work, alone=root is not None, as_json=False)
    control.reload(registry.socket)
    return code
