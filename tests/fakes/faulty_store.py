"""A store around another one in which everything goes wrong that may go wrong between it and us."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from syncer.errors import CorruptionError, OverQuotaError, RemoteUnavailableError
from syncer.remote.http.transport import ReplyLostError
from syncer.remote.stores.port import MAX_BLOB_BYTES, Blob, BlobStore, StoreInfo, joined, size_of
from syncer.remote.stores.wrapped import WrappedStore

T = TypeVar("T")


class FaultyStore(WrappedStore):
    """Calls that never arrive, replies that are lost after the deed, writes that happen later, bodies that are damaged.

    Attributes:
        rate: How many calls of a hundred go wrong.
        stale: Listings tell what was there some listings ago, now and then: what a real cluster does.
        quota_bytes: A longer object is refused; None: none is.
        late: Writes that were told as lost, and happen before the next call.
        faults: How many there were.
    """

    def __init__(
        self,
        inner: BlobStore,
        draws: random.Random,
        rate: int = 30,
        *,
        stale: bool = False,
        quota_bytes: int | None = None,
    ) -> None:
        super().__init__(inner)
        self.rate, self.stale, self.quota_bytes = rate, stale, quota_bytes
        self.late: list[Callable[[], Awaitable[object]]] = []
        self.faults = 0
        self._draws = draws
        self._listed: dict[tuple[str, ...], list[Blob]] = {}

    async def open(self, *, create: bool = False) -> StoreInfo:
        return await self._shaken(lambda: self.inner.open(create=create))

    async def get(self, name: str, span: tuple[int, int] | None = None, *, most_bytes: int = MAX_BLOB_BYTES) -> bytes:
        data = await self._shaken(lambda: self.inner.get(name, span, most_bytes=most_bytes))
        if self._draw() and self._draw():
            raise CorruptionError(f"{name}: cut")
        return data

    async def put(self, name: str, data: bytes | Sequence[bytes], *, absent: bool = False) -> bool:
        if self.quota_bytes is not None and size_of(data) > self.quota_bytes:
            raise OverQuotaError(f"{name} has no room")
        content = joined(data)
        return await self._shaken(lambda: self.inner.put(name, content, absent=absent), writes=True)

    async def head(self, name: str) -> Blob | None:
        return await self._shaken(lambda: self.inner.head(name))

    async def listing(self, *prefixes: str) -> list[Blob]:
        before = self._listed.get(prefixes)
        if self.stale and before is not None and self._draws.random() < 0.5:
            return before
        self._listed[prefixes] = await self._shaken(lambda: self.inner.listing(*prefixes))
        return self._listed[prefixes]

    async def delete(self, name: str) -> None:
        await self._shaken(lambda: self.inner.delete(name), writes=True)

    async def now_ns(self) -> int:
        return await self._shaken(self.inner.now_ns)

    def _draw(self) -> bool:
        wrong = self._draws.randrange(100) < self.rate
        self.faults += wrong
        return wrong

    async def _shaken(self, call: Callable[[], Awaitable[T]], *, writes: bool = False) -> T:
        late, self.late = self.late, []
        for each in late:
            await each()
        if not self._draw():
            return await call()
        kind = self._draws.randrange(3 if writes else 2)
        if kind == 0:
            raise RemoteUnavailableError("it never arrived")
        if kind == 1:
            await call()
        else:
            self.late.append(call)
        raise ReplyLostError("503: it may have happened")
