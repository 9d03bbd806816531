"""The whole decision of one cycle: merge, freeze, diff, and what the safety stop must know. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from itertools import chain

from msgspec.structs import replace

from syncer.core.base import BaseIndex
from syncer.core.model import (
    Action,
    Adopt,
    BaseRow,
    Deletions,
    Identified,
    Kind,
    LocalTag,
    Nid,
    Node,
    Note,
    NoteKind,
    Plan,
    RelPath,
    RemoteTag,
    Side,
    Tag,
    Trash,
    Tree,
)
from syncer.core.paths import path_in
from syncer.core.planner.diff import DiffContext, diff
from syncer.core.planner.hold_back import Targets, freeze
from syncer.core.planner.identify import Fresh, relabel
from syncer.core.planner.merge import Merged, Policy, merge
from syncer.core.planner.outcome import agreed

_DIGEST_CHARACTERS = 16  # 64 bits: it names one plan to a person, it is not a signature
_DIGEST_HEAD = b"blocksync-deletions-1\0"
_NO_DELETIONS = hashlib.sha256(_DIGEST_HEAD).hexdigest()[:_DIGEST_CHARACTERS]


def make_plan(
    base: BaseIndex, local: Identified, remote: Identified, policy: Policy, fresh: Fresh, *, beside: int = 0
) -> Plan:
    """Plan one cycle.

    Args:
        base: Rows of the StateDB.
        local: `identify_local` of complete observations.
        remote: `identify_remote` of a complete listing.
        policy: Host, time, names.
        fresh: The same source of numbers that `identify` used.
        beside: Nodes that both sides have and that are left out here (`affected.AffectedPart`): the safety stop counts
            them.
    """
    if _at_rest(base, local, remote):
        return _nothing_to_do(base, local, remote, beside)
    merged = merge(base.tree, local.tree, remote.tree, policy, fresh, local.holding)
    local, remote = relabel(local, merged.relabel_local), relabel(remote, merged.relabel_remote)
    targets = freeze(merged, local, remote, policy)
    untold = _untold(base, remote)
    copies = {merged.relabel_local.get(nid, nid): copy for nid, copy in merged.copies.items()}
    context = DiffContext(base=base.tree, copies=copies, absorbed=merged.absorbed, untold=untold)
    # What became a known node only now has never been as its row says: "no opinion" is not "as the row".
    renamed = frozenset(merged.relabel_local.values())
    known = {nid: node for nid, node in base.tree.items() if nid not in renamed} if renamed else base.tree
    local_context = DiffContext(base=known, copies=copies, absorbed=merged.absorbed, fold=policy.fold_local)
    local_actions = diff(local, targets.local, Side.LOCAL, local_context)
    markerless = replace(remote, implicit=remote.implicit - targets.frozen) if targets.frozen else remote
    remote_actions = diff(markerless, targets.remote, Side.REMOTE, context)
    return Plan(
        target=merged.target,
        local=local_actions,
        remote=remote_actions,
        adopt=_adopt(base, local, remote, targets, {a.nid for a in chain(local_actions, remote_actions)}),
        forget=_forget(base, local, remote, targets),
        untrack=tuple(sorted(merged.rescued - targets.frozen)),
        notes=_notes(base, merged, targets, local, remote),
        deletions=(
            _deletions(Side.LOCAL, local.tree, targets.local, local_actions, beside),
            _deletions(Side.REMOTE, remote.tree, targets.remote, remote_actions, beside),
        ),
        digest=plan_digest(chain(local_actions, remote_actions)),
        local_state=local,
        remote_state=remote,
    )


def _untold(base: BaseIndex, remote: Identified) -> frozenset[Nid]:
    """Directories whose marker is another version than both sides agreed on, if any, and tells no mode.

    Somebody made it for a directory that had lost its own, and did not know its mode. Each device would keep the mode
    that it has, for good, so the first that has one tells it.
    """
    return frozenset(
        nid
        for nid, node in remote.tree.items()
        if node.kind is Kind.DIRECTORY and node.meta.mode is None and (tag := remote.tags.get(nid)) is not None
        if (row := base.rows.get(nid)) is None or row.remote != tag
    )


def _at_rest(base: BaseIndex, local: Identified, remote: Identified) -> bool:
    """Both sides are what the base says and nothing is hidden: most cycles. Then there is nothing to decide."""
    if local.frozen or remote.frozen or remote.implicit:
        return False
    return base.tree == local.tree and base.tree == remote.tree


def _nothing_to_do(base: BaseIndex, local: Identified, remote: Identified, beside: int) -> Plan:
    """The plan of two sides at rest: at most some evidence is newer than its row."""
    nothing = Targets(local=base.tree, remote=base.tree, frozen=frozenset(), notes=())
    return Plan(
        target=base.tree,
        local=(),
        remote=(),
        adopt=_adopt(base, local, remote, nothing, set()),
        forget=(),
        untrack=(),
        notes=tuple(sorted((*local.notes, *remote.notes), key=_order_of_note)),
        deletions=(
            _deletions(Side.LOCAL, local.tree, base.tree, (), beside),
            _deletions(Side.REMOTE, remote.tree, base.tree, (), beside),
        ),
        digest=_NO_DELETIONS,
        local_state=local,
        remote_state=remote,
    )


def plan_digest(actions: Iterable[Action]) -> str:
    """Name the deletions among `actions`: their side, path, kind and tag, no times. 16 hex digits."""
    lines = [_digest_line(action) for action in actions if isinstance(action, Trash) and action.absorbed_by is None]
    if not lines:
        return _NO_DELETIONS
    hasher = hashlib.sha256(_DIGEST_HEAD)
    for line in sorted(lines):
        hasher.update(len(line).to_bytes(4, "big") + line)
    return hasher.hexdigest()[:_DIGEST_CHARACTERS]


def _digest_line(action: Trash) -> bytes:
    tag = action.expected
    if isinstance(tag, LocalTag):
        # The device is left out too: its number may change with a reboot, and nothing else did.
        seen = f"{tag.ino}:{tag.size_bytes}:{tag.version}"
    elif isinstance(tag, RemoteTag):
        seen = f"{tag.uuid}:{tag.version}:{tag.etag}"
    else:
        seen = ""
    return f"{action.side.value}:{action.kind.value}:{seen}:".encode() + action.path


def _adopt(
    base: BaseIndex, local: Identified, remote: Identified, targets: Targets, busy: set[Nid]
) -> tuple[Adopt, ...]:
    """Nodes that agree already, need no action, and whose base row is missing, older or has older evidence."""
    found: list[Adopt] = []
    for nid, here in local.tree.items():
        there = remote.tree.get(nid)
        if there is None or nid in busy or nid in targets.frozen:
            continue
        node = agreed(base.tree.get(nid), here, there)
        if node is not None and base.rows.get(nid) != _row(nid, node, local.tags.get(nid), remote.tags.get(nid)):
            found.append(Adopt(nid=nid))
    return tuple(found)


def _row(nid: Nid, node: Node, local: Tag | None, remote: Tag | None) -> BaseRow:
    assert not isinstance(local, RemoteTag)
    assert not isinstance(remote, LocalTag)
    return BaseRow(nid=nid, node=node, local=local, remote=remote)


def _forget(base: BaseIndex, local: Identified, remote: Identified, targets: Targets) -> tuple[Nid, ...]:
    return tuple(
        nid for nid in base.rows if nid not in local.tree and nid not in remote.tree and nid not in targets.frozen
    )


def _deletions(side: Side, tree: Tree, target: Tree, actions: Iterable[Action], beside: int) -> Deletions:
    deleted = len([action for action in actions if isinstance(action, Trash) and action.absorbed_by is None])
    return Deletions(side=side, nodes_before=len(tree) + beside, nodes_after=len(target) + beside, deleted=deleted)


def _notes(
    base: BaseIndex, merged: Merged, targets: Targets, local: Identified, remote: Identified
) -> tuple[Note, ...]:
    trees = (merged.target, local.tree, remote.tree, base.tree)
    notes = [*local.notes, *remote.notes]
    for kind, nid, text in dict.fromkeys((*merged.notes, *targets.notes)):
        if kind is NoteKind.WAITS or nid not in targets.frozen or kind in (NoteKind.UNKNOWN, NoteKind.UNHOLDABLE):
            copy_nid = merged.copies.get(nid, nid) if kind is NoteKind.CONFLICT else None
            notes.append(Note(kind=kind, path=_path_of(nid, trees), text=text, copy_nid=copy_nid))
    return tuple(sorted(notes, key=_order_of_note))


def _order_of_note(note: Note) -> tuple[bytes, str, str]:
    return note.path, note.kind.value, note.text


def _path_of(nid: Nid, trees: Iterable[Tree]) -> RelPath:
    for tree in trees:
        path = path_in(tree, nid)
        if path is not None and path.count(b"\0") == 0:
            return path
    return RelPath(b"")
