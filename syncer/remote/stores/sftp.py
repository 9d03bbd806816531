"""A directory of another machine, by SFTP. By asyncssh, which is an extra: `blocksync[sftp]`.

asyncssh wants asyncio: its loop runs in a thread of its own, and each call of ours waits for it in another one.
"""

from __future__ import annotations

import asyncio
import hashlib
import posixpath
import socket
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

import trio

from syncer.errors import AuthError, NoSpaceError, NotAllowedError, NotFoundError, RemoteUnavailableError, UsageError
from syncer.ports.remote import Counters
from syncer.remote.http.transport import BadReplyError, ReplyLostError, UntrustedError
from syncer.remote.stores.pacing import REMOTE, Pace, poll
from syncer.remote.stores.port import (
    MAX_BLOB_BYTES,
    MAX_NAMES,
    Blob,
    StoreInfo,
    are_prefixes,
    checked,
    is_name,
    is_prefix,
    joined,
    size_of,
    too_long,
)
from syncer.remote.stores.temporary import is_temporary, temporary_name

T = TypeVar("T")

_AT_ONCE: Final = 8
_CONNECT_S: Final = 30.0
_SMALL_S: Final = 60.0
_SLOWEST: Final = 20_000  # bytes per second
_ABANDONED_S: Final = 2 * 86400  # as in directory.py
_LOOK_BYTES: Final = 64 << 10  # larger ones don't change
_ROOM_BYTES: Final = 1 << 20  # with less than that beside what was to be written, a failure is for want of room

Work = Callable[[Any], Coroutine[Any, Any, T]]


