"""What a Pithos server's replies mean. Pure: `Reply` in, values or errors out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NoReturn
from urllib.parse import unquote_to_bytes

import msgspec

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.ids import BlockId
from blockfs.runtime.output import shown
from syncer.core.model import RelPath, RemoteTag
from syncer.core.subtrees import Guard, SubtreeMove
from syncer.errors import (
    AuthError,
    CorruptionError,
    ForbiddenError,
    NoSpaceError,
    NotFoundError,
    OverQuotaError,
    PreconditionFailedError,
    SyncerError,
    UnsafeNameError,
    UsageError,
)
from syncer.ports.remote import KnownList
from syncer.protocol.extensions import blocklists
from syncer.protocol.extensions.bulk import BulkError, Result, decode_results
from syncer.protocol.extensions.bulk_read import BulkReadError, decode_contents
from syncer.protocol.extensions.changes import ChangesPage, decode_changes
from syncer.protocol.extensions.hashmap_delta import decode_either
from syncer.protocol.extensions.subtree import SubtreeError, checked_move
from syncer.protocol.pithos import headers as wire
from syncer.protocol.pithos.faults import CORRUPT_BLOCK, decode_fault
from syncer.protocol.pithos.hashmap import HashmapError, decode_hashmap, decode_ids
from syncer.protocol.pithos.headers import HeaderError, ObjectState
from syncer.protocol.pithos.listing import ListingError, ObjectRow, decode_objects, decode_versions
from syncer.remote.container.conditions import describe
from syncer.remote.container.info import ContainerInfo
from syncer.remote.http.transport import BadReplyError, Reply, ReplyLostError, Request
from syncer.remote.serials import Cursor
from syncer.remote.url import parse_url

_LOST: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Whether anything was done is unknown, and trying again may help."""

_SETTLED_S: Final = 2  # one for the full second, one for clocks of a server's parts that are not quite the same

_SERIAL_DIGITS: Final = 20  # of 64 bits

_LONG_TARGET: Final = 2000  # bytes of a URL from which on servers may refuse it; gunicorn does so from 4,094 on

_MOST_RETRY_AFTER_S: Final = 60  # a server can't send us to sleep

_TEXT_LIMIT: Final = 300  # characters of a server's message that we pass on


class Stamp(msgspec.Struct, frozen=True, kw_only=True):
    """What changes whenever something in a container does.

    Attributes:
        version: Serial of its last change; only our server tells, else 0.
        evidence: What plain Pithos has instead: time of the last change (full seconds), objects, bytes.
        settled: The reply is so much later than the last change that any further one will have another time.
        cursor: The same moment for `changes`, where the server has that.
        objects: How many it says are in the container; 0 if it does not.
    """

    version: int
    evidence: tuple[str, ...]
    settled: bool = True
    cursor: Cursor | None = None
    objects: int = 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stamp) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def _identity(self) -> tuple[object, ...]:
        """What names the moment."""
        return self.version, self.evidence

    @property
    def place(self) -> Cursor:
        """The same moment for `changes`, or to hold against later ones."""
        evidence = self.evidence if self.settled else ()
        return self.cursor or Cursor(identity="", version=self.version, modified_us=0, evidence=evidence)


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """What the reply to a write says about the new version; None: not said.

    Attributes:
        version: None also for Synnefo's junk after a MOVE.
        uuid: Only our server sends it.
        etag: Bare. An MD5 on some servers, so it proves nothing if it differs.
    """

    version: int | None
    uuid: str | None
    etag: str | None


