"""Sorted maps whose nodes are named by content: prolly trees.

A map of byte strings is a tree of *nodes*. Where a node ends is told by the key of its last entry, by a keyed hash, so
equal maps are equal trees whatever was done in which order; what two maps share they share as nodes, and a small
change makes as few new nodes as the tree is high. Nodes know their children by id and last key only: who keeps nodes,
and where, is the affair of `Nodes`.

A node is an array of msgpack: level (0: leaf), keys in ascending order, values. The value of an entry of level n > 0 is
the id of the node of level n - 1 whose last key is the key. A map is named by the lowest level that is one node
(`Root`); the empty map has no node.

Source: docs/design/repository.md; prolly trees are Noms's (Attic Labs, 2015).
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, Protocol, TypeAlias

import msgspec

from syncer.errors import DamagedObjectError
from syncer.remote.repository.format.keys import ChunkId

ID_BYTES: Final = 32
MAX_LEVEL: Final = 24
_BATCH: Final = 512  # nodes that are asked for at once by who reads all of a map
_END: Final = 1 << 32


class Root(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Names a map that is not empty.

    Attributes:
        level: Of its topmost node.
        node: The node's id, 32 bytes.
    """

    level: int
    node: ChunkId


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """Where the nodes of a map end. Maps of different shapes share nothing.

    Attributes:
        split: Key of the hash, 32 bytes: who has it not can't tell where nodes end.
        entries: How many entries a node has on average.
    """

    split: bytes
    entries: int

    def ends(self, level: int, key: bytes) -> bool:
        """Whether an entry with this key is the last one of its node."""
        digest = hashlib.blake2b(key, digest_size=4, key=self.split, salt=bytes([level])).digest()
        return int.from_bytes(digest, "big") * self.entries < _END


class Nodes(Protocol):
    """Where nodes are."""

    def read(self, ids: Sequence[ChunkId]) -> Sequence[bytes]:
        """The nodes of these ids, verified against them, in this order.

        Raises:
            DamagedObjectError: One is not as it was written.
        """
        ...

    def write(self, node: bytes) -> ChunkId:
        """Keep a node; one that is there already is fine. Returns its id."""
        ...


