"""Leave alone what is not known, and what depends on it. Pure.

A frozen node stays where and what it is, on each side; the sides may differ there until it can be read again. So
each side gets a target of its own: the merged one, with the frozen nodes as this side has them.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from syncer.core.folding import Fold
from syncer.core.model import PARK, ROOT, Identified, Nid, Node, NoteKind, Side, Tree
from syncer.core.paths import shown, target_objection
from syncer.core.planner.merge import Merged, Policy

UnfoldedSlot = tuple[Nid, bytes]


class Targets(msgspec.Struct, frozen=True, kw_only=True):
    """What each side should have in this cycle.

    Attributes:
        local: Target of the local side.
        remote: Target of the remote side; the same object if nothing is frozen.
        frozen: All nodes that are left alone.
        notes: Why.
    """

    local: Tree
    remote: Tree
    frozen: frozenset[Nid]
    notes: tuple[tuple[NoteKind, Nid, str], ...]


def freeze(merged: Merged, local: Identified, remote: Identified, policy: Policy) -> Targets:
    """Spread the frozenness of nodes to what depends on them, and make the sides' targets.

    Args:
        merged: The target for both.
        local: The local side, relabelled.
        remote: The remote side, relabelled.
        policy: Which names a side can't hold: such nodes are left alone too.
    """
    sides = {Side.LOCAL: local.tree, Side.REMOTE: remote.tree}
    work = _Freeze(merged, sides, local.opaque | remote.opaque, policy.fold_local)
    for nid, reason in sorted([*local.frozen.items(), *remote.frozen.items()]):
        work.add(nid, NoteKind.UNKNOWN, f"{reason}: left alone")
    for nid, reason in _unholdable(merged.target, local.tree, remote.tree, policy):
        work.add(nid, NoteKind.UNHOLDABLE, reason)
    if not work.frozen:
        return Targets(local=merged.target, remote=merged.target, frozen=frozenset(), notes=())
    work.spread()
    return Targets(
        local=work.target_of(local.tree),
        remote=work.target_of(remote.tree),
        frozen=frozenset(work.frozen),
        notes=tuple(work.notes),
    )


def _unholdable(target: Tree, local: Tree, remote: Tree, policy: Policy) -> list[tuple[Nid, str]]:
    """Nodes whose new name, or target, one side can't have. What a side already has is what it can hold."""
    found: list[tuple[Nid, str]] = []
    verdicts: dict[bytes, tuple[str | None, str | None]] = {}  # names repeat, and unchanged ones cost nothing
    for nid, node in target.items():
        here, there = local.get(nid), remote.get(nid)
        if node.target is not None and (here is None or here.target != node.target):
            reason = target_objection(node.target)
            if reason is not None:
                found.append((nid, f"no symlink can have its target: {reason}; left alone"))
                continue
        if here is not None and there is not None and here.name == node.name == there.name:
            continue
        if node.name not in verdicts:
            verdicts[node.name] = (policy.local_objection(node.name), policy.remote_objection(node.name))
        no_local, no_remote = verdicts[node.name]
        if no_local is not None and (here is None or here.name != node.name):
            found.append((nid, f"the local filesystem can't hold this name: {no_local}; left alone"))
        elif no_remote is not None and (there is None or there.name != node.name):
            found.append((nid, f"the server can't hold this name: {no_remote}; left alone"))
    return found + _folded(target, local, policy.fold_local)


def _folded(target: Tree, local: Tree, fold: Fold | None) -> list[tuple[Nid, str]]:
    """Nodes whose name the local filesystem takes for another one's."""
    if fold is None:
        return []
    groups: dict[UnfoldedSlot, list[Nid]] = {}
    for nid, node in target.items():
        groups.setdefault((node.parent, fold(node.name)), []).append(nid)
    found: list[tuple[Nid, str]] = []
    for nids in groups.values():
        if len(nids) > 1:
            placed = {nid for nid in nids if nid in local and local[nid].slot == target[nid].slot}
            there = sorted(nids, key=lambda nid: (nid not in placed, nid not in local, nid))  # who has it here stays
            first = shown(target[there[0]].name)
            text = f"to the local filesystem its name is that of {first} (case or Unicode form); left alone"
            found += [(nid, text) for nid in there[1:] if nid not in placed]
    return found


