"""What there is in a view, and what differs from an earlier one, as names and versions. Reads nodes, and nothing else.

Source: docs/design/repository.md, section 13.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

import msgspec

from syncer.core.model import Kind, RelPath, RemoteStat, RemoteTag
from syncer.remote.repository.format.entries import Bytes
from syncer.remote.repository.format.prolly import Nodes, Root
from syncer.remote.repository.tree import Found, Tree

_REPLACED: Final = 100_000  # versions whose predecessors are remembered; some 0.5 KB each


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """What changed between two views.

    Attributes:
        stats: What there is, and was not or was another one; sorted by path.
        deleted: Names of what there is no more, sorted.
        replaced: What files had before, under the same name or as the same object: who has it need not fetch it.
    """

    stats: list[RemoteStat]
    deleted: list[bytes]
    replaced: Mapping[tuple[RelPath, RemoteTag], Bytes]


def listed(tree: Tree) -> list[RemoteStat]:
    """All that is told of a tree, sorted by path."""
    found = [each for each in tree.entries() if not each.entry.implied]
    paths = tree.paths({each.parent for each in found})
    return sorted((each.entry.stat(_path(paths, each)) for each in found), key=lambda stat: stat.path)


def difference(nodes: Nodes, since: Root | None, ours: Sequence[Root | None], now: Root | None) -> Difference:
    """What changed.

    Args:
        nodes: Of all trees.
        since: The earlier view.
        ours: Trees that we committed after it, in order. What we made and somebody removed is in neither of the two
            views, and our base has it: it is told as deleted.
        now: The later view.
    """
    old, new = Tree(nodes, since), Tree(nodes, now)
    gone, there = _between(old, new)
    before = old.paths({found.parent for found in gone.values()})
    after = new.paths({found.parent for found in there.values()})
    stats = sorted(
        (found.entry.stat(_path(after, found)) for found in there.values() if not found.entry.implied),
        key=lambda stat: stat.path,
    )
    names = {_path(before, found) for found in gone.values() if not found.entry.implied}
    names |= _left(nodes, [*ours, now])
    names -= {stat.path for stat in stats}
    kept = {path for path in names if (found := new.lookup(path)) is not None and not found.entry.implied}
    return Difference(stats=stats, deleted=sorted(names - kept), replaced=_replaced(gone, there, after))


def _left(nodes: Nodes, roots: Sequence[Root | None]) -> set[RelPath]:
    """Names that went, or had another version, from each of some trees to the next one."""
    names: set[RelPath] = set()
    for old, new in pairwise(Tree(nodes, root) for root in roots):
        gone, _ = _between(old, new)
        above = old.paths({found.parent for found in gone.values()})
        names.update(_path(above, found) for found in gone.values() if not found.entry.implied)
    return names


def _between(old: Tree, new: Tree) -> tuple[dict[bytes, Found], dict[bytes, Found]]:
    """Entries that only the one has as they are there, and that only the other one has; by their keys."""
    gone: dict[bytes, Found] = {}
    there: dict[bytes, Found] = {}
    for one, other in old.differences(new):
        if one is not None:
            gone[one.key] = one
        if other is not None:
            there[other.key] = other
    # What is below a directory that moved has other paths.
    places = {found.entry.object: found.key for found in gone.values()}
    now = {found.entry.object: found.key for found in there.values()}
    moved = [each for each, key in now.items() if places.get(each, key) != key]
    for tree, into in ((old, gone), (new, there)):
        queue = list(moved)
        for directory in queue:  # grows while it is walked
            for found in tree.below(directory):
                into.setdefault(found.key, found)
                if found.entry.what is Kind.DIRECTORY:
                    queue.append(found.entry.object)
    return gone, there


def _replaced(
    gone: Mapping[bytes, Found], there: Mapping[bytes, Found], after: Mapping[bytes, RelPath]
) -> Mapping[tuple[RelPath, RemoteTag], Bytes]:
    olds = {found.entry.object: found for found in gone.values()}
    noted: dict[tuple[RelPath, RemoteTag], Bytes] = {}
    for key, found in there.items():
        old = olds.get(found.entry.object) or gone.get(key)
        file, before = found.entry.file, old.entry.file if old is not None else None
        if file is not None and before is not None and file.content != before.content and len(noted) < _REPLACED:
            noted[_path(after, found), found.entry.tag()] = before
    return noted


def _path(paths: Mapping[bytes, RelPath], found: Found) -> RelPath:
    above = paths[found.parent]
    return RelPath(above + b"/" + found.name if above else found.name)
