"""`blocksync repo repack`: write packs anew that are mostly of no use."""

from __future__ import annotations

import click
import msgspec

from blockfs.cli.parameters import progress
from blockfs.runtime.output import json_line, note, tell
from blockfs.runtime.units import format_size
from syncer.cli.repo.place import Repository, keep_ns, keep_option, password_option, url_argument, with_repository
from syncer.remote.repository.format.history import DeviceId
from syncer.remote.repository.maintenance.repacking import Repacked, Repacker


@click.command("repack")
@url_argument
@password_option
@keep_option
@click.option("--dry-run", is_flag=True, help="Only tell what would be done.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(url: str, password_file: str | None, keep: str, dry_run: bool, as_json: bool) -> None:
    """Write packs of the repository at URL anew of which less than half is needed.

    What is needed of them is read and written; the old packs are condemned, and `gc` deletes them two days later or
    more. Devices may write meanwhile.
    """
    span_ns = keep_ns(keep)
    with progress() as told:

        async def work(repository: Repository) -> Repacked:
            device = DeviceId(repository.kept.device)
            return await Repacker(repository.objects, device, keep_ns=span_ns, told=told).run(dry=dry_run)

        done = with_repository(url, password_file, work)
    if as_json:
        json_line("repack", {"url": url, "dry_run": dry_run, **msgspec.structs.asdict(done)})
        return
    tell(
        f"{url}: {done.sparse_packs} of {done.packs} packs are less than half needed: {format_size(done.live_bytes)} "
        f"of {format_size(done.sparse_bytes)}"
    )
    if not dry_run and done.sparse_packs:
        tell(f"written anew: {done.new_packs} packs, {format_size(done.new_bytes)}")
        note("the old packs are condemned: `blocksync repo gc` deletes them two days later or more")