class _Freeze:
    """The worklist."""

    def __init__(self, merged: Merged, sides: Mapping[Side, Tree], opaque: frozenset[Nid], fold: Fold | None) -> None:
        self.folds = {Side.LOCAL: fold, Side.REMOTE: None}
        self.target = merged.target
        self.sides = sides
        self.opaque = opaque
        self.frozen: set[Nid] = set()
        self.known: set[Nid] = set()  # left alone not because they can't be read, but because a side can't have them
        self.queue: list[Nid] = []
        self.notes: list[tuple[NoteKind, Nid, str]] = []
        self.partners: dict[Nid, list[Nid]] = {}
        for one, other in [*merged.copies.items(), *merged.absorbed.items()]:
            self.partners.setdefault(one, []).append(other)
            self.partners.setdefault(other, []).append(one)

    def add(self, nid: Nid, kind: NoteKind, text: str) -> None:
        """Freeze one node."""
        if nid in self.frozen or nid in (ROOT, PARK):
            return
        self.frozen.add(nid)
        if kind is NoteKind.UNHOLDABLE:
            self.known.add(nid)
        self.queue.append(nid)
        if kind is not NoteKind.WAITS or self._would_change(nid):
            self.notes.append((kind, nid, text))

    def _would_change(self, nid: Nid) -> bool:
        wanted = self.target.get(nid)
        return any(tree.get(nid) != wanted for tree in self.sides.values())

    def spread(self) -> None:
        """Freeze all that depends on a frozen node.

        - On each side, the directories above it: they can't be moved or removed under it.
        - A node that wants the slot that it keeps.
        - Nodes that should go into it where it is not, or where nobody knows what is in it.
        - Its conflict copy, what it absorbed, what absorbed it: they make sense only together.
        """
        takers: dict[Side, dict[UnfoldedSlot, list[Nid]]] = {side: {} for side in self.sides}
        for nid, node in self.target.items():
            for side, found in takers.items():
                found.setdefault(self._key(side, node), []).append(nid)
        below: dict[Nid, list[Nid]] = {}
        for nid, node in self.target.items():
            below.setdefault(node.parent, []).append(nid)
        if ROOT in self.opaque:
            self._wait(below.get(ROOT, []))
        while self.queue:
            nid = self.queue.pop()
            for side, tree in self.sides.items():
                kept = tree.get(nid)
                if kept is None:
                    if nid in self.known:
                        self.known.update(self._only_there(below.get(nid, [])))
                    self._wait(below.get(nid, []))
                else:
                    above = [] if nid in self.known and self._only_there([nid]) else [kept.parent]
                    self._wait([*above, *(each for each in takers[side].get(self._key(side, kept), ()) if each != nid)])
            if nid in self.opaque:
                self._wait(below.get(nid, []))
            self._wait(self.partners.get(nid, []))

    def _key(self, side: Side, node: Node) -> UnfoldedSlot:
        fold = self.folds[side]
        return node.slot if fold is None else (node.parent, fold(node.name))

    def _only_there(self, nids: list[Nid]) -> list[Nid]:
        """Those that one side has, in the directory where it should be, and the other side lacks.

        That directory may be made, and moved: it takes them along. Else one name that can't be held here would keep
        all its neighbours from being synced.
        """
        found = []
        for nid in nids:
            have = [tree[nid] for tree in self.sides.values() if nid in tree]
            wanted = self.target.get(nid)
            if len(have) == 1 and wanted is not None and have[0].parent == wanted.parent:
                found.append(nid)
        return found

    def _wait(self, nids: list[Nid]) -> None:
        for nid in nids:
            self.add(nid, NoteKind.WAITS, "waits for something that can't be read or held")

    def target_of(self, side: Tree) -> dict[Nid, Node]:
        """The merged target, but the frozen nodes as they are on this side."""
        target = {nid: node for nid, node in self.target.items() if nid not in self.frozen}
        target.update((nid, side[nid]) for nid in self.frozen if nid in side)
        return target
