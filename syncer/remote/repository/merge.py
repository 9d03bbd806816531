"""The view of several heads: one tree, the same for whoever looks. Pure.

Heads are merged one after the other, by the planner's own rules (`core.planner.merge`), of which the earlier head is
the server and the later one the device. There is no common ancestor to ask for: what the planner takes for the base is
told by dots. What a head says of an object is old if the other head has seen it, and new if not.

- A name that two heads want: the one of the lower (time, device) keeps it, the other becomes a conflict copy, called
  after its device and the time of its head.
- An object that one has not: deleted there, if that head has seen it; else made here.

Only what differs is looked at, with the directories above it, and what stands where something is to go.

Source: docs/design/repository.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import count
from typing import Final

import msgspec

from blockfs.blocks.ids import ObjectHash
from syncer.core.model import NO_META, PARK, ROOT, Content, Kind, Nid, Node
from syncer.core.planner.merge import Merged, Policy, merge
from syncer.errors import DamagedObjectError
from syncer.remote.repository.format.entries import ID_BYTES, PARKED, TOP, Bytes, Entry, key_of, kind_number
from syncer.remote.repository.format.history import Commit, CommitId, DeviceId, Dot, Vector
from syncer.remote.repository.format.prolly import Nodes, Root, Shape
from syncer.remote.repository.tree import Found, Tree, values

NOBODY: Final = DeviceId(bytes(16))
"""Who decided what no head says, until a commit does: no commit is of this device."""

_NO_NAME: Final = b""  # of a base that is neither here nor there
_NO_CONTENT: Final = Content(size_bytes=-1, object_hash=ObjectHash(bytes(32)))
_NO_TARGET: Final = b"\0"
_ROUNDS: Final = 1000


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What a share is, by all its heads.

    Attributes:
        heads: The commits that it is made of, ascending: parents of the next one.
        vector: What they have seen.
        number: How old it is, see `age`.
        root: Of the tree.
        unsettled: Keys of entries of which the view itself said something (`NOBODY`): the next commit says it.
        last: By device its last commit, as far as heads name it, and that one's number.
    """

    heads: tuple[CommitId, ...]
    vector: Vector
    number: int
    root: Root | None
    unsettled: frozenset[bytes] = frozenset()
    last: Mapping[DeviceId, tuple[int, CommitId]] = msgspec.field(default_factory=dict)


def age(vector: Vector) -> int:
    """How much was seen: higher for whoever has seen the same and more.

    Whatever the heads of a view don't have in common gets this number. So the versions of an object that a device sees
    one after the other have rising numbers, also if it saw how others' versions were merged before anybody said so.
    """
    return sum(vector.numbers.values())


EMPTY: Final = View(heads=(), vector=Vector({}), number=0, root=None)
"""A repository without commits."""


def view_of(
    nodes: Nodes, shape: Shape, heads: Iterable[tuple[CommitId, Commit]], root_of: Callable[[bytes], Root | None]
) -> View:
    """Merge heads.

    Args:
        nodes: Where their trees are; the nodes of the view are written there.
        shape: Of trees.
        heads: In any order; those that others build on don't count.
        root_of: Reads the name of a tree in a commit.
    """
    known = dict(heads)
    chosen = _newest(known)
    if not chosen:
        return EMPTY
    ids = tuple(sorted(commit for commit, _ in chosen))
    (_, first), *others = sorted(chosen, key=lambda each: (each[1].time_ns, each[1].device, each[0]))
    vector, tree = first.vector, Tree(nodes, root_of(first.root))
    seen = first.vector.joined(*(head.vector for _, head in others))
    number = age(seen)
    unsettled: set[bytes] = set()
    for _, head in others:
        pair = _Pair(tree, vector, Tree(nodes, root_of(head.root)), head, number)
        edits = pair.edits()
        tree = tree.edited(shape, edits)
        unsettled = (unsettled - edits.keys()) | pair.unsettled
        vector = vector.joined(head.vector)
    return View(
        heads=ids, vector=seen, number=number, root=tree.root, unsettled=frozenset(unsettled), last=last_of(known)
    )


def last_of(known: Mapping[CommitId, Commit]) -> dict[DeviceId, tuple[int, CommitId]]:
    """The last commit of each device, by number, of those that heads name."""
    found: dict[DeviceId, tuple[int, CommitId]] = {}
    for commit, head in known.items():
        found[head.device] = max(found.get(head.device, (0, commit)), (head.number, commit))
    return found


def _newest(known: Mapping[CommitId, Commit]) -> list[tuple[CommitId, Commit]]:
    """Heads that no other one builds on."""
    return [
        (commit, head)
        for commit, head in known.items()
        if not any(
            other != commit and each.vector.covers(head.dot) and each.dot != head.dot for other, each in known.items()
        )
    ]


