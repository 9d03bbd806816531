"""A container of OpenStack Swift, or what lies below a prefix in it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

import msgspec
import trio

from syncer.errors import CorruptionError, NotFoundError, RemoteUnavailableError
from syncer.ports.remote import Counters
from syncer.remote.http.transport import BadReplyError, HttpSettings, LongReplyError, Reply, Request
from syncer.remote.stores.pacing import REMOTE, Pace, poll
from syncer.remote.stores.port import (
    MAX_BLOB_BYTES,
    MAX_NAMES,
    Blob,
    StoreInfo,
    are_prefixes,
    checked,
    is_name,
    size_of,
    too_long,
)
from syncer.remote.stores.swift.replies import blobs, date_ns, failure, md5_of, modified_ns, rows, size_bytes
from syncer.remote.stores.swift.session import Session
from syncer.remote.stores.swift.signin import SignIn

_UNASKED_BYTES: Final = 1 << 20  # a longer body waits until Swift says that it wants it, which costs one more way there
_PAGE: Final = 10_000  # Swift's default, and its most
_MAX_PAGE_BYTES: Final = 32 << 20  # 10,000 names of 1,024 bytes, quoted threefold
_IN_THREAD_BYTES: Final = 256 << 10  # MD5 of less takes less time than a thread
_NEWEST: Final = {"X-Newest": "true"}
_BEHIND_SLASH: Final = "0"  # the next character
_VERSIONED: Final = ("x-versions-enabled", "x-versions-location", "x-history-location")


class SwiftStore:
    """`BlobStore` in a container.

    - A PUT carries the MD5 of its body, which Swift compares (422) before the object is there.
    - `absent` is `If-None-Match: *`. In a container that keeps versions it is a HEAD instead: there Swift answers 412
      *and stores the body*. That it does, the headers of each listing say, too.
    - A whole object is read from the newest of its copies (X-Newest). A range is not: what is read in ranges never
      changes, so that any copy will do, and asking all of them would take a request to each.
    """

    def __init__(
        self, credentials: SignIn, container: str, prefix: str = "", *, settings: HttpSettings, pace: Pace = REMOTE
    ) -> None:
        """Begin.

        Args:
            credentials: How to sign in.
            container: Its name.
            prefix: Of all names; "" or one that ends with a slash.
            settings: How to talk.
            pace: How often `wait` looks.
        """
        self.counters = Counters()
        self.heard_ns: int | None = None
        self._session = Session(credentials, settings, self.counters)
        self._container = container
        self._path = f"/{quote(container, safe='')}"
        self._prefix = prefix
        self._pace = pace
        self._page: int | None = _PAGE
        self._versioned: bool | None = None  # until the container has told
        self._origin = credentials.address.origin

    async def open(self, *, create: bool = False) -> StoreInfo:
        """See BlobStore. A listing has told all that there is to know."""
        self._origin = await self._session.origin()
        if self._versioned is None or create:
            found = await self._send("HEAD", self._path, {}, 200, 204, 404)
            if found.status == 404:
                if not create:
                    raise NotFoundError(f"{self._origin} has no container {self._container!r}")
                await self._send("PUT", self._path, {}, 201, 202, 204)
                found = await self._send("HEAD", self._path, {}, 200, 204)
            self._note(found)
        return StoreInfo(
            text=f"Swift container {self._container} at {self._origin}",
            absent="never" if self._versioned else "mostly",
        )

    async def get(self, name: str, span: tuple[int, int] | None = None, *, most_bytes: int = MAX_BLOB_BYTES) -> bytes:
        """See BlobStore."""
        assert is_name(name)
        if span is not None:
            return await self._range(name, *span)
        try:
            reply = await self._send("GET", self._target(name), _NEWEST, 200, 404, most_bytes=most_bytes)
        except LongReplyError:
            raise too_long(name, most_bytes) from None
        self._demand_found(name, reply)
        expected = reply.headers.get("etag", "")
        if len(expected) == 32 and "x-static-large-object" not in reply.headers:  # of a large object it is no MD5
            actual = await _md5(reply.body)
            if actual != expected:
                raise CorruptionError(f"{name}: what {self._origin} sends has MD5 {actual}, expected {expected}")
        return reply.body

    async def put(self, name: str, data: bytes | Sequence[bytes], *, absent: bool = False) -> bool:
        """See BlobStore."""
        assert is_name(name)
        if self._versioned is None:
            await self.open()
        if absent and self._versioned and await self.head(name) is not None:
            return False
        headers = {"Content-Type": "application/octet-stream", "ETag": await _md5(data)}
        if absent and not self._versioned:
            headers["If-None-Match"] = "*"
        if size_of(data) > _UNASKED_BYTES:
            headers["Expect"] = "100-continue"
        reply = await self._send("PUT", self._target(name), headers, 201, 202, 412, body=data)
        if reply.status == 412:
            if "If-None-Match" not in headers:
                raise failure(self._origin, Request(method="PUT", target=self._target(name)), reply)
            return False
        if reply.status == 202:
            # A newer object, or a newer deletion, is there: of another proxy, whose clock is ahead. Ours is not.
            raise RemoteUnavailableError(f"{self._origin} has a newer version of {name}: its servers' clocks differ")
        return True

    async def head(self, name: str) -> Blob | None:
        """See BlobStore."""
        assert is_name(name)
        reply = await self._send("HEAD", self._target(name), _NEWEST, 200, 204, 404)
        if reply.status == 404:
            return None
        size = size_bytes(self._origin, reply.headers.get("content-length", ""))
        when = modified_ns(self._origin, reply.headers.get("x-timestamp", ""))
        return Blob(name, size, when, md5_of(reply.headers.get("etag", "")))

    async def listing(self, *prefixes: str) -> list[Blob]:
        """See BlobStore."""
        assert are_prefixes(prefixes)
        found: list[Blob] = []
        seen, among, after, before = 0, self._prefix + prefixes[0], "", ""
        began_ns: int | None = None
        if len(prefixes) > 1:  # from the first name that may be below the first one to the last one below the last one
            among, after, before = self._prefix, among, f"{self._prefix}{prefixes[-1][:-1]}{_BEHIND_SLASH}"
        while True:
            reply = await self._list(among, after, before)
            began_ns = began_ns if seen else self.heard_ns
            page = rows(self._origin, reply, after)
            found += [blob for blob in blobs(self._origin, page, self._prefix) if blob.name.startswith(prefixes)]
            seen += len(page)
            if seen > MAX_NAMES:
                raise BadReplyError(f"the container {self._container} has more than {MAX_NAMES} objects")
            if not page or (self._page is not None and len(page) < self._page):
                self.heard_ns = began_ns
                return found
            after = page[-1].name

    async def delete(self, name: str) -> None:
        """See BlobStore."""
        assert is_name(name)
        await self._send("DELETE", self._target(name), {}, 200, 204, 404)

    async def now_ns(self) -> int:
        """See BlobStore."""
        reply = await self._send("HEAD", self._path, {}, 200, 204)
        return date_ns(self._origin, reply.headers.get("date", ""))

    async def wait(self, prefix: str, seen: object) -> object:
        """See BlobStore."""

        async def look() -> object:
            return tuple(await self.listing(prefix))

        return await poll(look, seen, self._pace)

    async def close(self) -> None:
        """See BlobStore."""
        self._session.close()
        await trio.lowlevel.checkpoint()

    async def _range(self, name: str, first: int, length: int) -> bytes:
        headers = {"Range": f"bytes={first}-{first + length - 1}"}
        reply = await self._send("GET", self._target(name), headers, 200, 206, 404, 416, most_bytes=length)
        self._demand_found(name, reply)
        if reply.status == 416:
            return checked(name, b"", (first, length))
        data = reply.body if reply.status == 206 else reply.body[first:]
        if reply.status == 206 and not reply.headers.get("content-range", "").startswith(f"bytes {first}-"):
            raise BadReplyError(f"{self._origin} gives another range of {name} than was asked for")
        return checked(name, data, (first, length))

    async def _list(self, among: str, after: str, before: str) -> Reply:
        target = self._listing(among, after, before)
        reply = await self._send("GET", target, {}, 200, 204, 412, most_bytes=_MAX_PAGE_BYTES)
        if reply.status == 412 and self._page is not None:
            # This one's pages are shorter; how short they are it does not say. They end with an empty one.
            self._page = None
            target = self._listing(among, after, before)
            reply = await self._send("GET", target, {}, 200, 204, most_bytes=_MAX_PAGE_BYTES)
        self._note(reply)
        return reply

    def _note(self, container: Reply) -> None:
        """What the headers of a container say, which each listing has, too."""
        self._versioned = any(container.headers.get(name, "false").lower() != "false" for name in _VERSIONED)

    def _listing(self, among: str, after: str, before: str) -> str:
        limit = "" if self._page is None else f"&limit={self._page}"
        end = f"&end_marker={quote(before, safe='')}" if before else ""
        return f"{self._path}?format=json{limit}&prefix={quote(among, safe='')}&marker={quote(after, safe='')}{end}"

    async def _send(
        self,
        method: str,
        target: str,
        headers: dict[str, str],
        *expected: int,
        body: bytes | Sequence[bytes] = b"",
        most_bytes: int | None = None,
    ) -> Reply:
        """Send once (but see Session); any status but those is an error."""
        request = Request(method=method, target=target, headers=headers, body=body)
        if most_bytes is not None:
            request = msgspec.structs.replace(request, max_reply_bytes=most_bytes)
        reply = await self._session.send(request)
        try:
            self.heard_ns = date_ns(self._origin, reply.headers.get("date", ""))
        except BadReplyError:
            self.heard_ns = None  # `now_ns` complains, for who needs it
        if reply.status not in expected:
            raise failure(self._origin, request, reply)
        return reply

    def _target(self, name: str) -> str:
        return f"{self._path}/{quote(self._prefix + name)}"

    def _demand_found(self, name: str, reply: Reply) -> None:
        if reply.status == 404:
            raise NotFoundError(f"the container {self._container} has no {self._prefix}{name}")


async def _md5(data: bytes | Sequence[bytes]) -> str:
    if size_of(data) <= _IN_THREAD_BYTES:
        return _md5_of(data)
    return await trio.to_thread.run_sync(_md5_of, data)


def _md5_of(data: bytes | Sequence[bytes]) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    for piece in (data,) if isinstance(data, bytes) else data:
        digest.update(piece)
    return digest.hexdigest()
