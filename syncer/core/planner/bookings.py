"""What this device has asked of the server and was never told the outcome of: it is agreed on if it is there. Pure.

An order is booked before it is sent. A cycle that ends in between, however it ends, leaves the booking, and the next
one looks for what it was to make. Found exactly so, it is the base: this device had it, and now the server has it, too.
Else our own write would look like somebody's, and whatever the user did since would be in conflict with it.
Why before it is sent: docs/adr/0020-bookings-of-orders.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from syncer.core import xattrs
from syncer.core.base import BaseIndex
from syncer.core.model import NO_META, ROOT, BaseRow, Kind, Meta, Nid, Node, RelPath, RemoteStat
from syncer.core.paths import is_parked, path_in
from syncer.core.planner.identify import synced_meta
from syncer.core.planner.outcome import BaseChange, Booking, Forgotten, agreed

Step: TypeAlias = tuple[RemoteStat, RelPath]
"""An object, and where it is to be moved."""


def came_true(booked: Iterable[Booking], base: BaseIndex, objects: Iterable[RemoteStat]) -> list[BaseChange]:
    """What the base becomes by that of it which the server has.

    What it has otherwise stays as the base says: the order did not arrive, or somebody wrote after us. The same object
    written by somebody else counts as well, for it is what both sides had.

    Args:
        booked: In the order in which it was sent.
        base: Before these orders.
        objects: All objects of the server.

    Returns:
        Changes of the base, in an order in which they can be recorded.
    """
    run = _Run(base, objects)
    pending: Sequence[Booking] = list(booked)
    while pending:  # a directory that was moved later says where something that was written before is now
        left = [each for each in pending if not run.take(each)]
        if len(left) == len(pending):
            break
        pending = left
    return run.changes


def halfway(booked: Iterable[Booking], base: BaseIndex, objects: Iterable[RemoteStat]) -> list[Step]:
    """What is left to do of moves of directories that were made object by object and ended in the middle.

    No base describes half of a move: one directory would have two places. So it is moved to its end first.

    Returns:
        Moves in an order in which another end in the middle would be found as well: what is deepest first.
    """
    tree, paths = dict(base.tree), {stat.path: stat for stat in objects}
    marker = {stat.tag.uuid: stat for stat in paths.values() if stat.kind is Kind.DIRECTORY and stat.tag.uuid}
    steps: list[Step] = []
    for each in booked:
        if each.node is None:
            continue
        source = path_in(tree, each.nid)
        before, tree[each.nid] = tree.get(each.nid), each.node
        root, target = marker.get(each.uuid), path_in(tree, each.nid)
        if root is None or target is None or root.path == target or each.node.kind is not Kind.DIRECTORY:
            continue
        there = {stat.tag.uuid for path, stat in paths.items() if path.startswith(target + b"/")}
        # It goes last. Where it is neither, somebody moved it since, and what is at the target they put there.
        is_ours = root.path == source or is_parked(root.path)
        if not is_ours or there.isdisjoint(_uuids_below(base, each.nid)):
            if before is not None:
                tree[each.nid] = before  # it was not begun
            continue
        left = [stat for path, stat in paths.items() if path.startswith(root.path + b"/")]
        left.sort(key=lambda stat: (-stat.path.count(b"/"), stat.path))
        steps += [(stat, RelPath(target + stat.path[len(root.path) :])) for stat in (*left, root)]
    return steps


def _uuids_below(base: BaseIndex, nid: Nid) -> set[str]:
    found: set[str] = set()
    stack = list(base.children.get(nid, ()))
    while stack:
        below = stack.pop()
        tag = base.rows[below].remote
        found |= {tag.uuid} if tag is not None else set()
        stack += base.children.get(below, ())
    return found - {""}


def changed(base: BaseIndex, changes: Iterable[BaseChange]) -> BaseIndex:
    """The base with changes that are rows, or of rows that go."""
    rows = dict(base.rows)
    for change in changes:
        rows.pop(change.nid, None)
        if isinstance(change, BaseRow):
            rows[change.nid] = change
    return BaseIndex(rows.values())


class _Run:
    """The base as it becomes."""

    def __init__(self, base: BaseIndex, objects: Iterable[RemoteStat]) -> None:
        self.changes: list[BaseChange] = []
        self._rows = dict(base.rows)
        self._tree = dict(base.tree)
        self._taken = {row.node.slot: nid for nid, row in base.rows.items()}
        self._below = Counter(row.node.parent for row in base.rows.values())
        self._at = {stat.path: stat for stat in objects}
        self._uuids = {stat.tag.uuid for stat in self._at.values()}

    def take(self, booked: Booking) -> bool:
        """Take one over into the base; False if the server has something else."""
        if booked.node is None:
            return self._take_deletion(booked)
        row = self._rows.get(booked.nid)
        if row is not None and row.node.kind is not booked.node.kind:
            return False
        before = self._tree.get(booked.nid)
        self._tree[booked.nid] = booked.node
        found = self._found(booked, booked.node)
        local = booked.local if booked.local is not None or row is None else row.local
        if found is None or local is None:
            self._tree.pop(booked.nid)
            if before is not None:
                self._tree[booked.nid] = before
            return False
        stat, node = found
        self._leave(booked.nid, before)
        self._tree[booked.nid] = node
        self._taken[node.slot] = booked.nid
        self._below[node.parent] += 1
        self._rows[booked.nid] = BaseRow(nid=booked.nid, node=node, local=local, remote=stat.tag)
        self.changes.append(self._rows[booked.nid])
        return True

    def _found(self, booked: Booking, node: Node) -> tuple[RemoteStat, Node] | None:
        """The object that the order was to make, and what both sides have of it."""
        if node.parent != ROOT and node.parent not in self._rows:
            return None  # a row whose parent has none would have no path
        path = path_in(self._tree, booked.nid)
        stat = None if path is None else self._at.get(path)
        if stat is None or stat.kind is not node.kind or booked.uuid not in {"", stat.tag.uuid}:
            return None
        taken = self._rows.get(self._taken.get(node.slot, booked.nid))
        if (
            taken is not None
            and taken.nid != booked.nid
            and taken.remote is not None
            and (taken.remote.uuid in {"", stat.tag.uuid})
        ):
            return None  # the base has this object as another node
        there = Node(
            parent=node.parent,
            name=node.name,
            kind=stat.kind,
            content=stat.content,
            target=stat.target,
            meta=synced_meta(stat.kind, stat.meta or NO_META),
        )
        if not there.same_payload(node) or not _is_told(node.meta, there.meta):
            return None
        both = agreed(None, node, there)
        return None if both is None else (stat, both)

    def _take_deletion(self, booked: Booking) -> bool:
        row = self._rows.get(booked.nid)
        path = path_in(self._tree, booked.nid)
        there = booked.uuid in self._uuids if booked.uuid else path is None or path in self._at
        if row is None or there or self._below[booked.nid]:
            return False
        del self._rows[booked.nid], self._tree[booked.nid]
        self._leave(booked.nid, row.node)
        self.changes.append(Forgotten(nid=booked.nid))
        return True

    def _leave(self, nid: Nid, before: Node | None) -> None:
        """It is in its place no more."""
        if before is not None:
            self._below[before.parent] -= 1
            if self._taken.get(before.slot) == nid:
                del self._taken[before.slot]


def _is_told(ours: Meta, theirs: Meta) -> bool:
    """Whether the server has all metadata that we had an opinion on."""
    if ours.mode is not None and ours.full_mode != theirs.full_mode:
        return False
    if ours.mtime_ns is not None and ours.mtime_ns != theirs.mtime_ns:
        return False
    return ours.xattrs is None or xattrs.same(ours.xattrs, theirs.xattrs or ())