class _Side(msgspec.Struct):
    """One of the two trees, as far as it is looked at."""

    tree: Tree
    vector: Vector
    found: dict[bytes, Found] = msgspec.field(default_factory=dict)
    looked: set[bytes] = msgspec.field(default_factory=set)

    def take(self, found: Found) -> None:
        self.found[found.entry.object] = found

    def has_seen(self, dot: Dot) -> bool:
        return self.vector.covers(dot)


class _Pair:
    """The merge of one head into what the heads before it are."""

    def __init__(self, one: Tree, seen: Vector, other: Tree, head: Commit, number: int) -> None:
        self._one = _Side(one, seen)
        self._other = _Side(other, head.vector)
        self._head = head
        self._number = number
        self._differing: set[bytes] = set()  # keys
        self.unsettled: set[bytes] = set()

    def edits(self) -> dict[bytes, bytes | None]:
        """What makes the merged tree of the first one."""
        for one, other in self._one.tree.differences(self._other.tree):
            for side, found in ((self._one, one), (self._other, other)):
                if found is not None:
                    side.take(found)
                    self._differing.add(found.key)
        for _ in range(_ROUNDS):
            self._complete()
            merged, ids, numbers = self._merged()
            missing = [found for found in self._met(merged, ids) if found.entry.object not in numbers]
            if not missing:
                return self._edits(merged, ids)
            for found in missing:  # unchanged, so both have it
                self._one.take(found)
                self._other.take(found)
        raise AssertionError("the merge of two heads did not come to an end")

    def _complete(self) -> None:
        """Look at the directories above, of both, in both."""
        while True:
            wanted = {found.parent for side in (self._one, self._other) for found in side.found.values()}
            wanted |= {
                each.entry.object
                for side in (self._one, self._other)
                for each in side.found.values()
                if each.entry.kind == 1
            }
            wanted -= {TOP, PARKED}
            again = False
            for side in (self._one, self._other):
                ask = wanted - side.looked
                side.looked |= ask
                for found in side.tree.directories(ask).values():
                    again = again or found.entry.object not in side.found
                    side.take(found)
                again = again or bool(ask)
            if not again:
                return

    def _merged(self) -> tuple[Merged, dict[Nid, bytes], dict[bytes, Nid]]:
        ids = dict(enumerate(sorted(self._one.found.keys() | self._other.found.keys()), start=1))
        numbers = {each: Nid(nid) for nid, each in ids.items()}
        numbers[TOP], numbers[PARKED] = ROOT, PARK
        fresh = count(len(ids) + 1)
        base: dict[Nid, Node] = {}
        local: dict[Nid, Node] = {}
        remote: dict[Nid, Node] = {}
        for nid, each in ids.items():
            one, other = self._one.found.get(each), self._other.found.get(each)
            if one is not None:
                remote[Nid(nid)] = _node(one, numbers)
            if other is not None:
                local[Nid(nid)] = _node(other, numbers)
            known = self._base(remote.get(Nid(nid)), local.get(Nid(nid)), one, other)
            if known is not None:
                base[Nid(nid)] = known
        merged = merge(base, local, remote, _policy(self._head), lambda: Nid(next(fresh)))
        return merged, {Nid(nid): each for nid, each in ids.items()}, numbers

    def _base(self, one: Node | None, other: Node | None, found: Found | None, beside: Found | None) -> Node | None:
        """What both had before, as far as dots tell; what both changed is as neither has it."""
        if found is None or one is None:
            assert other is not None
            assert beside is not None
            return _seen(other, beside.entry, self._one)
        if beside is None or other is None:
            return _seen(one, found.entry, self._other)
        news, others = found.entry, beside.entry
        place = _older(one, other, news.placed, others.placed, self._one, self._other)
        payload = _older(one, other, news.filled, others.filled, self._one, self._other)
        meta = _older(one, other, news.noted, others.noted, self._one, self._other)
        return _composed(one, place, payload, meta)

    def _met(self, merged: Merged, ids: dict[Nid, bytes]) -> Iterator[Found]:
        """What the merge has to know, too: what stands where something goes, and what is in directories that go."""
        objects = {ROOT: TOP, PARK: PARKED, **ids}
        keys = {key_of(objects[node.parent], node.name) for node in merged.target.values() if node.parent in objects}
        yield from self._one.tree.at(keys - self._differing).values()
        for nid, each in ids.items():
            found = self._one.found.get(each)
            if nid not in merged.target and found is not None and found.entry.kind == 1:
                for child in self._one.tree.below(each):
                    if child.key not in self._differing:
                        yield child

    def _edits(self, merged: Merged, ids: dict[Nid, bytes]) -> dict[bytes, bytes | None]:
        edits: dict[bytes, bytes | None] = {}
        for found in self._one.found.values():
            edits[found.key] = None
            if found.entry.kind == 1:
                edits[found.entry.object] = None
        originals = {copy: nid for nid, copy in merged.copies.items() if copy not in ids}
        objects = {ROOT: TOP, PARK: PARKED, **ids}
        for nid, node in merged.target.items():
            if nid not in objects:
                objects[nid] = self._copy_id(ids[originals[nid]], node)
        made: list[Found] = []
        for nid, node in merged.target.items():
            source = ids[originals.get(nid, nid)]
            one, other = self._one.found.get(source), self._other.found.get(source)
            made.append(self._found(objects[nid], objects[node.parent], node, one, other))
        edits.update(values(made))
        self.unsettled = {
            each.key
            for each in made
            if NOBODY in (each.entry.placed.device, each.entry.filled.device, each.entry.noted.device)
        }
        return edits

    def _found(self, each: bytes, parent: bytes, node: Node, one: Found | None, other: Found | None) -> Found:
        """An object of the merged tree, of the one or two versions of it (or of what it is a copy of)."""
        versions = [found for found in (one, other) if found is not None]
        if one is not None and one == other and (one.parent, one.name) == (parent, node.name) and _is(one.entry, node):
            return one
        decided = Dot(NOBODY, self._number)
        places = [each.entry.placed for each in versions if (each.parent, each.name) == (parent, node.name)]
        notes = [each.entry.noted for each in versions if each.entry.meta == node.meta]
        payloads = [each.entry for each in versions if _payload(each.entry) == (node.content, node.target)]
        assert payloads, "the merge made bytes that no head has"
        filled = min(payloads, key=lambda entry: _by_number(entry.filled))
        entry = Entry(
            object=each,
            kind=kind_number(node.kind),
            number=self._number,
            placed=min(places, default=decided, key=_by_number),
            filled=filled.filled,
            noted=min(notes, default=decided, key=_by_number),
            made_us=max(entry.made_us for entry in payloads),
            mode=node.meta.mode,
            special=node.meta.special,
            mtime_ns=node.meta.mtime_ns,
            xattrs=node.meta.xattrs,
            file=filled.file,
            target=node.target,
            implied=all(entry.implied for entry in payloads) and node.meta == NO_META,
        )
        return Found(parent=parent, name=node.name, entry=entry)

    def _copy_id(self, original: bytes, node: Node) -> bytes:
        """The id of a conflict copy: the same for all who merge the same."""
        lost = self._other.found[original].entry  # only of what both have a version is lost
        said = (original, lost.filled.device, lost.filled.number, node.name)
        return hashlib.blake2b(msgspec.msgpack.encode(said), digest_size=ID_BYTES, person=b"conflict copy").digest()


