"""Base rows one by one, for cycles that look at a part of the tree: `core.scope.Rows` on one LMDB transaction."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping
from typing import Any

import lmdb

from syncer.core.model import ROOT, BaseRow, Content, LocalTag, Nid, RelPath, RemoteTag
from syncer.core.subtrees import Member, Subtree
from syncer.state.schema import (
    NID_KEY,
    content_in,
    decode_row,
    ends_with_remote,
    inode_key,
    is_directory,
    remote_version,
    uuid_key,
)


class RowReader:
    """The base as it was when the transaction began. Belongs to one thread; ends with the transaction."""

    def __init__(self, txn: lmdb.Transaction, tables: Mapping[str, Any]) -> None:
        self._txn = txn
        self._base = tables["base"]
        self._by_path = tables["by-path"]
        self._by_inode = tables["by-inode"]
        self._by_uuid = tables["by-uuid"]

    def __len__(self) -> int:
        return int(self._txn.stat(self._base)["entries"])

    def row(self, nid: Nid) -> BaseRow | None:
        """See Rows."""
        raw = self._txn.get(NID_KEY.pack(nid), db=self._base)
        return decode_row(nid, bytes(raw)) if raw is not None else None

    def children(self, parent: Nid) -> list[BaseRow]:
        """See Rows."""
        return [row for _, nid in self._slots(parent) if (row := self.row(nid)) is not None]

    def at(self, parent: Nid, name: bytes) -> list[BaseRow]:
        """See Rows."""
        return self._indexed(self._by_path, NID_KEY.pack(parent) + name)

    def with_inode(self, tag: LocalTag) -> list[BaseRow]:
        """See Rows."""
        return self._indexed(self._by_inode, inode_key(tag))

    def with_uuid(self, uuid: str) -> list[BaseRow]:
        """See Rows."""
        return self._indexed(self._by_uuid, uuid_key(uuid))

    def holding(self, contents: Collection[Content]) -> Iterator[tuple[Content, BaseRow]]:
        """Rows with one of these contents: a look at all rows, some 2 s per million."""
        if not contents:
            return
        for key, raw in self._txn.cursor(db=self._base):
            content = content_in(bytes(raw))
            if content is not None and content in contents:
                yield content, decode_row(Nid(NID_KEY.unpack(key)[0]), bytes(raw))

    def path(self, row: BaseRow) -> RelPath | None:
        """Where a row's node is; None if that can't be told (a crash)."""
        segments: list[bytes] = []
        seen: set[Nid] = set()
        at: BaseRow | None = row
        while at is not None and at.nid not in seen:
            seen.add(at.nid)
            segments.append(at.node.name)
            if at.node.parent == ROOT:
                return RelPath(b"/".join(reversed(segments)))
            at = self.row(at.node.parent)
        return None

    def agreeing(self, parent: Nid, name: bytes, tag: RemoteTag) -> Nid | None:
        """See `core.sieve.KnownRows`. Nothing is decoded: this is asked of every object of a listing."""
        cursor = self._txn.cursor(db=self._by_path)
        if cursor.set_key(NID_KEY.pack(parent) + name):
            for key in cursor.iternext_dup():
                raw = self._txn.get(bytes(key), db=self._base)
                if raw is not None and ends_with_remote(bytes(raw), tag):
                    return Nid(NID_KEY.unpack(key)[0])
        return None

    def others(self, seen: Container[Nid]) -> Iterator[BaseRow]:
        """See `core.sieve.KnownRows`."""
        cursor = self._txn.cursor(db=self._base)
        for key in cursor.iternext(values=False):
            nid = Nid(NID_KEY.unpack(key)[0])
            if nid not in seen:
                yield decode_row(nid, bytes(cursor.value()))

    def subtree(self, root: Nid) -> Subtree:
        """A directory and all below it. No row is decoded: of 100,000 this takes some 0.3 s."""
        return Subtree(self._members(root))

    def _members(self, root: Nid) -> Iterator[Member]:
        pending = [(b"", root)]
        seen: set[Nid] = set()  # rows that a crash tore may be below themselves
        while pending:
            rest, nid = pending.pop()
            raw = self._txn.get(NID_KEY.pack(nid), db=self._base)
            if raw is None or nid in seen:
                continue
            seen.add(nid)
            row = bytes(raw)
            yield Member(rest, nid, remote_version(row))
            if is_directory(row):
                pending += [(rest + b"/" + name, child) for name, child in self._slots(nid)]

    def _slots(self, parent: Nid) -> Iterator[tuple[bytes, Nid]]:
        """Names and numbers in a directory."""
        prefix = NID_KEY.pack(parent)
        cursor = self._txn.cursor(db=self._by_path)
        if cursor.set_range(prefix):
            for raw, value in cursor.iternext():
                key = bytes(raw)
                if not key.startswith(prefix):
                    return
                yield key[len(prefix) :], Nid(NID_KEY.unpack(value)[0])

    def _indexed(self, index: Any, key: bytes) -> list[BaseRow]:
        cursor = self._txn.cursor(db=index)
        if not cursor.set_key(key):
            return []
        numbers = [Nid(NID_KEY.unpack(raw)[0]) for raw in cursor.iternext_dup()]
        return [row for nid in numbers if (row := self.row(nid)) is not None]
