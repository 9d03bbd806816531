"""What both sides' workers share: the ledger's view of local files, and where contents are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from syncer.core.model import Content, FileStat, Kind, LocalTag, Nid, Plan, RemoteTag, Side
from syncer.core.planner.outcome import Ledger
from syncer.core.rows import Origin
from syncer.errors import ConflictOnRemoteError, LocalChangedError

MIN_KNOWN_BLOCKS: Final = 16
"""Shorter block lists (below 1.1 KB) are sent and asked for as a whole."""


class LocalFiles:
    """The local files as the ledger has them now, findable by content."""

    def __init__(self, ledger: Ledger, plan: Plan, beside: Mapping[Content, Sequence[Origin]] | None = None) -> None:
        """Take the books of a cycle.

        Args:
            ledger: What is where.
            plan: What it began with.
            beside: Files that are not in the plan's trees, because only a part of the root is looked at.
        """
        self._ledger = ledger
        self._beside = beside or {}
        self._by_content: dict[Content, list[Nid]] = {}
        for nid, node in plan.local_state.tree.items():
            if node.content is not None:
                self._by_content.setdefault(node.content, []).append(nid)

    def installed(self, nid: Nid, content: Content) -> None:
        """A file got a content in this cycle; its tag is in the books already."""
        self._by_content.setdefault(content, []).append(nid)

    def has(self, nid: Nid, content: Content) -> bool:
        """Whether a file is there, by our books, and has a content."""
        node = self._ledger.node(Side.LOCAL, nid)
        return (
            node is not None
            and node.content == content
            and node.kind is Kind.FILE
            and isinstance(self._ledger.tag(Side.LOCAL, nid), LocalTag)
        )

    def stat(self, nid: Nid) -> FileStat | None:
        """A file as it is now, by our books; None if it is not there."""
        node = self._ledger.node(Side.LOCAL, nid)
        tag = self._ledger.tag(Side.LOCAL, nid)
        if node is None or node.kind is not Kind.FILE or not isinstance(tag, LocalTag):
            return None
        path = self._ledger.path(Side.LOCAL, nid)
        return FileStat(path=path, kind=Kind.FILE, meta=node.meta, content=node.content, tag=tag)

    def holders(self, content: Content) -> Sequence[Origin]:
        """Files that hold a content now."""
        found = [
            Origin(path=stat.path, tag=stat.tag, content=content)
            for nid in self._by_content.get(content, ())
            if (stat := self.stat(nid)) is not None and stat.content == content
        ]
        return [*found, *self._beside.get(content, ())]


def local_tag(ledger: Ledger, nid: Nid) -> LocalTag:
    """The local evidence of a node that is to be changed.

    Raises:
        LocalChangedError: There is none: it could not be observed.
    """
    tag = ledger.tag(Side.LOCAL, nid)
    if not isinstance(tag, LocalTag):
        raise LocalChangedError(ledger.path(Side.LOCAL, nid), "nothing is known of it")
    return tag


def remote_tag(ledger: Ledger, nid: Nid) -> RemoteTag:
    """The remote evidence of a node that is to be changed.

    Raises:
        ConflictOnRemoteError: There is none.
    """
    tag = ledger.tag(Side.REMOTE, nid)
    if not isinstance(tag, RemoteTag):
        raise ConflictOnRemoteError(ledger.path(Side.REMOTE, nid), "a version", "nothing that could be named")
    return tag
