"""Places for the contract suite of object stores: each empty, and open to several clients."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol, TypeVar

import trio

from syncer.remote.stores.directory import DirectoryStore
from syncer.remote.stores.memory import MemoryStore
from syncer.remote.stores.pacing import Pace
from syncer.remote.stores.port import BlobStore

T = TypeVar("T")

FAST = Pace(first_s=0.01, most_s=0.05)
WITHIN_S = 120.0
"""No test waits for less by itself: a hang becomes a failure."""


class Place(Protocol):
    """Where a store is."""

    def client(self) -> BlobStore:
        """A new client of it, not yet opened."""
        ...


class MemoryPlace:
    """A dict."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, int]] = {}

    def client(self) -> MemoryStore:
        return MemoryStore(self.objects)


class DirectoryPlace:
    """A directory that does not exist yet."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def client(self) -> DirectoryStore:
        return DirectoryStore(os.fsencode(self.path), FAST)


@asynccontextmanager
async def opened(place: Place) -> AsyncIterator[BlobStore]:
    """A client of a place that exists."""
    store = place.client()
    try:
        await store.open(create=True)
        yield store
    finally:
        await store.close()


def within(place: Place, test: Callable[[BlobStore], Awaitable[T]]) -> T:
    """Run a test with one client."""

    async def main() -> T:
        with trio.fail_after(WITHIN_S):
            async with opened(place) as store:
                return await test(store)

    return trio.run(main)
