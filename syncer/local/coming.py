"""Contents that are on their way into a root: what of them is there already can be read before the file has a name."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from blockfs.blocks.blocklist import BlockList
from syncer.core.model import Content


class Arriving(Protocol):
    """One file on its way. Any thread."""

    def held(self, index: int) -> bytes | None:
        """A block of it, not verified; None: it is not in its place yet, or not any more."""
        ...


class Coming:
    """Those of one root. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lists: dict[Content, BlockList] = {}
        self._files: dict[Content, list[Arriving]] = {}

    def begin(self, content: Content, blocks: BlockList, file: Arriving) -> None:
        """A file begins to come."""
        with self._lock:
            self._lists[content] = blocks
            self._files.setdefault(content, []).append(file)

    def end(self, content: Content, file: Arriving) -> None:
        """It is found in another way from now on, or not at all. Idempotent."""
        with self._lock:
            files = self._files.get(content, [])
            if file in files:
                files.remove(file)
            if not files and self._files.pop(content, None) is not None:
                del self._lists[content]

    @contextmanager
    def meanwhile(self, content: Content, blocks: BlockList, file: Arriving) -> Iterator[None]:
        """`begin`, and `end`."""
        self.begin(content, blocks, file)
        try:
            yield
        finally:
            self.end(content, file)

    def lists(self) -> list[tuple[Content, BlockList]]:
        """What is coming now, and its block lists."""
        with self._lock:
            return list(self._lists.items())

    def held(self, content: Content, index: int) -> Iterator[bytes]:
        """A block of a content, as often as it is there; not verified."""
        with self._lock:
            files = list(self._files.get(content, ()))
        for file in files:
            data = file.held(index)
            if data is not None:
                yield data
