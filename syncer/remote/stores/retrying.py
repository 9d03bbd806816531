"""A store that tries again: the only place above the stores that does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

import trio
from msgspec.structs import replace

from syncer.errors import CorruptionError, NotFoundError, SyncerError
from syncer.remote.http.retry import GaveUpError, Retry, delay_s
from syncer.remote.stores.port import MAX_BLOB_BYTES, Blob, BlobStore, StoreInfo, joined, size_of
from syncer.remote.stores.wrapped import WrappedStore

T = TypeVar("T")

_SLOWEST: Final = 20_000
"""Bytes per second: so long a body may take beyond the deadline. 16 MiB: 14 minutes."""

_LOOK_BYTES: Final = 64 << 10  # rather read so much than write it again


class RetryingStore(WrappedStore):
    """Each call is made until it answers, its error says that trying again is of no use, or patience ends.

    A write whose reply was lost may have happened. One that is named by its content (`absent`) is simply made again.
    One that replaces a small object is looked for first: repeated, it would also be a later one.

    What comes damaged is read once more: the store may have another copy.
    """

    def __init__(self, inner: BlobStore, retry: Retry) -> None:
        """Begin.

        Args:
            inner: What is tried.
            retry: How patiently; its deadline holds for a call without bytes.
        """
        super().__init__(inner)
        self._retry = retry

    async def open(self, *, create: bool = False) -> StoreInfo:
        """See BlobStore."""
        return await self._repeated(lambda: self.inner.open(create=create))

    async def get(self, name: str, span: tuple[int, int] | None = None, *, most_bytes: int = MAX_BLOB_BYTES) -> bytes:
        """See BlobStore."""

        async def read() -> bytes:
            try:
                return await self.inner.get(name, span, most_bytes=most_bytes)
            except CorruptionError:
                return await self.inner.get(name, span, most_bytes=most_bytes)

        return await self._repeated(read, most_bytes if span is None else span[1])

    async def put(self, name: str, data: bytes | Sequence[bytes], *, absent: bool = False) -> bool:
        """See BlobStore. After a lost reply False may mean that it was we who wrote it."""
        size = size_of(data)

        async def look() -> bool | None:
            if absent or size > _LOOK_BYTES:
                return None
            try:
                found = await self.get(name, most_bytes=size)
            except (NotFoundError, CorruptionError):
                return None
            return True if found == joined(data) else None

        return await self._patience(size).looking(lambda: self.inner.put(name, data, absent=absent), look)

    async def head(self, name: str) -> Blob | None:
        """See BlobStore."""
        return await self._repeated(lambda: self.inner.head(name))

    async def listing(self, *prefixes: str) -> list[Blob]:
        """See BlobStore."""
        return await self._repeated(lambda: self.inner.listing(*prefixes))

    async def delete(self, name: str) -> None:
        """See BlobStore."""
        return await self._repeated(lambda: self.inner.delete(name))

    async def now_ns(self) -> int:
        """See BlobStore."""
        return await self._repeated(self.inner.now_ns)

    async def wait(self, prefix: str, seen: object) -> object:
        """See BlobStore. Patience counts anew after it has waited for a while without a failure."""
        policy, failures = self._retry.policy, 0
        while True:
            began = trio.current_time()
            try:
                return await self.inner.wait(prefix, seen)
            except SyncerError as error:
                if not error.retryable:
                    raise
                failures = 1 if trio.current_time() - began > policy.deadline_s else failures + 1
                if failures >= policy.attempts:
                    raise GaveUpError(str(error)) from error
            await trio.sleep(delay_s(policy, failures, self._retry.draw()))

    async def _repeated(self, call: Callable[[], Awaitable[T]], most_bytes: int = 0) -> T:
        return await self._patience(most_bytes).idempotent(call)

    def _patience(self, size_bytes: int) -> Retry:
        policy = self._retry.policy
        return replace(self._retry, policy=replace(policy, deadline_s=policy.deadline_s + size_bytes / _SLOWEST))
