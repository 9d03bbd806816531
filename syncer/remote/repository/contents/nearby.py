"""Chunks that need not be fetched: their bytes lie in blocks that the root has.

Files share blocks where these lie on one grid; chunks also where bytes have moved, and within a block of two versions.
Where chunks are in contents that are here is learnt from lists: of versions that are read, and of those that they
replace. What is there is held against the chunk's id; if it is another thing by now, it is fetched.

Source: docs/design/repository.md, section 13.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from blockfs.blocks.ids import ID_SIZE, ZERO_BLOCK, BlockId
from syncer.ports.blocks import NearBlocks
from syncer.remote.repository.format.keys import ChunkId, Content, Keys
from syncer.remote.repository.format.lists import Located

_PLACES: Final = 1 << 16  # some 300 bytes each; chunks of more than a GiB
_VERSIONS: Final = 1024
_KEPT_BYTES: Final = 16 << 20  # what two requests need that run at the same time, or one behind the other


class _Place(msgspec.Struct, frozen=True, gc=False):
    """Where the bytes of a chunk are.

    Attributes:
        ids: Of the blocks that have them, one behind the other.
        start: Where they begin in the first one.
        length: How many.
    """

    ids: bytes
    start: int
    length: int


class Nearby:
    """What one root has. Safe for many threads; it forgets what was learnt long ago."""

    def __init__(self, blocks: NearBlocks | None, keys: Keys, grid: int) -> None:
        """Begin knowing nothing.

        Args:
            blocks: The root's; None: only what was fetched lately is at hand.
            keys: The repository's.
            grid: Bytes of a block.
        """
        self._blocks = blocks
        self._keys = keys
        self._grid = grid
        self._places: OrderedDict[ChunkId, _Place] = OrderedDict()
        self._kept: OrderedDict[ChunkId, bytes] = OrderedDict()
        self._kept_bytes = 0
        self._versions: OrderedDict[bytes, None] = OrderedDict()
        self._lock = threading.Lock()

    def learn(self, ids: bytes, first: int, chunks: Iterable[Located]) -> None:
        """A content has these chunks, and is here or soon will be.

        Args:
            ids: Of its blocks, from `first` on; chunks that reach beyond them are left out.
            first: The number of the first of these blocks.
            chunks: Where chunks are in it.
        """
        if self._blocks is None:
            return
        step, end = self._grid, first + len(ids) // ID_SIZE
        # A list may be read from the store, which takes the loop: who has the lock must not wait for whom it keeps out.
        there = list(chunks)
        with self._lock:
            for chunk in there:
                start, last = chunk.start // step, (chunk.end - 1) // step
                if start < first or last >= end:
                    continue
                inside = ids[(start - first) * ID_SIZE : (last + 1 - first) * ID_SIZE]
                self._places[chunk.id] = _Place(inside, chunk.start - start * step, chunk.length)
                self._places.move_to_end(chunk.id)
            while len(self._places) > _PLACES:
                self._places.popitem(last=False)

    def is_new(self, version: bytes) -> bool:
        """Whether this is asked for the first time of a version: all of it is to be learnt once only."""
        with self._lock:
            is_new = version not in self._versions
            self._versions[version] = None
            while len(self._versions) > _VERSIONS:
                self._versions.popitem(last=False)
            return is_new

    def knows(self, chunk: ChunkId) -> bool:
        """Whether it may be here."""
        return chunk in self._places or chunk in self._kept

    def read(self, wanted: Iterable[ChunkId]) -> dict[ChunkId, bytes]:
        """Those of some chunks that are here: verified. Blocking."""
        with self._lock:
            found = {chunk: self._kept[chunk] for chunk in wanted if chunk in self._kept}
            places = {chunk: self._places[chunk] for chunk in wanted if chunk not in found and chunk in self._places}
        blocks = self._read_blocks(places.values())
        for chunk, place in places.items():
            data = self._cut(place, blocks)
            if data is not None and self._keys.chunk_id(Content.FILES, data) == chunk:
                found[chunk] = data
        return found

    def keep(self, chunks: Mapping[ChunkId, bytes]) -> None:
        """Have chunks at hand for a while."""
        with self._lock:
            for chunk, data in chunks.items():
                if chunk not in self._kept:
                    self._kept[chunk] = data
                    self._kept_bytes += len(data)
            while self._kept_bytes > _KEPT_BYTES:
                self._kept_bytes -= len(self._kept.popitem(last=False)[1])

    def _read_blocks(self, places: Iterable[_Place]) -> Mapping[BlockId, bytes]:
        wanted = [block for block in dict.fromkeys(i for each in places for i in _ids(each)) if block != ZERO_BLOCK]
        if not wanted or self._blocks is None:
            return {}
        here = set(self._blocks.which(wanted))
        return self._blocks.read([block for block in wanted if block in here], checked=False)

    def _cut(self, place: _Place, blocks: Mapping[BlockId, bytes]) -> bytes | None:
        ids = _ids(place)
        if any(block not in blocks and block != ZERO_BLOCK for block in ids):
            return None
        data = b"".join(blocks.get(block, b"").ljust(self._grid, b"\0") for block in ids)
        return data[place.start : place.start + place.length]


def _ids(place: _Place) -> Sequence[BlockId]:
    return [BlockId(place.ids[at : at + ID_SIZE]) for at in range(0, len(place.ids), ID_SIZE)]
