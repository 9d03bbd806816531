"""The base as the planner reads it: rows and the indexes over them. Pure.

Rows are written node by node (StateDB rule A), so after a crash the base may mix old and new places: two rows in one
slot, a parent without a row, even a cycle. All that is tolerated: such a row just has no path, or shares it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

from syncer.core.model import BaseRow, Nid, Node, RelPath
from syncer.core.paths import paths_of


class BaseIndex:
    """Base rows by number, path, inode and uuid. Treat as immutable."""

    def __init__(self, rows: Iterable[BaseRow] = ()) -> None:
        self.rows: Mapping[Nid, BaseRow] = {row.nid: row for row in rows}

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def tree(self) -> Mapping[Nid, Node]:
        """Nodes by number."""
        return {nid: row.node for nid, row in self.rows.items()}

    @cached_property
    def paths(self) -> Mapping[Nid, RelPath]:
        """Paths by number, without the rows that have none."""
        return paths_of(self.tree)

    @cached_property
    def by_path(self) -> Mapping[RelPath, tuple[Nid, ...]]:
        """Numbers by path, lowest first; more than one only after a crash."""
        found: dict[RelPath, tuple[Nid, ...]] = {}
        for nid in sorted(self.paths):
            path = self.paths[nid]
            found[path] = (*found[path], nid) if path in found else (nid,)
        return found

    @cached_property
    def by_slot(self) -> Mapping[tuple[Nid, bytes], Nid]:
        """Lowest number by parent and name."""
        found: dict[tuple[Nid, bytes], Nid] = {}
        for nid in sorted(self.rows):
            found.setdefault(self.rows[nid].node.slot, nid)
        return found

    @cached_property
    def by_inode(self) -> Mapping[tuple[int, int, int], tuple[Nid, ...]]:
        """Numbers by (device, inode, birth time), lowest first; hard links share one inode."""
        found: dict[tuple[int, int, int], tuple[Nid, ...]] = {}
        for nid in sorted(self.rows):
            tag = self.rows[nid].local
            if tag is not None:
                found[tag.inode] = (*found.get(tag.inode, ()), nid)
        return found

    @cached_property
    def by_uuid(self) -> Mapping[str, tuple[Nid, ...]]:
        """Numbers by remote uuid."""
        found: dict[str, tuple[Nid, ...]] = {}
        for nid in sorted(self.rows):
            tag = self.rows[nid].remote
            if tag is not None and tag.uuid:
                found[tag.uuid] = (*found.get(tag.uuid, ()), nid)
        return found

    @cached_property
    def children(self) -> Mapping[Nid, list[Nid]]:
        """Numbers by parent."""
        found: dict[Nid, list[Nid]] = {}
        for nid in sorted(self.rows):
            found.setdefault(self.rows[nid].node.parent, []).append(nid)
        return found
