"""`blocksync resume`: the daemon goes on with a root."""

from __future__ import annotations

import os

import click

from blockfs.runtime.output import json_line, note, shown
from syncer.cli.roots import PATH, LinkedRoot, Registry
from syncer.cli.several import for_each
from syncer.watch import control


@click.command("resume")
@click.argument("root", type=PATH, required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per root, and a summary.")
def command(root: bytes | None, as_json: bool) -> int:
    """Make `blocksync watch` go on with ROOT (default: every linked root) after `pause`."""
    registry = Registry(os.environ)
    done = 0

    def work(linked: LinkedRoot) -> None:
        nonlocal done
        linked.pause(paused=False)
        done += 1
        if as_json:
            json_line("resume", {"root": shown(linked.path), "uuid": linked.record.uuid, "paused": False})
        else:
            note(f"resumed {shown(linked.path)}")

    code = for_each(registry.chosen(root), work, alone=root is not None, as_json=as_json)
    told = control.reload(registry.socket)
    if as_json:
        json_line("summary", {"roots": done, "daemon": told})
    return code