def _node(found: Found, numbers: dict[bytes, Nid]) -> Node:
    parent = numbers.get(found.parent)
    if parent is None:
        raise DamagedObjectError(f"directory {found.parent.hex()}", "is missing: an entry is in it")
    entry = found.entry
    return Node(
        parent=parent,
        name=found.name,
        kind=entry.what,
        content=_content(entry.file),
        target=entry.target,
        meta=entry.meta,
    )


def _older(one: Node, other: Node, dot: Dot, beside: Dot, side: _Side, there: _Side) -> Node | None:
    """Which of two has it as both had it before: the one whose dot the other one has seen. None: neither."""
    if there.has_seen(dot):
        return one
    return other if side.has_seen(beside) else None


def _seen(node: Node, entry: Entry, side: _Side) -> Node | None:
    """The base of what one side has not: as far as that side has seen it. None: nothing of it."""
    place, payload, meta = (node if side.has_seen(dot) else None for dot in (entry.placed, entry.filled, entry.noted))
    return None if place is payload is meta is None else _composed(node, place, payload, meta)


def _composed(node: Node, place: Node | None, payload: Node | None, meta: Node | None) -> Node:
    return Node(
        parent=place.parent if place is not None else ROOT,
        name=place.name if place is not None else _NO_NAME,
        kind=node.kind,
        content=payload.content if payload is not None else _NO_CONTENT if node.kind is Kind.FILE else None,
        target=payload.target if payload is not None else _NO_TARGET if node.kind is Kind.SYMLINK else None,
        meta=meta.meta if meta is not None else NO_META,  # what both have set differently: the first one's
    )


def _policy(head: Commit) -> Policy:
    """Conflict copies are called after the device whose version loses its name, and the time of its head."""
    utc = datetime.fromtimestamp(head.time_ns // 1_000_000_000, UTC).strftime("%Y%m%dT%H%M%SZ")
    return Policy(host=head.name or head.device.hex()[:8], utc=utc)


def _by_number(dot: Dot) -> tuple[int, bytes]:
    return dot.number, dot.device


def _content(file: Bytes | None) -> Content | None:
    return None if file is None else file.content


def _payload(entry: Entry) -> tuple[Content | None, bytes | None]:
    return _content(entry.file), entry.target


def _is(entry: Entry, node: Node) -> bool:
    return _payload(entry) == (node.content, node.target) and entry.meta == node.meta
