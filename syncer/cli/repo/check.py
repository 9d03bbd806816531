"""`blocksync repo check`: is all there that its heads promise, down to the bytes if asked."""

from __future__ import annotations

from collections.abc import Sequence

import click

from blockfs.cli.parameters import progress
from blockfs.exitcodes import ExitCode
from blockfs.runtime.output import json_line, note, tell
from blockfs.runtime.units import counted, format_size
from syncer.cli.repo.place import Place, Repository, place_options, with_repository
from syncer.cli.repo.remembered import remembered_of
from syncer.errors import CorruptionError, RolledBackError, UsageError
from syncer.remote.repository.maintenance.checking import Checker, Findings
from syncer.remote.repository.maintenance.remembered import Remembered, see_that_nothing_was_undone


@click.command("check")
@place_options
@click.option("--read-data", metavar="N%", default="0%", help="Read so much of the packs, drawn by chance; 100%: all.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines; the last one is a summary.")
def command(place: Place, read_data: str, as_json: bool) -> int:
    """Check the repository at URL: every commit that can be restored, down to the places of its chunks.

    Changes nothing, and may run while devices write. Exit code 15: something is damaged or missing. 16: a folder
    of this machine that is linked to URL has seen more than there is.
    """
    share = _share(read_data)

    async def work(repository: Repository) -> tuple[Findings, RolledBackError | None]:
        remembered = remembered_of(place, repository.kept.repository)
        with progress() as told:
            grid = repository.kept.config.grid
            found = await Checker(repository.objects, grid, share=share, told=told).run()
            return found, await _undone(repository, remembered, found)

    found, undone = with_repository(place, work)
    for problem in found.problems:
        if as_json:
            json_line("finding", {"url": place.url, "text": problem})
        else:
            tell(f"damage: {problem}")
    if as_json:
        json_line("check", _fields(place.url, found))
    elif found.problems or undone is None:
        _tell(place.url, found)
    if undone is not None and not found.problems:
        raise undone
    return int(ExitCode.CORRUPTION if found.problems else ExitCode.DONE)


async def _undone(repository: Repository, remembered: Sequence[Remembered], found: Findings) -> RolledBackError | None:
    """What roots of this machine have seen and is not there any more; what else is wrong is added to the findings."""
    try:
        await see_that_nothing_was_undone(repository.objects, remembered)
    except RolledBackError as error:
        return error
    except CorruptionError as error:
        if not found.problems:  # else it is one of them
            found.add(error)
    return None


def _share(text: str) -> float:
    number = text.strip().removesuffix("%")
    try:
        percent = float(number)
    except ValueError:
        percent = -1.0
    if not 0 <= percent <= 100:
        raise UsageError(f"--read-data {text}: expected a percentage from 0% to 100%, such as 5%")
    return percent / 100


def _fields(url: str, found: Findings) -> dict[str, str | int]:
    return {
        "url": url,
        "problems": len(found.problems),
        "commits": found.commits,
        "entries": found.entries,
        "packs": found.packs,
        "unnamed_packs": found.unnamed_packs,
        "packs_read": found.packs_read,
        "bytes_read": found.bytes_read,
    }


def _tell(url: str, found: Findings) -> None:
    read = f", {found.packs_read} of them read, {format_size(found.bytes_read)}" if found.packs_read else ""
    tell(
        f"{url}: {counted(found.commits, 'commit', 'commits')}, {counted(found.packs, 'pack', 'packs')}{read}: "
        f"{counted(len(found.problems), 'problem', 'problems') if found.problems else 'nothing is damaged or missing'}"
    )
    if found.unnamed_packs:
        packs = counted(found.unnamed_packs, "pack is", "packs are")
        note(f"{packs} named by no index: left by who was cut short, or just being written")
    if found.problems:
        note("What to do: put the objects that are named back from a copy of the store, if it keeps one.")
        note("Else make a new repository, and link a device to it that has the files.")
        note("Don't run gc or repack on this one before.")
