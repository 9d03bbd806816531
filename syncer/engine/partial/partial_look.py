"""Observe and plan only the part of the tree in which something may have changed (`core.partial.affected`).

What must be known for that: the local directories in which something may have changed (told by whoever watches, else
found by a survey), and the server's own list of what changed since a cursor. The cursor is stored only after a cycle
that left nothing undone, so whatever was left is among the changes again. If any of it can't be had, the whole tree is
looked at, as in a first cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

import msgspec
import trio
from msgspec.structs import replace

from syncer.core.ignore import IGNORE_FILE, IgnoreRules
from syncer.core.model import Ages, Kind, Position, RelPath
from syncer.core.partial.affected import Affected, AffectedPart, UnboundedError
from syncer.core.partial.listing_diff import Known
from syncer.core.paths import split
from syncer.engine.partial.subtree_moves import Arrivals, Calm, MovedSubtrees, subtrees_of
from syncer.errors import LocalChangedError
from syncer.ports.local import LocalRoot, PartLook
from syncer.ports.localvalues import Hints, Observation
from syncer.ports.remote import Changes, Remote
from syncer.ports.state import State
from syncer.remote.parallel import one_error

_MIN_SHARE: Final = 2
"""A part of more than half the base is no gain: then everything is looked at, which also renews what is remembered."""

_MIN_ROWS: Final = 1000  # below, everything costs some 30 ms


class PartialLook(msgspec.Struct, frozen=True, kw_only=True):
    """How parts are looked at: a root, what is remembered of it, and where to look."""

    local: LocalRoot
    state: State
    hints: Hints = Hints()


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """What a cycle goes on with.

    Attributes:
        affected: What may have changed.
        seen: Its local side, with contents.
        changes: The server's changes.
        directories: Local directories that were looked at.
        moved: Directories that moved as a whole.
    """

    affected: AffectedPart
    seen: Observation
    changes: Changes
    directories: tuple[RelPath, ...]
    moved: MovedSubtrees


class _Found(msgspec.Struct, frozen=True, kw_only=True):
    """What is affected, and what belongs to it; see `Part`."""

    affected: AffectedPart
    directories: tuple[RelPath, ...]
    look: PartLook
    moved: MovedSubtrees


async def look_at_part(partial: PartialLook, remote: Remote, *, check: Callable[[Changes], None]) -> Part | None:
    """Observe what may have changed.

    Args:
        partial: Where and how.
        remote: The server.
        check: Raises if it is not the container that was linked.

    Returns:
        None if the whole tree must be looked at.
    """
    cursor = await trio.to_thread.run_sync(partial.state.cursor)
    if cursor is None:
        return None
    changes = await _told(partial, remote, cursor, check)
    if changes is None:
        return None
    found = await trio.to_thread.run_sync(_affected, partial, changes, cursor, remote.ages)
    if found is None and changes.moves:
        # Moves that can't be seen as such are asked for one object at a time.
        changes = await _changes(partial, remote, cursor, moves=False)
        if changes is None:
            return None
        check(changes)
        found = await trio.to_thread.run_sync(_affected, partial, changes, cursor, remote.ages)
    if found is None:
        return None
    affected = found.affected
    if len(affected.base) > _MIN_ROWS and len(affected.base) * _MIN_SHARE > len(affected.base) + affected.beside:
        return None
    seen = await partial.local.complete(found.look, affected.local, affected.base)
    affected = replace(affected, local=[])
    return Part(affected=affected, seen=seen, changes=changes, directories=found.directories, moved=found.moved)


def _has_our_last_write(partial: PartialLook, changes: Changes, since: Position, ages: Ages) -> bool:
    """Whether what this device wrote last is among the changes since a moment before, or they say what became of it.

    A server that was put back from a backup, and to which others have written since, knows that moment, and tells what
    they wrote: all that is lost would count as unchanged. A backup lacks the last write if it lacks any.

    Returns:
        False if that can't be told.

    Raises:
        RootIdentityError: It is not: the container went back.
    """
    container = partial.state.container()
    if container is None or not changes.complete or changes.moves or changes.refused:
        return True
    uuid = ages.last_written(container.seen, since)
    if not uuid or any(stat.tag.uuid == uuid for stat in changes.objects):
        return True
    with partial.state.rows() as known:
        paths = {known.path(row) for row in known.with_uuid(uuid)}
    if not paths or paths & {*changes.deleted, *(stat.path for stat in changes.objects)}:
        return True
    if changes.deleted or None in paths:
        return False  # perhaps under the name of before a directory above was moved
    name = b", ".join(path for path in paths if path is not None).decode("utf-8", "backslashreplace")
    raise ages.older(f"{ages.name(container.seen)} of {name} or later", f"none up to {ages.name(changes.position)}")


async def _told(
    partial: PartialLook, remote: Remote, since: Position, check: Callable[[Changes], None]
) -> Changes | None:
    """What changed on the server; the local side is asked meanwhile. None if either can't tell."""
    told: list[Changes | None] = []

    async def ask() -> None:
        told.append(await _changes(partial, remote, since, moves=True))

    with one_error():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            if not await partial.local.attend(partial.hints):
                nursery.cancel_scope.cancel()
                return None
    (changes,) = told
    if changes is None:
        return None
    check(changes)
    return changes if await trio.to_thread.run_sync(_has_our_last_write, partial, changes, since, remote.ages) else None


