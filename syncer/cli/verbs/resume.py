"""`blocksync resume`: the daemon goes on with a root."""

from __future__ import annotations

import click

from syncer.cli.paths import PATH
from syncer.cli.pausing import set_paused


@click.command("resume")
@click.argument("root", type=PATH, required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per root, and a summary.")
def command(root: bytes | None, as_json: bool) -> int:
    """Make `blocksync watch` go on with ROOT (default: every linked root) after `pause`."""
    return set_paused(root, paused=False, as_json=as_json)
