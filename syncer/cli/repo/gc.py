"""`blocksync repo gc`: delete what no device needs any more."""

from __future__ import annotations

import click
import msgspec

from blockfs.cli.parameters import progress
from blockfs.runtime.output import json_line, note, tell
from blockfs.runtime.units import format_size
from syncer.cli.repo.place import Repository, keep_ns, keep_option, password_option, url_argument, with_repository
from syncer.remote.repository.format.history import DeviceId
from syncer.remote.repository.maintenance.collecting import Collected, Collector


@click.command("gc")
@url_argument
@password_option
@keep_option
@click.option("--dry-run", is_flag=True, help="Only tell what would be done.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(url: str, password_file: str | None, keep: str, dry_run: bool, as_json: bool) -> None:
    """Delete what neither a device nor a kept commit of the repository at URL needs.

    It takes two runs, two days or more apart by the store's clock: the first one condemns, the second one deletes what
    is still not needed. Run it once a week. Devices may write meanwhile.
    """
    span_ns = keep_ns(keep)
    with progress() as told:

        async def work(repository: Repository) -> Collected:
            device = DeviceId(repository.kept.device)
            return await Collector(repository.objects, device, keep_ns=span_ns, told=told).run(dry=dry_run)

        done = with_repository(url, password_file, work)
    if as_json:
        json_line("gc", {"url": url, "dry_run": dry_run, **msgspec.structs.asdict(done)})
        return
    would = "would be " if dry_run else ""
    tell(
        f"{url}: {would}deleted: {done.deleted_packs} packs, {format_size(done.deleted_bytes)}, "
        f"{done.deleted_indexes} indexes, {done.deleted_commits} commits"
    )
    tell(f"{would}condemned: {done.condemned_packs} packs, {format_size(done.condemned_bytes)}")
    if done.condemned_packs or done.waiting_packs:
        note("what is condemned is deleted by a run two days later or more, if it is still not needed then")
