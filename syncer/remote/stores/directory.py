"""A store in a directory: of this machine, of a disk that travels, of another machine's share."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Literal, ParamSpec, TypeVar

import trio

from blockfs.errors import FULL
from blockfs.runtime.atomic import sync_directory, write_all
from syncer.errors import NoSpaceError, NotAllowedError, NotFoundError, RemoteUnavailableError
from syncer.ports.remote import Counters
from syncer.remote.http.transport import BadReplyError
from syncer.remote.stores.pacing import LOCAL, Pace, poll
from syncer.remote.stores.port import (
    MAX_BLOB_BYTES,
    MAX_NAMES,
    Blob,
    StoreInfo,
    are_prefixes,
    checked,
    is_name,
    is_prefix,
    size_of,
    too_long,
)
from syncer.remote.stores.temporary import is_temporary, temporary_name
from syncer.remote.stores.watching import is_told, watched

P = ParamSpec("P")
T = TypeVar("T")

_THREADS: Final = 8
_ABANDONED_NS: Final = 2 * 86400 * 10**9  # no writer takes two days for one object; it is dead
_UNTOLD_S: Final = 60.0  # of an unmounted disk nothing is told: it is looked whether the directory is still there
_READ_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # NONBLOCK: a fifo must not hang us
_ABSENT: Final = frozenset({errno.ENOENT, errno.ENOTDIR})
_DENIED: Final = frozenset({errno.EACCES, errno.EPERM})


class DirectoryStore:
    """`BlobStore` in a directory: an object is a file below it, under the same name.

    Written as a file `.tmp-…` beside its place → fsync → rename → fsync of the directory, and of those above that were
    made for it. What a crash leaves of that is removed by a listing that finds it two days old by the filesystem's own
    clock, which is the store's.

    The directory must stay the one that was opened: an empty mountpoint is not an empty store.
    """

    def __init__(self, path: bytes, pace: Pace = LOCAL) -> None:
        """Begin.

        Args:
            path: Of the directory, absolute.
            pace: How often `wait` looks where the kernel does not tell of all that is written, as on a share.
        """
        self._path = os.fsdecode(path)
        self._pace = pace
        self._identity: tuple[int, int] | None = None
        self._was_listed_first = False
        self._threads = trio.CapacityLimiter(_THREADS)
        self.counters = Counters()
        self.heard_ns = None

    async def open(self, *, create: bool = False) -> StoreInfo:
        """See BlobStore."""
        return await self._run(self._open, create)

    async def get(self, name: str, span: tuple[int, int] | None = None, *, most_bytes: int = MAX_BLOB_BYTES) -> bytes:
        """See BlobStore."""
        assert is_name(name)
        data = await self._run(self._read, name, span, most_bytes)
        self.counters.bytes_received += len(data)
        return checked(name, data, span)

    async def put(self, name: str, data: bytes | Sequence[bytes], *, absent: bool = False) -> bool:
        """See BlobStore."""
        assert is_name(name)
        self.counters.mutating_requests += 1
        if not await self._run(self._write, name, data, absent):
            return False
        self.counters.bytes_sent += size_of(data)
        return True

    async def head(self, name: str) -> Blob | None:
        """See BlobStore."""
        assert is_name(name)
        return await self._run(self._head, name)

    async def listing(self, *prefixes: str) -> list[Blob]:
        """See BlobStore."""
        assert are_prefixes(prefixes)
        return [blob for blob, _ in await self._run(self._listed_and_swept, prefixes)]

    async def delete(self, name: str) -> None:
        """See BlobStore."""
        assert is_name(name)
        self.counters.mutating_requests += 1
        await self._run(self._delete, name)

    async def now_ns(self) -> int:
        """See BlobStore."""
        return await self._run(self._now_ns)

    async def wait(self, prefix: str, seen: object) -> object:
        """See BlobStore."""
        assert is_prefix(prefix)

        async def look() -> object:
            # With the numbers of the inodes: a file that was replaced twice within a tick of the clock is another one.
            # Removes nothing: that would be told as a change, and it would look again.
            return tuple(await self._run(self._listed, [prefix], []))

        if seen is None or not prefix or not await trio.to_thread.run_sync(is_told, self._path):
            return await poll(look, seen, self._pace)
        while True:
            # Watched before it is looked at: what is written between the two is told. Anew each time, for the folder
            # of the prefix may have been made, or replaced, since.
            async with watched(await trio.to_thread.run_sync(self._folders, prefix)) as changed:
                if changed is None:
                    return await poll(look, seen, self._pace)
                now = await look()
                if now != seen:
                    return now
                with trio.move_on_after(_UNTOLD_S):
                    await changed()

    async def close(self) -> None:
        """See BlobStore."""
        await trio.lowlevel.checkpoint()

    async def _run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do something in a thread. It is waited for, also when cancelled: no write may go on behind our back."""
        self.counters.requests += 1
        return await trio.to_thread.run_sync(lambda: self._told(work, *args, **kwargs), limiter=self._threads)

    # --- in threads

    def _told(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Tell the system's errors in our words."""
        try:
            return work(*args, **kwargs)
        except OSError as error:
            where = f"{self._path}: {error.strerror}"
            if error.errno in FULL:
                raise NoSpaceError(f"{where}; free some space and repeat") from error
            if error.errno in _DENIED:
                raise NotAllowedError(self._path, str(error.strerror)) from error
            if error.errno == errno.EROFS:
                likely = "it can be read, but nothing can be sent there; mount it writable"
                raise NotAllowedError(self._path, str(error.strerror), likely) from error
            raise RemoteUnavailableError(where) from error

    def _open(self, create: bool) -> StoreInfo:
        if create:
            self._make_directory(self._path)
        try:
            found = os.stat(self._path)
        except OSError as error:
            if error.errno in _ABSENT:
                raise NotFoundError(f"{self._path} does not exist") from None
            raise
        if not stat.S_ISDIR(found.st_mode):
            raise NotFoundError(f"{self._path} is not a directory")
        if self._was_listed_first:
            self._check()  # what was listed is what is opened
            self._was_listed_first = False
        self._identity = (found.st_dev, found.st_ino)
        waits: Literal["files", "polling"] = "files" if is_told(self._path) else "polling"
        return StoreInfo(text=f"directory {self._path}", absent="mostly", waits=waits)

    def _check(self) -> None:
        """What is about to be called absent must not be so because the disk is not mounted any more.

        Raises:
            RemoteUnavailableError: Another directory is there, or none.
        """
        assert self._identity is not None, "open() comes first"
        try:
            found = os.stat(self._path)
        except OSError as error:
            raise RemoteUnavailableError(f"{self._path}: {error.strerror}; is it mounted?") from None
        if (found.st_dev, found.st_ino) != self._identity:
            raise RemoteUnavailableError(f"{self._path} is not the directory that was opened: was it unmounted?")

    def _folders(self, prefix: str) -> list[str]:
        """The directories in which something appears, changes or goes when something below a prefix does."""
        return [folder for folder in (self._path, self._place(prefix)) if os.path.isdir(folder)]

    def _place(self, name: str) -> str:
        return f"{self._path}/{name}"

    def _read(self, name: str, span: tuple[int, int] | None, most_bytes: int) -> bytes:
        with self._opened(name) as descriptor:
            first, length = (0, most_bytes + 1) if span is None else span
            # One more than there may be, lest a file that grows be taken for a whole one.
            wanted = min(length, max(0, os.fstat(descriptor).st_size + 1 - first))
            data = _read_all(descriptor, first, wanted)
        if span is None and len(data) > most_bytes:
            raise too_long(name, most_bytes)
        return data

    @contextlib.contextmanager
    def _opened(self, name: str) -> Iterator[int]:
        try:
            descriptor = os.open(self._place(name), _READ_FLAGS)
        except OSError as error:
            if error.errno not in _ABSENT:
                raise
            self._check()
            raise NotFoundError(f"{self._path} has no {name}") from None
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise BadReplyError(f"{self._place(name)} is not a regular file")
            yield descriptor
        finally:
            os.close(descriptor)

    def _write(self, name: str, data: bytes | Sequence[bytes], absent: bool) -> bool:
        self._check()
        path = self._place(name)
        folder = os.path.dirname(path)
        if absent and os.path.lexists(path):
            sync_directory(folder)  # whoever wrote it may have died before it did this
            return False
        self._make_directory(folder)
        temporary = f"{folder}/{temporary_name()}"
        # Staged → fsync → renamed → its directory synced: a power cut leaves the old, the new, or a file `.tmp-…`.
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            try:
                offset = 0
                for piece in (data,) if isinstance(data, bytes) else data:
                    write_all(descriptor, piece, offset)
                    offset += len(piece)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.rename(temporary, path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        sync_directory(folder)
        return True

    def _make_directory(self, folder: str) -> None:
        """Make a directory and those above it, durably. Made by somebody else meanwhile: fine, and as durable."""
        if os.path.isdir(folder):
            return
        above = os.path.dirname(folder)
        self._make_directory(above)
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder)
        sync_directory(above)

    def _head(self, name: str) -> Blob | None:
        try:
            found = os.stat(self._place(name), follow_symlinks=False)
        except OSError as error:
            if error.errno not in _ABSENT:
                raise
            self._check()
            return None
        return Blob(name, found.st_size, found.st_mtime_ns) if stat.S_ISREG(found.st_mode) else None

    def _listed_and_swept(self, prefixes: Sequence[str]) -> list[tuple[Blob, int]]:
        left: list[tuple[str, int]] = []
        found = self._listed(prefixes, left)
        if left:
            with contextlib.suppress(OSError):  # it can't be told how old they are: they stay
                self._sweep(left)
        return found

    def _listed(self, prefixes: Sequence[str], left: list[tuple[str, int]]) -> list[tuple[Blob, int]]:
        """Each with its inode; what writers have left goes to `left`: path and time, ns."""
        if self._identity is None:
            self._open(create=False)
            self._was_listed_first = True
        self._check()
        found: list[tuple[Blob, int]] = []
        pending = list(reversed(prefixes))
        while pending:
            self._list_directory(pending.pop(), found, pending, left)
        self._check()
        found.sort(key=lambda each: each[0].name)
        return found

    def _list_directory(
        self, prefix: str, found: list[tuple[Blob, int]], pending: list[str], left: list[tuple[str, int]]
    ) -> None:
        try:
            entries = os.scandir(self._place(prefix))
        except OSError as error:
            if error.errno in _ABSENT:
                return
            raise
        with entries:
            for number, entry in enumerate(entries):
                if max(number, len(found) + len(pending) + len(left)) >= MAX_NAMES:
                    raise BadReplyError(f"{self._path} has more than {MAX_NAMES} files")
                name = prefix + entry.name
                if is_temporary(entry.name):
                    with contextlib.suppress(OSError):
                        left.append((entry.path, entry.stat(follow_symlinks=False).st_mtime_ns))
                elif is_name(name):
                    if entry.is_dir():  # also by a symlink: a part of a store may lie on another disk
                        pending.append(name + "/")
                        continue
                    with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                        status = entry.stat(follow_symlinks=False)
                        if stat.S_ISREG(status.st_mode):
                            found.append((Blob(name, status.st_size, status.st_mtime_ns), status.st_ino))

    def _sweep(self, left: Sequence[tuple[str, int]]) -> None:
        """Remove what writers left that died long ago; what can't be removed stays."""
        before_ns = self._now_ns() - _ABANDONED_NS
        for path, modified_ns in left:
            if modified_ns < before_ns:
                with contextlib.suppress(OSError):
                    os.unlink(path)

    def _delete(self, name: str) -> None:
        path = self._place(name)
        try:
            os.unlink(path)
        except OSError as error:
            if error.errno not in _ABSENT:
                raise
            self._check()
            return
        sync_directory(os.path.dirname(path))

    def _now_ns(self) -> int:
        self._check()
        path = f"{self._path}/{temporary_name()}"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            os.write(descriptor, b"?")  # the server of a share sets its own time when it is written to
            os.fsync(descriptor)
            return os.fstat(descriptor).st_mtime_ns
        finally:
            os.close(descriptor)
            os.unlink(path)


def _read_all(descriptor: int, first: int, length: int) -> bytes:
    """Up to so many bytes, fewer at the end of the file; pread(2) may stop short."""
    data = os.pread(descriptor, length, first)
    if len(data) == length or not data:
        return data
    parts = [data]
    got = len(data)
    while got < length and (data := os.pread(descriptor, length - got, first + got)):
        parts.append(data)
        got += len(data)
    return b"".join(parts)
