"""Base rows in memory."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping

from syncer.core.model import BaseRow, Kind, LocalTag, Nid, RelPath, RemoteTag
from syncer.core.paths import path_in
from syncer.core.subtrees import Subtree


class MemoryRows:
    """`BaseRows` over a dict, counting what it gives out."""

    def __init__(self, rows: Mapping[Nid, BaseRow]) -> None:
        self.rows = rows
        self.given: set[Nid] = set()
        self.listed: list[Nid] = []

    def __len__(self) -> int:
        return len(self.rows)

    def row(self, nid: Nid) -> BaseRow | None:
        self.given.add(nid)
        return self.rows.get(nid)

    def children(self, parent: Nid) -> list[BaseRow]:
        self.listed.append(parent)
        return self._give(self._below(parent))

    def at(self, parent: Nid, name: bytes) -> list[BaseRow]:
        return self._give(row for row in self.rows.values() if row.node.slot == (parent, name))

    def with_inode(self, tag: LocalTag) -> list[BaseRow]:
        return self._give(row for row in self.rows.values() if row.local is not None and row.local.inode == tag.inode)

    def with_uuid(self, uuid: str) -> list[BaseRow]:
        return self._give(row for row in self.rows.values() if row.remote is not None and row.remote.uuid == uuid)

    def agreeing(self, parent: Nid, name: bytes, tag: RemoteTag) -> Nid | None:
        return next((row.nid for row in self.at(parent, name) if row.remote == tag), None)

    def others(self, seen: Container[Nid]) -> Iterator[BaseRow]:
        yield from self._give(row for row in self.rows.values() if row.nid not in seen)

    def path(self, row: BaseRow) -> RelPath | None:
        return path_in({nid: each.node for nid, each in self.rows.items()}, row.nid)

    def subtree(self, root: Nid) -> Subtree:
        members: dict[Nid, tuple[bytes, int]] = {}
        pending = [(b"", root)] if root in self.rows else []
        while pending:
            rest, nid = pending.pop()
            if nid not in members:
                row = self.rows[nid]
                members[nid] = rest, 0 if row.remote is None else row.remote.version
                if row.node.kind is Kind.DIRECTORY:
                    pending += [(rest + b"/" + below.node.name, below.nid) for below in self._below(nid)]
        ordered = sorted(members.items(), key=lambda member: member[1])
        return Subtree(
            [rest for _, (rest, _) in ordered], [nid for nid, _ in ordered], [version for _, (_, version) in ordered]
        )

    def _below(self, parent: Nid) -> Iterator[BaseRow]:
        return (row for row in self.rows.values() if row.node.parent == parent)

    def _give(self, found: Iterable[BaseRow]) -> list[BaseRow]:
        rows = list(found)
        self.given.update(row.nid for row in rows)
        return rows
