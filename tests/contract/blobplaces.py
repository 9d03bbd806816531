"""Places for the contract suite of object stores: each empty, and open to several clients."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol, TypeVar

import pytest
import trio

from syncer.remote.http.retry import Retry, RetryPolicy
from syncer.remote.http.transport import HttpSettings
from syncer.remote.stores.directory import DirectoryStore
from syncer.remote.stores.memory import MemoryStore
from syncer.remote.stores.opendal import OpendalStore, s3_store
from syncer.remote.stores.pacing import Pace
from syncer.remote.stores.port import BlobStore
from syncer.remote.stores.retrying import RetryingStore
from syncer.remote.stores.sftp import SftpStore
from syncer.remote.stores.swift import SwiftStore
from tests.kit.sshd import Sshd
from tests.kit.swift import Swift

T = TypeVar("T")

KINDS = ["memory", "directory", "swift", "swift-below", "s3", "s3-below", "sftp"]
FAST = Pace(first_s=0.01, most_s=0.05)
PATIENT = RetryPolicy(attempts=8, first_delay_s=0.01, max_delay_s=0.5, deadline_s=60.0)
WITHIN_S = 120.0
"""No test waits for less by itself: a hang becomes a failure."""


class Place(Protocol):
    """Where a store is."""

    def client(self) -> BlobStore:
        """A new client of it, not yet opened."""
        ...

    async def make(self) -> None:
        """Make it, where a client can't."""
        ...


class MemoryPlace:
    """A dict."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, int]] = {}

    async def make(self) -> None:
        """Nothing to do."""

    def client(self) -> MemoryStore:
        return MemoryStore(self.objects)


class DirectoryPlace:
    """A directory that does not exist yet."""

    def __init__(self, path: Path) -> None:
        self.path = path

    async def make(self) -> None:
        """Nothing to do: `open` does."""

    def client(self) -> DirectoryStore:
        return DirectoryStore(os.fsencode(self.path), FAST)


class SwiftPlace:
    """A container that does not exist yet."""

    _numbers = itertools.count()

    def __init__(self, swift: Swift, prefix: str = "") -> None:
        self.swift = swift
        self.prefix = prefix
        self.container = f"box {next(self._numbers)} ü"

    async def make(self) -> None:
        """Nothing to do: `open` does."""

    def client(self) -> SwiftStore:
        return SwiftStore(self.swift.credentials, self.container, self.prefix, settings=HttpSettings(), pace=FAST)


class S3Place:
    """A bucket that does not exist yet: a container of a Swift, by its S3 API."""

    _numbers = itertools.count()

    def __init__(self, swift: Swift, prefix: str = "") -> None:
        self.swift = swift
        self.prefix = prefix
        self.bucket = f"bucket-{next(self._numbers)}"

    async def make(self) -> None:
        """By Swift's own protocol."""
        swift = SwiftStore(self.swift.credentials, self.bucket, settings=HttpSettings())
        await swift.open(create=True)
        await swift.close()

    def client(self) -> OpendalStore:
        return s3_store(self.bucket, self.prefix, self.swift.s3, FAST)


class SftpPlace:
    """A directory that does not exist yet, of a machine that speaks SFTP."""

    def __init__(self, sshd: Sshd, path: Path) -> None:
        self.sshd = sshd
        self.path = path

    async def make(self) -> None:
        """Nothing to do: `open` does."""

    def client(self) -> SftpStore:
        return SftpStore("127.0.0.1", str(self.path), options=self.sshd.options, pace=FAST)


def place_of(kind: str, request: pytest.FixtureRequest, folders: pytest.TempPathFactory) -> Place:
    """A new one of one of the KINDS; servers run once for a session."""
    below = kind.endswith("-below")
    if kind == "memory":
        return MemoryPlace()
    if kind == "directory":
        return DirectoryPlace(folders.mktemp("stores") / "store")
    if kind == "sftp":
        return SftpPlace(request.getfixturevalue("sshd"), folders.mktemp("stores") / "store é")
    swift = request.getfixturevalue("swift")
    if kind.startswith("s3"):
        return S3Place(swift, "Team A/é" if below else "")
    return SwiftPlace(swift, "Team A/é/" if below else "")


@asynccontextmanager
async def opened(place: Place) -> AsyncIterator[BlobStore]:
    """A client of a place that exists, which tries again: a Swift answers 503 to who reads what is being replaced."""
    store = RetryingStore(place.client(), Retry(policy=PATIENT, draw=random.random, host="the store"))
    try:
        await place.make()
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
