"""What of a repository's objects never changes, and what of them is kept on this machine.

Source: docs/design/repository.md, section 13.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

import msgspec
import trio

from syncer.errors import CorruptionError
from syncer.remote.repository.elapsed import When
from syncer.remote.repository.format.codec import Codec
from syncer.remote.repository.format.sealed import Kind
from syncer.remote.stores.caching import CachedStore
from syncer.remote.stores.port import MAX_BLOB_BYTES, Blob, BlobStore

T = TypeVar("T")

_LISTED: Final = (Kind.CONDEMNED.folder, Kind.HEAD.folder, Kind.INDEX.folder)


class Codecs(threading.local):
    """A codec for each thread."""

    def __init__(self) -> None:
        self.codec = Codec()


class Listing(msgspec.Struct, frozen=True):
    """What a look at a repository lists: heads, indexes, and what is condemned.

    Attributes:
        blobs: All of it; no head is younger than the indexes, for who writes puts a head last.
        since: When it was asked for.
    """

    blobs: Sequence[Blob]
    since: When

    def below(self, kind: Kind) -> Iterator[Blob]:
        """Of one kind."""
        return (blob for blob in self.blobs if blob.name.startswith(kind.folder))


async def listing_of(store: BlobStore, clock_s: Callable[[], float]) -> Listing:
    """List them now: one request, where the store can that. Its reply tells the store's time, or nothing does."""
    began_s = clock_s()
    blobs = await store.listing(*_LISTED)
    return Listing(blobs, When(began_s, store.heard_ns))


class Kept:
    """Objects that are named by their content; from a cache, if there is one and it has them."""

    def __init__(self, store: BlobStore, cache: CachedStore | None) -> None:
        """Take the store, and the same one with a cache."""
        self._store = store
        self._cache = cache

    async def got(
        self,
        name: str,
        check: Callable[[bytes], T],
        span: tuple[int, int] | None = None,
        *,
        most_bytes: int = MAX_BLOB_BYTES,
        is_kept: bool = True,
    ) -> T:
        """An object or a range of it, as `check` understands it in a thread. What it refuses stays in no cache.

        Args:
            name: See BlobStore.
            check: Verifies it.
            span: See BlobStore.
            most_bytes: See BlobStore.
            is_kept: It is worth to be kept: likely, it is read again by another process.
        """
        cache = self._cache if is_kept else None
        if cache is not None:
            try:
                return await trio.to_thread.run_sync(check, await cache.get(name, span, most_bytes=most_bytes))
            except CorruptionError:
                await cache.forget(name, span)
        return await trio.to_thread.run_sync(check, await self._store.get(name, span, most_bytes=most_bytes))

    async def got_listed(self, blob: Blob, check: Callable[[bytes], T], *, most_bytes: int) -> T:
        """An object that changes, as it is now, or as a listing told it; as `check` understands it."""
        if self._cache is not None:
            try:
                return check(await self._cache.get_listed(blob, most_bytes=most_bytes))
            except CorruptionError:
                await self._cache.forget(blob.name)
        return check(await self._store.get(blob.name, most_bytes=most_bytes))

    async def replace(self, name: str, raw: bytes) -> None:
        """Write an object that changes."""
        await (self._store.put(name, raw) if self._cache is None else self._cache.replace(name, raw))

    async def put(self, name: str, raw: bytes, *, is_kept: bool = True) -> None:
        """Write an object, if it is not there."""
        store = self._cache if is_kept and self._cache is not None else self._store
        if not await store.put(name, raw, absent=True):
            # Salts make names new, so it is ours: a reply was lost. A Swift whose server ended before it told the
            # container has the object, but lists it never; who finds indexes by listings needs that. Put again it does.
            await store.put(name, raw)
