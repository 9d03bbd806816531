"""What both sides' workers share: the outcome's view of local files, and where contents are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import trio

from blockfs.blocks.blocklist import BlockList
from syncer.core.model import Content, FileStat, Kind, LocalTag, Nid, Plan, RemoteTag, Side
from syncer.core.planner.outcome import Outcome
from syncer.core.rows import Origin
from syncer.errors import ConflictOnRemoteError, LocalChangedError
from syncer.ports.local import LocalRoot
from syncer.ports.localvalues import Piece, single
from syncer.ports.orders import Store

MIN_KNOWN_BLOCKS: Final = 16
"""Shorter block lists (below 1.1 KB) are sent and asked for as a whole."""


class LocalFiles:
    """The local files as the outcome has them now, findable by content."""

    def __init__(self, outcome: Outcome, plan: Plan, beside: Mapping[Content, Sequence[Origin]] | None = None) -> None:
        """Take the outcome of a cycle.

        Args:
            outcome: What is where.
            plan: What it began with.
            beside: Files that are not in the plan's trees, because only a part of the root is looked at.
        """
        self._outcome = outcome
        self._beside = beside or {}
        self._by_content: dict[Content, list[Nid]] = {}
        for nid, node in plan.local_state.tree.items():
            if node.content is not None:
                self._by_content.setdefault(node.content, []).append(nid)

    def installed(self, nid: Nid, content: Content) -> None:
        """A file got a content in this cycle; its tag is in the books already."""
        self._by_content.setdefault(content, []).append(nid)

    def stat(self, nid: Nid) -> FileStat | None:
        """A file as it is now, by our books; None if it is not there."""
        node = self._outcome.node(Side.LOCAL, nid)
        tag = self._outcome.tag(Side.LOCAL, nid)
        if node is None or node.kind is not Kind.FILE or not isinstance(tag, LocalTag):
            return None
        path = self._outcome.path(Side.LOCAL, nid)
        return FileStat(path=path, kind=Kind.FILE, meta=node.meta, content=node.content, tag=tag)

    def holders(self, content: Content) -> Sequence[Origin]:
        """Files that hold a content now."""
        found = [
            Origin(path=stat.path, tag=stat.tag, content=content)
            for nid in self._by_content.get(content, ())
            if (stat := self.stat(nid)) is not None and stat.content == content
        ]
        return [*found, *self._beside.get(content, ())]


class LocalContents:
    """The `Reader` of a push: contents of local files, as they were when they were hashed.

    Each block is compared with its id as it is read, so no mixture of two versions can be put together. That a file is
    still this version is looked at once more before anything is sent: a stale push costs traffic only.
    """

    def __init__(self, local: LocalRoot) -> None:
        """Read from a root."""
        self._local = local
        self._blocks = local.reader()
        self._lists: dict[Content, BlockList] = {}  # of large files on their way

    async def contents(self, stores: Sequence[Store]) -> list[bytes | Exception]:
        """See Reader."""
        size = self._local.block_size
        lists = [single(size, content) for store in stores if (content := store.content) is not None]
        pieces = [Piece(stat=_source(one), blocks=blocks, index=0) for one, blocks in zip(stores, lists, strict=True)]
        return [
            data if isinstance(data, Exception) else data[: store.size_bytes].ljust(store.size_bytes, b"\0")
            for store, data in zip(stores, await self._blocks.read(pieces), strict=True)
        ]

    async def block_list(self, store: Store) -> BlockList:
        """See Reader."""
        (blocks,) = await self._local.block_lists([_source(store)])
        if isinstance(blocks, Exception):
            raise blocks
        if len(blocks) > 1 and store.content is not None:
            self._lists[store.content] = blocks
        return blocks

    async def older_list(self, store: Store) -> BlockList | None:
        """See Reader."""
        if store.older is None or store.size_bytes <= (MIN_KNOWN_BLOCKS - 1) * self._local.block_size:
            return None
        return await trio.to_thread.run_sync(self._local.list_of, store.older, None)

    async def blocks(self, store: Store, blocks: BlockList, indexes: Sequence[int]) -> list[bytes]:
        """See Reader."""
        source = _source(store)
        found: list[bytes] = []
        for data in await self._blocks.read([Piece(stat=source, blocks=blocks, index=index) for index in indexes]):
            if isinstance(data, Exception):
                raise data
            found.append(data)
        return found

    async def ended(self, store: Store, *, stored: bool) -> None:
        """An order came to its end; a list that both sides have now is kept for the next change."""
        blocks = None if store.content is None else self._lists.pop(store.content, None)
        if blocks is not None and stored:
            assert store.content is not None
            await trio.to_thread.run_sync(self._local.lists.save, store.content, blocks)


def _source(store: Store) -> FileStat:
    assert isinstance(store.source, FileStat)
    return store.source


def local_tag(outcome: Outcome, nid: Nid) -> LocalTag:
    """The local evidence of a node that is to be changed.

    Raises:
        LocalChangedError: There is none: it could not be observed.
    """
    tag = outcome.tag(Side.LOCAL, nid)
    if not isinstance(tag, LocalTag):
        raise LocalChangedError(outcome.path(Side.LOCAL, nid), "nothing is known of it")
    return tag


def remote_tag(outcome: Outcome, nid: Nid) -> RemoteTag:
    """The remote evidence of a node that is to be changed.

    Raises:
        ConflictOnRemoteError: There is none.
    """
    tag = outcome.tag(Side.REMOTE, nid)
    if not isinstance(tag, RemoteTag):
        raise ConflictOnRemoteError(outcome.path(Side.REMOTE, nid), "a version", "nothing that could be named")
    return tag
