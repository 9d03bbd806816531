"""Where an ordinary root's blocks may be found: its block directory, its files, those that come, those in the trash.

The board asks by ids (`NearBlocks`); who assembles a file asks for places that he knows.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

import trio

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.extents import block_length
from blockfs.blocks.hashing import block_id
from blockfs.blocks.ids import BlockId
from blockfs.errors import BlockfsError
from syncer.core.model import Content
from syncer.core.rows import Origin
from syncer.errors import LocalChangedError
from syncer.local.blocklists import BlockIndex, BlockLists
from syncer.local.coming import Arriving, Coming
from syncer.local.folder.filehash import read_exactly
from syncer.local.received import Received
from syncer.local.safe_open import open_file, same_but_ctime, tag_of
from syncer.local.syscalls import status
from syncer.local.twins.twins import Twins
from syncer.ports.localvalues import Holders, LocalCounters

_INSTALLED: Final = 1024  # more are never under way between a name and the books


def nobody(content: Content) -> Sequence[Origin]:  # noqa: ARG001 - see Holders
    """Nothing is known of any file."""
    return ()


class Sources:
    """Those of one root. Safe for many threads.

    Attributes:
        counters: Of the root.
        received: What was fetched in this cycle, if somebody else may want it.
        twins: Of the root.
        holders: Tells which files hold a content by the books of this cycle.
    """

    def __init__(
        self, root: int, lists: BlockLists, block_size: int, counters: LocalCounters, directory: BlockDirectory | None
    ) -> None:
        """Take over the root's descriptor and its block directory, if it has one (neither closed here)."""
        self.root = root
        self.lists = lists
        self.directory = directory
        self.received: Received | None = None
        self.twins: Twins | None = None
        self.holders: Holders = nobody
        self.counters = counters
        self._block_size = block_size
        self._contents: list[Content] = []
        self._with_kept = False
        self._index: BlockIndex | None = None
        self._coming = Coming()
        self._installed: OrderedDict[Content, Origin] = OrderedDict()
        self._displaced: dict[Content, list[Origin]] = {}
        self._lock = threading.Lock()
        self._indexing = threading.Lock()  # taken in threads of its own: it may be held for long

    # --- what is where

    def know(self, contents: Iterable[Content], *, with_kept: bool = False) -> None:
        """Say which contents the root's files have now.

        Args:
            contents: Of the files that were looked at.
            with_kept: Other files may have any of those whose lists are kept.
        """
        with self._indexing:
            self._contents = list(contents)
            self._with_kept = with_kept
            self._index = None

    def begin(self, content: Content, blocks: BlockList, file: Arriving) -> None:
        """A file begins to come: from now on, what of it is in its place is found. Blocking."""
        with self._indexing:
            self._coming.begin(content, blocks, file)
            if self._index is not None:
                self._index.add(content, blocks)

    def end(self, content: Content, file: Arriving, installed: Origin | None = None) -> None:
        """A file has come, or won't. Idempotent.

        Args:
            content: Its content.
            file: What `begin` was given.
            installed: Where it is, if it has a name now, and is not in the books yet.
        """
        if installed is not None:
            with self._lock:
                self._installed[content] = installed
                while len(self._installed) > _INSTALLED:
                    self._installed.popitem(last=False)
            self._contents.append(content)  # for an index that is made later
        self._coming.end(content, file, came=installed is not None)

    def displacing(self, origin: Origin) -> None:
        """Say where in the trash a file is about to be: of two that swap contents one is always replaced first."""
        with self._lock:
            self._displaced.setdefault(origin.content, []).append(origin)

    def displaced(self, content: Content) -> list[Origin]:
        """Files with this content that this cycle put into the trash."""
        with self._lock:
            return list(self._displaced.get(content, ()))

    # --- by their ids

    def which(self, ids: Sequence[BlockId]) -> Collection[BlockId]:
        """See NearBlocks."""
        found: set[BlockId] = set()
        if self.directory is not None:
            with suppress(BlockfsError, OSError):
                found = set(ids).difference(self.directory.missing(ids))
        index = self._indexed()
        return found.union(block for block in ids if block not in found and self._coming.may_have(index, block))

    def read(self, ids: Sequence[BlockId], *, checked: bool) -> Mapping[BlockId, bytes]:
        """See NearBlocks."""
        found: dict[BlockId, bytes] = {}
        index, asked = self._indexed(), dict[Content, Sequence[Origin]]()
        for block in ids:
            for data in self._all_of(block, index, asked):
                if not checked or block_id(data) == block:
                    found[block] = data
                    break
        return found

    def _all_of(self, block: BlockId, index: BlockIndex, asked: dict[Content, Sequence[Origin]]) -> Iterator[bytes]:
        """What may be a block, from all places that are known."""
        stored = self._stored(block)
        if stored is not None:
            yield stored
        size = self._block_size
        for content, number in index.find(block):
            # In this order: what is no longer coming by then is in its place, and what is no longer in its place has
            # been told of before it went to the trash.
            yield from self._coming.held(content, number)
            for origin in self._files(content, asked):
                with suppress(OSError):
                    data = self.read_at(origin, number * size, block_length(number, content.size_bytes, size))
                    if data is not None:
                        yield data

    def _files(self, content: Content, asked: dict[Content, Sequence[Origin]]) -> Iterator[Origin]:
        if content not in asked:
            asked[content] = trio.from_thread.run_sync(self.holders, content)
        yield from asked[content]
        with self._lock:
            lately = self._installed.get(content)
        if lately is not None:
            yield lately
        yield from self.displaced(content)

    def _stored(self, block: BlockId) -> bytes | None:
        """A block from the block directory; None if it isn't there."""
        if self.directory is None:
            return None
        try:
            data = self.directory.get(block)
        except (BlockfsError, OSError):
            return None
        self.counters.bytes_read += len(data)
        return data

    def _indexed(self) -> BlockIndex:
        """The index over the known contents, built when it is first needed in a cycle."""
        with self._indexing:
            if self._index is None:
                coming = self._coming.lists()  # first: what ends meanwhile is among the contents
                contents = {*self._contents, *(self.lists.contents() if self._with_kept else ())}
                self._index = BlockIndex(self.lists, _longest_first(contents))
                for content, blocks in coming:
                    self._index.add(content, blocks)
            return self._index

    # --- by their places

    def open(self, origin: Origin) -> int | None:
        """Open a file if it still is what it was; None if not."""
        try:
            descriptor = open_file(self.root, origin.path)
        except (OSError, LocalChangedError):
            return None
        if same_but_ctime(tag_of(status(b"", descriptor)), origin.tag):
            return descriptor
        os.close(descriptor)
        return None

    def read_at(self, origin: Origin, offset: int, length: int) -> bytes | None:
        """A part of a file, if it still is what it was; not verified."""
        descriptor = self.open(origin)
        if descriptor is None:
            return None
        try:
            data = read_exactly(descriptor, offset, length)
        finally:
            os.close(descriptor)
        self.counters.bytes_read += len(data)
        return data


def _longest_first(contents: Iterable[Content]) -> list[Content]:
    """The order in which contents are indexed until the index is full."""
    return sorted(contents, key=lambda content: (-content.size_bytes, content.object_hash))
