"""`blocksync pause`: the daemon leaves a root alone."""

from __future__ import annotations

import os

import click

from blockfs.runtime.output import note, shown
from syncer.cli.roots import PATH, LinkedRoot, Registry
from syncer.cli.several import for_each
from syncer.watch import control


@click.command("pause")
@click.argument("root", type=PATH, required=False)
def command(root: bytes | None) -> int:
    """Make `blocksync watch` leave ROOT (default: every linked root) alone, also after a restart, until `resume`."""
    registry = Registry(os.environ)

    def work(linked: LinkedRoot) -> None:
        linked.pause(paused=True)
        note(f"paused {shown(linked.path)}")

    code = for_each(registry.chosen(root), work, alone=root is not None, as_json=False)
    control.reload(registry.socket)
    return code
