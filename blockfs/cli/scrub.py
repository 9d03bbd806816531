"""`blocksync scrub`: read and hash every stored block."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Final

import click

from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.ids import BlockId
from blockfs.blocks.maintenance.scrub import Step, scrub
from blockfs.blocks.sources import Deliver, DirectorySource, deliver_again, fetch_again
from blockfs.cli.parameters import PATH, blocks_without_tree, json_option, place_of, progress
from blockfs.control.client import ControlClient
from blockfs.control.protocol import ScrubReply
from blockfs.errors import BlockfsError
from blockfs.exitcodes import ExitCode
from blockfs.runtime.output import json_line, shown, tell
from blockfs.runtime.units import counted, format_size
from blockfs.service import maintenance, offline

FindDeliver = Callable[[str], Deliver]
"""Told a block directory's path, says who delivers its blocks; or raises why nobody does."""

SOURCES: Final = "block_sources"
"""Key of the click context's object: what a program around this one offers for `--from NAME`: NAME → `FindDeliver`."""

_LOOK_S: Final = 0.3  # how often a mount is asked how far its scrub is


@click.command("scrub")
@click.argument("path", metavar="VOLUME|MOUNTPOINT|FOLDER", type=PATH)
@click.option(
    "--from",
    "sources",
    metavar="PLACE",
    type=PATH,
    multiple=True,
    help="Volume, mount, server's folder or block directory to fetch damaged and missing blocks from; peers: devices "
    "on the network. Repeatable.",
)
@json_option
@click.pass_context
def command(context: click.Context, path: bytes, sources: tuple[bytes, ...], as_json: bool) -> None:
    """Hash all stored blocks. FOLDER is a server's folder or a block directory.

    Exit code 0: clean, or all fetched again; 15: something is damaged; each corrupt block is named.
    """
    blocks_path = _blocks_path(path)
    # A misspelt one is told before hours of reading, not after.
    named: Mapping[bytes, FindDeliver] = (context.obj or {}).get(SOURCES, {})
    places = [_blocks_path(source) for source in sources if source not in named]
    delivers = [named[source](blocks_path) for source in dict.fromkeys(sources) if source in named]
    with progress() as step:
        step("reading all blocks")
        result = _scrub(path, lambda done, blocks: step(f"reading all blocks: {100 * done // blocks} % of {blocks}"))
        fetched: list[BlockId] = []
        if sources and (result.corrupt or result.missing):
            step("fetching blocks again")
            fetched = _fetch(blocks_path, places, delivers, result)
    left = [block_id for block_id in _lacking(result) if block_id not in set(fetched)]
    _print(result, fetched, left if sources else [], as_json=as_json)
    if left or result.findings or not (result.clean or fetched):
        context.exit(ExitCode.CORRUPTION)


def _scrub(path: bytes, step: Step) -> ScrubReply:
    alone = blocks_without_tree(path)
    if alone is not None:
        with BlockDirectory.open(alone) as blocks:
            return maintenance.scrub_reply(scrub(blocks, step=step))
    place = place_of(path)

    def mounted(client: ControlClient) -> ScrubReply:
        with _followed(place.client(), step):
            return client.scrub()

    return place.ask(mounted, partial(offline.scrub, step=step))


@contextmanager
def _followed(client: ControlClient, step: Step) -> Iterator[None]:
    """Ask the mount on a second connection, while a scrub runs on the first one, how far it is."""
    ended = threading.Event()

    def follow() -> None:
        with client, suppress(BlockfsError):  # the mount may end; the scrub's own connection says so
            while not ended.wait(_LOOK_S):
                told = client.status()
                if told.scrub_blocks:
                    step(told.scrub_blocks_done, told.scrub_blocks)

    follower = threading.Thread(target=follow)
    follower.start()
    try:
        yield
    finally:
        ended.set()
        follower.join()


def _blocks_path(path: bytes) -> str:
    """The block directory of a volume, a mount, a server's folder, or itself."""
    return blocks_without_tree(path) or os.fsdecode(os.path.join(place_of(path).volume, b"blocks"))


def _lacking(result: ScrubReply) -> list[BlockId]:
    return [BlockId(block_id) for block_id in (*result.corrupt, *result.missing)]


def _fetch(target: str, sources: Sequence[str], delivers: Sequence[Deliver], result: ScrubReply) -> list[BlockId]:
    """Store what is damaged or missing again, from places on this machine first.

    The block directory takes several processes, so also beside a mount.
    """
    wanted = _lacking(result)
    with BlockDirectory.open(target) as blocks, ExitStack() as opened:
        places = [opened.enter_context(DirectorySource.opened(path)) for path in sources]
        done = fetch_again(blocks, wanted, places)
        for deliver in delivers:
            stored = set(done)
            done += deliver_again(blocks, [block_id for block_id in wanted if block_id not in stored], deliver)
        return done


def _print(result: ScrubReply, fetched: Sequence[BlockId], not_found: Sequence[BlockId], *, as_json: bool) -> None:
    if as_json:
        json_line(
            "scrub",
            {
                "clean": result.clean,
                "blocks_checked": result.blocks_checked,
                "bytes_read": result.bytes_read,
                "corrupt": [block_id.hex() for block_id in result.corrupt],
                "missing": [block_id.hex() for block_id in result.missing],
                "fetched": [block_id.hex() for block_id in fetched],
                "not_found": [block_id.hex() for block_id in not_found],
                "paths": [shown(path) for path in result.paths],
                "findings": list(result.findings),
            },
        )
        return
    told = (
        ("corrupt", result.corrupt),
        ("missing", result.missing),
        ("fetched again", fetched),
        ("nobody has", not_found),
    )
    for word, ids in told:
        for block_id in ids:
            click.echo(f"{word}: {block_id.hex()}")
    for damaged in result.paths:
        tell(f"damaged file: {shown(damaged)}")
    for finding in result.findings:
        tell(finding)
    read = format_size(result.bytes_read)
    counts = f"{len(result.corrupt)} corrupt, {len(result.missing)} missing, {len(fetched)} fetched again"
    click.echo(f"{counted(result.blocks_checked, 'block', 'blocks')} checked, {read} read, {counts}")
