"""`blocksync repo repack`: write packs anew that are mostly of no use."""

from __future__ import annotations

import click
import msgspec

from blockfs.runtime.output import json_line, note, tell
from blockfs.runtime.units import counted, format_size
from syncer.cli.repo.maintenance import maintained, maintenance_options
from syncer.cli.repo.place import Place
from syncer.remote.repository.maintenance.repacking import Repacker


@click.command("repack")
@maintenance_options
def command(place: Place, keep: str | None, dry_run: bool, as_json: bool) -> None:
    """Write packs of the repository at URL anew of which less than half is needed.

    What is needed of them is read and written; the old packs are condemned, and `gc` deletes them two days later or
    more. Devices may write meanwhile.
    """
    done = maintained(Repacker, place, keep, dry_run=dry_run)
    if as_json:
        json_line("repack", {"url": place.url, "dry_run": dry_run, **msgspec.structs.asdict(done)})
        return
    tell(
        f"{place.url}: {done.sparse_packs} of {counted(done.packs, 'pack', 'packs')} less than half needed: "
        f"{format_size(done.live_bytes)} of {format_size(done.sparse_bytes)}"
    )
    if not dry_run and done.sparse_packs:
        tell(f"written anew: {counted(done.new_packs, 'pack', 'packs')}, {format_size(done.new_bytes)}")
        note("the old packs are condemned: `blocksync repo gc` deletes them two days later or more")