class SftpStore:
    """`BlobStore` in a directory of a server that speaks SFTP: an object is a file below it, under the same name.

    Written as a file `.tmp-…` beside its place → fsync → renamed over what is there, as in `DirectoryStore`. fsync and
    that rename are OpenSSH's extensions: without the first nothing can be promised, without the second nothing is
    written. Directories can't be synced: a server that loses its power may lose a name that was written last.

    Times are to the second, and a file has no number: `wait` reads small files.
    """

    def __init__(self, host: str, path: str, *, options: Mapping[str, Any], pace: Pace = REMOTE) -> None:
        """Begin.

        Args:
            host: Name or address, or what `~/.ssh/config` calls it.
            path: Of the directory, absolute.
            options: For `asyncssh.connect`: port, username; in tests keys.
            pace: How often `wait` looks.
        """
        self.counters = Counters()
        self.heard_ns = None
        self._host, self._path = host, path
        self._options = options
        self._pace = pace
        self._threads = trio.CapacityLimiter(_AT_ONCE)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connecting: asyncio.Lock | None = None
        self._connection: Any = None
        self._client: Any = None
        self._is_synced = True

    async def open(self, *, create: bool = False) -> StoreInfo:
        """See BlobStore."""
        await self._run(lambda client: self._open(client, create=create))
        return StoreInfo(text=f"directory {self._path} of {self._host}", absent="mostly")

    async def get(self, name: str, span: tuple[int, int] | None = None, *, most_bytes: int = MAX_BLOB_BYTES) -> bytes:
        """See BlobStore."""
        assert is_name(name)
        first, length = (0, most_bytes + 1) if span is None else span
        data = await self._run(lambda client: self._read(client, name, first, length), length)
        if span is None and len(data) > most_bytes:
            raise too_long(name, most_bytes)
        self.counters.bytes_received += len(data)
        return checked(name, data, span)

    async def put(self, name: str, data: bytes | Sequence[bytes], *, absent: bool = False) -> bool:
        """See BlobStore."""
        assert is_name(name)
        if absent and await self.head(name) is not None:
            return False
        size = size_of(data)
        self.counters.mutating_requests += 1
        self.counters.bytes_sent += size
        await self._run(lambda client: self._write(client, name, joined(data)), size, writes=True)
        return True

    async def head(self, name: str) -> Blob | None:
        """See BlobStore."""
        assert is_name(name)
        return await self._run(lambda client: self._head(client, name))

    async def listing(self, *prefixes: str) -> list[Blob]:
        """See BlobStore."""
        assert are_prefixes(prefixes)
        return await self._run(lambda client: self._listed(client, prefixes), MAX_NAMES)

    async def delete(self, name: str) -> None:
        """See BlobStore."""
        assert is_name(name)
        self.counters.mutating_requests += 1
        await self._run(lambda client: self._delete(client, name), writes=True)

    async def now_ns(self) -> int:
        """See BlobStore."""
        return await self._run(self._now_ns)

    async def wait(self, prefix: str, seen: object) -> object:
        """See BlobStore."""
        assert is_prefix(prefix)

        async def look() -> object:
            return await self._run(lambda client: self._contents(client, prefix), MAX_NAMES)

        return await poll(look, seen, self._pace)

    async def close(self) -> None:
        """See BlobStore."""
        loop, self._loop = self._loop, None
        if loop is not None:
            connection, self._connection = self._connection, None
            loop.call_soon_threadsafe(_stop, loop, connection)
        await trio.lowlevel.checkpoint()

    async def _run(self, work: Work[T], size_bytes: int = 0, *, writes: bool = False) -> T:
        """Do something on the connection, within a time. It is waited for, also when cancelled."""
        self.counters.requests += 1
        loop = self._running()
        within_s = _SMALL_S + size_bytes / _SLOWEST

        def wait() -> T:
            task = asyncio.run_coroutine_threadsafe(self._told(work, within_s, writes=writes), loop)
            return task.result()

        return await trio.to_thread.run_sync(wait, limiter=self._threads)

    def _running(self) -> asyncio.AbstractEventLoop:
        """The loop; there is one from the first call to `close`."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._connecting = asyncio.Lock()
            threading.Thread(target=_serve, args=(self._loop,), name="sftp", daemon=True).start()
        return self._loop

    # --- in the loop

    async def _told(self, work: Work[T], within_s: float, *, writes: bool) -> T:
        """Tell asyncssh's errors in our words, and forget a connection that is of no more use."""
        import asyncssh  # noqa: PLC0415 -- an extra, loaded when it is used

        client = await self._connected()
        where = f"{self._host}: {self._path}"
        try:
            return await asyncio.wait_for(work(client), within_s)
        except asyncssh.SFTPPermissionDenied as error:
            raise NotAllowedError(where, error.reason) from error
        except TimeoutError as error:
            self._forget(client)  # whatever still comes of it must not be taken for an answer to something else
            raise ReplyLostError(f"{where}: no answer within {within_s:g} s") from error
        except (asyncssh.SFTPConnectionLost, asyncssh.SFTPNoConnection, asyncssh.DisconnectError, OSError) as error:
            self._forget(client)
            kind = ReplyLostError if writes else RemoteUnavailableError
            raise kind(f"{where}: {_reason(error)}") from error
        except asyncssh.SFTPNoSuchFile as error:
            raise RemoteUnavailableError(f"{where}: {error.reason}; is it mounted?") from error
        except asyncssh.SFTPError as error:
            raise RemoteUnavailableError(f"{where}: {_reason(error)}") from error

    async def _connected(self) -> Any:
        import asyncssh  # noqa: PLC0415 -- as above

        assert self._connecting is not None
        async with self._connecting:
            if self._client is None:
                try:
                    self._connection = await asyncio.wait_for(
                        asyncssh.connect(self._host, keepalive_interval=15, **self._options), _CONNECT_S
                    )
                    self._client = await asyncio.wait_for(self._connection.start_sftp_client(), _CONNECT_S)
                except asyncssh.HostKeyNotVerifiable as error:
                    raise UntrustedError(
                        f"{self._host} shows a host key that ~/.ssh/known_hosts does not have: {error.reason}; "
                        f"see that it is the right one with `ssh {self._host}`"
                    ) from error
                except asyncssh.PermissionDenied as error:
                    raise AuthError(f"{self._host} accepts no key of yours: {error.reason}") from error
                except asyncssh.ConfigParseError as error:
                    raise UsageError(f"~/.ssh/config: {error}") from error
                except (OSError, TimeoutError, asyncssh.Error) as error:
                    raise RemoteUnavailableError(f"{self._host} is unreachable: {_reason(error)}") from error
            return self._client

    def _forget(self, client: Any) -> None:
        if self._client is client:
            connection, self._connection, self._client = self._connection, None, None
            connection.abort()

    def _place(self, name: str) -> str:
        return f"{self._path}/{name}" if name else self._path

    async def _open(self, client: Any, *, create: bool) -> None:
        if create:
            await client.makedirs(self._path, exist_ok=True)
        if not await client.isdir(self._path):
            raise NotFoundError(f"{self._host} has no directory {self._path}")

    async def _read(self, client: Any, name: str, first: int, length: int) -> bytes:
        import asyncssh  # noqa: PLC0415 -- as above

        try:
            async with client.open(self._place(name), "rb") as file:
                data: bytes = await file.read(length, first)
                return data
        except (asyncssh.SFTPNoSuchFile, asyncssh.SFTPNoSuchPath, asyncssh.SFTPNotADirectory):
            raise await self._missing(client, name) from None
        except asyncssh.SFTPFailure:
            # What OpenSSH says where a file stands in the place of a directory (ENOTDIR), among others.
            if await self._head(client, name) is None:
                raise NotFoundError(f"{self._host}: {self._path} has no {name}") from None
            raise

    async def _missing(self, client: Any, name: str) -> NotFoundError | RemoteUnavailableError:
        """What is called absent must not be so because the directory is gone."""
        if not await client.isdir(self._path):
            return RemoteUnavailableError(f"{self._host}: {self._path} is gone; is it mounted?")
        return NotFoundError(f"{self._host}: {self._path} has no {name}")

    async def _write(self, client: Any, name: str, data: bytes) -> None:
        import asyncssh  # noqa: PLC0415 -- as above

        if not await client.isdir(self._path):
            raise RemoteUnavailableError(f"{self._host}: {self._path} is gone; is it mounted?")
        folder = posixpath.dirname(self._place(name))
        temporary = f"{folder}/{temporary_name()}"
        try:
            # Staged → fsync → renamed: whoever dies leaves the old, the new, or a file `.tmp-…`.
            file = await self._created(client, folder, temporary)
            async with file:
                await file.write(data)
                if self._is_synced:
                    try:
                        await file.fsync()
                    except asyncssh.SFTPOpUnsupported:
                        self._is_synced = False
            await client.posix_rename(temporary, self._place(name))
        except asyncssh.SFTPOpUnsupported:
            await _removed(client, temporary)
            raise UsageError(f"{self._host} can't replace files at once (no posix-rename): use an OpenSSH") from None
        except asyncssh.SFTPFailure as error:
            await _removed(client, temporary)
            if await self._is_full(client, len(data)):
                raise NoSpaceError(f"{self._host}: {self._path} is full; free some space and repeat") from error
            raise

    async def _created(self, client: Any, folder: str, temporary: str) -> Any:
        import asyncssh  # noqa: PLC0415 -- as above

        try:
            return await client.open(temporary, "xb")
        except (asyncssh.SFTPNoSuchFile, asyncssh.SFTPNoSuchPath):
            await client.makedirs(folder, exist_ok=True)
            return await client.open(temporary, "xb")

    async def _is_full(self, client: Any, size: int) -> bool:
        import asyncssh  # noqa: PLC0415 -- as above

        try:
            found = await client.statvfs(self._path)
        except asyncssh.SFTPError:
            return False
        return bool(found.bavail * found.frsize < size + _ROOM_BYTES)

    async def _head(self, client: Any, name: str) -> Blob | None:
        import asyncssh  # noqa: PLC0415 -- as above

        try:
            found = await client.lstat(self._place(name))
        except (asyncssh.SFTPNoSuchFile, asyncssh.SFTPNoSuchPath, asyncssh.SFTPNotADirectory):
            problem = await self._missing(client, name)
        except asyncssh.SFTPFailure:
            problem = await self._missing(client, name)  # ENOTDIR, as above
        else:
            return _blob(name, found)
        if isinstance(problem, RemoteUnavailableError):
            raise problem
        return None

    async def _listed(self, client: Any, prefixes: Sequence[str]) -> list[Blob]:
        import asyncssh  # noqa: PLC0415 -- as above

        found: list[Blob] = []
        pending = list(reversed(prefixes))
        while pending:
            within = pending.pop()
            try:
                await self._list_directory(client, within, found, pending)
            except (asyncssh.SFTPNoSuchFile, asyncssh.SFTPNoSuchPath, asyncssh.SFTPNotADirectory, asyncssh.SFTPFailure):
                if isinstance(await self._missing(client, within), RemoteUnavailableError) or await client.isdir(
                    self._place(within.removesuffix("/"))
                ):
                    raise
        found.sort(key=lambda blob: blob.name)
        return found

    async def _list_directory(self, client: Any, within: str, found: list[Blob], pending: list[str]) -> None:
        old: list[tuple[str, int]] = []
        async for entry in client.scandir(self._place(within.removesuffix("/"))):
            name = within + entry.filename
            if is_temporary(entry.filename):
                old.append((self._place(name), int(entry.attrs.mtime or 0)))
            elif is_name(name):
                blob = _blob(name, entry.attrs)
                if blob is not None:
                    found.append(blob)
                elif await client.isdir(self._place(name)):  # also by a symlink
                    pending.append(name + "/")
            if len(found) + len(pending) + len(old) > MAX_NAMES:
                raise BadReplyError(f"{self._host}: {self._path} has more than {MAX_NAMES} files")
        if old:
            # What a writer left that died long ago, by the server's clock.
            before = await self._now_ns(client) // 10**9 - _ABANDONED_S
            for path, when in old:
                if when < before:
                    await _removed(client, path)

    async def _contents(self, client: Any, prefix: str) -> tuple[tuple[Blob, bytes], ...]:
        """What is below a prefix, small files with a digest of what they hold."""
        seen = []
        for blob in await self._listed(client, [prefix]):
            digest = b""
            if blob.size_bytes <= _LOOK_BYTES:
                with suppress(NotFoundError):  # deleted meanwhile: the next look sees that
                    digest = hashlib.sha256(await self._read(client, blob.name, 0, _LOOK_BYTES)).digest()
            seen.append((blob, digest))
        return tuple(seen)

    async def _delete(self, client: Any, name: str) -> None:
        import asyncssh  # noqa: PLC0415 -- as above

        try:
            await client.remove(self._place(name))
        except (asyncssh.SFTPNoSuchFile, asyncssh.SFTPNoSuchPath, asyncssh.SFTPNotADirectory, asyncssh.SFTPFailure):
            if await self._head(client, name) is not None:
                raise

    async def _now_ns(self, client: Any) -> int:
        path = self._place(f"{temporary_name()}")
        async with client.open(path, "xb") as file:
            try:
                await file.write(b"?")
                modified_s = (await file.stat()).mtime
                if modified_s is None:
                    raise BadReplyError(f"{self._host} does not tell when a file was written")
                return int(modified_s) * 10**9
            finally:
                await _removed(client, path)


