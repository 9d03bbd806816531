"""What has really been done: the two sides as they become, and which base rows that allows. Pure.

The engine asks before each action (`obstacle`), tells after it (`applied`, `failed`), and writes the base changes it
gets back. StateDB rule A lives here: a row is written only when both sides are equal in that node. One exception: where
the local side can't have all of the server's metadata, the row has what is here, and no evidence of the server.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from syncer.core import xattrs
from syncer.core.base import BaseIndex
from syncer.core.model import (
    PARK,
    ROOT,
    Action,
    BaseRow,
    Create,
    Identified,
    Kind,
    LocalTag,
    Meta,
    Mkdir,
    Move,
    Nid,
    Node,
    Park,
    Plan,
    RelPath,
    RemoteTag,
    SetMeta,
    Side,
    Tag,
    Trash,
    Update,
)
from syncer.core.paths import join, path_in, split
from syncer.core.planner.identify import evidence, synced_meta
from syncer.core.subtrees import Retagged


class Forgotten(msgspec.Struct, frozen=True, kw_only=True):
    """A base row to remove: neither side has the node any more."""

    nid: Nid


BaseChange: TypeAlias = BaseRow | Forgotten | Retagged


class Booking(msgspec.Struct, frozen=True, kw_only=True):
    """What an order makes true of one node on the server, before it is known whether it was carried out.

    Attributes:
        nid: The node.
        node: What it will be; None: it will be gone.
        uuid: Of its object; empty where there was none, or the server does not tell.
        local: Evidence of the local side, if that is equal; None: that of the base row stays.
    """

    nid: Nid
    node: Node | None
    uuid: str = ""
    local: LocalTag | None = None


def agreed(base: Node | None, local: Node, remote: Node) -> Node | None:
    """What both sides agree on: None unless place, payload and metadata (where both have any) are equal."""
    if local.slot != remote.slot or local.parent == PARK or not local.same_payload(remote):
        return None
    if local.kind is Kind.FILE and local.content is None:
        return None
    meta: Meta | None = remote.meta
    here = local.meta
    if here.special is None and here != remote.meta:
        here = replace(here, special=remote.meta.special)  # no opinion is no difference
    if here != remote.meta:
        meta = _agreed_meta(base.meta if base is not None else Meta(), here, remote.meta)
    if meta is not None and meta.xattrs == () and remote.meta.xattrs is None:
        meta = replace(meta, xattrs=None)  # the same to a base: written in one way, a row is not written anew
    if meta is not None and meta.special is None and meta.mode is not None:
        meta = replace(meta, special=0)  # what nobody has an opinion on is unset on the server
    return remote if meta == remote.meta else None if meta is None else replace(remote, meta=meta)


def _agreed_meta(known: Meta, here: Meta, there: Meta) -> Meta | None:
    for ours, theirs, was in (
        (here.mode, there.mode, known.mode),
        (here.special, there.special, known.special),
        (here.mtime_ns, there.mtime_ns, known.mtime_ns),
    ):
        if ours is None:
            continue
        if theirs is not None and ours != theirs:
            return None
        if theirs is None and was is not None and ours != was:
            return None  # changed here, and the server was not told yet
    if here.xattrs is not None:
        told = (known.xattrs or ()) if there.xattrs is None else there.xattrs
        if not xattrs.same(here.xattrs, told):
            return None
    ours_settled = replace(here, xattrs=xattrs.settled(here.xattrs))
    return Meta(special=known.special, xattrs=known.xattrs).overlaid(ours_settled).overlaid(there)


class Outcome:
    """What became of one cycle so far. Mutable, single-threaded; the engine owns it."""

    def __init__(self, base: BaseIndex, plan: Plan) -> None:
        self._plan = plan
        self._index = base
        self._base = dict(base.tree)  # as recorded by now
        self._waiting: dict[Nid, set[Nid]] = {}
        self._keeping: dict[Nid, set[Nid]] = {}
        self._partly: set[Nid] = set()  # the local side can't have all of the metadata
        self._to_set = {action.nid for action in plan.remote if isinstance(action, SetMeta)}
        self._to_mark = {action.nid for action in plan.local if _sets_attributes(action)}
        there = plan.remote_state.tree
        self._to_tell = {
            each.nid for each in plan.remote if isinstance(each, SetMeta) and there[each.nid].meta.mode is None
        }
        self._sides = {
            Side.LOCAL: _SideState(plan.local_state),
            Side.REMOTE: _SideState(plan.remote_state),
        }

    def path(self, side: Side, nid: Nid) -> RelPath:
        """Where a node is now on a side."""
        path = path_in(self._sides[side].tree, nid)
        assert path is not None
        return path

    def base_row(self, nid: Nid) -> BaseRow | None:
        """What both sides agreed on before this cycle."""
        return self._index.rows.get(nid)

    def path_after(self, action: Action) -> RelPath:
        """Where the node will be when `action` is done now (`Trash`: where it is)."""
        if isinstance(action, Mkdir | Create | Move):
            parent = RelPath(b"") if action.parent == ROOT else self.path(action.side, action.parent)
            return join(parent, action.name)
        if isinstance(action, Park):
            return action.path
        return self.path(action.side, action.nid)

    def node(self, side: Side, nid: Nid) -> Node | None:
        """What a side has now."""
        return self._sides[side].tree.get(nid)

    def tag(self, side: Side, nid: Nid) -> Tag | None:
        """The evidence a side's node has now: observed, or the result of our own last action on it."""
        return self._sides[side].tags.get(nid)

    def obstacle(self, action: Action) -> str | None:
        """Why `action` must not be tried now, because an earlier one failed; None if it can go ahead."""
        return self._sides[action.side].obstacle(action)

    def failed(self, action: Action) -> None:
        """The node is dirty: nothing more is done to it on this side in this cycle."""
        self._sides[action.side].dirty.add(action.nid)

    def partly(self, nid: Nid) -> list[BaseChange]:
        """The local side can't have all of a node's metadata: its place and payload may be agreed on all the same.

        Else it, and all below it, would never be known: an edit elsewhere would be a conflict, and a deletion undone.

        Returns:
            Base changes to record.
        """
        self._partly.add(nid)
        return list(self._judge(nid))

    def applied(self, action: Action, tag: Tag | None, meta: Meta | None = None) -> list[BaseChange]:
        """Book a finished action.

        Args:
            action: What was done.
            tag: The node's evidence afterwards (None after `Trash`). It goes into the base row, so that our own
                change is not seen as somebody's (StateDB rule D).
            meta: The metadata that was really achieved, if it is more than or differs from the action's: a new file
                or directory whose mode nobody asked for has one all the same.

        Returns:
            Base changes to record in the same transaction as the tag, in this order.
        """
        self._sides[action.side].apply(action, tag, meta)
        if action.side is Side.LOCAL and _sets_attributes(action):
            self._to_mark.discard(action.nid)
        elif action.side is Side.REMOTE and isinstance(action, SetMeta):
            self._to_tell.discard(action.nid)
            self._to_set.discard(action.nid)
        return list(self._judge(action.nid))

    def below(self, side: Side, nid: Nid) -> list[Nid]:
        """Every node below a directory on a side, deepest first."""
        tree = self._sides[side].tree
        children: dict[Nid, list[Nid]] = {}
        for child, node in tree.items():
            children.setdefault(node.parent, []).append(child)
        found = sorted(children.get(nid, ()))
        for inner in found:  # grows while it is walked: breadth first
            found += sorted(children.get(inner, ()))
        return found[::-1]

    def retagged(self, side: Side, nid: Nid, tag: Tag) -> list[BaseChange]:
        """Book new evidence of a node that is as it was: its object was moved along with its directory."""
        state = self._sides[side]
        state.tags[nid] = evidence(state.tree[nid].kind, tag)
        return list(self._judge(nid))

    def booking(self, action: Action) -> Booking | None:
        """What the base may say of a node once `action`, of the remote side, is seen to be done.

        Returns:
            None if the base may say nothing yet, because the local side has not all of that, nor had it before.
        """
        nid = action.nid
        local, remote = self._sides[Side.LOCAL], self._sides[Side.REMOTE]
        tag, here = remote.tags.get(nid), local.tree.get(nid)
        uuid = tag.uuid if isinstance(tag, RemoteTag) else ""
        if isinstance(action, Trash):
            return Booking(nid=nid, node=None, uuid=uuid) if here is None and nid in self._base else None
        if isinstance(action, Park):  # no base says that; but see `bookings.halfway`
            node = _after(action, remote.tree.get(nid))
            return Booking(nid=nid, node=node, uuid=uuid) if node.kind is Kind.DIRECTORY and uuid else None
        if here is None or nid in self._to_mark or (nid in self._to_tell and not isinstance(action, SetMeta)):
            return None
        node, known = _after(action, remote.tree.get(nid)), self._base.get(nid)
        equal = node == here or (node.parent != PARK and agreed(known, here.placed(*node.slot), node) is not None)
        if known is None:
            is_ours = equal and node.slot == here.slot
        else:  # each part of it is what we have, or what both had
            is_ours = node.slot in (here.slot, known.slot) and (equal or node == known.placed(*node.slot))
        if not is_ours:
            return None
        seen = local.tags.get(nid) if equal else None
        return Booking(nid=nid, node=node, uuid=uuid, local=seen if isinstance(seen, LocalTag) else None)

    def adoptions(self) -> list[BaseChange]:
        """The plan's `untrack`, `adopt` and `forget` as base changes: what needs no action at all."""
        changes: list[BaseChange] = []
        for nid in self._plan.untrack:
            self._base.pop(nid, None)
            changes.append(Forgotten(nid=nid))
        for adopt in self._plan.adopt:
            changes += self._judge(adopt.nid)
        paths = self._index.paths
        # What is below goes first: see `_keeps`.
        for nid in sorted(self._plan.forget, key=lambda nid: paths.get(nid, b"").count(b"/"), reverse=True):
            changes += self._judge(nid)
        return changes

    def is_settled(self) -> bool:
        """Whether all that was acted on is recorded as both sides have it now.

        A directory that got its marker from us and its mode from the local filesystem is not: the next cycle tells the
        server. Until then its row, if it has one, is of an older version.
        """
        return all(self.is_recorded(action.nid) for action in (*self._plan.local, *self._plan.remote))

    def is_recorded(self, nid: Nid) -> bool:
        """Whether the base has a node as both sides have it now."""
        here, there = (self._sides[side].tree.get(nid) for side in (Side.LOCAL, Side.REMOTE))
        if here is None or there is None:
            return here is there and nid not in self._base
        known = self._base.get(nid)
        return known is not None and known.slot == here.slot and self._agreed(nid, here, there) is not None

    def _agreed(self, nid: Nid, here: Node, there: Node) -> Node | None:
        """As `agreed`, but not before attributes are set here, and what the server lacks is told there.

        What never had any has no opinion. A row with the server's attributes would, should the cycle end before they
        are set, make the next one find them removed here; one with our mode, that the server was told of it.
        """
        waits = nid in self._to_mark or nid in self._to_tell
        return None if waits else agreed(self._base.get(nid), here, there)

    def _agreed_but_for_metadata(self, nid: Nid, here: Node, there: Node) -> Node | None:
        """A node whose metadata could not be set here, as it is here: then the server's differs, and is tried again.

        Not if the server is to be told of metadata, as long as it is not: that would be undone here.
        """
        if nid not in self._partly or nid in self._to_set:
            return None
        known = self._base.get(nid)
        if known is not None and known.slot == here.slot and known.same_payload(here):
            return None  # there is nothing new to agree on
        ours = replace(here.meta, xattrs=xattrs.settled(here.meta.xattrs) or None)
        if ours.special is None and ours.mode is not None:
            ours = replace(ours, special=there.meta.special or 0)  # no opinion is no difference
        return agreed(known, replace(here, meta=ours), replace(there, meta=ours))

    def _judge(self, nid: Nid) -> Iterator[BaseChange]:
        """Rule A for one node, then for the nodes that only waited for it."""
        local, remote = self._sides[Side.LOCAL], self._sides[Side.REMOTE]
        queue = [nid]
        while queue:
            nid = queue.pop()
            here, there = local.tree.get(nid), remote.tree.get(nid)
            if here is None and there is None:
                if nid in self._base and not self._keeps(nid):
                    above = self._base.pop(nid).parent
                    yield Forgotten(nid=nid)
                    queue += self._left(nid, above)
            elif here is not None and there is not None and nid not in remote.markerless:
                whole = self._agreed(nid, here, there)
                node = whole or self._agreed_but_for_metadata(nid, here, there)
                if node is None:
                    continue
                if node.parent != ROOT and node.parent not in self._base:
                    # A row whose parent has none would have no path after a crash: it waits for the parent's.
                    self._waiting.setdefault(node.parent, set()).add(nid)
                    continue
                old = self._base.get(nid)
                moved = old is not None and old.parent != node.parent
                if moved and (between := self._recorded_between(nid, node.parent)):
                    # Nor would one that is in itself: it waits until one of those above is where it is going.
                    for each in between:
                        self._waiting.setdefault(each, set()).add(nid)
                    continue
                self._base[nid] = node
                yield self._row(nid, node, is_partial=whole is None)
                queue += sorted(self._waiting.pop(nid, ()))
                if old is not None and moved:
                    queue += self._left(nid, old.parent)

    def _recorded_between(self, nid: Nid, parent: Nid) -> list[Nid]:
        """The directories from `parent` up to `nid`, if that has `parent` in it by what is recorded; else none."""
        trail: list[Nid] = []
        at = parent
        while at != nid and at in self._base and at not in trail:
            trail.append(at)
            at = self._base[at].parent
        return trail if at == nid else []

    def _keeps(self, nid: Nid) -> bool:
        """Whether the row of a directory that is gone must wait for rows that would have no path without it.

        They are of nodes that have left it and are not where they belong on both sides yet, or are left alone. Should
        the cycle end like that and somebody delete them, then no change that a later cycle is told of would lead to a
        row without a path.
        """
        if nid not in self._index.paths:
            return False  # since a crash; it may even be above itself
        below = (child for child in self._index.children.get(nid, ()) if child in self._base)
        kept = {child for child in below if self._base[child].parent == nid}
        if kept:
            self._keeping[nid] = kept
        return bool(kept)

    def _left(self, nid: Nid, above: Nid) -> list[Nid]:
        """A row is no longer in a directory: returns the directory if its row waited for that only."""
        kept = self._keeping.get(above, set())
        kept.discard(nid)
        if kept or above not in self._keeping:
            return []
        del self._keeping[above]
        return [above]

    def _row(self, nid: Nid, node: Node, *, is_partial: bool) -> BaseRow:
        local, remote = self.tag(Side.LOCAL, nid), self.tag(Side.REMOTE, nid)
        assert not isinstance(local, RemoteTag)
        assert not isinstance(remote, LocalTag)
        # Without evidence of the server nothing that it has is taken for what the row says.
        return BaseRow(nid=nid, node=node, local=local, remote=None if is_partial else remote)


