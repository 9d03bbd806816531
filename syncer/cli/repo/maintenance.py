"""What `repo gc` and `repo repack` have in common: their options, and a run on a repository that is open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from blockfs.cli.parameters import json_option, progress
from blockfs.runtime.units import parse_duration
from syncer.cli.repo.place import Place, Repository, place_options, with_repository
from syncer.cli.repo.remembered import remembered_of
from syncer.remote.repository.format.history import DeviceId
from syncer.remote.repository.maintenance.remembered import see_that_nothing_was_undone
from syncer.remote.repository.maintenance.run import MaintenanceRun

T = TypeVar("T")


def maintenance_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add what `place_options` adds, and the options `keep`, `dry_run` and `as_json`."""
    keep = click.option(
        "--keep", metavar="TIME", help="For this run: commits younger than that stay whole; default: `repo settings`."
    )
    dry_run = click.option("--dry-run", is_flag=True, help="Only tell what would be done.")
    return place_options(keep(dry_run(json_option(function))))


def maintained(kind: Callable[..., MaintenanceRun[T]], place: Place, keep: str | None, *, dry_run: bool) -> T:
    """Do a run.

    Args:
        kind: Of which.
        place: Where the repository is.
        keep: As `--keep` says; None: as the repository's setting does.
        dry_run: Only find out.

    Returns:
        What it did.

    Raises:
        UsageError: No span of time.
        RolledBackError: A root of this machine has seen more than there is.
        SyncerError: See `with_repository` and `MaintenanceRun.run`.
    """
    span_ns = None if keep is None else int(parse_duration(keep) * 10**9)

    async def work(repository: Repository) -> T:
        await see_that_nothing_was_undone(repository.objects, remembered_of(place, repository.kept.repository))
        with progress() as told:
            device = DeviceId(repository.kept.device)
            return await kind(repository.objects, device, keep_ns=span_ns, told=told).run(dry=dry_run)

    return with_repository(place, work)
