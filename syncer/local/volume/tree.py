"""What a mount's journal says, as observations: paths for inodes. Pure.

A full listing says everything. A partial one says what changed since a cursor, and is laid over the tree that the base
rows describe; that is complete as long as nothing was left undone when the cursor was stored (the engine sees to it).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from blockfs.control.protocol import NodeRow
from syncer.core.base import BaseIndex
from syncer.core.ignore import IgnoreRules
from syncer.core.model import ROOT, FileStat, Kind, LocalTag, Meta, RelPath, meta_of
from syncer.core.parts import NO_PARTS, Parts
from syncer.core.paths import PRIVATE, join

ROOT_INO = 1

HIDDEN = RelPath(PRIVATE + b"/ignored")
"""Stands for the path of every ignored directory: a private path, so that nothing below it is reported."""

_KINDS = {"file": Kind.FILE, "directory": Kind.DIRECTORY, "symlink": Kind.SYMLINK}


class UnresolvedError(Exception):
    """A partial listing does not fit the base: ask for a full one."""


class VolumeNode(msgspec.Struct, frozen=True, kw_only=True):
    """One inode as the tree needs it; `row` is None for what the base says and the journal doesn't contradict."""

    places: tuple[tuple[int, bytes], ...]
    stat: FileStat | None
    row: NodeRow | None


def volume_tag(row: NodeRow) -> LocalTag:
    """The evidence of an inode: its number is never reused, its content version counts every change of content."""
    return LocalTag(
        device=0,
        ino=row.ino,
        btime_ns=0,
        size_bytes=row.size_bytes,
        mtime_ns=row.mtime_ns,
        ctime_ns=0,
        version=row.content_version,
    )


def from_base(base: BaseIndex) -> dict[int, VolumeNode]:
    """The tree that the base rows describe, by inode.

    Raises:
        UnresolvedError: A row has no place or no local evidence: the base is not what a cursor was stored with.
    """
    inos = {nid: row.local.ino for nid, row in base.rows.items() if row.local is not None}
    nodes: dict[int, VolumeNode] = {}
    for nid, row in base.rows.items():
        path, tag, node = base.paths.get(nid), row.local, row.node
        parent = ROOT_INO if node.parent == ROOT else inos.get(node.parent)
        if path is None or tag is None or parent is None:
            raise UnresolvedError
        stat = FileStat(path=path, kind=node.kind, meta=node.meta, content=node.content, target=node.target, tag=tag)
        known = nodes.get(tag.ino)
        places = ((parent, node.name), *(known.places if known is not None else ()))
        nodes[tag.ino] = VolumeNode(places=places, stat=stat, row=None)
    return nodes


def overlaid(nodes: dict[int, VolumeNode], rows: Iterable[NodeRow], gone: Iterable[int]) -> dict[int, VolumeNode]:
    """Lay changes over a tree, in place."""
    for ino in gone:
        nodes.pop(ino, None)
    for row in rows:
        nodes[row.ino] = VolumeNode(places=tuple(row.places), stat=None, row=row)
    return nodes


def paths_by_inode(nodes: Mapping[int, VolumeNode], roots: Mapping[int, RelPath]) -> dict[int, list[RelPath]]:
    """All paths of all inodes.

    Args:
        nodes: By inode.
        roots: Inodes whose path is known: the root, and folders that the tree does not list.

    Raises:
        UnresolvedError: A parent is in neither.
    """
    directories: dict[int, RelPath] = dict(roots)

    def path_of(ino: int) -> RelPath:
        trail: dict[int, bytes] = {}  # not a call for each level: users nest folders deeper than Python's calls go
        while (found := directories.get(ino)) is None:
            node = nodes.get(ino)
            if node is None or not node.places or ino in trail:
                raise UnresolvedError
            parent, trail[ino] = node.places[0]
            ino = parent
        for below, name in reversed(trail.items()):
            found = directories[below] = join(found, name)
        return found

    return {
        ino: [join(path_of(parent), name) for parent, name in node.places]
        for ino, node in nodes.items()
        if ino not in roots
    }


def is_directory(node: VolumeNode) -> bool:
    """True if the inode is a directory."""
    if node.row is not None:
        return node.row.kind == "directory"
    return node.stat is not None and node.stat.kind is Kind.DIRECTORY


def came_out(
    hidden: Iterable[int],
    nodes: Mapping[int, VolumeNode],
    paths: Mapping[int, list[RelPath]],
    roots: Mapping[int, RelPath],
    rules: IgnoreRules,
) -> bool:
    """True if a directory that was ignored is not any more: the journal does not tell what is in it."""
    for ino in hidden:
        node = nodes.get(ino)
        if node is None:
            continue
        for parent, name in node.places:
            above = roots.get(parent) if parent in roots else paths.get(parent, [None])[0]
            if above is not None and above != HIDDEN and not rules.hides(join(above, name), directory=True):
                return True
    return False


def stat_of(row: NodeRow, path: RelPath, parts: Parts = NO_PARTS) -> FileStat | None:
    """One name of an inode as an observation, without content; None for special files."""
    kind = _KINDS.get(row.kind)
    if kind is None:
        return None
    mtime_ns = row.mtime_ns if kind is Kind.FILE else None
    meta = meta_of(row.mode, special=parts.special_modes, mtime_ns=mtime_ns, xattrs=row.xattrs)
    return FileStat(
        path=path,
        kind=kind,
        meta=Meta() if kind is Kind.SYMLINK else meta,
        target=row.target if kind is Kind.SYMLINK else None,
        tag=volume_tag(row),
        nlink=row.nlink,
    )
