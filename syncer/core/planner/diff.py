"""diff(side, target) → the ordered actions that turn one into the other. Pure.

Order: from the root down, parents before children, an occupied slot is parked first; then updates, after every
create and conflict copy; then the trash, bottom-up; then the modes of directories, which may forbid all of the above.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Final

import msgspec
from msgspec.structs import replace

from syncer.core import xattrs
from syncer.core.model import (
    NO_META,
    PARK,
    ROOT,
    Action,
    Create,
    Identified,
    Kind,
    Meta,
    Mkdir,
    Move,
    Nid,
    Node,
    Park,
    RelPath,
    SetMeta,
    Side,
    Trash,
    Tree,
    Update,
)
from syncer.core.paths import park_name, path_in

_OWNER_ENTERS: Final = 0o700  # for the owner: w and x to create in a directory, r to open it


class DiffContext(msgspec.Struct, frozen=True, kw_only=True):
    """What `diff` is told beside the two trees.

    Attributes:
        base: The base tree: a metadata field that a side does not have is only set if it differs from the base.
        copies: Node → conflict copy that must exist before the node's content is replaced, or it is removed as a second
            one (`Merged.copies`, by the local side's numbers).
        absorbed: Node → the node that stands for it (`Merged.absorbed`).
        fold: Key under which two names are one name on this side; None = names are what they are.
        untold: Directories that somebody made anew on this side without a mode: they are told, whatever the base says.
    """

    base: Tree
    copies: Mapping[Nid, Nid]
    absorbed: Mapping[Nid, Nid]
    fold: Callable[[bytes], bytes] | None = None
    untold: AbstractSet[Nid] = frozenset()


def diff(state: Identified, target: Tree, side: Side, context: DiffContext) -> tuple[Action, ...]:
    """Order the actions that turn `state.tree` into `target` on one side.

    Args:
        state: The side now, with its tags and the nodes that have no marker.
        target: A valid tree.
        side: Which one.
        context: Base and what the merge found out.
    """
    if not state.implicit and state.tree == target:
        return ()
    return _Diff(state, target, side, context).run()


def meta_change(have: Meta, want: Meta, base: Meta) -> Meta | None:
    """The fields to set, or None. A field the side does not have is set only if the other side changed it."""
    if have == want:
        return None
    mode = _change(have.mode, want.mode, base.mode)
    special = _change(have.special, want.special, base.special)
    if special is not None:
        mode = want.mode  # they are set together
    mtime_ns = _change(have.mtime_ns, want.mtime_ns, base.mtime_ns)
    attributes = xattrs.change(have.xattrs, want.xattrs, base.xattrs)
    if mode is None and mtime_ns is None and attributes is None:
        return None
    return Meta(mode=mode, special=special, mtime_ns=mtime_ns, xattrs=attributes)


def _change(have: int | None, want: int | None, base: int | None) -> int | None:
    if want is None or want == have or (have is None and base in (None, want)):
        return None
    return want


def _settled(meta: Meta) -> Meta:
    """What is made elsewhere has no attributes that are too large to travel; else the base would know of them."""
    return replace(meta, xattrs=xattrs.settled(meta.xattrs)) if meta.xattrs else meta


def _hidden(state: Identified) -> dict[tuple[Nid, bytes], Nid]:
    """Directories without a marker whose name an object has, by their slot."""
    slots = {state.tree[nid].slot: nid for nid in state.implicit if nid in state.tree}
    if not slots:
        return {}
    shared = {node.slot for nid, node in state.tree.items() if node.slot in slots and slots[node.slot] != nid}
    return {slot: nid for slot, nid in slots.items() if slot in shared}


class _Diff:
    """The side as it becomes, action by action."""

    def __init__(self, state: Identified, target: Tree, side: Side, context: DiffContext) -> None:
        self.state = state
        self.tree = dict(state.tree)
        self.target = target
        self.side = side
        self.context = context
        self.fold = context.fold
        self.copied_from = {copy: nid for nid, copy in context.copies.items()}
        # An object store can have an object and a directory without a marker in one slot: `identify` says how.
        self.hidden = _hidden(state)
        self.occupants = {self._key(node): nid for nid, node in self.tree.items() if self.hidden.get(node.slot) != nid}
        self.unmarked: list[Nid] = []
        self.places: list[Action] = []
        self.updates: list[Action] = []
        self.modes: list[Action] = []

    def run(self) -> tuple[Action, ...]:
        """All actions."""
        below: dict[Nid, list[Nid]] = {}
        for nid, node in self.target.items():
            below.setdefault(node.parent, []).append(nid)
        queue: list[Nid] = [ROOT, PARK]
        for parent in queue:  # grows while it is walked: breadth first
            for nid in sorted(below.get(parent, ()), key=lambda nid: self.target[nid].name):
                self._settle(nid)
                if self.target[nid].kind is Kind.DIRECTORY:
                    queue.append(nid)
        trash = self._mark(list(self._trash()))
        return (*self.places, *self.updates, *trash, *reversed(self.modes))

    def _mark(self, trash: list[Trash]) -> list[Trash]:
        """Write the markers of directories whose names objects had, once those are moved, or removed before all else.

        Returns:
            What else is to be removed.
        """
        slots = {self.target[nid].slot: nid for nid in self.unmarked}
        first = [action for action in trash if self.tree[action.nid].slot in slots]
        self.places += first
        gone = {action.nid for action in first}
        for slot, nid in slots.items():
            if self.occupants.get(slot, ROOT) in (ROOT, *gone):
                self._mkdir(nid, self.target[nid])
        return [action for action in trash if action.nid not in gone]

    def _key(self, node: Node) -> tuple[Nid, bytes]:
        return node.slot if self.fold is None else (node.parent, self.fold(node.name))

    def _settle(self, nid: Nid) -> None:
        """Bring one node to its place; its parent is already there."""
        have, want = self.tree.get(nid), self.target[nid]
        if have is want and nid not in self.state.implicit:
            return
        if have is None:
            self._free(nid, want)
            self._create(nid, want)
        else:
            if have.slot != want.slot:
                if self.fold is not None and self._key(have) == self._key(want):
                    # To the filesystem the new name is taken, by the node itself: RENAME_NOREPLACE would refuse it.
                    self._park(nid)
                else:
                    self._free(nid, want)
                self._move(nid, have, want)
            self._update(nid, have, want)

    def _free(self, nid: Nid, want: Node) -> None:
        hidden = self.hidden.get(want.slot)
        if hidden is not None and hidden != nid and self.tree[hidden].slot == want.slot:
            self._park(hidden)
        occupant = self.occupants.get(self._key(want))
        if occupant is None or occupant == nid:
            return
        self._park(occupant)

    def _park(self, occupant: Nid) -> None:
        node = self.tree[occupant]
        name, attempt = park_name(occupant, node.name), 0
        while self._key(node.placed(PARK, name)) in self.occupants:
            attempt += 1
            name = park_name(occupant, node.name, attempt)
        self._place(occupant, node.placed(PARK, name))
        self.places.append(
            Park(side=self.side, nid=occupant, path=self._path(occupant), expected=self.state.tags.get(occupant))
        )

    def _place(self, nid: Nid, node: Node) -> None:
        old = self.tree.get(nid)
        if old is not None and self.occupants.get(self._key(old)) == nid:
            del self.occupants[self._key(old)]
        self.tree[nid] = node
        self.occupants[self._key(node)] = nid

    def _path(self, nid: Nid) -> RelPath:
        path = path_in(self.tree, nid)
        assert path is not None
        return path

    def _create(self, nid: Nid, want: Node) -> None:
        self._place(nid, want)
        if want.kind is Kind.DIRECTORY:
            self._mkdir(nid, want)
            return
        self.places.append(
            Create(
                side=self.side,
                nid=nid,
                path=self._path(nid),
                parent=want.parent,
                name=want.name,
                kind=want.kind,
                content=want.content,
                target=want.target,
                meta=_settled(want.meta),
                copy_of=self.copied_from.get(nid),
            )
        )

    def _mkdir(self, nid: Nid, want: Node) -> None:
        mode, path = want.meta.mode, self._path(nid)
        closed = mode is not None and self.side is Side.LOCAL and mode & _OWNER_ENTERS != _OWNER_ENTERS
        open_mode = mode | _OWNER_ENTERS if closed and mode is not None else mode
        meta = Meta(mode=open_mode, special=want.meta.special, xattrs=_settled(want.meta).xattrs)
        self.places.append(Mkdir(side=self.side, nid=nid, path=path, parent=want.parent, name=want.name, meta=meta))
        if closed:
            self.modes.append(SetMeta(side=self.side, nid=nid, path=path, meta=_settled(want.meta)))

    def _move(self, nid: Nid, have: Node, want: Node) -> None:
        self._place(nid, have.placed(want.parent, want.name))
        self.places.append(
            Move(
                side=self.side,
                nid=nid,
                path=self._path(nid),
                expected=self.state.tags.get(nid),
                parent=want.parent,
                name=want.name,
            )
        )

    def _update(self, nid: Nid, have: Node, want: Node) -> None:
        expected, base = self.state.tags.get(nid), self.context.base.get(nid)
        if nid in self.state.implicit and want.parent != PARK:
            if self.hidden.get(want.slot) == nid:
                self.unmarked.append(nid)
            else:
                self._mkdir(nid, want)
        elif not have.same_payload(want):
            update = Update(
                side=self.side,
                nid=nid,
                path=self._path(nid),
                expected=expected,
                kind=want.kind,
                content=want.content,
                target=want.target,
                meta=want.meta,
                after=self.context.copies.get(nid),
            )
            self.updates.append(update)
        else:
            meta = meta_change(have.meta, want.meta, base.meta if base is not None else Meta())
            if nid in self.context.untold and want.meta.mode is not None:
                meta = replace(meta or NO_META, mode=want.meta.mode, special=want.meta.special)
            if meta is not None:
                actions = self.modes if want.kind is Kind.DIRECTORY else self.updates
                actions.append(SetMeta(side=self.side, nid=nid, path=self._path(nid), expected=expected, meta=meta))

    def _trash(self) -> Iterable[Trash]:
        gone = [nid for nid in self.tree if nid not in self.target]
        for _, nid in sorted(((self._depth(nid), nid) for nid in gone), key=lambda item: (-item[0], item[1])):
            path = path_in(self.state.tree, nid)
            assert path is not None
            yield Trash(
                side=self.side,
                nid=nid,
                path=path,
                expected=self.state.tags.get(nid),
                kind=self.tree[nid].kind,
                absorbed_by=self.context.absorbed.get(nid),
                after=self.context.copies.get(nid),
            )

    def _depth(self, nid: Nid) -> int:
        return self._path(nid).count(b"/")