class Judge:
    """Turns replies of one server into values and errors; knows the names for messages.

    Attributes:
        origin: Scheme, host and port.
        container: URL of the container.
    """

    def __init__(self, origin: str, container: str) -> None:
        self.origin = origin
        self.container = container

    def demand(self, request: Request, reply: Reply, *expected: int) -> Reply:
        """Insist on one of some statuses.

        Raises:
            SyncerError: The class says what the other status means; see `failure`.
        """
        if reply.status not in expected:
            raise self.failure(request, reply)
        return reply

    def failure(self, request: Request, reply: Reply) -> SyncerError:
        """The error that a status means when nothing more is known about the request."""
        fault = decode_fault(reply.status, reply.body)
        said = f": {fault.message} {fault.details}".rstrip()[:_TEXT_LIMIT] if fault else ""
        what = f"{self.origin} answered {reply.status} to {request.method} {request.target}{said}"
        if fault is not None and fault.name == CORRUPT_BLOCK:
            return CorruptionError(what)
        if reply.status in _LOST:
            lost = ReplyLostError(what)
            lost.retry_after_s = _retry_after_s(reply)
            return lost
        if reply.status in {401, 403}:
            kind = ForbiddenError if reply.status == 403 and self._is_object(request) else AuthError
            return kind(self._refusal(reply.status, said))
        if reply.status == 404:
            return NotFoundError(f"{self.container} does not exist ({request.method} {request.target}){said}")
        if reply.status in {413, 507}:
            return self._no_room(request, reply, said)
        return self._too_long(request, reply) or BadReplyError(what)

    def _too_long(self, request: Request, reply: Reply) -> SyncerError | None:
        """What a web server before Pithos says, as HTML, of a URL that it does not take: one name can't be held."""
        bounded = reply.status in {400, 414} and len(request.target) > _LONG_TARGET and self._is_object(request)
        if not bounded or decode_fault(reply.status, reply.body) is not None:
            return None
        name = unquote_to_bytes(request.target.partition("?")[0])[len(parse_url(self.container).container_path) + 1 :]
        return UnsafeNameError(name, f"the server takes no URL of {len(request.target)} bytes ({reply.status})")

    def _is_object(self, request: Request) -> bool:
        """Whether a request is on an object, and not on the container."""
        return request.target.partition("?")[0].startswith(f"{parse_url(self.container).container_path}/")

    def _refusal(self, status: int, said: str) -> str:
        if status == 401:
            return f"{self.origin} does not know the token for {self.container} (401){said}"
        account = parse_url(self.container).account
        return (
            f"{self.origin} does not allow this with the token for {self.container} (403){said}: expected a token of "
            f"the account {account}, or of one that it shares this with"
        )

    def _no_room(self, request: Request, reply: Reply, said: str) -> NoSpaceError:
        """For this object, by a quota or a bound, or for all, because the disk is full."""
        if reply.status == 507:
            return NoSpaceError(f"{self.origin} has no space left (507){said}: {request.method} {request.target}")
        return OverQuotaError(
            f"{self.origin} takes it as too large (413){said}: {request.method} {request.target}; make room there, or "
            "have the quota raised"
        )

    def conflict(self, path: RelPath, expect: RemoteTag | None, reply: Reply) -> PreconditionFailedError:
        """A 412, or a 404 of an object that was to be changed."""
        found = "no object" if reply.status == 404 else "another one, or a taken name"
        return PreconditionFailedError(path, describe(expect), found)

    def container_info(self, reply: Reply) -> ContainerInfo:
        """Read a HEAD of the container.

        Raises:
            BadReplyError: No Pithos container, or one with blocks that we can't make.
        """
        if wire.ACCOUNT_CONTAINER_COUNT.lower() in reply.headers:
            raise UsageError(f"{self.container} names an account and no container: expected …/ACCOUNT/CONTAINER")
        block_hash = reply.headers.get(wire.CONTAINER_BLOCK_HASH.lower(), "").lower()
        try:
            size_text = reply.headers.get(wire.CONTAINER_BLOCK_SIZE.lower(), "")
            block_size = wire.parse_decimal(wire.CONTAINER_BLOCK_SIZE, size_text)
        except HeaderError as error:
            self.bad(f"{self.container} does not look like a Pithos container: {error}")
        if block_size == 0 or block_hash != "sha256":
            self.bad(
                f"{self.container} has blocks of {block_size} bytes named by {block_hash or 'nothing'}, not sha256"
            )
        extensions = reply.headers.get(wire.EXTENSIONS.lower(), "")
        return ContainerInfo(
            identity=reply.headers.get(wire.CONTAINER_IDENTITY.lower()),
            block_size=block_size,
            block_hash=block_hash,
            atomic=reply.headers.get(wire.ATOMIC_CONDITIONS.lower()) == "1",
            extensions=frozenset(part.strip().lower() for part in extensions.split(",") if part.strip()),
        )

    def tells_container(self, reply: Reply) -> bool:
        """Whether a reply that is not a HEAD of the container carries what that would tell of it."""
        return wire.EXTENSIONS.lower() in reply.headers and wire.CONTAINER_BLOCK_SIZE.lower() in reply.headers

    def stamp(self, reply: Reply) -> Stamp:
        """Read from a HEAD of the container whether it changed since another one."""
        version = _serial(reply.headers.get(wire.CONTAINER_VERSION.lower(), ""))
        names = ("last-modified", wire.CONTAINER_OBJECT_COUNT.lower(), wire.CONTAINER_BYTES_USED.lower())
        return Stamp(
            version=version or 0,
            evidence=tuple(reply.headers.get(name, "") for name in names),
            settled=version is not None or _is_settled(reply),
            cursor=self._cursor(reply, version),
            objects=_serial(reply.headers.get(wire.CONTAINER_OBJECT_COUNT.lower(), "")) or 0,
        )

    def _cursor(self, reply: Reply, version: int | None) -> Cursor | None:
        """Where `changes` would begin; None if the server has no such thing."""
        identity = reply.headers.get(wire.CONTAINER_IDENTITY.lower())
        timestamp = reply.headers.get(wire.CONTAINER_VERSION_TIMESTAMP.lower())
        if version is None or identity is None or timestamp is None:
            return None
        if wire.EXTENSION_CHANGES not in self.container_info(reply).extensions:
            return None
        with self._reading():
            return Cursor(identity=identity, version=version, modified_us=wire.parse_timestamp(timestamp))

    def changes(self, reply: Reply, since: Cursor) -> ChangesPage:
        """Read what changed since a cursor."""
        with self._reading():
            page = decode_changes(reply.body, since.version)
        if page.identity != since.identity:
            self.bad(f"{self.container}: asked about {since.identity}, told about {page.identity[:80]!r}")
        return page

    def rows(self, reply: Reply) -> list[ObjectRow]:
        """Read a page of a listing."""
        with self._reading():
            return decode_objects(reply.body)

    def objects(self, reply: Reply) -> int | None:
        """How many objects the container has, as the headers of a listing say; None if they do not."""
        return _serial(reply.headers.get(wire.CONTAINER_OBJECT_COUNT.lower(), ""))

    def versions(self, reply: Reply) -> list[int]:
        """Read a version list."""
        with self._reading():
            return [row.version for row in decode_versions(reply.body)]

    def state(self, reply: Reply) -> ObjectState:
        """Read a HEAD of an object."""
        with self._reading():
            return wire.object_state(reply.headers.items())

    def written(self, reply: Reply) -> Written:
        """Read the reply to a write."""
        etag = reply.headers.get("etag")
        return Written(
            version=_serial(reply.headers.get(wire.OBJECT_VERSION.lower(), "")),
            uuid=reply.headers.get(wire.OBJECT_UUID.lower()),
            etag=etag.strip('"') if etag is not None else None,
        )

    def missing(self, request: Request, reply: Reply) -> tuple[BlockId, ...]:
        """Read a 409: a list names missing blocks, anything else is an error."""
        if is_binary(reply):
            ids = self._ids(reply)
        elif decode_fault(reply.status, reply.body) is not None:
            raise self.failure(request, reply)
        else:
            ids = self.stored(reply)
        if not ids:
            self.bad(f"{self.origin} answered 409 to {request.target} and named no missing block")
        return tuple(dict.fromkeys(ids))

    def lacking(self, reply: Reply) -> list[BlockId]:
        """The ids of a 409 that names missing blocks; none of any other."""
        try:
            return decode_ids(reply.body)
        except HashmapError:
            return []

    def stored(self, reply: Reply) -> list[BlockId]:
        """Read a list of ids."""
        with self._reading("not a list of block ids: "):
            return decode_ids(reply.body)

    def _ids(self, reply: Reply) -> list[BlockId]:
        with self._reading("not a list of block ids: "):
            return blocklists.split_ids(reply.body)

    def block_list(
        self, reply: Reply, path: RelPath, tag: RemoteTag, block_size: int, known: KnownList | None = None
    ) -> BlockList:
        """Read a hashmap, or what differs from an older one, and verify it against the version it was asked for.

        Raises:
            CorruptionError: Another content than the tag names.
        """
        try:
            if is_binary(reply):
                base, version = (None, 0) if known is None else (known.blocks, known.tag.version)
                blocks = blocklists.decode_list(reply.body, block_size, tag.size_bytes, base, version)
            elif known is None:
                blocks = decode_hashmap(reply.body, block_size)
            else:
                blocks = decode_either(reply.body, block_size, known.blocks)
        except HashmapError as error:
            raise CorruptionError(f"{shown(path)} on {self.container}: bad block list: {error}") from None
        if blocks.size_bytes != tag.size_bytes or blocks.object_hash.hex() != tag.etag:
            raise CorruptionError(
                f"{shown(path)} on {self.container}: the block list does not belong to {describe(tag)}: expected "
                f"{tag.size_bytes} bytes with hash {tag.etag}, got {blocks.size_bytes} bytes with hash "
                f"{blocks.object_hash.hex()}"
            )
        return blocks

    def results(self, reply: Reply, count: int) -> list[Result]:
        """Read what became of several small changes."""
        with self._reading():
            return decode_results(reply.body, count)

    def contents(self, reply: Reply, count: int) -> list[bytes | None]:
        """Read several small contents."""
        with self._reading():
            return decode_contents(reply.body, count)

    def moved_subtree(self, reply: Reply, source: str, target: str, guard: Guard) -> SubtreeMove:
        """Read the reply to a move of a subtree."""
        with self._reading():
            first = wire.parse_decimal(wire.SUBTREE_FIRST, reply.headers.get(wire.SUBTREE_FIRST.lower(), ""))
            return checked_move(source, target, first, guard.text)

    @contextmanager
    def _reading(self, what: str = "") -> Iterator[None]:
        """Whatever a codec finds wrong is told of the container."""
        try:
            yield
        except (BulkError, BulkReadError, HashmapError, HeaderError, ListingError, SubtreeError) as error:
            self.bad(f"{self.container}: {what}{error}")

    def bad(self, text: str) -> NoReturn:
        """Something answers, but not as it should."""
        raise BadReplyError(f"{text}; is this a Pithos server?")


def is_binary(reply: Reply) -> bool:
    """Whether a reply is a block list, or ids, in our own form."""
    return reply.headers.get("content-type", "") == blocklists.TYPE


def _retry_after_s(reply: Reply) -> float:
    """How long the server asks us to wait; a date, or nonsense, counts as nothing."""
    text = reply.headers.get("retry-after", "")
    return float(min(int(text), _MOST_RETRY_AFTER_S)) if text.isascii() and text.isdecimal() and len(text) < 6 else 0.0


def _serial(text: str) -> int | None:
    """A version serial; None for Synnefo's junk after a MOVE."""
    return int(text) if text.isdecimal() and text.isascii() and len(text) <= _SERIAL_DIGITS else None


def _is_settled(reply: Reply) -> bool:
    """Whether the next change of the container will have a later Last-Modified, which has full seconds."""
    now, changed = (wire.parse_http_date(reply.headers.get(name, "")) for name in ("date", "last-modified"))
    return now is not None and changed is not None and now - changed >= _SETTLED_S
