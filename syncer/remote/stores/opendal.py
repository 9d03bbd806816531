"""Stores by way of Apache OpenDAL, a library in Rust: what looks like S3.

Its blocking calls run in threads of ours; its asynchronous ones want asyncio. It is an extra: `blocksync[opendal]`.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar

import trio

from syncer.errors import (
    AuthError,
    NoSpaceError,
    NotFoundError,
    OverQuotaError,
    RemoteUnavailableError,
    SyncerError,
    UsageError,
)
from syncer.ports.remote import Counters
from syncer.remote.http.transport import BadReplyError, ReplyLostError
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
    too_long,
)

if TYPE_CHECKING:
    from opendal import Operator

T = TypeVar("T")

_THREADS: Final = 8
_STEP_BYTES: Final = 1 << 20
_SMALL_S: Final = 60.0
_BODY_S: Final = 900.0  # 16 MiB at 20 kB/s
_KIND: Final = re.compile(r"(\w+) \((temporary|permanent)\)(.*)", re.DOTALL)
_STATUS: Final = re.compile(r"response: Parts \{ status: (\d{3})")
_CODE: Final = re.compile(r'code: "(\w+)", message: "([^"]*)"')
_REGION: Final = "us-east-1"  # what S3 takes when nobody says one, and look-alikes mostly don't look at


class OpendalStore:
    """`BlobStore` by an operator of OpenDAL.

    - `absent` is a HEAD, and no condition is trusted: stores that look like S3 differ in what they make of one, and in
      the others two writers win.
    - A container can't be made: stores differ too much in what they want to know for that.
    - The store's clock is asked by writing an object and looking at its time, to the second.
    """

    def __init__(self, operator: Operator, text: str, pace: Pace = REMOTE) -> None:
        """Begin.

        Args:
            operator: Its root is where the names begin. It repeats nothing by itself.
            text: What it is, for messages.
            pace: How often `wait` looks.
        """
        self.counters = Counters()
        self.heard_ns = None
        self._operator = operator
        self._text = text
        self._pace = pace
        self._threads = trio.CapacityLimiter(_THREADS)

    async def open(self, *, create: bool = False) -> StoreInfo:  # noqa: ARG002 -- it can't be made
        """See BlobStore."""
        await self._run(lambda: asyncio.run(self._first()))
        return StoreInfo(text=self._text, absent="mostly")

    async def get(self, name: str, span: tuple[int, int] | None = None, *, most_bytes: int = MAX_BLOB_BYTES) -> bytes:
        """See BlobStore. The store's checksum is not looked at: not every ETag is one."""
        assert is_name(name)
        if span is None:
            data = await self._run(lambda: self._read(name, most_bytes))
        else:
            data = await self._run(lambda: self._read_range(name, *span))
        self.counters.bytes_received += len(data)
        return checked(name, data, span)

    async def put(self, name: str, data: bytes | Sequence[bytes], *, absent: bool = False) -> bool:
        """See BlobStore."""
        assert is_name(name)
        if absent and await self.head(name) is not None:
            return False
        content = joined(data)
        self.counters.mutating_requests += 1
        self.counters.bytes_sent += len(content)
        await self._run(lambda: self._operator.write(name, content), writes=True)
        return True

    async def head(self, name: str) -> Blob | None:
        """See BlobStore."""
        assert is_name(name)
        try:
            found = await self._run(lambda: self._operator.stat(name))
        except NotFoundError:
            return None
        return Blob(name, found.content_length, _modified_ns(self._text, found.last_modified))

    async def listing(self, *prefixes: str) -> list[Blob]:
        """See BlobStore."""
        assert are_prefixes(prefixes)
        found = [await self._run(partial(self._listed, prefix)) for prefix in prefixes]
        return [blob for listed in found for blob, _ in listed]

    async def delete(self, name: str) -> None:
        """See BlobStore."""
        assert is_name(name)
        self.counters.mutating_requests += 1
        await self._run(lambda: self._operator.delete(name), writes=True)

    async def now_ns(self) -> int:
        """See BlobStore."""
        name = f".clock-{secrets.token_hex(16)}"  # no name of ours: no listing tells it

        def ask() -> datetime | None:
            self._operator.write(name, b"?")
            try:
                return self._operator.stat(name).last_modified
            finally:
                self._operator.delete(name)

        return _modified_ns(self._text, await self._run(ask))

    async def wait(self, prefix: str, seen: object) -> object:
        """See BlobStore."""
        assert is_prefix(prefix)

        async def look() -> object:
            # With the ETags: an object that was replaced twice within a second is another one.
            return tuple(await self._run(lambda: self._listed(prefix)))

        return await poll(look, seen, self._pace)

    async def close(self) -> None:
        """See BlobStore."""
        await trio.lowlevel.checkpoint()

    async def _run(self, work: Callable[[], T], *, writes: bool = False) -> T:
        """Do something in a thread. A write is waited for, also when cancelled: OpenDAL ends its request in time.

        A read is not: of a server that answers a listing with something else OpenDAL asks for the next page for ever.
        """
        self.counters.requests += 1
        with trio.move_on_after(_BODY_S):
            return await trio.to_thread.run_sync(
                lambda: self._told(work, writes=writes), limiter=self._threads, abandon_on_cancel=not writes
            )
        kind = ReplyLostError if writes else RemoteUnavailableError
        raise kind(f"{self._text}: no answer within {_BODY_S:g} s")

    # --- in threads

    def _told(self, work: Callable[[], T], *, writes: bool) -> T:
        try:
            return work()
        except SyncerError:
            raise
        except _failures() as error:
            _fail(self._text, str(error), writes=writes)

    def _read(self, name: str, most_bytes: int) -> bytes:
        parts: list[bytes] = []
        size = 0
        with self._operator.open(name, "rb") as file:
            while part := file.read(_STEP_BYTES):
                parts.append(part)
                size += len(part)
                if size > most_bytes:
                    raise too_long(name, most_bytes)
        return b"".join(parts)

    def _read_range(self, name: str, first: int, length: int) -> bytes:
        from opendal.exceptions import RangeNotSatisfied, Unexpected  # noqa: PLC0415 -- an extra, loaded when used

        try:
            return self._operator.read(name, offset=first, size=length)
        except RangeNotSatisfied:
            return b""
        except Unexpected as error:
            if "too little data" in str(error):
                return b""
            raise

    def _listed(self, prefix: str) -> list[tuple[Blob, str | None]]:
        """Each with its ETag."""
        found, number = asyncio.run(self._entries(prefix))
        if not number:
            self._see_that_it_is_a_store()
        found.sort(key=lambda each: each[0].name)
        return found

    def _see_that_it_is_a_store(self) -> None:
        """OpenDAL takes any web page for an empty listing. A store says that there is no object of a random name.

        Raises:
            BadReplyError: It is none.
        """
        from opendal.exceptions import NotFound  # noqa: PLC0415 -- as above

        with contextlib.suppress(NotFound):
            self._operator.stat(secrets.token_hex(16))
            raise BadReplyError(f"{self._text} tells of an object that nobody has written: what answers there is no S3")

    async def _entries(self, prefix: str) -> tuple[list[tuple[Blob, str | None]], int]:
        """Objects of ours, and how many there are of all."""
        # Its synchronous listings wait for the store with the interpreter's lock, and so stop all threads: these don't.
        found: list[tuple[Blob, str | None]] = []
        number = 0
        async for entry in await self._operator.to_async_operator().list(prefix, recursive=True):
            number += 1
            if number > MAX_NAMES:
                raise BadReplyError(f"{self._text} has more than {MAX_NAMES} objects")
            about = entry.metadata
            if is_name(entry.path) and not about.is_dir:
                when = _modified_ns(self._text, about.last_modified)
                found.append((Blob(entry.path, about.content_length, when), about.etag))
        return found, number

    async def _first(self) -> None:
        async for _ in await self._operator.to_async_operator().list("", limit=1):
            return


