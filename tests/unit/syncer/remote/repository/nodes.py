"""Nodes in memory, and what was asked of them."""

from __future__ import annotations

from collections.abc import Sequence

from syncer.remote.repository.format.keys import ChunkId, Content, MasterKey, derive

KEYS = derive(MasterKey(bytes(range(32))), bytes(range(16)))


class MemoryNodes:
    """Nodes by id.

    Attributes:
        kept: All of them.
        read_ids: Those that were read, in order.
        reads: How many requests there were.
        written: Ids that were written, in order.
    """

    def __init__(self) -> None:
        self.kept: dict[ChunkId, bytes] = {}
        self.read_ids: list[ChunkId] = []
        self.reads = 0
        self.written: list[ChunkId] = []

    def read(self, ids: Sequence[ChunkId]) -> list[bytes]:
        self.reads += 1
        self.read_ids.extend(ids)
        return [self.kept[node] for node in ids]

    def write(self, node: bytes) -> ChunkId:
        node_id = KEYS.chunk_id(Content.TREES, node)
        self.kept[node_id] = node
        self.written.append(node_id)
        return node_id

    def forget(self) -> None:
        """Begin to count anew."""
        self.read_ids, self.reads, self.written = [], 0, []
