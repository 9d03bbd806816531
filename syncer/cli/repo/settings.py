"""`blocksync repo settings`: what holds for a repository whoever looks after it."""

from __future__ import annotations

import click
import msgspec

from blockfs.cli.parameters import json_option
from blockfs.runtime.output import json_line, tell
from blockfs.runtime.units import parse_duration
from syncer.cli.repo.place import Place, Repository, place_options, with_repository
from syncer.errors import UsageError
from syncer.remote.repository.format.settings import MAX_KEEP_S, Settings
from syncer.remote.repository.maintenance.settings import decide, settings_of

_UNITS = (("d", 86_400), ("h", 3600), ("m", 60))


@click.command("settings")
@place_options
@click.option("--keep", metavar="TIME", help="From now on `gc` and `repack` keep commits younger than that.")
@json_option
def command(place: Place, keep: str | None, as_json: bool) -> None:
    """Show what is set for the repository at URL, or set it: for all devices, whichever runs `gc` or `repack`."""
    wanted = None if keep is None else Settings(keep_s=_seconds(keep))

    async def work(repository: Repository) -> Settings:
        if wanted is None:
            return await settings_of(repository.objects)
        await decide(repository.objects, wanted)
        return wanted

    found = with_repository(place, work)
    if as_json:
        json_line("repository_settings", {"url": place.url, **msgspec.structs.asdict(found)})
    else:
        tell(f"keep: {span(found.keep_s)}")


def span(seconds: int) -> str:
    """A span of time as `--keep` reads it."""
    unit, length = next(((unit, length) for unit, length in _UNITS if seconds % length == 0), ("s", 1))
    return f"{seconds // length}{unit}"


def _seconds(text: str) -> int:
    seconds = parse_duration(text)
    if seconds > MAX_KEEP_S:
        raise UsageError(f"--keep {text}: expected {MAX_KEEP_S // 86_400} days at most")
    return int(seconds)