def s3_store(bucket: str, prefix: str, environ: Mapping[str, str], pace: Pace = REMOTE) -> OpendalStore:
    """A bucket of S3, or of what looks like it.

    Args:
        bucket: Its name.
        prefix: Of all names, without slashes at its ends.
        environ: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION, AWS_ENDPOINT_URL. Without a
            key there OpenDAL looks into `~/.aws`.
        pace: How often `wait` looks.

    Raises:
        UsageError: OpenDAL is not installed, or the environment makes no sense.
    """
    try:
        from opendal import Operator  # noqa: PLC0415 -- as above
        from opendal.layers import TimeoutLayer  # noqa: PLC0415 -- as above
    except ImportError:
        raise UsageError(
            "s3:// needs OpenDAL: pip install 'blocksync[opendal]', or make install EXTRAS=opendal"
        ) from None
    endpoint = environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL")
    options = {
        "bucket": bucket,
        "root": f"/{prefix}",
        "region": environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or _REGION,
        "checksum_algorithm": "md5",  # so that the store refuses what was damaged on the way
        "disable_ec2_metadata": "true",  # else whoever has no credentials waits for an address that is not there
    }
    given = {
        "endpoint": endpoint,
        "access_key_id": environ.get("AWS_ACCESS_KEY_ID"),
        "secret_access_key": environ.get("AWS_SECRET_ACCESS_KEY"),
        "session_token": environ.get("AWS_SESSION_TOKEN"),
    }
    options |= {key: value for key, value in given.items() if value}
    try:
        operator = Operator("s3", **options).layer(TimeoutLayer(timeout=_SMALL_S, io_timeout=_BODY_S))
    except _failures() as error:
        raise UsageError(f"s3://{bucket}: {_first_line(str(error))}; see AWS_REGION and AWS_ENDPOINT_URL") from None
    return OpendalStore(operator, f"bucket {bucket} at {endpoint or 'AWS'}", pace)


