"""Content on its way in: blocks are stored as a body comes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.directory import BlockDirectory
from syncer.server.store.spool import IdSpool


class Incoming:
    """Content on its way in: blocks are stored as they fill, so that memory holds one block and one piece.

    Attributes:
        size_bytes: Taken so far.
        md5: Of that, if it was asked for.
    """

    def __init__(self, blocks: BlockDirectory, *, md5: bool, folder: str) -> None:
        self._blocks = blocks
        self._hold = blocks.hold()
        self._rest = bytearray()
        self._ids = IdSpool(folder)
        self.size_bytes = 0
        self.md5 = hashlib.md5(usedforsecurity=False) if md5 else None

    def feed(self, pieces: Iterable[bytes]) -> None:
        """Take the next bytes, in pieces as they came; may wait for the disk."""
        whole: list[bytes] = []
        for piece in pieces:
            self.size_bytes += len(piece)
            if self.md5 is not None:
                self.md5.update(piece)
            self._cut(piece, whole)
        if whole:
            self._ids.append(b"".join(self._blocks.put_all(whole, self._hold)))

    def _cut(self, piece: bytes, whole: list[bytes]) -> None:
        """Add the blocks that a piece completes."""
        size, start = self._blocks.block_size, 0
        if self._rest:  # only the block that was begun is joined: the others are copied once
            start = size - len(self._rest)
            self._rest += piece[:start]
            if len(self._rest) == size:
                whole.append(bytes(self._rest))
                self._rest.clear()
        end = len(piece) - (len(piece) - start) % size
        whole += [piece[at : at + size] for at in range(start, end, size)]
        self._rest += piece[max(start, end) :]

    def finish(self) -> IdSpool:
        """All of it, as the ids of its blocks, which stay until `close`. The blocks are not durable yet."""
        if self._rest:
            self._ids.append(self._blocks.put(bytes(self._rest), self._hold))
            self._rest.clear()
        return self._ids

    def block_list(self) -> BlockList:
        """All of it after `finish`, if it is not long."""
        ids = self._ids.ids(0, len(self._ids))
        return BlockList(block_size=self._blocks.block_size, size_bytes=self.size_bytes, ids=ids)

    def close(self) -> None:
        """Let go of the blocks: after the commit, or when there will be none."""
        self._hold.release()
        self._ids.close()
