"""Why a path is as it is, and what becomes of it: three states, the rule that applies, what is planned. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Final

import msgspec
from msgspec.structs import replace

from syncer.core import xattrs
from syncer.core.base import BaseIndex
from syncer.core.model import Action, Identified, Nid, Node, NoteKind, Plan, RelPath, Tag, Tree
from syncer.core.paths import path_in


class Change(Enum):
    """What a side did with a node since both last agreed."""

    SAME = "unchanged"
    EDITED = "edited"
    MOVED = "moved"
    BOTH = "moved and edited"
    DELETED = "deleted"
    NEW = "new"
    ABSENT = "not there"


_SAME, _EDITED, _MOVED, _BOTH, _DELETED = Change.SAME, Change.EDITED, Change.MOVED, Change.BOTH, Change.DELETED

CONFLICT: Final = (
    "changed on both sides: equal contents are adopted; else it is a conflict: the server's version keeps the name, "
    "the local one stays beside it as a conflict copy"
)
_PLACE: Final = "moved on both sides: the same place is adopted; else the server's place counts"

RULES: Final[dict[tuple[Change, Change], str]] = {
    (_SAME, _SAME): "both sides are as they last agreed: nothing to do",
    (_SAME, _EDITED): "changed on the server only: the content is pulled",
    (_SAME, _MOVED): "moved on the server only: moved here, too",
    (_SAME, _BOTH): "moved and changed on the server only: both are done here, too",
    (_SAME, _DELETED): "deleted on the server, unchanged here: goes to the local trash",
    (_EDITED, _SAME): "changed here only: the content is pushed",
    (_EDITED, _EDITED): CONFLICT,
    (_EDITED, _MOVED): "changed here, moved on the server: moved here, and the content is pushed",
    (_EDITED, _BOTH): "moved on the server: moved here, too; " + CONFLICT,
    (_EDITED, _DELETED): "changed here, deleted on the server: the change wins and is pushed",
    (_MOVED, _SAME): "moved here only: moved on the server, too",
    (_MOVED, _EDITED): "moved here, changed on the server: moved there, and the content is pulled",
    (_MOVED, _MOVED): _PLACE,
    (_MOVED, _BOTH): _PLACE + "; the server's content is pulled",
    (_MOVED, _DELETED): "moved here, deleted on the server: the move wins, it is made there again at its new place",
    (_BOTH, _SAME): "moved and changed here only: both are done on the server, too",
    (_BOTH, _EDITED): "moved here: moved on the server, too; " + CONFLICT,
    (_BOTH, _MOVED): _PLACE + "; the local content is pushed",
    (_BOTH, _BOTH): _PLACE + "; " + CONFLICT,
    (_BOTH, _DELETED): "moved and changed here, deleted on the server: the change wins, it is made there again",
    (_DELETED, _SAME): "deleted here, unchanged on the server: deleted there, too",
    (_DELETED, _EDITED): "deleted here, changed on the server: the change wins, it is made here again",
    (_DELETED, _MOVED): "deleted here, moved on the server: the move wins, it is made here again at its new place",
    (_DELETED, _BOTH): "deleted here, moved and changed on the server: the change wins, it is made here again",
    (_DELETED, _DELETED): "deleted on both sides: forgotten",
    (Change.NEW, Change.ABSENT): "new here: made on the server",
    (Change.ABSENT, Change.NEW): "new on the server: made here",
    (Change.NEW, Change.NEW): "new on both sides: equal contents are adopted, folders are united; else the server's "
    "keeps the name, and the local one stays beside it as a conflict copy",
}
"""The action table (docs/design/planner.md), in words: local change, change on the server → what happens."""


_LEFT_ALONE: Final = frozenset({NoteKind.UNKNOWN, NoteKind.WAITS, NoteKind.UNHOLDABLE})


class State(msgspec.Struct, frozen=True, kw_only=True):
    """A node on one side, or in the base.

    Attributes:
        path: Where.
        node: What; of a file that could not be read, as far as is known.
        tag: The evidence; None for the base, and where there is none.
    """

    path: RelPath
    node: Node
    tag: Tag | None


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """One node that has, or had, the path in question on some side.

    Attributes:
        local: Here; None: not there.
        base: As both last agreed; None: never.
        remote: On the server; None: not there.
        local_change: Since then.
        remote_change: Since then.
        metadata: Mode, time or attributes differ from what was agreed: here, on the server.
        rule: What applies, in words.
        frozen: Why it is left alone in this cycle; None if it is not.
        actions: What the next cycle would do with it.
        notes: What the planner remarks on its paths.
    """

    local: State | None
    base: State | None
    remote: State | None
    local_change: Change
    remote_change: Change
    metadata: tuple[bool, bool]
    rule: str
    frozen: str | None
    actions: tuple[Action, ...]
    notes: tuple[str, ...]


def explain(path: RelPath, base: BaseIndex, plan: Plan) -> list[Explanation]:
    """Everything that has the path here, on the server, in the base or in the target. Mostly one node, or none.

    Args:
        path: The path in question.
        base: What the plan was made from.
        plan: What the next cycle would do.
    """
    trees = (plan.local_state.tree, plan.remote_state.tree, plan.target)
    nids = {nid for tree in trees if (nid := find(tree, path)) is not None} | set(base.by_path.get(path, ()))
    found = [_explain(nid, base, plan) for nid in sorted(nids)]
    claims = {(each.local_change, each.remote_change) for each in found}
    if len(found) > 1 and claims >= {(Change.NEW, Change.ABSENT), (Change.ABSENT, Change.NEW)}:
        # Two nodes, because their contents differ: one is not just new, there is another in its place.
        return [replace(each, rule=RULES[Change.NEW, Change.NEW]) for each in found]
    return found


def find(tree: Tree, path: RelPath) -> Nid | None:
    """The node at a path of a tree, in one pass for all its segments."""
    last = path.rpartition(b"/")[2]
    return next((nid for nid, node in tree.items() if node.name == last and path_in(tree, nid) == path), None)


def _explain(nid: Nid, base: BaseIndex, plan: Plan) -> Explanation:
    agreed = base.tree.get(nid)
    here, there = _state(nid, plan.local_state), _state(nid, plan.remote_state)
    known = None if agreed is None else State(path=base.paths.get(nid, RelPath(b"")), node=agreed, tag=None)
    changes = tuple(change(agreed, None if state is None else state.node) for state in (here, there))
    actions = tuple(action for action in (*plan.remote, *plan.local) if action.nid == nid)
    paths = {state.path for state in (here, there, known) if state is not None} | {action.path for action in actions}
    notes = [note for note in plan.notes if note.path in paths]
    left = next((note.text for note in notes if note.kind in _LEFT_ALONE), None)
    frozen = plan.local_state.frozen.get(nid) or plan.remote_state.frozen.get(nid) or left
    return Explanation(
        local=here,
        base=known,
        remote=there,
        local_change=changes[0],
        remote_change=changes[1],
        metadata=(_metadata(agreed, here), _metadata(agreed, there)),
        rule="left alone" if frozen else RULES.get((changes[0], changes[1]), "nothing is known of it on either side"),
        frozen=frozen,
        actions=actions,
        notes=tuple(note.text for note in notes if note.text != frozen),
    )


def change(agreed: Node | None, now: Node | None) -> Change:
    """What became of a node on one side."""
    if agreed is None:
        return Change.ABSENT if now is None else Change.NEW
    if now is None:
        return Change.DELETED
    moved, edited = agreed.slot != now.slot, not agreed.same_payload(now)
    if moved:
        return Change.BOTH if edited else Change.MOVED
    return Change.EDITED if edited else Change.SAME


def _metadata(agreed: Node | None, state: State | None) -> bool:
    if agreed is None or state is None:
        return False
    old, new = agreed.meta, state.node.meta
    pairs: Iterable[tuple[int | None, int | None]] = (
        (old.mode, new.mode),
        (old.special, new.special),
        (old.mtime_ns, new.mtime_ns),
    )
    if new.xattrs is not None and not xattrs.same(new.xattrs, old.xattrs or ()):
        return True
    return any(now is not None and now != was for was, now in pairs)


def _state(nid: Nid, side: Identified) -> State | None:
    node = side.tree.get(nid)
    if node is None:
        return None
    return State(path=path_in(side.tree, nid) or RelPath(node.name), node=node, tag=side.tags.get(nid))
