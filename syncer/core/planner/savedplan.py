"""Plans as JSON values: what a plan will do, on which evidence; and whether a saved one still holds. Pure.

A description names nothing that differs from run to run (numbers of new nodes), so two descriptions are equal exactly
if the same thing would be done to the same versions. A saved plan holds if each of its actions is planned again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from syncer.core import xattrs
from syncer.core.model import (
    Action,
    Create,
    Deletions,
    LocalTag,
    Meta,
    Mkdir,
    Move,
    NoteKind,
    Park,
    Plan,
    RelPath,
    SetMeta,
    Side,
    Tag,
    Trash,
    Update,
)
from syncer.core.paths import path_in
from syncer.core.planner.plan import plan_digest

Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"

_NAMES: Final = {
    Mkdir: "mkdir",
    Create: "create",
    Update: "update",
    SetMeta: "setmeta",
    Move: "move",
    Park: "park",
    Trash: "trash",
}


class Stale(msgspec.Struct, frozen=True, kw_only=True):
    """An action of a saved plan that is not planned any more.

    Attributes:
        path: Where, as the saved plan shows it.
        reason: What is planned there now.
    """

    path: str
    reason: str


def describe(action: Action, plan: Plan) -> dict[str, Json]:
    """An action as a JSON value: see docs/reference/plan-format.md."""
    tree = (plan.local_state if action.side is Side.LOCAL else plan.remote_state).tree
    source = path_in(tree, action.nid) or action.path
    # Where a parked node lies meanwhile is nobody's business, and may be called after a number that is new each time.
    path = source if isinstance(action, Park) else action.path
    found: dict[str, Json] = {"side": action.side.value, "action": _NAMES[type(action)], **_path("path", path)}
    if isinstance(action, Move):
        found.update(_path("from", source))
    if isinstance(action, Create | Update | Trash):
        found["kind"] = action.kind.value
    if isinstance(action, Create | Update):
        if action.content is not None:
            found["content"] = {
                "size_bytes": action.content.size_bytes,
                "object_hash": action.content.object_hash.hex(),
            }
        if action.target is not None:
            found.update(_path("target", RelPath(action.target)))
    if isinstance(action, Mkdir | Create | Update | SetMeta):
        found.update(_meta(action.meta))
    if isinstance(action, Trash) and action.absorbed_by is not None:
        found["absorbed"] = True
    found["expected"] = describe_tag(action.expected)
    return found


def describe_all(plan: Plan) -> list[dict[str, Json]]:
    """All actions, in the order in which each side does them: the server's, then the local ones."""
    return [describe(action, plan) for action in (*plan.remote, *plan.local)]


def chosen(plan: Plan, saved: Sequence[Mapping[str, Json]]) -> tuple[Plan, list[Stale]]:
    """The part of a new plan that a saved one consists of, and what of the saved one is not planned any more.

    Args:
        plan: Made just now.
        saved: Descriptions.
    """
    wanted = {_key(each) for each in saved}
    now = {_key(each): each for each in describe_all(plan)}
    stale = [
        Stale(path=str(each.get("path", "")), reason=_what_now(each, now.values()))
        for each in saved
        if _key(each) not in now
    ]
    if len(wanted) == len(now) and not stale:
        return plan, []
    local = tuple(action for action in plan.local if _key(describe(action, plan)) in wanted)
    remote = tuple(action for action in plan.remote if _key(describe(action, plan)) in wanted)
    paths = {action.path for action in (*local, *remote)}
    part = replace(
        plan,
        local=local,
        remote=remote,
        notes=tuple(note for note in plan.notes if note.kind is not NoteKind.CONFLICT or note.path in paths),
        deletions=(_deletions(plan.deletions[0], local), _deletions(plan.deletions[1], remote)),
        digest=plan_digest((*local, *remote)),
    )
    return part, stale


def _what_now(saved: Mapping[str, Json], now: Iterable[Mapping[str, Json]]) -> str:
    here = [each for each in now if each["path"] == saved.get("path") and each["side"] == saved.get("side")]
    if not here:
        return f"{saved.get('action')} on the {saved.get('side')} side is not to be done any more"
    same = [each for each in here if each["action"] == saved.get("action")]
    if not same:
        return f"now it would be: {' and '.join(sorted({str(each['action']) for each in here}))}"
    differing = sorted(key for key in {*saved, *same[0]} if saved.get(key) != same[0].get(key))
    return f"{saved.get('action')}: changed since then: {', '.join(differing)}"


def _deletions(all_of_them: Deletions, actions: Iterable[Action]) -> Deletions:
    deleted = sum(1 for action in actions if isinstance(action, Trash) and action.absorbed_by is None)
    after = max(0, all_of_them.nodes_before - deleted) if deleted < all_of_them.deleted else all_of_them.nodes_after
    return replace(all_of_them, deleted=deleted, nodes_after=after)


def _key(described: Mapping[str, Json]) -> str:
    return json.dumps(described, sort_keys=True)


def _path(key: str, path: bytes) -> dict[str, Json]:
    """As text; bytes that are no UTF-8 are shown as such, and given once more in hex."""
    found: dict[str, Json] = {key: path.decode("utf-8", "backslashreplace")}
    try:
        path.decode()
    except UnicodeDecodeError:
        found[f"{key}_hex"] = path.hex()
    return found


def _meta(meta: Meta) -> dict[str, Json]:
    found: dict[str, Json] = {}
    if meta.mode is not None:
        found["mode"] = meta.full_mode
    if meta.mtime_ns is not None:
        found["mtime_ns"] = meta.mtime_ns
    if meta.xattrs is not None:
        found["xattrs"] = {name.hex(): value.hex() for name, value in xattrs.known(meta.xattrs).items()}
    return found


def describe_tag(tag: Tag | None) -> Json:
    """Evidence as a JSON value; null for none."""
    if tag is None:
        return None
    if isinstance(tag, LocalTag):
        # Without the device: its number may change with a reboot, and nothing else did.
        return {
            "ino": tag.ino,
            "btime_ns": tag.btime_ns,
            "size_bytes": tag.size_bytes,
            "mtime_ns": tag.mtime_ns,
            "ctime_ns": tag.ctime_ns,
            "version": tag.version,
        }
    return {"uuid": tag.uuid, "version": tag.version, "etag": tag.etag, "size_bytes": tag.size_bytes}
