"""Contents that are cut in small windows, and what a full pass makes of them."""

from __future__ import annotations

from collections.abc import Sequence

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.hashing import block_id
from blockfs.blocks.ids import ZERO_BLOCK
from syncer.remote.repository.format.chunks import Chunker, Range, cut_window
from syncer.remote.repository.format.keys import ChunkId, Content
from tests.unit.syncer.remote.repository.nodes import KEYS

GRID = 16 << 10
WINDOW = 256 << 10
CHUNKER = Chunker(KEYS.cut_seed, (1024, 4096, 16384), GRID, WINDOW)


class Read:
    """Bytes that note how many of them were read."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.read_bytes = 0

    def __call__(self, ranges: Sequence[Range]) -> list[bytes]:
        self.read_bytes += sum(last - first for first, last in ranges)
        return [self.data[first:last] for first, last in ranges]


def blocks_of(data: bytes) -> BlockList:
    parts = [data[at : at + GRID] for at in range(0, len(data), GRID)]
    ids = b"".join(block_id(part) if any(part) else ZERO_BLOCK for part in parts)
    return BlockList(block_size=GRID, size_bytes=len(data), ids=ids)


def plainly(data: bytes) -> list[tuple[int, int, ChunkId]]:
    whole = Read(data)
    return [
        (each.offset, each.length, KEYS.chunk_id(Content.FILES, each.data))
        for at in range(0, len(data), WINDOW)
        for each in cut_window(CHUNKER, at, len(data), whole)
        if each.data is not None
    ]
