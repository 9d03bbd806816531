"""Several new small files on their way into a mounted volume: what is fetched for them is made durable by one sync."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.ids import BlockId
from syncer.local.root import Applied, Wanted


class VolumePortion:
    """Some files of at most one block each, and what the volume lacks of them. For one thread at a time."""

    def __init__(self, wanted: Sequence[Wanted]) -> None:
        """Nothing is done yet.

        Args:
            wanted: At least one.
        """
        self._wanted = wanted
        self._lacking: set[BlockId] = set()
        self._failed: dict[int, Exception] = {}
        self.fetched: dict[BlockId, bytes] = {}

    def gather(self, missing: Callable[[BlockList], Sequence[int]]) -> None:
        """Find out what the volume lacks.

        Args:
            missing: Indexes of the blocks of a list that it lacks, one of each.
        """
        size = self._wanted[0].blocks.block_size
        ids = b"".join(each.blocks.ids for each in self._wanted)
        blocks = BlockList(block_size=size, size_bytes=sum(len(each.blocks) for each in self._wanted) * size, ids=ids)
        self._lacking = {blocks[index] for index in missing(blocks)}

    def missing(self) -> list[int]:
        """Which files' contents must be fetched: one of each content."""
        first: dict[BlockId, int] = {}
        for at, each in enumerate(self._wanted):
            if at not in self._failed and any(block in self._lacking for block in each.blocks):
                first.setdefault(each.blocks[0], at)
        return list(first.values())

    def take(self, at: int, data: bytes) -> None:
        """A content was fetched, verified: for all that want it."""
        block = self._wanted[at].blocks[0]
        self._lacking.discard(block)
        self.fetched[block] = data

    def fail(self, at: int, error: Exception) -> None:
        """A content can't be had for one of the files."""
        self._failed[at] = error

    def each(self, create: Callable[[Wanted], Applied | Exception]) -> Iterator[Applied | Exception]:
        """Create those whose content is there now; what becomes of each, in order."""
        for at, wanted in enumerate(self._wanted):
            yield self._failed[at] if at in self._failed else create(wanted)
