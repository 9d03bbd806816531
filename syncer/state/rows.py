"""Base rows one by one, for cycles that look at a part of the tree: `core.rows.BaseRows` on one LMDB transaction."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from typing import Any, Final, cast

import lmdb

from syncer.core.model import ROOT, BaseRow, Content, LocalTag, Nid, RelPath, RemoteTag
from syncer.core.subtrees import Subtree
from syncer.state.schema import (
    NID_KEY,
    STAMP_KEY,
    agreed_content,
    content_in,
    decode_row,
    ends_with_remote,
    inode_key,
    is_directory,
    remote_version,
    stamp_at,
    uuid_key,
)

_AT_ONCE: Final = 4096  # rows in memory: 1 MB


class RowReader:
    """The base as it was when the transaction began. Belongs to one thread; ends with the transaction."""

    def __init__(self, txn: lmdb.Transaction, tables: Mapping[str, Any]) -> None:
        self._txn = txn
        self._base = tables["base"]
        self._by_path = tables["by-path"]
        self._by_inode = tables["by-inode"]
        self._by_uuid = tables["by-uuid"]
        self._meta = tables["meta"]

    @property
    def stamp(self) -> int | None:
        """Names what the rows are; None if a program of before stamps wrote last. See `schema.after_write`."""
        raw = self._txn.get(STAMP_KEY, db=self._meta)
        return stamp_at(None if raw is None else bytes(raw), self._txn.id())

    def agreed(self, nid: Nid) -> Content | None:
        """What a file holds on both sides; None if there is no such file."""
        raw = self._txn.get(NID_KEY.pack(nid), db=self._base)
        return agreed_content(bytes(raw)) if raw is not None else None

    def agreed_from(self, first: Nid, most: int) -> tuple[list[tuple[Nid, Content]], Nid | None]:
        """The same of the files among the next `most` rows, by number; and the number to go on with."""
        found: list[tuple[Nid, Content]] = []
        cursor = self._txn.cursor(db=self._base)
        if cursor.set_range(NID_KEY.pack(first)):
            for count, (key, raw) in enumerate(cursor.iternext()):
                nid = Nid(NID_KEY.unpack(key)[0])
                if count == most:
                    return found, nid
                content = agreed_content(bytes(raw))
                if content is not None:
                    found.append((nid, content))
        return found, None

    def __len__(self) -> int:
        return int(self._txn.stat(self._base)["entries"])

    def count_names(self, mark: bytes, after: bytes, most: int) -> tuple[int, bytes]:
        """How many of the next names have `mark` in them; no row is read, and nothing is kept in memory.

        Args:
            mark: What a name has in it.
            after: Where to go on; empty: from the first one on.
            most: How many names are looked at.

        Returns:
            How many have it, and where to go on; empty: these were the last.
        """
        count = 0
        with self._txn.cursor(db=self._by_path) as cursor:
            if cursor.set_range(after) if after else cursor.first():
                for place, key in enumerate(cursor.iternext_nodup(keys=True, values=False)):
                    if place == most:
                        return count, bytes(key)
                    count += mark in key[NID_KEY.size :]
        return count, b""

    def row(self, nid: Nid) -> BaseRow | None:
        """See BaseRows."""
        raw = self._txn.get(NID_KEY.pack(nid), db=self._base)
        return decode_row(nid, bytes(raw)) if raw is not None else None

    def along(self, path: RelPath) -> list[BaseRow]:
        """The rows of a path, from the top on; those that there are."""
        found: list[BaseRow] = []
        parents = [ROOT]
        for name in path.split(b"/"):
            rows = [row for parent in parents for row in self.at(parent, name)]
            found += rows
            parents = [row.nid for row in rows]
        return found

    def children(self, parent: Nid) -> list[BaseRow]:
        """See BaseRows."""
        return [row for _, nid in self._slots(parent) if (row := self.row(nid)) is not None]

    def at(self, parent: Nid, name: bytes) -> list[BaseRow]:
        """See BaseRows."""
        return self._indexed(self._by_path, NID_KEY.pack(parent) + name)

    def with_inode(self, tag: LocalTag) -> list[BaseRow]:
        """See BaseRows."""
        return self._indexed(self._by_inode, inode_key(tag))

    def with_uuid(self, uuid: str) -> list[BaseRow]:
        """See BaseRows."""
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
        """See BaseRows. Nothing is decoded: this is asked of every object of a listing."""
        cursor = self._txn.cursor(db=self._by_path)
        if cursor.set_key(NID_KEY.pack(parent) + name):
            for key in cursor.iternext_dup():
                raw = self._txn.get(bytes(key), db=self._base)
                if raw is not None and ends_with_remote(bytes(raw), tag):
                    return Nid(NID_KEY.unpack(key)[0])
        return None

    def others(self, seen: Container[Nid]) -> Iterator[BaseRow]:
        """See BaseRows."""
        cursor = self._txn.cursor(db=self._base)
        for key in cursor.iternext(values=False):
            nid = Nid(NID_KEY.unpack(key)[0])
            if nid not in seen:
                yield decode_row(nid, bytes(cursor.value()))

    def subtree(self, root: Nid) -> Subtree:
        """A directory and all below it. No row is decoded: of 100,000 this takes some 0.2 s."""
        rests, keys, versions = self._below(root)
        order = sorted(range(len(rests)), key=rests.__getitem__)
        return Subtree(
            [rests[at] for at in order],
            [Nid(int.from_bytes(keys[at], "big")) for at in order],
            [versions[at] for at in order],
        )

    def raw(self, keys: Sequence[bytes]) -> Sequence[tuple[bytes, bytes]]:
        """Keys and rows of the table, as they are stored; without those that are not there."""
        return self._txn.cursor(db=self._base).getmulti(keys)  # type: ignore[return-value] # no buffers were asked for

    def _below(self, root: Nid) -> tuple[list[bytes], list[bytes], list[int]]:
        """What is behind the root's path, keys, and versions of a subtree's nodes, in some order."""
        rests: list[bytes] = []
        keys: list[bytes] = []
        versions: list[int] = []
        top = NID_KEY.pack(root)
        waiting = {top: b""}
        pending: list[tuple[bytes, bytes]] = []  # directories whose slots are still to be read
        slots = self._txn.cursor(db=self._by_path)
        while waiting:
            wanted = list(waiting)
            for start in range(0, len(wanted), _AT_ONCE):
                rows = self.raw(wanted[start : start + _AT_ONCE])
                keys += [key for key, _ in rows]
                rests += [waiting[key] for key, _ in rows]
                versions += [remote_version(row) for _, row in rows]
                pending += [(key, waiting[key] + b"/") for key, row in rows if is_directory(row)]
            waiting = {}
            while pending and len(waiting) < _AT_ONCE:
                above, head = pending.pop()
                if slots.set_range(above):
                    for slot, child in cast("Iterator[tuple[bytes, bytes]]", slots.iternext()):  # no buffers, either
                        if not slot.startswith(above):
                            break
                        waiting[child] = head + slot[NID_KEY.size :]
            waiting.pop(top, None)  # a crash may leave it below itself; all else is in one slot
        return rests, keys, versions

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
