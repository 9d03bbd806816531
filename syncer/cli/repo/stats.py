"""`blocksync repo stats`: what a repository holds, and what it takes."""

from __future__ import annotations

import click
import msgspec

from blockfs.cli.parameters import progress
from blockfs.runtime.output import json_line, table
from blockfs.runtime.units import format_size
from syncer.cli.repo.place import Place, Repository, place_options, with_repository
from syncer.cli.repo.settings import span
from syncer.remote.repository.maintenance.figures import Figures, figures_of


@click.command("stats")
@place_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(place: Place, as_json: bool) -> None:
    """Show what the repository at URL holds, and what that takes on the store. Reads no contents."""

    async def work(repository: Repository) -> tuple[Repository, Figures]:
        with progress() as told:
            return repository, await figures_of(repository.objects, repository.kept, told)

    repository, found = with_repository(place, work)
    config = repository.kept.config
    if as_json:
        probe = None if config.probe is None else msgspec.structs.asdict(config.probe)
        fields = {"block_size": config.grid, "made": config.made_s, **msgspec.structs.asdict(found), "store": probe}
        json_line("repository_stats", {"url": place.url, "repository": repository.kept.repository.hex(), **fields})
        return
    share = f"{100 * found.live_bytes // found.pack_bytes} %" if found.pack_bytes else "-"
    table(
        [
            ("repository", repository.kept.repository.hex()),
            ("files", str(found.files)),
            ("logical", format_size(found.logical_bytes)),
            ("distinct", format_size(found.distinct_bytes)),
            ("stored", format_size(found.stored_bytes)),
            ("packs", f"{found.packs}, {format_size(found.pack_bytes)}"),
            ("of them needed", share),
            ("condemned packs", str(found.condemned_packs)),
            ("indexes", str(found.indexes)),
            ("commits", str(found.commits)),
            ("devices", str(found.devices)),
            ("keys", str(found.keys)),
            ("keeps", span(found.keep_s)),
            ("block size", format_size(config.grid)),
        ]
    )
