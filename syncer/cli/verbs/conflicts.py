"""`blocksync conflicts`: which conflict copies there are, who made them, whether they still differ."""

from __future__ import annotations

import os
import socket

import click

from blockfs.runtime.output import JsonValue, json_line, note, shown
from blockfs.runtime.units import counted, format_size
from syncer.cli.output import columns
from syncer.cli.paths import PATH
from syncer.cli.registry.condition import look_for
from syncer.cli.registry.roots import LinkedRoot, Registry, encoded_path
from syncer.cli.session.many_roots import for_each
from syncer.core.conflict import parse_conflict_name
from syncer.local.verbs.conflict_copies import ConflictCopy, Desk, Version, walk
from syncer.state.statedb import StateDB


@click.command("conflicts")
@click.argument("root", type=PATH, required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per conflict copy.")
def command(root: bytes | None, as_json: bool) -> int:
    """List the conflict copies in ROOT (default: in every linked root).

    `blocksync resolve COPY` settles one.
    """
    total = 0

    def work(linked: LinkedRoot) -> None:
        nonlocal total
        found = find(linked)
        total += len(found)
        for conflict in found:
            if as_json:
                json_line("conflict", _fields(linked, conflict))
        if not as_json and found:
            _show(linked, found)

    code = for_each(Registry(os.environ).chosen(root), work, alone=root is not None, as_json=as_json)
    if not total and not code and not as_json:
        note("no conflict copies")
    return code


def find(linked: LinkedRoot) -> list[ConflictCopy]:
    """The conflict copies of a root.

    Raises:
        RootIdentityError: It is not there, or it is another one.
    """
    look_for(linked)
    with StateDB.open(linked.state, read_only=True) as database:
        base, writers = database.load_base(), database.writers()
    desk = Desk(linked.path, base, writers, socket.gethostname())
    try:
        if linked.record.folder is not None:
            return desk.copies(walk(linked.path))
        # On a volume all copies come through the base: nothing is displaced unseen there.
        return desk.copies(path for path in base.by_path if parse_conflict_name(path.rpartition(b"/")[2]) is not None)
    finally:
        desk.close()


def _fields(linked: LinkedRoot, conflict: ConflictCopy) -> dict[str, JsonValue]:
    name, original = conflict.name, conflict.original
    return {
        "root": shown(linked.path),
        "path": shown(conflict.copy.path),
        "kind": conflict.copy.kind,
        "size_bytes": conflict.copy.size_bytes,
        "host": name.host,
        "utc": name.utc,
        "original": None if original is None else shown(original.path),
        "original_size_bytes": None if original is None else original.size_bytes,
        "encoded": encoded_path(conflict.copy.path),
        "modified_ns": conflict.copy.modified_ns,
        "original_modified_ns": None if original is None else original.modified_ns,
        "differs": conflict.differs,
        "original_host": conflict.writer,
    }


def _show(linked: LinkedRoot, found: list[ConflictCopy]) -> None:
    rows = [
        (
            conflict.name.host,
            conflict.name.utc,
            _size(conflict.copy),
            "-" if conflict.original is None else _size(conflict.original),
            {None: "alone", False: "equal", True: "differ"}[conflict.differs],
            shown(conflict.copy.path),
        )
        for conflict in found
    ]
    title = f"{shown(linked.path)}: {counted(len(found), 'conflict copy', 'conflict copies')}"
    columns.show(title, ("made by", "at", ">size", ">original", "they", "copy"), rows)


def _size(version: Version) -> str:
    return format_size(version.size_bytes) if version.kind == "file" else version.kind
