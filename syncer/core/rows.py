"""The base rows as those ask for them who look at a part of the tree: one by one, never all at once.

`core.base.BaseIndex` is the other way to have them: all, in memory.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import Protocol

import msgspec

from syncer.core.model import BaseRow, Content, LocalTag, Nid, RelPath, RemoteTag
from syncer.core.subtrees import Subtree


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """A local file, as far as is known, that holds some content.

    Attributes:
        path: Where it is now.
        tag: Its evidence; if that is wrong by now, it is no source.
        content: What it held when it had that evidence.
    """

    path: RelPath
    tag: LocalTag
    content: Content


class BaseRows(Protocol):
    """The base as of one moment. Keep it short: a reader holds on to pages that the store would use again.

    Lists have no order.
    """

    def __len__(self) -> int:
        """How many there are."""
        ...

    def row(self, nid: Nid) -> BaseRow | None:
        """One row."""
        ...

    def children(self, parent: Nid) -> Sequence[BaseRow]:
        """The rows in a directory."""
        ...

    def at(self, parent: Nid, name: bytes) -> Sequence[BaseRow]:
        """The rows in a slot; more than one only after a crash."""
        ...

    def with_inode(self, tag: LocalTag) -> Sequence[BaseRow]:
        """The rows of an inode; hard links have several."""
        ...

    def with_uuid(self, uuid: str) -> Sequence[BaseRow]:
        """The rows of a remote object."""
        ...

    def path(self, row: BaseRow) -> RelPath | None:
        """Where a row's node is; None if that can't be told (a crash)."""
        ...

    def subtree(self, root: Nid) -> Subtree:
        """A directory and all below it, in the order of their paths. No row is decoded."""
        ...

    def agreeing(self, parent: Nid, name: bytes, tag: RemoteTag) -> Nid | None:
        """The row in a slot that has exactly this remote evidence; None if there is none. No row is decoded."""
        ...

    def others(self, seen: Container[Nid]) -> Iterator[BaseRow]:
        """All rows whose numbers are not among these."""
        ...
