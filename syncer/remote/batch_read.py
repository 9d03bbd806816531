"""Small contents that are asked for at the same time share a request, where the server can that (`bulk-read`).

What a shared reply does not have is for a request of its own, as is all of it if the shared request was given up.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from syncer.protocol.bulk_read import MAX_CONTENT_BYTES, MAX_OBJECTS, Wanted
from syncer.remote.gather import Gatherer, Item, Limits

ReadMany = Callable[[Sequence[Wanted]], Awaitable[Sequence[bytes | None]]]
"""Contents by one request; None for what it does not have."""

# Two: what is read is then staged, which takes longer. More would mean smaller ones.
_LIMITS: Final = Limits(under_way=2, items=MAX_OBJECTS, size_bytes=MAX_CONTENT_BYTES)


@dataclass(slots=True, eq=False, kw_only=True)
class _Read(Item):
    wanted: Wanted
    size_bytes: int
    data: bytes | None = None


class ReadBatcher:
    """Collects small reads of one container."""

    def __init__(self, read_many: ReadMany) -> None:
        self._read_many = read_many
        self._reads: Gatherer[_Read] = Gatherer(self._send, lambda read: read.size_bytes, lambda: None, _LIMITS)

    async def read(self, wanted: Wanted, size_bytes: int) -> bytes | None:
        """A small content, or None: ask for it alone.

        Raises:
            SyncerError: As the request that it was a part of.
        """
        read = _Read(wanted=wanted, size_bytes=size_bytes)
        await self._reads.have_sent(read)
        return read.data

    async def _send(self, batch: list[_Read]) -> None:
        if len(batch) == 1:
            return  # one alone is a plain request
        found = await self._read_many([read.wanted for read in batch])
        for read, data in zip(batch, found, strict=True):
            read.data = data
