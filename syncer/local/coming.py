"""Contents that are on their way into a root: what of them is there already can be read before the file has a name."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Protocol

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.ids import BlockId
from syncer.core.model import Content
from syncer.local.blocklists import BlockIndex


class Arriving(Protocol):
    """One file on its way. Any thread."""

    def has(self, index: int) -> bool:
        """Whether `held` is to return something."""
        ...

    def held(self, index: int) -> bytes | None:
        """A block of it, not verified; None: it is not in its place yet, or not any more."""
        ...


class Coming:
    """Those of one root. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lists: dict[Content, BlockList] = {}
        self._files: dict[Content, list[Arriving]] = {}
        self._came: set[Content] = set()

    def begin(self, content: Content, blocks: BlockList, file: Arriving) -> None:
        """A file begins to come."""
        with self._lock:
            self._lists[content] = blocks
            self._files.setdefault(content, []).append(file)

    def end(self, content: Content, file: Arriving, *, came: bool) -> None:
        """A file is found in another way from now on, or not at all. Idempotent.

        Args:
            content: Its content.
            file: What `begin` was given.
            came: It is all there.
        """
        with self._lock:
            if came:
                self._came.add(content)
            files = self._files.get(content, [])
            if file in files:
                files.remove(file)
            if not files and self._files.pop(content, None) is not None:
                del self._lists[content]

    def lists(self) -> list[tuple[Content, BlockList]]:
        """What is coming now, and its block lists."""
        with self._lock:
            return list(self._lists.items())

    def may_have(self, index: BlockIndex, block: BlockId) -> bool:
        """Whether a block may be in a file of an index. In those that come it is only at places that are filled."""
        if index.may_have(block):
            return True
        asked: dict[Content, list[Arriving]] = {}  # a file may have a block in many places
        for content, number in index.added(block):
            if content not in asked:
                with self._lock:
                    asked[content] = list(self._files.get(content, ()))
                    if content in self._came or not asked[content]:
                        return True
            if any(file.has(number) for file in asked[content]):
                return True
        return False

    def held(self, content: Content, index: int) -> Iterator[bytes]:
        """A block of a content, as often as it is there; not verified."""
        with self._lock:
            files = list(self._files.get(content, ()))
        for file in files:
            data = file.held(index)
            if data is not None:
                yield data
