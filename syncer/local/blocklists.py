"""Which blocks lie where in the root's own files: a cache of block lists, and an index over them.

An ordinary root keeps its blocks in its files. So that a pull can take them from there, and a push needn't hash an
unchanged file again, the block list of every hashed file of more than one block is kept in the root's state folder,
named by its content. It is a cache: never synced to disk, verified on load, and blocks found through it are hashed
again before use.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Final

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.ids import ID_SIZE, BlockId, ObjectHash
from syncer.core.model import Content
from syncer.ports.localvalues import single

_INDEX_LIMIT: Final = 2_000_000  # entries of about 60 bytes: 120 MB at most; 122 GiB of files at 64 KiB
_DIGEST: Final = 32  # bytes of SHA-256 over the ids, before them in the file
_NAME: Final = re.compile(r"([0-9a-f]{64})\.([0-9a-f]+)", re.ASCII)
_PREFIX: Final = 8  # bytes of an id in the index: a false match costs one read and one hash


class BlockLists:
    """A folder of block lists by content. Safe for many threads."""

    def __init__(self, folder: str, block_size: int, *, named_by: int | None = None, least_bytes: int = 0) -> None:
        """Use (and make) a folder.

        Args:
            folder: Where.
            block_size: Of the lists.
            named_by: Block size by which the contents are named, if that is another one.
            least_bytes: Lists of smaller contents are not kept.
        """
        os.makedirs(folder, mode=0o700, exist_ok=True)
        self._folder = folder
        self._block_size = block_size
        # A file of one block, in both sizes, has that block's id as its object hash: there is nothing to keep.
        self._obvious_bytes = min(block_size, named_by or block_size)
        self._least_bytes = max(least_bytes, self._obvious_bytes + 1)

    def save(self, content: Content, blocks: BlockList) -> None:
        """Remember the block list of a content. Losing it costs a hashing, so nothing is synced, and nothing fails."""
        if content.size_bytes < self._least_bytes:
            return
        path = self._path(content)
        if os.path.exists(path):
            return
        temporary = f"{path}.{os.getpid()}.{threading.get_ident()}"
        with contextlib.suppress(OSError):
            with open(temporary, "wb") as file:
                file.write(hashlib.sha256(blocks.ids).digest())
                file.write(blocks.ids)
            os.replace(temporary, path)

    def load(self, content: Content) -> BlockList | None:
        """The block list of a content, if it is known. Verified: a damaged one counts as unknown."""
        if content.size_bytes <= self._obvious_bytes:
            return single(self._block_size, content)
        try:
            with open(self._path(content), "rb") as file:
                digest, ids = file.read(_DIGEST), file.read()
            # Our own digest, not the Merkle root: that costs a second per million blocks, this a twentieth of it.
            if hashlib.sha256(ids).digest() != digest:
                return None
            return BlockList(block_size=self._block_size, size_bytes=content.size_bytes, ids=ids)
        except (FileNotFoundError, ValueError):
            return None

    def contents(self) -> set[Content]:
        """The contents whose lists are kept."""
        with os.scandir(self._folder) as entries:
            names = [entry.name for entry in entries]
        return {content for name in names if (content := _parse(name)) is not None}

    def drop(self, contents: Iterable[Content]) -> None:
        """Forget the lists of these contents."""
        for content in contents:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path(content))

    def keep_only(self, contents: Iterable[Content]) -> None:
        """Forget every list that is not of one of these contents."""
        long = (content for content in contents if content.size_bytes >= self._least_bytes)
        wanted = {os.path.basename(self._path(content)) for content in long}
        with os.scandir(self._folder) as entries:
            stale = [entry.path for entry in entries if entry.name not in wanted]
        for path in stale:
            os.unlink(path)

    def _path(self, content: Content) -> str:
        return os.path.join(self._folder, f"{content.object_hash.hex()}.{content.size_bytes:x}")


def _parse(name: str) -> Content | None:
    """The content that a file of the cache is named after; None for other files."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    return Content(size_bytes=int(match[2], 16), object_hash=ObjectHash(bytes.fromhex(match[1])))


class BlockIndex:
    """Block id → (content, index in it). Safe for many threads that look while one adds."""

    def __init__(self, lists: BlockLists, contents: Iterable[Content]) -> None:
        """Index the known lists among `contents`, up to a limit."""
        self._contents: list[Content] = []
        self._rows: list[bytes] = []
        self._added: dict[bytes, list[bytes]] = {}
        self._added_rows = 0
        for content in contents:
            if len(self._rows) >= _INDEX_LIMIT:
                break
            blocks = lists.load(content)
            if blocks is not None:
                self._rows += self._rows_of(content, blocks)
        self._rows.sort()

    def add(self, content: Content, blocks: BlockList) -> None:
        """Index one more list, if the limit allows."""
        if len(self._rows) + self._added_rows >= _INDEX_LIMIT:
            return
        for row in self._rows_of(content, blocks):
            self._added.setdefault(row[:_PREFIX], []).append(row)
            self._added_rows += 1

    def _rows_of(self, content: Content, blocks: BlockList) -> list[bytes]:
        number = len(self._contents).to_bytes(4, "big")
        self._contents.append(content)
        ids = blocks.ids
        return [ids[at * ID_SIZE : at * ID_SIZE + _PREFIX] + number + at.to_bytes(4, "big") for at in blocks.filled()]

    def may_have(self, block_id: BlockId) -> bool:
        """Whether a list that was there from the start has it."""
        prefix = block_id[:_PREFIX]
        at = bisect_left(self._rows, prefix)
        return at < len(self._rows) and self._rows[at].startswith(prefix)

    def added(self, block_id: BlockId) -> Iterator[tuple[Content, int]]:
        """As `find`, only in lists that were added."""
        return (self._place(row) for row in self._added.get(block_id[:_PREFIX], ()))

    def find(self, block_id: BlockId) -> Iterator[tuple[Content, int]]:
        """Where a block may be found; read it and hash it to know."""
        prefix = block_id[:_PREFIX]
        first = bisect_left(self._rows, prefix)
        end = bisect_right(self._rows, prefix + b"\xff" * 8)
        for row in (*self._rows[first:end], *self._added.get(prefix, ())):
            yield self._place(row)

    def _place(self, row: bytes) -> tuple[Content, int]:
        return self._contents[int.from_bytes(row[_PREFIX : _PREFIX + 4], "big")], int.from_bytes(row[-4:], "big")