class _SideState:
    """One side as it becomes."""

    def __init__(self, state: Identified) -> None:
        self.tree = dict(state.tree)
        self.tags = dict(state.tags)
        self.dirty: set[Nid] = set()
        self.markerless = set(state.implicit)
        self.slots = {node.slot: nid for nid, node in self.tree.items()}
        self.children: dict[Nid, int] = {}
        for node in self.tree.values():
            self.children[node.parent] = self.children.get(node.parent, 0) + 1

    def obstacle(self, action: Action) -> str | None:
        if action.nid in self.dirty:
            return "an earlier step on it failed"
        exists = action.nid in self.tree
        if isinstance(action, Mkdir | Create):
            if action.nid in self.markerless:
                return None
            return "it exists already" if exists else self._slot_obstacle(action.nid, action.parent, action.name)
        return self._change_obstacle(action) if exists else "it is not there, because an earlier step failed"

    def _change_obstacle(self, action: Action) -> str | None:
        if isinstance(action, Move):
            return self._slot_obstacle(action.nid, action.parent, action.name)
        if isinstance(action, Update | Trash) and action.after is not None and action.after not in self.tree:
            return "its conflict copy could not be made"
        return self._trash_obstacle(action) if isinstance(action, Trash) else None

    def _trash_obstacle(self, action: Trash) -> str | None:
        if self.children.get(action.nid):
            return "it is not empty"
        if action.absorbed_by is not None and action.absorbed_by not in self.tree:
            return "what should stand for it could not be made"
        return None

    def _slot_obstacle(self, nid: Nid, parent: Nid, name: bytes) -> str | None:
        if self.slots.get((parent, name), nid) != nid:
            return "its place is still taken"
        while parent != ROOT:
            node = self.tree.get(parent)
            if node is None or parent == nid or node.parent == PARK:
                return "its directory is not there"
            parent = node.parent
        return None

    def apply(self, action: Action, tag: Tag | None, meta: Meta | None) -> None:
        nid, old = action.nid, self.tree.get(action.nid)
        if isinstance(action, Trash):
            assert old is not None
            self._put(nid, None)
            self.tags.pop(nid, None)
            return
        node = _after(action, old)
        if meta is not None:
            node = replace(node, meta=synced_meta(node.kind, meta))
        self._put(nid, node)
        if isinstance(action, Mkdir):
            self.markerless.discard(nid)
        if tag is not None:
            self.tags[nid] = evidence(node.kind, tag)

    def _put(self, nid: Nid, node: Node | None) -> None:
        old = self.tree.pop(nid, None)
        if old is not None:
            self.slots.pop(old.slot, None)
            self.children[old.parent] -= 1
        if node is not None:
            self.tree[nid] = node
            self.slots[node.slot] = nid
            self.children[node.parent] = self.children.get(node.parent, 0) + 1


def _sets_attributes(action: Action) -> bool:
    return isinstance(action, Mkdir | Create | Update | SetMeta) and action.meta.xattrs is not None


def _after(action: Action, old: Node | None) -> Node:
    """The node once `action` is done."""
    if isinstance(action, Mkdir):
        return Node(parent=action.parent, name=action.name, kind=Kind.DIRECTORY, meta=action.meta)
    if isinstance(action, Create):
        return Node(
            parent=action.parent,
            name=action.name,
            kind=action.kind,
            content=action.content,
            target=action.target,
            meta=action.meta,
        )
    assert old is not None
    if isinstance(action, Move):
        return old.placed(action.parent, action.name)
    if isinstance(action, Park):
        return old.placed(PARK, split(action.path)[1])
    if isinstance(action, Update):
        return replace(old, content=action.content, target=action.target, meta=old.meta.overlaid(action.meta))
    assert isinstance(action, SetMeta)
    return replace(old, meta=old.meta.overlaid(action.meta))