def sftp_store(host: str, port: int | None, user: str | None, path: str, pace: Pace = REMOTE) -> SftpStore:
    """A directory of another machine. Keys, agents and known hosts are those of `ssh`; `~/.ssh/config` counts.

    Raises:
        UsageError: asyncssh is not installed.
    """
    try:
        import asyncssh  # noqa: PLC0415 -- as above
    except ImportError:
        raise UsageError("sftp:// needs asyncssh: pip install 'blocksync[sftp]', or make install EXTRAS=sftp") from None
    asyncssh.set_log_level("ERROR")
    options = {key: value for key, value in (("port", port), ("username", user)) if value is not None}
    return SftpStore(host, path, options=options, pace=pace)


def _blob(name: str, attributes: Any) -> Blob | None:
    """A regular file; None if it is none."""
    if attributes.type != 1:  # SSH_FILEXFER_TYPE_REGULAR; lstat, so a symlink is none
        return None
    if attributes.size is None or attributes.mtime is None:
        raise BadReplyError(f"the server does not tell length and time of {name}")
    return Blob(name, int(attributes.size), int(attributes.mtime) * 10**9)


async def _removed(client: Any, path: str) -> None:
    import asyncssh  # noqa: PLC0415 -- as above

    with suppress(asyncssh.SFTPError):
        await client.remove(path)


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    """A thread's work: a loop until it is stopped."""
    try:
        loop.run_forever()
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(_yielded())
        loop.close()


async def _yielded() -> None:
    """Let what was cancelled end."""
    for _ in range(5):
        await asyncio.sleep(0)


def _stop(loop: asyncio.AbstractEventLoop, connection: Any) -> None:
    if connection is not None:
        connection.abort()
    loop.call_soon(loop.stop)


def _reason(error: BaseException) -> str:
    if isinstance(error, socket.gaierror | OSError) and error.strerror:
        return error.strerror
    return str(getattr(error, "reason", "") or error or type(error).__name__)[:200]
