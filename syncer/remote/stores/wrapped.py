"""What is around a store and passes on what it does not change."""

from __future__ import annotations

from collections.abc import Sequence

from syncer.ports.remote import Counters
from syncer.remote.stores.port import MAX_BLOB_BYTES, Blob, BlobStore, StoreInfo


class WrappedStore:
    """`BlobStore` that does what another one does.

    Attributes:
        inner: The other one.
    """

    def __init__(self, inner: BlobStore) -> None:
        self.inner = inner

    @property
    def counters(self) -> Counters:
        """The other one's: what really was done."""
        return self.inner.counters

    @property
    def heard_ns(self) -> int | None:
        """See BlobStore."""
        return self.inner.heard_ns

    async def open(self, *, create: bool = False) -> StoreInfo:
        """See BlobStore."""
        return await self.inner.open(create=create)

    async def get(self, name: str, span: tuple[int, int] | None = None, *, most_bytes: int = MAX_BLOB_BYTES) -> bytes:
        """See BlobStore."""
        return await self.inner.get(name, span, most_bytes=most_bytes)

    async def put(self, name: str, data: bytes | Sequence[bytes], *, absent: bool = False) -> bool:
        """See BlobStore."""
        return await self.inner.put(name, data, absent=absent)

    async def head(self, name: str) -> Blob | None:
        """See BlobStore."""
        return await self.inner.head(name)

    async def listing(self, *prefixes: str) -> list[Blob]:
        """See BlobStore."""
        return await self.inner.listing(*prefixes)

    async def delete(self, name: str) -> None:
        """See BlobStore."""
        await self.inner.delete(name)

    async def now_ns(self) -> int:
        """See BlobStore."""
        return await self.inner.now_ns()

    async def wait(self, prefix: str, seen: object) -> object:
        """See BlobStore."""
        return await self.inner.wait(prefix, seen)

    async def close(self) -> None:
        """See BlobStore."""
        await self.inner.close()
