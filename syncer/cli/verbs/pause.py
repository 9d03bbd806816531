"""`blocksync pause`: the daemon leaves a root alone."""

from __future__ import annotations

import click

from syncer.cli.paths import PATH
from syncer.cli.pausing import set_paused


@click.command("pause")
@click.argument("root", type=PATH, required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per root, and a summary.")
def command(root: bytes | None, as_json: bool) -> int:
    """Make `blocksync watch` leave ROOT (default: every linked root) alone, also after a restart, until `resume`."""
    return set_paused(root, paused=True, as_json=as_json)