class _Node(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    level: int
    keys: list[bytes]
    values: list[bytes]


_Ids: TypeAlias = list[ChunkId]
_decoder: Final = msgspec.msgpack.Decoder(_Node)
_encoder: Final = msgspec.msgpack.Encoder()


def get(nodes: Nodes, root: Root | None, keys: Iterable[bytes]) -> dict[bytes, bytes]:
    """The values of those keys that the map has. A request for each level."""
    asked = sorted(set(keys))
    if root is None or not asked:
        return {}
    here: list[tuple[ChunkId, list[bytes]]] = [(root.node, asked)]
    for level in range(root.level, 0, -1):
        below: list[tuple[ChunkId, list[bytes]]] = []
        for node, wanted in zip(
            _load(nodes, level, [node for node, _ in here]), (keys for _, keys in here), strict=True
        ):
            for key in wanted:
                at = bisect_left(node.keys, key)
                if at == len(node.keys):
                    break  # as are all that follow: beyond the last key of the map
                child = ChunkId(node.values[at])
                if below and below[-1][0] == child:
                    below[-1][1].append(key)
                else:
                    below.append((child, [key]))
        here = below
    found: dict[bytes, bytes] = {}
    for node, wanted in zip(_load(nodes, 0, [node for node, _ in here]), (keys for _, keys in here), strict=True):
        for key in wanted:
            at = bisect_left(node.keys, key)
            if at < len(node.keys) and node.keys[at] == key:
                found[key] = node.values[at]
    return found


def items(
    nodes: Nodes, root: Root | None, first: bytes = b"", end: bytes | None = None
) -> Iterator[tuple[bytes, bytes]]:
    """The entries from a key on, and before another one (None: all), in order. Memory does not grow with the map."""
    waiting: list[tuple[int, _Ids]] = [] if root is None else [(root.level, [root.node])]
    while waiting:
        level, ids = waiting.pop()
        if len(ids) > _BATCH:
            waiting.append((level, ids[_BATCH:]))
        below: _Ids = []
        for node in _load(nodes, level, ids[:_BATCH]):
            start = bisect_left(node.keys, first)
            stop = len(node.keys) if end is None else bisect_left(node.keys, end)
            if level == 0:
                yield from zip(node.keys[start:stop], node.values[start:stop], strict=True)
            else:
                below.extend(map(ChunkId, node.values[start : stop + 1]))  # what ends later may begin before
        if below:
            waiting.append((level - 1, below))


def reachable(
    nodes: Nodes, root: Root | None, known: set[ChunkId]
) -> Iterator[tuple[ChunkId, Sequence[tuple[bytes, bytes]]]]:
    """All nodes of a map that are not in `known`, parents first: id, entries if it is a leaf. `known` gets them."""
    waiting: list[tuple[int, _Ids]] = [] if root is None else [(root.level, [root.node])]
    while waiting:
        level, ids = waiting.pop()
        ids = [node for node in dict.fromkeys(ids) if node not in known]
        if len(ids) > _BATCH:
            waiting.append((level, ids[_BATCH:]))
            ids = ids[:_BATCH]
        known.update(ids)
        found = _load(nodes, level, ids)
        for node_id, node in zip(ids, found, strict=True):
            yield node_id, () if level else list(zip(node.keys, node.values, strict=True))
        if level > 0:
            waiting.append((level - 1, _children(found)))


def diff(nodes: Nodes, one: Root | None, other: Root | None) -> Iterator[tuple[bytes, bytes | None, bytes | None]]:
    """What differs: key, value in `one`, value in `other` (None: it is not there), in order.

    Nodes that both have are not read. A request for each level; memory for the nodes that differ.
    """
    if one is None or other is None:
        for key, value in items(nodes, one or other):
            yield (key, value, None) if other is None else (key, None, value)
        return
    left, right = [one.node], [other.node]
    for level in range(max(one.level, other.level), -1, -1):
        has_left, has_right = level <= one.level, level <= other.level
        if has_left and has_right:
            common = set(left) & set(right)
            left = [node for node in left if node not in common]
            right = [node for node in right if node not in common]
        here, there = left if has_left else [], right if has_right else []
        found = _load(nodes, level, here + there)
        if level == 0:
            before, after = _entries(found[: len(here)]), _entries(found[len(here) :])
            break
        left = _children(found[: len(here)]) if has_left else left
        right = _children(found[len(here) :]) if has_right else right
    for key in sorted(before.keys() | after.keys()):
        was, now = before.get(key), after.get(key)
        if was != now:
            yield key, was, now


def update(nodes: Nodes, shape: Shape, root: Root | None, edits: Mapping[bytes, bytes | None]) -> Root | None:
    """The map with some entries set, or removed (None; one that is not there is fine).

    The same tree as if it was made from nothing. Only new nodes are written.
    """
    return _Update(nodes, shape, root).run(edits)


class _Update:
    """One update of one map."""

    def __init__(self, nodes: Nodes, shape: Shape, root: Root | None) -> None:
        self._nodes = nodes
        self._shape = shape
        self._root = root
        self._loaded: dict[tuple[int, ChunkId], _Node] = {}

    def run(self, edits: Mapping[bytes, bytes | None]) -> Root | None:
        self._prefetch(sorted(edits))
        entries: dict[bytes, bytes | None] = dict(edits)
        level = 0
        if self._root is not None:
            for level in range(self._root.level + 1):
                entries = self._rewritten(level, entries)
            top = self._load(self._root.level, self._root.node)
            entries = {top.keys[-1]: self._root.node} | entries
            level = self._root.level + 1
        kept = [(key, value) for key, value in sorted(entries.items()) if value is not None]
        while len(kept) > 1 or level == 0:
            if not kept:
                return None
            kept = list(self._written(level, kept))
            level += 1
        if not kept:
            return None
        return self._lowest(Root(level=level - 1, node=ChunkId(kept[0][1])))

    def _rewritten(self, level: int, edits: Mapping[bytes, bytes | None]) -> dict[bytes, bytes | None]:
        """Apply edits to the nodes of a level; the edits of the level above."""
        above: dict[bytes, bytes | None] = {}
        was: dict[bytes, bytes] = {}
        keys = sorted(edits)
        at = 0
        while at < len(keys):
            found: tuple[ChunkId, _Node] | None = self._find(level, keys[at])
            run: list[tuple[bytes, bytes]] = []
            while found is not None:
                node_id, node = found
                last = node.keys[-1]
                after = bisect_right(keys, last, at)
                following: tuple[ChunkId, _Node] | None = None
                if after < len(keys) and (following := self._find_after(level, last)) is None:
                    after = len(keys)  # the level's last node takes what lies beyond it
                entries: dict[bytes, bytes | None] = dict(zip(node.keys, node.values, strict=True))
                entries.update((key, edits[key]) for key in keys[at:after])
                at = after
                was[last] = node_id
                above.setdefault(last, None)
                for key in sorted(entries):
                    value = entries[key]
                    if value is not None:
                        run.append((key, value))
                        if self._shape.ends(level, key):
                            above[key] = self._write(level, run)
                            run = []
                if not run:
                    break
                found = following or self._find_after(level, last)
            if run:
                above[run[-1][0]] = self._write(level, run)
        return {key: value for key, value in above.items() if value is None or value != was.get(key)}

    def _written(self, level: int, entries: Sequence[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
        """Make the nodes of a level; the entries of the level above."""
        start = 0
        for at, (key, _) in enumerate(entries):
            if self._shape.ends(level, key) or at == len(entries) - 1:
                yield key, self._write(level, entries[start : at + 1])
                start = at + 1

    def _write(self, level: int, entries: Sequence[tuple[bytes, bytes]]) -> ChunkId:
        node = _Node(level=level, keys=[key for key, _ in entries], values=[value for _, value in entries])
        node_id = self._nodes.write(_encoder.encode(node))
        self._loaded[level, node_id] = node
        return node_id

    def _lowest(self, root: Root) -> Root:
        """A map is named by its lowest level of one node."""
        while root.level > 0:
            node = self._load(root.level, root.node)
            if len(node.keys) > 1:
                break
            root = Root(level=root.level - 1, node=ChunkId(node.values[0]))
        return root

    def _find(self, level: int, key: bytes) -> tuple[ChunkId, _Node]:
        """The node of a level that has a key, or would; beyond the end the last one."""
        assert self._root is not None
        node_id = self._root.node
        for above in range(self._root.level, level, -1):
            node = self._load(above, node_id)
            node_id = ChunkId(node.values[min(bisect_left(node.keys, key), len(node.keys) - 1)])
        return node_id, self._load(level, node_id)

    def _find_after(self, level: int, key: bytes) -> tuple[ChunkId, _Node] | None:
        """The first node of a level that has a later key."""
        assert self._root is not None
        node_id = self._root.node
        for above in range(self._root.level, level, -1):
            node = self._load(above, node_id)
            at = bisect_right(node.keys, key)
            if at == len(node.keys):
                return None
            node_id = ChunkId(node.values[at])
        node = self._load(level, node_id)
        return (node_id, node) if node.keys[-1] > key else None

    def _load(self, level: int, node_id: ChunkId) -> _Node:
        node = self._loaded.get((level, node_id))
        if node is None:
            (node,) = _load(self._nodes, level, [node_id])
            self._loaded[level, node_id] = node
        return node

    def _prefetch(self, keys: Sequence[bytes]) -> None:
        """Load the nodes that have these keys, a request for each level."""
        if self._root is None or not keys:
            return
        ids = {self._root.node: keys}
        for level in range(self._root.level, -1, -1):
            found = _load(self._nodes, level, list(ids))
            below: dict[ChunkId, Sequence[bytes]] = {}
            for (node_id, wanted), node in zip(ids.items(), found, strict=True):
                self._loaded[level, node_id] = node
                start = 0
                for at, last in enumerate(node.keys if level else ()):
                    end = len(wanted) if at == len(node.keys) - 1 else bisect_right(wanted, last, start)
                    if end > start:
                        below[ChunkId(node.values[at])] = wanted[start:end]
                    start = end
            ids = below


def _children(found: Iterable[_Node]) -> _Ids:
    return [ChunkId(value) for node in found for value in node.values]


def _entries(found: Iterable[_Node]) -> dict[bytes, bytes]:
    return {key: value for node in found for key, value in zip(node.keys, node.values, strict=True)}


def _load(nodes: Nodes, level: int, ids: Sequence[ChunkId]) -> list[_Node]:
    return [_decode(level, node_id, raw) for node_id, raw in zip(ids, nodes.read(ids), strict=True)] if ids else []


def _decode(level: int, node_id: ChunkId, raw: bytes) -> _Node:
    try:
        node = _decoder.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise DamagedObjectError(_called(node_id), "is malformed: it is no node of a tree") from None
    keys = node.keys
    if node.level != level or not 0 <= level <= MAX_LEVEL or not keys or len(keys) != len(node.values):
        raise DamagedObjectError(_called(node_id), "is malformed: it is no node of this level")
    if any(one >= other for one, other in pairwise(keys)):
        raise DamagedObjectError(_called(node_id), "is malformed: its keys are not in order")
    if level and any(len(value) != ID_BYTES for value in node.values):
        raise DamagedObjectError(_called(node_id), "is malformed: its children have no ids")
    return node


def _called(node_id: ChunkId) -> str:
    return f"tree node {node_id.hex()[:16]}"
