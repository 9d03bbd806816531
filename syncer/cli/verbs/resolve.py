"""`blocksync resolve`: settle a conflict copy."""

from __future__ import annotations

import os

import click

from blockfs.runtime.output import json_line, note, shown
from syncer.cli.paths import PATH
from syncer.cli.registry.condition import look_for
from syncer.cli.registry.roots import Registry
from syncer.core.model import RelPath
from syncer.errors import NotFoundError, UsageError
from syncer.local.verbs.conflict_copies import ConflictCopy, Desk
from syncer.state.statedb import StateDB


@click.command("resolve")
@click.argument("path", type=PATH)
@click.option(
    "--take",
    type=click.Choice(["local", "remote", "both"]),
    required=True,
    help="local: the version in the copy; remote: the one that has the name; both: keep two ordinary files.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(path: bytes, take: str, as_json: bool) -> None:
    """Settle the conflict copy at PATH (or the only one that PATH has).

    A conflict copy keeps the version that was local to the device that made it; the version that came from the server
    kept the name. What is given up goes to the trash, here at once and on other devices with the next cycles.
    """
    linked, inside = Registry(os.environ).containing(path)
    look_for(linked)
    with StateDB.open(linked.state, read_only=True) as database:  # also while a cycle is running
        desk = Desk(linked.path, database.load_base())
    try:
        found = _chosen(desk, inside, path)
        done = {"local": desk.take_local, "remote": desk.take_remote, "both": desk.take_both}[take](found)
    finally:
        desk.close()
    if not as_json:
        note(f"{shown(found.copy.path)}: {done}; the next cycle tells the other devices")
        return
    json_line(
        "resolve",
        {
            "root": shown(linked.path),
            "path": shown(found.copy.path),
            "original": None if found.original is None else shown(found.original.path),
            "take": take,
            "done": shown(os.fsencode(done)),  # it holds names, which need not be UTF-8
        },
    )


def _chosen(desk: Desk, inside: RelPath, path: bytes) -> ConflictCopy:
    """The copy at a path, or the only copy of what is at that path.

    Raises:
        NotFoundError: There is none.
        UsageError: There are several.
    """
    found = desk.look(inside)
    if found is not None:
        return found
    copies = desk.copies_of(inside)
    if len(copies) > 1:
        raise UsageError(f"{shown(path)} has {len(copies)} conflict copies: {', '.join(map(shown, copies))}; name one")
    found = desk.look(copies[0]) if copies else None
    if found is None:
        raise NotFoundError(f"{shown(path)} is no conflict copy and has none; `blocksync conflicts` lists them")
    return found
