"""`blocksync repo gc`: delete what no device needs any more."""

from __future__ import annotations

import click
import msgspec

from blockfs.runtime.output import json_line, note, tell
from blockfs.runtime.units import counted, format_size
from syncer.cli.repo.maintenance import maintained, maintenance_options
from syncer.cli.repo.place import Place
from syncer.remote.repository.maintenance.collecting import Collector


@click.command("gc")
@maintenance_options
def command(place: Place, keep: str | None, dry_run: bool, as_json: bool) -> None:
    """Delete what neither a device nor a kept commit of the repository at URL needs.

    It takes two runs, two days or more apart by the store's clock: the first one condemns, the second one deletes what
    is still not needed. Run it once a week. Devices may write meanwhile.
    """
    done = maintained(Collector, place, keep, dry_run=dry_run)
    if as_json:
        json_line("gc", {"url": place.url, "dry_run": dry_run, **msgspec.structs.asdict(done)})
        return
    would = "would be " if dry_run else ""
    deleted = (
        counted(done.deleted_packs, "pack", "packs"),
        format_size(done.deleted_bytes),
        counted(done.deleted_indexes, "index", "indexes"),
        counted(done.deleted_commits, "commit", "commits"),
    )
    tell(f"{place.url}: {would}deleted: {', '.join(deleted)}")
    tell(f"{would}condemned: {counted(done.condemned_packs, 'pack', 'packs')}, {format_size(done.condemned_bytes)}")
    if done.condemned_packs or done.waiting_packs:
        note("what is condemned is deleted by a run two days later or more, if it is still not needed then")
