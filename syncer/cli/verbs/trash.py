"""`blocksync trash`: versions that were deleted or replaced, kept for a while."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime

import click

from blockfs.cli.groups import Verbs
from blockfs.exitcodes import ExitCode
from blockfs.runtime.output import JsonValue, json_line, note, shown
from blockfs.runtime.units import counted, format_size, parse_duration
from syncer.cli.output import columns
from syncer.cli.paths import PATH
from syncer.cli.registry.condition import look_for
from syncer.cli.registry.roots import LinkedRoot, Registry
from syncer.cli.session.many_roots import for_each
from syncer.cli.session.opening import open_trash
from syncer.core.model import RelPath
from syncer.core.paths import is_private, join, rel_path
from syncer.engine.root_state import RootState
from syncer.errors import LockedError, NotFoundError, UsageError
from syncer.local.verbs.trashcan import Kept, TrashCan, find_kept
from syncer.state.statedb import StateDB


@click.group("trash", cls=Verbs)
def command() -> None:
    """Look into, restore from, or empty the trash of a root.

    What a sync deletes or replaces goes there, and stays for 30 days (`link --keep-trash`).
    """


@command.command("ls")
@click.argument("root", type=PATH, required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per version.")
def list_command(root: bytes | None, as_json: bool) -> int:
    """List what is kept in ROOT's (default: every linked root's) trash, newest first."""

    def work(linked: LinkedRoot) -> None:
        look_for(linked)
        with TrashCan(linked.path) as can:
            entries = can.entries()
        if as_json:
            for kept in entries:
                json_line("trash", _fields(linked, kept))
        else:
            _show(linked, entries)

    return for_each(Registry(os.environ).chosen(root), work, alone=root is not None, as_json=as_json)


@command.command("restore")
@click.argument("path", type=PATH)
@click.option("--entry", metavar="ID", help="Which version, as `trash ls` names it; default: the newest.")
@click.option("--to", "target", type=PATH, help="Restore under another path, below the same root.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def restore_command(path: bytes, entry: str | None, target: bytes | None, as_json: bool) -> None:
    """Put the version that was at PATH back. Never overwrites: the name must be free.

    PATH may also be the root itself, with --entry.
    """
    registry = Registry(os.environ)
    linked, lost = _lost_place(registry, path, entry)
    look_for(linked)
    _see_that_it_can_be_written(linked)
    with TrashCan(linked.path) as can:
        entries = can.entries()
        kept = _newest(entries, lost, path) if entry is None else find_kept(entries, entry)
        place = _target(registry, linked, target, kept)
        can.restore(kept, place, special_modes=linked.record.special_modes)
    if as_json:
        json_line("restored", {**_fields(linked, kept), "to": shown(place)})
    else:
        note(f"restored {shown(os.path.join(linked.path, place))}, as it was at {_time(kept.made_s)}")


@command.command("empty")
@click.argument("root", type=PATH)
@click.option("--older-than", default="0", metavar="TIME", help="Only what was deleted so long ago: 7d, 12h.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per version, and a summary.")
def empty_command(root: bytes, older_than: str, as_json: bool) -> int:
    """Delete what is in ROOT's trash for good.

    Versions that were displaced in the last minute stay, because somebody may still write to them.
    """
    linked = Registry(os.environ).get(root)
    age_s = parse_duration(older_than)
    look_for(linked)
    _see_that_it_can_be_written(linked)
    _settle(linked)
    with TrashCan(linked.path) as can:
        entries = can.entries(age_s)
        left = []
        for kept in entries:
            gone = can.delete(kept)
            left += [] if gone else [kept]
            if as_json:
                more: dict[str, JsonValue] = {} if gone else {"reason": _reason(kept)}
                json_line("emptied" if gone else "kept", {**_fields(linked, kept), **more})
    freed = sum(kept.size_bytes for kept in entries) - sum(kept.size_bytes for kept in left)
    if as_json:
        counts = {"emptied": len(entries) - len(left), "bytes": freed, "kept": len(left)}
        json_line("summary", {"root": shown(linked.path), **counts})
        return int(ExitCode.DONE)
    note(f"deleted {counted(len(entries) - len(left), 'version', 'versions')}, {format_size(freed)}")
    for kept in left:
        note(f"kept {kept.ident} {shown(kept.origin or kept.fallback)}: {_reason(kept)}")
    return int(ExitCode.DONE)


def _reason(kept: Kept) -> str:
    """Why a version stays."""
    return "a folder that somebody put there" if kept.settled else "looked at again by the next cycle"


def _see_that_it_can_be_written(linked: LinkedRoot) -> None:
    """A disk that is mounted for reading only refuses each entry by a name of ours, and a young one not at all.

    Raises:
        UsageError: It is.
    """
    if os.statvfs(linked.path).f_flag & os.ST_RDONLY:
        raise UsageError(f"{shown(linked.path)} is read-only: mount it for writing")


def _settle(linked: LinkedRoot) -> None:
    """Let what was displaced a while ago become trash for good, unless a cycle is at work: it does the same itself."""
    if linked.record.folder is None:
        return
    try:
        with StateDB.open(linked.state) as database:
            record = linked.record
            with open_trash(linked.path, record.block_size, record.keep_trash_s, RootState(database)) as trash:
                trash.review()
    except LockedError as error:
        note(f"{error}; deleting only what it has settled")


def _lost_place(registry: Registry, path: bytes, entry: str | None) -> tuple[LinkedRoot, RelPath]:
    """The root and the path in it that are meant."""
    linked, lost = registry.locate(path)
    if not lost and entry is None:
        raise UsageError(f"{shown(path)} is a root: say which version with --entry; `blocksync trash ls` lists them")
    return linked, lost


def _newest(entries: list[Kept], lost: RelPath, path: bytes) -> Kept:
    for kept in entries:
        if kept.origin == lost:
            return kept
    below = [kept for kept in entries if kept.origin is not None and kept.origin.startswith(lost + b"/")]
    if below:
        has = f"the trash has {counted(len(below), 'version', 'versions')} from below it"
        raise NotFoundError(f"{shown(path)} is a folder: {has}; restore them one by one")
    raise NotFoundError(f"no version of {shown(path)} is in the trash; `blocksync trash ls` lists what is")


def _target(registry: Registry, linked: LinkedRoot, target: bytes | None, kept: Kept) -> RelPath:
    """Where to restore a version."""
    if target is None:
        return rel_path(kept.fallback) if kept.origin is None else kept.origin
    root, place = registry.locate(target)
    if root.path != linked.path:
        raise UsageError(f"{shown(target)} is not below {shown(linked.path)}; restore it there, then move it")
    if os.path.isdir(target):
        place = join(place, kept.fallback)
    if is_private(place):
        raise UsageError(f"{shown(target)} is in the private folder of the root, which is never synced")
    return place


def _fields(linked: LinkedRoot, kept: Kept) -> dict[str, JsonValue]:
    return {
        "root": shown(linked.path),
        "id": kept.ident,
        "path": None if kept.origin is None else shown(kept.origin),
        "name": shown(kept.fallback),
        "kind": kept.kind,
        "size_bytes": kept.size_bytes,
        "deleted": _time(kept.made_s),
        "expires": _time(kept.made_s + linked.record.keep_trash_s),
        "settled": kept.settled,
        "why": kept.why,
    }


def _show(linked: LinkedRoot, entries: list[Kept]) -> None:
    now = time.time()
    rows = [
        (
            kept.ident,
            _time(kept.made_s),
            f"{max(0.0, kept.made_s + linked.record.keep_trash_s - now) / 86400:.0f}",
            format_size(kept.size_bytes) if kept.kind == "file" else kept.kind,
            kept.why or "-",
            shown(kept.fallback) + " (place unknown)" if kept.origin is None else shown(kept.origin),
        )
        for kept in entries
    ]
    title = f"{shown(linked.path)}: {counted(len(entries), 'version', 'versions')}"
    columns.show(title, ("id", "deleted", ">days left", ">size", "why", "path"), rows)


def _time(seconds: float) -> str:
    # An entry's name may say anything, and no date is after the year 9999.
    return datetime.fromtimestamp(min(seconds, 253_402_300_799), UTC).isoformat(timespec="seconds")
