"""Of which device the version is that kept the name beside a conflict copy, for who settles the conflict.

The copy's own name says who made it. Who wrote the other version the server may tell: in the look in which the copy
comes to be here, or when it is asked for that one version. Noted with its content: of another one it says nothing.
Nothing depends on it: where it can't be had, nobody knows the device.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
import trio

from syncer.core.conflict import CONFLICT_MARK, Written, host_label, parse_conflict_name
from syncer.core.model import Content, Create, Nid, Plan, RelPath, RemoteStat, Update
from syncer.core.paths import join, split
from syncer.errors import SyncerError
from syncer.ports.blocks import VersionRef
from syncer.ports.remote import Remote
from syncer.ports.state import State

_MOST_ASKED: Final = 256
"""Versions that are asked for in a cycle, each by a request: a first cycle may bring thousands of old copies."""


class _Sides(msgspec.Struct, frozen=True, kw_only=True):
    """What a cycle knows of who wrote what.

    Attributes:
        sent: Contents that this device sent, by node.
        told: What the look told of the others; None: it can't tell.
    """

    sent: Mapping[Nid, Content | None]
    told: Mapping[Nid, tuple[Content | None, str | None]]


async def note_writers(
    remote: Remote, state: State, plan: Plan, seen: Sequence[RemoteStat], late: Iterable[RelPath], host: str
) -> None:
    """Note whose versions kept their names in a cycle that is done.

    Args:
        remote: Asked for versions of which nothing was told.
        state: Where it is noted.
        plan: What was done.
        seen: The remote side before.
        late: Conflict copies that no action of the plan made.
        host: This device.
    """

    def find() -> tuple[dict[Nid, Written], dict[Nid, VersionRef]]:
        nids = set(_nids(plan, state, late))
        return _found(state, nids, _sides(plan, seen, nids), host_label(host)) if nids else ({}, {})

    known, unknown = await trio.to_thread.run_sync(find)
    asked = list(unknown.items())[:_MOST_ASKED]
    try:
        devices = await remote.writers([version for _, version in asked]) if asked else []
    except SyncerError:
        devices = []  # the next cycle has to do with that, if it lasts
    for (nid, version), device in zip(asked, devices, strict=False):
        if device:
            known[nid] = Written(content=version.content, device=host_label(device))
    if known:
        await trio.to_thread.run_sync(state.note_writers, known)


def _nids(plan: Plan, state: State, late: Iterable[RelPath]) -> Iterator[Nid]:
    """Nodes that have the name of a conflict copy that is new here; and those that had one, and are changed."""
    places = [
        (action.parent, action.name)
        for action in (*plan.local, *plan.remote)
        if isinstance(action, Create) and CONFLICT_MARK in action.name
    ]
    adopted = (plan.target[adopt.nid] for adopt in plan.adopt if adopt.nid in plan.target)
    places += [node.slot for node in adopted if CONFLICT_MARK in node.name]
    if places:
        with state.rows() as rows:
            for parent, copy in places:
                name = parse_conflict_name(copy)
                if name is not None and not name.cut:
                    yield from (row.nid for row in rows.at(parent, name.original))
    paths = {
        join(above, name.original)
        for above, copy in map(split, late)
        if (name := parse_conflict_name(copy)) is not None and not name.cut
    }
    updates = [action for action in (*plan.local, *plan.remote) if isinstance(action, Update)]
    yield from (action.nid for action in updates if action.path in paths)
    if updates:
        noted = state.writers()
        yield from (action.nid for action in updates if action.nid in noted)


def _sides(plan: Plan, seen: Sequence[RemoteStat], nids: set[Nid]) -> _Sides:
    there = plan.remote_state
    by_tag = {there.tags[nid]: nid for nid in nids if nid in there.tags}
    told = {by_tag[stat.tag]: (stat.content, stat.device) for stat in seen if stat.tag in by_tag}
    sent = {action.nid: action.content for action in plan.remote if isinstance(action, Create | Update)}
    return _Sides(sent=sent, told=told)


def _found(state: State, nids: set[Nid], sides: _Sides, host: str) -> tuple[dict[Nid, Written], dict[Nid, VersionRef]]:
    """Whose versions are known, and which ones the server is to be asked for."""
    known: dict[Nid, Written] = {}
    unknown: dict[Nid, VersionRef] = {}
    with state.rows() as rows:
        for nid in sorted(nids):
            row = rows.row(nid)
            if row is None or row.node.content is None or row.remote is None:
                continue
            content, path = row.node.content, rows.path(row)
            told, device = sides.told.get(nid, (None, None))
            if nid in sides.sent and sides.sent[nid] == content:
                known[nid] = Written(content=content, device=host)
            elif told == content and device is not None:
                if device:
                    known[nid] = Written(content=content, device=host_label(device))
            elif path is not None:
                unknown[nid] = VersionRef(path=path, tag=row.remote, content=content)
    return known, unknown
