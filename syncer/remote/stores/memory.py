"""A store in memory, for tests and for trying things: nothing of it survives the process."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence

import trio

from syncer.errors import NotFoundError
from syncer.ports.remote import Counters
from syncer.remote.stores.port import (
    MAX_BLOB_BYTES,
    Blob,
    StoreInfo,
    are_prefixes,
    checked,
    is_name,
    joined,
    too_long,
)


class MemoryStore:
    """`BlobStore` in a dict; several may share one, as devices share a container.

    Attributes:
        objects: Name → content and time of writing.
    """

    def __init__(
        self, objects: dict[str, tuple[bytes, int]] | None = None, clock: Callable[[], int] = time.time_ns
    ) -> None:
        """Begin.

        Args:
            objects: What is there; shared, not copied.
            clock: Tells nanoseconds since the epoch.
        """
        self.objects = {} if objects is None else objects
        self.counters = Counters()
        self.heard_ns: int | None = None
        self._clock = clock
        self._changed = trio.Event()

    async def open(self, *, create: bool = False) -> StoreInfo:  # noqa: ARG002 -- it is always there
        """See BlobStore."""
        await self._asked()
        return StoreInfo(text="memory", absent="mostly")

    async def get(self, name: str, span: tuple[int, int] | None = None, *, most_bytes: int = MAX_BLOB_BYTES) -> bytes:
        """See BlobStore."""
        assert is_name(name)
        await self._asked()
        if name not in self.objects:
            raise NotFoundError(f"{name} is not in the store")
        data = self.objects[name][0]
        if span is not None:
            data = data[span[0] : span[0] + span[1]]
        elif len(data) > most_bytes:
            raise too_long(name, most_bytes)
        self.counters.bytes_received += len(data)
        return checked(name, data, span)

    async def put(self, name: str, data: bytes | Sequence[bytes], *, absent: bool = False) -> bool:
        """See BlobStore."""
        assert is_name(name)
        await self._asked()
        self.counters.mutating_requests += 1
        if absent and name in self.objects:
            return False
        content = joined(data)
        self.counters.bytes_sent += len(content)
        self.objects[name] = (content, self._clock())
        self._tell()
        return True

    async def head(self, name: str) -> Blob | None:
        """See BlobStore."""
        assert is_name(name)
        await self._asked()
        return self._blob(name) if name in self.objects else None

    async def listing(self, *prefixes: str) -> list[Blob]:
        """See BlobStore."""
        assert are_prefixes(prefixes)
        await self._asked()
        return [self._blob(name) for name in sorted(self.objects) if name.startswith(prefixes)]

    async def delete(self, name: str) -> None:
        """See BlobStore."""
        assert is_name(name)
        await self._asked()
        self.counters.mutating_requests += 1
        if self.objects.pop(name, None) is not None:
            self._tell()

    async def now_ns(self) -> int:
        """See BlobStore."""
        await self._asked()
        return self._clock()

    async def wait(self, prefix: str, seen: object) -> object:
        """See BlobStore. It is told only of what is written through this object."""
        while (now := tuple(await self.listing(prefix))) == seen:
            await self._changed.wait()
        return now

    async def close(self) -> None:
        """See BlobStore."""
        await trio.lowlevel.checkpoint()

    async def _asked(self) -> None:
        self.counters.requests += 1
        await trio.lowlevel.checkpoint()
        self.heard_ns = self._clock()

    def _blob(self, name: str) -> Blob:
        data, modified_ns = self.objects[name]
        return Blob(name, len(data), modified_ns, hashlib.md5(data, usedforsecurity=False).digest())

    def _tell(self) -> None:
        self._changed.set()
        self._changed = trio.Event()
