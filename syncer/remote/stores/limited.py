"""A store that keeps to a bandwidth."""

from __future__ import annotations

from collections.abc import Sequence

from syncer.remote.http.rate_limit import RateLimit
from syncer.remote.stores.port import MAX_BLOB_BYTES, BlobStore, size_of
from syncer.remote.stores.wrapped import WrappedStore


class LimitedStore(WrappedStore):
    """Bytes of objects, on average. Several stores may share a limit. What is read is paid for after it has come."""

    def __init__(self, inner: BlobStore, up: RateLimit | None, down: RateLimit | None) -> None:
        super().__init__(inner)
        self._up, self._down = up, down

    async def get(self, name: str, span: tuple[int, int] | None = None, *, most_bytes: int = MAX_BLOB_BYTES) -> bytes:
        """See BlobStore."""
        data = await self.inner.get(name, span, most_bytes=most_bytes)
        if self._down is not None:
            await self._down.spend(len(data))
        return data

    async def put(self, name: str, data: bytes | Sequence[bytes], *, absent: bool = False) -> bool:
        """See BlobStore. What was there already and was not sent counts as if it had been."""
        if self._up is not None:
            await self._up.spend(size_of(data))
        return await self.inner.put(name, data, absent=absent)
