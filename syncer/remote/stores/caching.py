"""A store with a cache on this machine's disk, for objects that never change."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

import trio

from syncer.remote.stores.port import MAX_BLOB_BYTES, Blob, BlobStore, checked, joined, size_of, too_long
from syncer.remote.stores.temporary import is_temporary, temporary_name
from syncer.remote.stores.wrapped import WrappedStore

_DIGEST_BYTES: Final = 32
_MAX_SHARE: Final = 8  # an object that would take more than an eighth of the room is not kept
_WRITTEN_BYTES: Final = 9 << 20  # an index that others were merged into; full packs are read by ranges, if at all
_READ_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW


class CachedStore(WrappedStore):
    """Whole objects and ranges that were read once are read from a directory, as long as they are in it.

    Only what lies below the prefixes that were named, and is named by its content. So is what was written, if it is
    short. Of an object that changes the last version is kept, for who is told by a listing which one is there. A file
    holds the SHA-256 of what follows it: what does not fit is dropped, and asked for again. Nothing is synced; a crash
    costs the cache's files at worst. What is deleted by others may still be read here for a while: its content was
    right, and is.
    """

    def __init__(self, inner: BlobStore, folder: str, most_bytes: int, prefixes: Sequence[str]) -> None:
        """Begin.

        Args:
            inner: Where the rest comes from.
            folder: For this store alone; made if it is not there, for its owner alone.
            most_bytes: What it may hold; the longest unused goes first.
            prefixes: Each ends with a slash.
        """
        super().__init__(inner)
        self._folder = folder
        self._most_bytes = most_bytes
        self._prefixes = tuple(prefixes)
        self._sizes: OrderedDict[str, int] | None = None  # by file; the one used last is last
        self._total = 0
        self._lock = threading.Lock()  # of the table; files are read and written without it
        self.hits = self.misses = 0

    async def get(self, name: str, span: tuple[int, int] | None = None, *, most_bytes: int = MAX_BLOB_BYTES) -> bytes:
        """See BlobStore."""
        if not name.startswith(self._prefixes):
            return await self.inner.get(name, span, most_bytes=most_bytes)
        key = _key(name, span)
        found = await trio.to_thread.run_sync(self._find, key)
        if found is None and span is not None:
            whole = await trio.to_thread.run_sync(self._find, _key(name, None))
            found = None if whole is None else whole[span[0] : span[0] + span[1]]
        if found is not None:
            self.hits += 1
            if span is None and len(found) > most_bytes:
                raise too_long(name, most_bytes)
            return checked(name, found, span)
        self.misses += 1
        data = await self.inner.get(name, span, most_bytes=most_bytes)
        await trio.to_thread.run_sync(self._keep, key, data)
        return data

    async def get_listed(self, blob: Blob, *, most_bytes: int = MAX_BLOB_BYTES) -> bytes:
        """Read an object that changes: not asked for again, if it has the MD5 that a listing told."""
        key = _key(blob.name, None)
        found = await trio.to_thread.run_sync(self._find, key) if blob.md5 else None
        if found is not None and hashlib.md5(found, usedforsecurity=False).digest() == blob.md5:
            self.hits += 1
            return found
        self.misses += 1
        data = await self.inner.get(blob.name, most_bytes=most_bytes)
        if blob.md5:
            await trio.to_thread.run_sync(self._keep, key, data)
        return data

    async def replace(self, name: str, data: bytes) -> None:
        """Write an object that changes, and keep it for `get_listed`."""
        await self.inner.put(name, data)
        await trio.to_thread.run_sync(self._keep, _key(name, None), data)

    async def put(self, name: str, data: bytes | Sequence[bytes], *, absent: bool = False) -> bool:
        """See BlobStore."""
        written = await self.inner.put(name, data, absent=absent)
        if name.startswith(self._prefixes) and size_of(data) <= _WRITTEN_BYTES:
            await trio.to_thread.run_sync(self._keep, _key(name, None), joined(data))
        return written

    async def delete(self, name: str) -> None:
        """See BlobStore."""
        await self.inner.delete(name)
        await self.forget(name)

    async def forget(self, name: str, span: tuple[int, int] | None = None) -> None:
        """Ask the store the next time: what it once gave was not what it should have been."""
        for key in {_key(name, span), _key(name, None)}:
            await trio.to_thread.run_sync(self._forget, key)

    # --- in threads

    def _find(self, key: str) -> bytes | None:
        with self._lock:
            if key not in self._table():
                return None
        try:
            descriptor = os.open(f"{self._folder}/{key}", _READ_FLAGS)
            with open(descriptor, "rb") as file:
                content = file.read(MAX_BLOB_BYTES + _DIGEST_BYTES + 1)
        except OSError:
            self._forget(key)
            return None
        data = content[_DIGEST_BYTES:]
        if hashlib.sha256(data).digest() != content[:_DIGEST_BYTES]:
            self._forget(key)
            return None
        with self._lock, contextlib.suppress(KeyError):  # it has been dropped meanwhile
            self._table().move_to_end(key)
        with contextlib.suppress(OSError):
            os.utime(f"{self._folder}/{key}")  # the order after the next start
        return data

    def _keep(self, key: str, data: bytes) -> None:
        """Keep something; where that can't be, it is not kept."""
        size = len(data) + _DIGEST_BYTES
        if size > self._most_bytes // _MAX_SHARE or len(data) > MAX_BLOB_BYTES:
            return
        with self._lock:
            self._table()
        temporary = f"{self._folder}/{temporary_name()}"
        try:
            with open(temporary, "xb") as file:
                file.write(hashlib.sha256(data).digest())
                file.write(data)
            os.rename(temporary, f"{self._folder}/{key}")
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            return
        with self._lock:
            sizes = self._table()
            self._total += size - sizes.pop(key, 0)
            sizes[key] = size
            self._shrink(sizes)

    def _forget(self, key: str) -> None:
        with self._lock:
            self._drop(self._table(), key)

    def _shrink(self, sizes: OrderedDict[str, int]) -> None:
        while self._total > self._most_bytes:
            self._drop(sizes, next(iter(sizes)))

    def _drop(self, sizes: OrderedDict[str, int], key: str) -> None:
        self._total -= sizes.pop(key, 0)
        with contextlib.suppress(OSError):
            os.unlink(f"{self._folder}/{key}")

    def _table(self) -> OrderedDict[str, int]:
        """What is there, the longest unused first. With the lock; the folder is made with the first call."""
        if self._sizes is None:
            found = []
            with contextlib.suppress(OSError):
                os.makedirs(self._folder, mode=0o700, exist_ok=True)
                with os.scandir(self._folder) as entries:
                    for entry in entries:
                        if is_temporary(entry.name):
                            os.unlink(entry.path)  # of a process that died; one that lives keeps nothing then
                        elif entry.is_file(follow_symlinks=False):
                            about = entry.stat(follow_symlinks=False)
                            found.append((about.st_mtime_ns, entry.name, about.st_size))
            self._sizes = OrderedDict((name, size) for _, name, size in sorted(found))
            self._total = sum(self._sizes.values())
            self._shrink(self._sizes)
        return self._sizes


def _key(name: str, span: tuple[int, int] | None) -> str:
    """The name of the file that an object, or a range of it, is kept in."""
    return hashlib.sha256(f"{name} {span}".encode()).hexdigest()