async def _changes(partial: PartialLook, remote: Remote, since: Position, *, moves: bool) -> Changes | None:
    """What changed on the server; None if it can't tell."""
    known = Known(rows=partial.state.rows)
    return await remote.changes(since, known, moves=moves, brief=partial.hints.brief)


def _affected(partial: PartialLook, changes: Changes, since: Position, ages: Ages) -> _Found | None:
    """Everything that may have changed; None if that can't be told."""
    try:
        return _affected_or_raise(partial, changes, since, ages)
    except UnboundedError:
        return None


def _affected_or_raise(partial: PartialLook, changes: Changes, since: Position, ages: Ages) -> _Found:
    raw = partial.state.rules()  # those that the base was made with
    rules = IgnoreRules() if raw is None else IgnoreRules.load(raw)
    if changes.moves and not rules.is_empty:
        raise UnboundedError  # what is ignored may be so no longer in another place
    deleted = [RelPath(path) for path in changes.deleted]
    if any(split(path)[1] == IGNORE_FILE for path in (*(each.path for each in changes.objects), *deleted)):
        raise UnboundedError
    with partial.state.rows() as known:
        look = partial.local.part(known, rules)
        dirt, entries = look.where()
        arrivals = Arrivals(known, changes)
        calm = Calm(look, known, changes, arrivals)
        affected = Affected(known, ages, calm, folds=look.folds)
        arrivals.take_into(affected)
        dirt, entries = arrivals.without_echoes(look, affected, dirt, entries)
        looked = _look_through(look, affected, dirt, entries)
        for name in deleted:  # what is not synced keeps its directory
            nid = affected.find(name)
            row = known.row(nid) if nid else None
            if row is not None and row.node.kind is Kind.DIRECTORY and look.is_directory(name):
                look.listing(name)
        # A listing held against the base tells nothing of what is in it; nor does a list that refused an object.
        told = since if changes.complete and not changes.refused else None
        affected.changed(rules.tracked(changes.objects), deleted, since=told)
        part = affected.finish()
        subtrees = subtrees_of(known, part.moved, arrivals.subtrees, changes.info.can.moves_trees)
        return _Found(
            affected=part,
            directories=(*looked, *calm.looked, *arrivals.looked),
            look=look,
            moved=MovedSubtrees(subtrees=subtrees, retagged=tuple(arrivals.retagged)),
        )


def _look_through(
    look: PartLook, affected: Affected, dirt: Collection[RelPath], entries: Collection[RelPath]
) -> dict[RelPath, None]:
    """Look where something may have changed; returns the directories that were listed."""
    looked: dict[RelPath, None] = {}
    named = _by_directory(entries)
    # Parents first, and what is new is listed whole at once: so nothing is listed twice.
    full = set(dirt)
    for path in sorted(full | named.keys()):
        pending = [(path, False)]
        if path not in full and path not in looked:
            found = _look_at(look, affected, path, named[path])
            pending = pending if found is None else [(below, True) for below in found]
        while pending:
            at, whole = pending.pop()
            if at in looked or not (whole or _exists(look, affected, at)):
                continue
            looked[at] = None
            pending += [(below, True) for below in affected.listed(at, look.listing(at), whole=whole)]
    return looked


def _by_directory(paths: Collection[RelPath]) -> dict[RelPath, list[bytes]]:
    """Names by the directories that they are in."""
    found: dict[RelPath, list[bytes]] = {}
    for path in paths:
        above, name = split(path)
        found.setdefault(above, []).append(name)
    return found


def _look_at(look: PartLook, affected: Affected, path: RelPath, names: list[bytes]) -> list[RelPath] | None:
    """Some entries of a directory; returns what must be listed below it, or None: list the directory."""
    if path and affected.find(path) is None:
        return []  # see _exists
    try:
        entries = look.entries(path, names)
    except LocalChangedError:
        return []
    return None if entries is None else affected.looked_at(path, names, entries)


def _exists(look: PartLook, affected: Affected, path: RelPath) -> bool:
    """A dirty directory that is gone by now, or that the base does not know, is told by the one above it."""
    return affected.find(path) is not None and look.is_directory(path)
