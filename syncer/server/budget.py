"""What the requests of one account may use together: memory and threads. For one thread: the loop's.

A request says how much memory it will need before it needs it, and waits until there is so much. So one account can
neither fill the server's memory nor take the threads that others need; its own requests wait for each other.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

import anyio
from anyio import CapacityLimiter

from syncer.server.errors import TooMany

MOST_BYTES: Final = 256 << 20
"""Of all requests of one account. A request that needs more goes alone."""

PATIENCE_S: Final = 20.0
"""A request that waits longer is 429: the client's own time-out is a minute."""

RETRY_AFTER_S: Final = 5
THREADS: Final = 8
"""Calls of one account at once. Many threads in one interpreter do not work faster, they wait for each other."""


@dataclass(slots=True, eq=False)
class _Wish:
    """A request that waits."""

    size_bytes: int
    granted: anyio.Event = field(default_factory=anyio.Event)


class Allowance:
    """One account's."""

    def __init__(self, most_bytes: int, threads: int) -> None:
        self._most_bytes = most_bytes
        self._wishes: deque[_Wish] = deque()
        self.used_bytes = 0
        self.lane: Final = CapacityLimiter(threads)

    async def take(self, size_bytes: int, patience_s: float) -> None:
        """Wait for memory, behind those who wait already.

        Raises:
            TooMany: There was none for so long.
        """
        if not self._wishes and self._fits(size_bytes):
            self.used_bytes += size_bytes
            return
        wish = _Wish(size_bytes)
        self._wishes.append(wish)
        try:
            with anyio.move_on_after(patience_s):
                await wish.granted.wait()
        except BaseException:
            self._withdraw(wish)
            raise
        if not wish.granted.is_set():
            self._withdraw(wish)
            text = "Requests of this account use all the memory that it may have; try again later"
            raise TooMany(text, {"Retry-After": str(RETRY_AFTER_S)})

    def give(self, size_bytes: int) -> None:
        """Give memory back; those who wait come in turn."""
        self.used_bytes -= size_bytes
        while self._wishes and self._fits(self._wishes[0].size_bytes):
            wish = self._wishes.popleft()
            self.used_bytes += wish.size_bytes
            wish.granted.set()

    def _fits(self, size_bytes: int) -> bool:
        return self.used_bytes == 0 or self.used_bytes + size_bytes <= self._most_bytes

    def _withdraw(self, wish: _Wish) -> None:
        if wish.granted.is_set():
            self.give(wish.size_bytes)
        else:
            self._wishes.remove(wish)
            self.give(0)  # it may have been in the way of smaller ones


class Budgets:
    """All accounts'."""

    def __init__(self, most_bytes: int = MOST_BYTES, threads: int = THREADS, patience_s: float = PATIENCE_S) -> None:
        self._most_bytes = most_bytes
        self._threads = threads
        self.patience_s: Final = patience_s
        self._allowances: dict[str, Allowance] = {}

    def of(self, account: str) -> Allowance:
        """One account's."""
        if account not in self._allowances:
            self._allowances[account] = Allowance(self._most_bytes, self._threads)
        return self._allowances[account]


class Purse:
    """What one request has of its account's memory. Close it when the reply is sent."""

    def __init__(self, budgets: Budgets, account: str) -> None:
        self._allowance = budgets.of(account)
        self._patience_s = budgets.patience_s
        self.held_bytes = 0

    @property
    def lane(self) -> CapacityLimiter:
        """Limits the account's threads."""
        return self._allowance.lane

    async def reserve(self, size_bytes: int) -> None:
        """Have so much in all. More than before only once: two that each wait for more would wait for each other.

        Raises:
            TooMany: There is not so much.
        """
        if size_bytes <= self.held_bytes:
            self.keep(size_bytes)
            return
        assert self.held_bytes == 0, "a request reserves once"
        await self._allowance.take(size_bytes, self._patience_s)
        self.held_bytes = size_bytes

    def keep(self, size_bytes: int) -> None:
        """Need no more than this from now on."""
        if size_bytes < self.held_bytes:
            self._allowance.give(self.held_bytes - size_bytes)
            self.held_bytes = size_bytes

    def close(self) -> None:
        """Need nothing any more."""
        self.keep(0)
