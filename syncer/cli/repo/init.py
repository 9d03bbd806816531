"""`blocksync repo init`: a repository in an empty place."""

from __future__ import annotations

import os
from typing import Final

import click

from blockfs.cli.parameters import progress
from blockfs.runtime.output import json_line, note, shown, tell
from blockfs.runtime.units import format_size, parse_size
from syncer.cli.passphrase import repository_secret
from syncer.cli.repo.place import Place, place_options, using
from syncer.errors import NotFoundError, UsageError
from syncer.remote.repository.format.config import MAX_GRID, MIN_GRID
from syncer.remote.repository.making import create, see_that_it_is_free
from syncer.remote.repository.opening import Kept
from syncer.remote.stores.port import BlobStore, StoreInfo, is_name
from syncer.remote.stores.urls import parse_store_url

_NOT_THEIRS: Final = (".tmp-", "lost+found")  # what a write that was cut short leaves, and what mkfs makes


@click.command("init")
@place_options
@click.option("--block-size", default="64KiB", metavar="SIZE", help="Of the share's grid; default: 64KiB.")
@click.option(
    "--label", metavar="TEXT", default="", help="What its key is called; default: nothing. The store reads it."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object; it has the recovery key.")
def command(place: Place, block_size: str, label: str, as_json: bool) -> None:
    """Make a repository at URL, an empty place; a container or a directory that is not there is made.

    Prints its recovery key, once: who has lost the passphrase opens the repository with it. Without both nobody does.
    """
    store = place.store()
    grid = _grid(block_size)
    _refuse_other_files(place.url)

    async def work() -> tuple[StoreInfo, Kept, str]:
        await _refuse_what_is_there(store, place.url)  # nobody thinks of a passphrase for nothing
        passphrase = repository_secret(place.password_file, os.environ, new=True)
        info = await store.open(create=True)
        with progress() as told:
            told("making keys, and looking at what the store does")
            try:
                kept, recovery = await create(store, passphrase, grid=grid, label=label)
            except UsageError as error:
                raise UsageError(f"{place.url}: {error}") from None
        return info, kept, recovery

    info, kept, recovery = using(store, work)
    if as_json:
        seen = kept.config.probe
        assert seen is not None
        json_line(
            "repository",
            {
                "url": place.url,
                "repository": kept.repository.hex(),
                "block_size": grid,
                "recovery_key": recovery,
                "store": {
                    "text": info.text,
                    "most_winners": seen.most_winners,
                    "lists_at_once": seen.lists_at_once,
                    "clock_ahead_ms": seen.clock_ahead_ms,
                },
            },
        )
        return
    tell(f"made the repository {kept.repository.hex()} in {info.text}, blocks of {format_size(grid)}")
    tell(f"recovery key: {recovery}")
    note("Write the recovery key down, and keep it where the passphrase is not: it is shown only now.")
    note("It opens the repository if the passphrase is lost. Who has lost both has lost what is in it.")


async def _refuse_what_is_there(store: BlobStore, url: str) -> None:
    """See that the place is empty, or not there yet; nothing is made.

    Raises:
        UsageError: It is neither.
    """
    try:
        await store.open()
    except NotFoundError:
        return
    try:
        await see_that_it_is_free(store)
    except UsageError as error:
        raise UsageError(f"{url}: {error}") from None


def _grid(text: str) -> int:
    grid = parse_size(text)
    if grid.bit_count() != 1 or not MIN_GRID <= grid <= MAX_GRID:
        raise UsageError(
            f"--block-size {text}: expected a power of two from {format_size(MIN_GRID)} to {format_size(MAX_GRID)}"
        )
    return grid


def _refuse_other_files(url: str) -> None:
    """A directory may hold what no store would tell of: names that no object has.

    Raises:
        UsageError: It does.
    """
    parsed = parse_store_url(url)
    if parsed.scheme != "file" or not os.path.isdir(parsed.path):
        return
    others = [name for name in os.listdir(parsed.path) if not is_name(name) and not name.startswith(_NOT_THEIRS)]
    if others:
        raise UsageError(
            f"{parsed.path} holds other things, such as {shown(os.fsencode(others[0]))} ({len(others)} in all): "
            "expected an empty directory, or one that is not there yet"
        )
