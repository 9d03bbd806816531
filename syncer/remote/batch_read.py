"""Small contents that are asked for at the same time share a request, where the server can that (`bulk-read`).

As with small changes (`batch`), nobody waits for others on purpose: a few requests are under way, and what is asked for
meanwhile is the next one. What a shared reply does not have is for a request of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import trio

from syncer.errors import SyncerError
from syncer.protocol.bulk_read import MAX_CONTENT_BYTES, MAX_OBJECTS, Wanted

ReadMany = Callable[[Sequence[Wanted]], Awaitable[Sequence[bytes | None]]]
"""Contents by one request; None for what it does not have."""

_UNDER_WAY: Final = 2  # what is read is then staged, which takes longer: more would mean smaller ones


@dataclass(slots=True, eq=False)
class _Item:
    wanted: Wanted
    size_bytes: int
    turn: trio.Event = field(default_factory=trio.Event)  # it has an outcome, or somebody must ask
    is_done: bool = False
    data: bytes | None = None
    error: SyncerError | None = None


class ReadBatcher:
    """Collects small reads of one container."""

    def __init__(self, read_many: ReadMany) -> None:
        self._read_many = read_many
        self._waiting: deque[_Item] = deque()
        self._under_way = 0

    async def read(self, wanted: Wanted, size_bytes: int) -> bytes | None:
        """A small content, or None: ask for it alone.

        Raises:
            SyncerError: As the request that it was a part of.
        """
        item = _Item(wanted, size_bytes)
        self._waiting.append(item)
        try:
            while not item.is_done:
                if self._under_way < _UNDER_WAY and self._waiting:
                    await self._ask_next()
                else:
                    await item.turn.wait()
                    item.turn = trio.Event()
        finally:
            if not item.is_done and item in self._waiting:  # cancelled before anybody took it
                self._waiting.remove(item)
                self._wake()
        if item.error is not None:
            raise item.error
        return item.data

    async def _ask_next(self) -> None:
        self._under_way += 1
        batch: list[_Item] = []
        try:
            await trio.lowlevel.checkpoint()  # whoever is about to ask, too, comes along
            batch = self._take()
            self._wake()
            if len(batch) > 1:  # one alone is a plain request
                found = await self._read_many([item.wanted for item in batch])
                for item, data in zip(batch, found, strict=True):
                    item.data = data
        except SyncerError as error:
            for item in batch:
                item.error = error
        finally:
            self._under_way -= 1
            for item in batch:  # also if who asked was cancelled: the others ask alone then
                item.is_done = True
                item.turn.set()
            self._wake()

    def _wake(self) -> None:
        """Have somebody ask for what waits, if there is room for a request."""
        if self._waiting and self._under_way < _UNDER_WAY:
            self._waiting[0].turn.set()

    def _take(self) -> list[_Item]:
        batch: list[_Item] = []
        size = 0
        while self._waiting and len(batch) < MAX_OBJECTS:
            size += self._waiting[0].size_bytes
            if batch and size > MAX_CONTENT_BYTES:
                break
            batch.append(self._waiting.popleft())
        return batch