def _failures() -> tuple[type[Exception], ...]:
    """What OpenDAL raises; its classes have no common one. Files raise the system's."""
    from opendal import exceptions  # noqa: PLC0415 -- as above

    kinds = (kind for kind in vars(exceptions).values() if isinstance(kind, type) and issubclass(kind, Exception))
    return OSError, *kinds


def _fail(where: str, text: str, *, writes: bool) -> NoReturn:
    """Tell OpenDAL's errors in our words: by their text, since those of files are no classes of its own."""
    found = _KIND.search(text)
    kind, patience = (found[1], found[2]) if found else ("Unexpected", "permanent")
    status = int(match[1]) if (match := _STATUS.search(text)) else 0
    code = match[1] if (match := _CODE.search(text)) else ""
    what = f"{where}: {_first_line(text)}"
    if kind == "NotFound" or code in {"NoSuchBucket", "NoSuchKey"}:
        more = "; make it with your provider's own tools" if code == "NoSuchBucket" else ""
        raise NotFoundError(what + more) from None
    if code in {"EntityTooLarge", "QuotaExceeded"} or status == 413:
        raise OverQuotaError(f"{what}; make room there, or have the quota raised") from None
    if status == 507:
        raise NoSpaceError(what) from None
    if kind == "PermissionDenied" or status in {401, 403}:
        raise AuthError(f"{what}; see AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY") from None
    raise _unexpected(kind, what, lasting=patience == "permanent" and status < 500, writes=writes) from None


def _unexpected(kind: str, what: str, *, lasting: bool, writes: bool) -> SyncerError:
    if kind == "ConfigInvalid":
        return UsageError(what)
    if lasting and kind not in {"RateLimited", "ConditionNotMatch"}:
        return BadReplyError(what)
    # A request that timed out, or that was answered by 5xx, may have been done.
    return ReplyLostError(what) if writes and kind != "RateLimited" else RemoteUnavailableError(what)


def _first_line(text: str) -> str:
    """Without the context, which may be long, and a stack."""
    found = _KIND.search(text)
    code = _CODE.search(text)
    if code is not None:
        return f"{code[1]}: {code[2]}"[:200]
    line = (found[3] if found else text).split("\n")[0].partition(", context: {")[0].strip(" =>")
    status = _STATUS.search(text)
    said = f"{'failed ' if line.startswith('at ') else ''}{line}{f' ({status[1]})' if status else ''}"
    return "".join(c for c in said if c.isprintable())[:200]


def _modified_ns(where: str, when: datetime | None) -> int:
    if when is None:
        raise BadReplyError(f"{where} tells no times of objects")
    return int(when.timestamp()) * 10**9 + when.microsecond * 1000
