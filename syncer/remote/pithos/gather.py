"""What is asked for at the same time shares a request, and nobody waits for others on purpose.

A few requests are under way; what comes meanwhile is the next one. So a single item goes at once, and thousands that
are asked for together go in few requests. (The server's group commit does the same with its transactions.)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import msgspec
import trio

from syncer.errors import SyncerError


@dataclass(slots=True, eq=False, kw_only=True)
class Item:
    """Something that waits for a request, or is under way in one."""

    turn: trio.Event = field(default_factory=trio.Event)  # it has an outcome, or somebody must send
    is_done: bool = False
    error: SyncerError | None = None


I = TypeVar("I", bound=Item)  # noqa: E741 - an item


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much shares a request.

    Attributes:
        under_way: Requests at a time.
        items: Of one request.
        size_bytes: Of one request; a single item may exceed it.
    """

    under_way: int
    items: int
    size_bytes: int


class Gatherer(Generic[I]):
    """Sends items, several at a time."""

    def __init__(
        self,
        send: Callable[[list[I]], Awaitable[None]],
        size_of: Callable[[I], int],
        given_up: Callable[[], SyncerError | None],
        limits: Limits,
    ) -> None:
        """Nothing is sent yet.

        Args:
            send: One request for one item or several; gives all of them their outcome, or raises.
            size_of: Bytes of an item.
            given_up: What becomes of the items of a request whose sender was cancelled; None: nothing is wrong.
            limits: Of requests.
        """
        self._send = send
        self._size_of = size_of
        self._given_up = given_up
        self._limits = limits
        self._waiting: deque[I] = deque()
        self._under_way = 0

    async def have_sent(self, item: I) -> None:
        """Return when a request that the item was a part of is over.

        Raises:
            SyncerError: As that request did.
        """
        self._waiting.append(item)
        try:
            while not item.is_done:
                if self._under_way < self._limits.under_way and self._waiting:
                    await self._send_next()
                else:
                    await item.turn.wait()
                    item.turn = trio.Event()
        finally:
            if not item.is_done and item in self._waiting:  # cancelled before anybody took it
                self._waiting.remove(item)
                self._wake()
        if item.error is not None:
            raise item.error

    async def _send_next(self) -> None:
        """Send what waits, as much as fits into a request."""
        self._under_way += 1
        batch: list[I] = []
        error: SyncerError | None = None
        try:
            await trio.lowlevel.checkpoint()  # whoever is about to ask, too, comes along
            batch = self._take()
            self._wake()
            error = self._given_up()  # unless what follows comes to an end
            if batch:
                await self._send(batch)
            error = None
        except SyncerError as failed:
            error = failed
        finally:
            self._under_way -= 1
            for item in batch:
                item.error = error
                item.is_done = True
                item.turn.set()
            self._wake()

    def _wake(self) -> None:
        """Have somebody send what waits, if there is room for a request."""
        if self._waiting and self._under_way < self._limits.under_way:
            self._waiting[0].turn.set()

    def _take(self) -> list[I]:
        batch: list[I] = []
        size = 0
        while self._waiting and len(batch) < self._limits.items:
            size += self._size_of(self._waiting[0])
            if batch and size > self._limits.size_bytes:
                break
            batch.append(self._waiting.popleft())
        return batch
