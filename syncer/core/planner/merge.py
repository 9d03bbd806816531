"""merge(base, local, remote) → target: what both sides should have. Pure.

First each node by itself, by the action table (docs/design/planner.md, section 1). Then to a fixpoint: a directory
survives if anything below it survives; move cycles take the remote's places; of two nodes in one slot equal ones
become one and the loser of unequal ones is renamed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

import msgspec
from msgspec.structs import replace

from syncer.core import xattrs
from syncer.core.conflict import CONFLICT_MARK, conflict_name, host_label, is_copy_of, parse_conflict_name
from syncer.core.model import NO_META, PARK, ROOT, Kind, Meta, Nid, Node, NoteKind, Tree
from syncer.core.paths import local_objection, parse_park_name, remote_objection, shown
from syncer.core.planner.identify import Fresh

_ROUNDS: Final = 200  # each round settles at least one node for good; trees of real replicas need one or two

Slot = tuple[Nid, bytes]


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """What the planner is told about its surroundings.

    Attributes:
        host: Label of this device, for conflict copies.
        utc: Time of this cycle as text, for conflict copies: `20240131T120000Z`.
        local_objection: Why the local filesystem can't hold a name; None if it can.
        remote_objection: The same for the server.
        fold_local: Maps names that are one name to the local filesystem (case, Unicode form) to one key.
    """

    host: str
    utc: str
    local_objection: Callable[[bytes], str | None] = local_objection
    remote_objection: Callable[[bytes], str | None] = remote_objection
    fold_local: Callable[[bytes], bytes] | None = None


class Merged(msgspec.Struct, frozen=True, kw_only=True):
    """The target, and how the sides' nodes map to it.

    Attributes:
        target: Valid tree: no orphans, no cycles, one node per slot.
        relabel_local: Local nodes that turned out to be another node (the remote's of equal content in that slot).
        relabel_remote: Remote nodes, likewise.
        copies: Node → the conflict copy that keeps its local version, and must exist before that is replaced; also of
            nodes that are absorbed: whoever stands for them may have other bytes.
        absorbed: Node that is not in the target → the equal node that stands for it.
        rescued: Nodes that were deleted on one side, unchanged on the other, and are kept because they lie in a
            directory that was moved there.
        notes: Remarks by node.
    """

    target: dict[Nid, Node]
    relabel_local: Mapping[Nid, Nid]
    relabel_remote: Mapping[Nid, Nid]
    copies: Mapping[Nid, Nid]
    absorbed: Mapping[Nid, Nid]
    rescued: frozenset[Nid]
    notes: tuple[tuple[NoteKind, Nid, str], ...]


def merge(
    base: Tree, local: Tree, remote: Tree, policy: Policy, fresh: Fresh, holding: AbstractSet[Nid] = frozenset()
) -> Merged:
    """Decide what both sides should have.

    Args:
        base: The last state both agreed on; may be empty (first run, lost state): then nothing is ever deleted.
        local: The local side.
        remote: The remote side.
        policy: Host and time for names of conflict copies.
        fresh: Source of numbers for conflict copies; called in node order.
        holding: Directories that can't go away, because something that is not synced lies in them.
    """
    work = _Merge(base, _unparked(local, base, remote), _unparked(remote, base, local), policy, fresh, holding)
    return work.run(local, remote)


def merge_meta(base: Node | None, local: Node, remote: Node) -> Meta:
    """Field by field: what changed wins, the remote if both did; None is no opinion."""
    if local.meta == remote.meta:
        return remote.meta
    b, ours, theirs = base.meta if base is not None else NO_META, local.meta, remote.meta
    return Meta(
        mode=_field(b.mode, ours.mode, theirs.mode),
        special=_special(b.special, ours.special, theirs.special),
        mtime_ns=_field(b.mtime_ns, ours.mtime_ns, theirs.mtime_ns),
        xattrs=xattrs.merge(b.xattrs, ours.xattrs, theirs.xattrs),
    )


def _special(base: int | None, local: int | None, remote: int | None) -> int | None:
    """As `_field`; without a base nothing was removed, so the bits of both sides are united."""
    if base is None and local is not None and remote is not None:
        return local | remote
    return _field(base, local, remote)


def _field(base: int | None, local: int | None, remote: int | None) -> int | None:
    if remote is not None and remote != base:
        return remote
    return local if local is not None else base if base is not None else remote


def _as_known(base: Node | None, survivor: Node) -> Node:
    """What is made anew on a side that has lost it has what was known of it, where the other has no opinion.

    A directory of the server's without a marker has none at all: it would be told the mode that a new one gets here.
    Times are not of a version that nobody here has seen.
    """
    if base is None:
        return survivor
    meta = replace(base.meta.overlaid(survivor.meta), mtime_ns=survivor.meta.mtime_ns)
    return survivor if meta == survivor.meta else replace(survivor, meta=meta)


def _unparked(side: Tree, base: Tree, other: Tree) -> Tree:
    """The side with its parked nodes where the base has them: the park is ours, so it says nothing about intent."""
    parked = [nid for nid, node in side.items() if node.parent == PARK]
    if not parked:
        return side
    placed = dict(side)
    for nid in parked:
        known = base.get(nid) or other.get(nid)
        if known is not None and known.parent != PARK:
            placed[nid] = side[nid].placed(known.parent, known.name)
        else:
            placed[nid] = side[nid].placed(ROOT, parse_park_name(side[nid].name)[1])
    return placed


class _Siblings:
    """The names of one directory of the target, and the conflict copies among them."""

    def __init__(self, target: Tree, members: set[Nid]) -> None:
        self.target = target
        self.names: dict[bytes, Nid] = {}
        self._copies: dict[tuple[object, ...], list[Nid]] = {}
        for nid in sorted(members):
            self.add(nid)

    def add(self, nid: Nid) -> None:
        """A node is, or will be, in this directory under its present name."""
        node = self.target[nid]
        self.names.setdefault(node.name, nid)
        if CONFLICT_MARK in node.name:
            self._copies.setdefault((node.kind, node.content, node.target), []).append(nid)

    def copy_of(self, loser: Node) -> Nid | None:
        """A conflict copy of `loser`'s name and payload that is already there."""
        for nid in self._copies.get((loser.kind, loser.content, loser.target), ()):
            node = self.target.get(nid)
            beside = node is not None and node.parent == loser.parent and node.name != loser.name
            if beside and node is not None and is_copy_of(node.name, loser):
                return nid
        return None


@dataclass
class _Merge:
    """State of one merge."""

    base: Tree
    local: Tree
    remote: Tree
    policy: Policy
    fresh: Fresh
    holding: AbstractSet[Nid]
    target: dict[Nid, Node] = field(default_factory=dict)
    copies: dict[Nid, Nid] = field(default_factory=dict)
    absorbed: dict[Nid, Nid] = field(default_factory=dict)
    notes: list[tuple[NoteKind, Nid, str]] = field(default_factory=list)
    lost: list[tuple[Nid, Node]] = field(default_factory=list)
    moved_away: dict[Nid, Tree] = field(default_factory=dict)
    rescued: set[Nid] = field(default_factory=set)
    local_now: Tree = field(default_factory=dict)

    def run(self, local: Tree, remote: Tree) -> Merged:
        """All steps. `local` and `remote` are the sides with their parked nodes parked."""
        self.local_now = local
        for nid in sorted(self.local.keys() | self.remote.keys()):
            node = self._decide(nid)
            if node is not None:
                self.target[nid] = node
        for tree in (self.local, self.remote):
            self._rescue(tree)
        self._keep_lost_versions()
        for _ in range(_ROUNDS):
            # No short cut: a clash may orphan or close a cycle, so all three look again until none acts.
            if not (self._close() | self._break_cycles() | self._settle_clashes() | self._settle_folds()):
                break
        else:
            raise AssertionError("merge did not reach its fixpoint")
        return Merged(
            target=self.target,
            relabel_local=self._relabel(local),
            relabel_remote=self._relabel(remote),
            copies={nid: self._winner(copy) for nid, copy in self.copies.items()},
            absorbed={nid: self._winner(nid) for nid in self.absorbed},
            rescued=frozenset(self.rescued),
            notes=tuple(self.notes),
        )

    # --- each node by itself: the action table

    def _decide(self, nid: Nid) -> Node | None:
        base, local, remote = self.base.get(nid), self.local.get(nid), self.remote.get(nid)
        if local is None or remote is None:
            survivor = remote if local is None else local
            assert survivor is not None
            return self._one_side(nid, base, survivor, self.remote if local is None else self.local)
        if local == remote and base is not None:
            return remote
        return self._both_sides(nid, base, local, remote)

    def _one_side(self, nid: Nid, base: Node | None, survivor: Node, side: Tree) -> Node | None:
        """New, or deleted on the other side: then what was edited or moved meanwhile is kept."""
        if base is None:
            return survivor
        if survivor.slot == base.slot and survivor.same_payload(base):
            if nid not in self.holding:
                return None
            self.notes.append((NoteKind.KEPT, nid, "deleted, but kept for what is in it and is not synced"))
            return _as_known(base, survivor)
        if survivor.kind is Kind.DIRECTORY:
            self.moved_away[nid] = side
        self.notes.append((NoteKind.EDIT_WINS, nid, "deleted on one side, changed on the other: kept"))
        return _as_known(base, survivor)

    def _rescue(self, side: Tree) -> None:
        """A directory that was moved here and deleted there comes back as it is here: with its content.

        Whoever moved it wants what is in it; who deleted it did not know. What was moved out of it there, or deleted
        here, is decided by itself.
        """
        queue = [nid for nid, tree in self.moved_away.items() if tree is side]
        if not queue:
            return
        below: dict[Nid, list[Nid]] = {}
        for nid, node in side.items():
            below.setdefault(node.parent, []).append(nid)
        for parent in queue:  # grows while it is walked
            for nid in sorted(below.get(parent, ())):
                if nid not in self.target:
                    self.target[nid] = side[nid]
                    self.rescued.add(nid)
                    if side[nid].kind is Kind.DIRECTORY:
                        queue.append(nid)

    def _both_sides(self, nid: Nid, base: Node | None, local: Node, remote: Node) -> Node:
        parent, name = self._place(nid, base, local, remote)
        winner = remote
        if not local.same_payload(remote):
            if base is not None and remote.same_payload(base):
                winner = local
            elif base is None or not local.same_payload(base):
                self.lost.append((nid, local))
        return Node(
            parent=parent,
            name=name,
            kind=winner.kind,
            content=winner.content,
            target=winner.target,
            meta=merge_meta(base, local, remote),
        )

    def is_unheard_of(self, one: Nid, other: Nid) -> bool:
        """Whether equal nodes of both sides are a conflict copy of ours that no run has recorded, or tells of now.

        Without any base (a new link) it may be of old times.
        """
        name = self.target[one].name
        if not self.base or CONFLICT_MARK not in name or {one, other} & {*self.base, *self.copies.values()}:
            return False
        found = parse_conflict_name(name)
        return found is not None and found.host == host_label(self.policy.host)

    def _place(self, nid: Nid, base: Node | None, local: Node, remote: Node) -> Slot:
        if base is not None and remote.slot == base.slot:
            return local.slot
        if base is not None and base.slot != local.slot != remote.slot:
            self.notes.append(
                (NoteKind.REMOTE_PLACE, nid, "moved differently on both sides: the server's place counts")
            )
        return remote.slot

    # --- conflict copies

    def _keep_lost_versions(self) -> None:
        """Give every local version that loses its node a conflict copy beside it, or find the one already there."""
        if not self.lost:
            return
        below = self.below({self.target[nid].parent for nid, _ in self.lost})
        siblings = {parent: _Siblings(self.target, members) for parent, members in below.items()}
        for nid, version in self.lost:
            parent = self.target[nid].parent
            loser = version.placed(parent, self.target[nid].name)
            copy = siblings[parent].copy_of(loser)
            if copy is None:
                copy = self.fresh()
                self.target[copy] = loser.placed(parent, self.conflict_name(loser, siblings[parent]))
                siblings[parent].add(copy)
            self.copies[nid] = copy
            self.notes.append(
                (NoteKind.CONFLICT, nid, f"changed on both sides: the local version is kept as {self._name_of(copy)}")
            )

    def _name_of(self, nid: Nid) -> str:
        return shown(self.target[nid].name)

    def below(self, parents: set[Nid] | None = None) -> dict[Nid, set[Nid]]:
        below: dict[Nid, set[Nid]] = {}
        for nid, node in self.target.items():
            if parents is None or node.parent in parents:
                below.setdefault(node.parent, set()).add(nid)
        return below

    def conflict_name(self, loser: Node, siblings: _Siblings) -> bytes:
        return conflict_name(loser, host=self.policy.host, utc=self.policy.utc, taken=siblings.names)

    # --- the fixpoint

    def _close(self) -> bool:
        """A directory survives if anything below it survives."""
        changed = False
        stack = [nid for nid, node in self.target.items() if node.parent not in self.target and node.parent != ROOT]
        while stack:
            nid = stack.pop()
            parent = self.target[nid].parent
            if parent == ROOT or parent in self.target:
                continue
            changed = True
            if parent in self.absorbed:
                self.target[nid] = self.target[nid].placed(self._winner(parent), self.target[nid].name)
                stack.append(nid)
                continue
            known = self.remote.get(parent) or self.local.get(parent) or self.base.get(parent)
            # A child of a directory that nobody knows (its row was lost in a crash) goes to the top.
            node = Node(parent=ROOT, name=b"recovered", kind=Kind.DIRECTORY)
            if known is not None:
                node = _as_known(self.base.get(parent), known)
            self.target[parent] = node if node.parent != PARK else node.placed(ROOT, parse_park_name(node.name)[1])
            self.notes.append((NoteKind.KEPT, parent, "deleted, but kept for what is below it"))
            stack.append(parent)
        return changed

    def _break_cycles(self) -> bool:
        changed = False
        good: set[Nid] = {ROOT}
        for nid in sorted(self.target):
            trail: dict[Nid, int] = {}
            at = nid
            while at not in good and at not in trail:
                trail[at] = len(trail)
                at = self.target[at].parent
            if at in trail:
                self._break_cycle([member for member, index in trail.items() if index >= trail[at]])
                changed = True
            good.update(trail)
        return changed

    def _break_cycle(self, cycle: list[Nid]) -> None:
        """Give the members the remote's places; if that is what they have, hang one under the root."""
        moved = False
        for nid in sorted(cycle):
            remote = self.remote.get(nid)
            slot = (self._winner(remote.parent), remote.name) if remote is not None else self.target[nid].slot
            if slot != self.target[nid].slot:
                self.target[nid] = self.target[nid].placed(*slot)
                moved = True
        if not moved:
            nid = min(cycle)
            self.target[nid] = self.target[nid].placed(ROOT, self.target[nid].name)
        self.notes.append(
            (NoteKind.CYCLE, min(cycle), "moved into each other on the two sides: the server's place counts")
        )

    def _settle_clashes(self) -> bool:
        slots: dict[Slot, Nid] = {}
        crowded: dict[Slot, list[Nid]] = {}
        for nid, node in self.target.items():
            first = slots.setdefault(node.slot, nid)
            if first != nid:
                crowded.setdefault(node.slot, [first]).append(nid)
        if crowded:
            _Clashes(self, slots, deque((slot, crowded[slot]) for slot in sorted(crowded))).settle()
        return bool(crowded)

    def _settle_folds(self) -> bool:
        """Of nodes whose names are one to the local filesystem, who does not have its name on the server gives way.

        Who has it there keeps it, for other devices may tell them apart: then one of them can't be had here, and
        `freeze` says so. Names that are both here are two, whatever the key says of them.
        """
        fold = self.policy.fold_local
        if fold is None:
            return False
        crowded: dict[Slot, list[Nid]] = {}
        for nid, node in self.target.items():
            crowded.setdefault((node.parent, fold(node.name)), []).append(nid)
        work = _Clashes(self, {node.slot: nid for nid, node in self.target.items()}, deque())
        here = {(self._winner(node.parent), node.name) for node in self.local_now.values()}
        changed = False
        for members in [crowded[slot] for slot in sorted(crowded) if len(crowded[slot]) > 1]:
            winner = min(members, key=lambda nid: self.priority(nid, self.target[nid].slot))
            for loser in sorted(members):
                there = self.remote.get(loser)
                held = there is not None and there.slot == self.target[loser].slot
                beside = self.target[winner].slot in here and self.target[loser].slot in here
                if loser != winner and not held and not beside:
                    work.give_way(winner, loser)
                    changed = True
        work.settle()
        return changed

    def priority(self, nid: Nid, slot: Slot) -> tuple[int, bool, Nid]:
        """Lowest wins: who has the name on the server (first come, first served), who is there at all, the older.

        Of two that have it there, because their directories became one, the one whose directory stays. Of an object
        and a directory that is there by what lies below that object, the directory: only one object is renamed.
        """
        remote = self.remote.get(nid)
        if remote is None:
            return (3, False, nid)
        if remote.slot == slot:
            return (0, remote.kind is not Kind.DIRECTORY, nid)
        return (1 if (self._winner(remote.parent), remote.name) == slot else 2, False, nid)

    def _winner(self, nid: Nid) -> Nid:
        while nid in self.absorbed:
            nid = self.absorbed[nid]
        return nid

    def _relabel(self, side: Tree) -> dict[Nid, Nid]:
        """Where a side lacks the winner but has the absorbed one, that one simply *is* the winner: no I/O."""
        names: dict[Nid, Nid] = {}
        given: set[Nid] = set()
        for nid in sorted(self.absorbed):
            winner = self._winner(nid)
            if nid in side and winner in self.target and winner not in side and winner not in given:
                names[nid] = winner
                given.add(winner)
        return names


@dataclass
class _Clashes:
    """One pass over the crowded slots; directories that become one are followed down at once, so a pass is O(nodes)."""

    merge: _Merge
    slots: dict[Slot, Nid]
    queue: deque[tuple[Slot, list[Nid]]]
    siblings: dict[Nid, _Siblings] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Index the children once."""
        self.target = self.merge.target
        self.below = self.merge.below()

    def settle(self) -> None:
        """Leave at most one node in each slot that was crowded."""
        while self.queue:
            slot, members = self.queue.popleft()
            present = {nid for nid in members if nid in self.target and self.target[nid].slot == slot}
            if not present:
                continue
            winner, *losers = sorted(present, key=lambda nid: self.merge.priority(nid, slot))
            self.slots[slot] = winner
            for loser in losers:
                self.give_way(winner, loser)

    def give_way(self, winner: Nid, loser: Nid) -> None:
        """Make the loser one with the winner, or give it another name."""
        first, second = self.target[winner], self.target[loser]
        unknown = second.kind is Kind.FILE and second.content is None
        if unknown:
            # Frozen: nothing is done with it, and `freeze` holds the winner back. NUL: no real name can clash.
            self._rename(loser, b"\0%d" % loser)
        elif first.same_payload(second):
            if self.merge.is_unheard_of(winner, loser):
                text = "a conflict copy of this device: the run that made it was cut short, or it was not synced since"
                self.merge.notes.append((NoteKind.CONFLICT, winner, text))
            self._absorb(loser, winner)
        else:
            siblings = self._siblings_in(second.parent)
            copy = siblings.copy_of(second)
            if copy is not None:
                self._note(copy, second)  # a run that ended half-way made it; this one ends the conflict
                self._absorb(loser, copy)
            else:
                self._rename(loser, self.merge.conflict_name(second, siblings))
                siblings.add(loser)
                self._note(loser, second)

    def _siblings_in(self, parent: Nid) -> _Siblings:
        if parent not in self.siblings:
            self.siblings[parent] = _Siblings(self.target, self.below[parent])
        return self.siblings[parent]

    def _note(self, loser: Nid, was: Node) -> None:
        kind = NoteKind.RENAMED if was.kind is Kind.DIRECTORY else NoteKind.CONFLICT
        old, new = shown(was.name), shown(self.target[loser].name)
        self.merge.notes.append((kind, loser, f"{old} is another one's name on the server: kept as {new}"))

    def _rename(self, nid: Nid, name: bytes) -> None:
        self.target[nid] = self.target[nid].placed(self.target[nid].parent, name)
        self.slots[self.target[nid].slot] = nid

    def _complete(self, nid: Nid, meta: Meta) -> None:
        """Metadata of which the winner has none is taken from the one it stands for; of attributes, each by itself."""
        node, base = self.target[nid], self.merge.base.get(nid)
        was = base.meta.xattrs if base is not None else None
        full = replace(meta.overlaid(node.meta), xattrs=xattrs.united(meta.xattrs, node.meta.xattrs, was))
        if full != node.meta:
            self.target[nid] = replace(node, meta=full)

    def _absorb(self, loser: Nid, winner: Nid) -> None:
        """One node stands for both; a directory's children move over, and may clash there."""
        node = self.target.pop(loser)
        self._complete(winner, node.meta)
        self.below[node.parent].discard(loser)
        self.merge.absorbed[loser] = winner
        for nid in sorted(self.below.pop(loser, ())):
            child = self.target[nid] = self.target[nid].placed(winner, self.target[nid].name)
            self.below.setdefault(winner, set()).add(nid)
            if winner in self.siblings:
                self.siblings[winner].add(nid)
            other = self.slots.setdefault(child.slot, nid)
            if other != nid:
                self.queue.append((child.slot, [other, nid]))
