"""What the server answers instead of doing what was asked: expected, each with its HTTP status."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, Protocol

from blockfs.blocks.ids import BlockId
from blockfs.runtime.units import counted
from syncer.errors import SyncerError


class Ids(Protocol):
    """Block ids, however they are kept."""

    def __iter__(self) -> Iterator[BlockId]:
        """All of them."""
        ...

    def __len__(self) -> int:
        """How many."""
        ...


class Refusal(SyncerError):  # noqa: N818 - refusals are replies, named like their statuses
    """Root of all refusals.

    Attributes:
        status: HTTP status of the reply.
        message: For the client, one line.
        headers: What the reply carries besides.
    """

    status: ClassVar[int] = 400

    def __init__(self, message: str, headers: Mapping[str, str] | None = None) -> None:
        self.message = message
        self.headers = dict(headers or {})
        super().__init__(message)


class BadRequest(Refusal):
    """400: what was sent makes no sense, names something unsafe, or is not supported."""


class UnsafeName(BadRequest):
    """400: a name that nothing here may have."""


class Unauthorized(Refusal):
    """401: no token, or one that we don't know."""

    status = 401


class Forbidden(Refusal):
    """403: somebody else's account."""

    status = 403


class NotFound(Refusal):
    """404: no such container, object or version."""

    status = 404


class NotAllowed(Refusal):
    """405: this method does nothing here."""

    status = 405


class Conflict(Refusal):
    """409: what is there stands in the way, e.g. the objects of a container that is to be deleted."""

    status = 409


class MissingBlocks(Refusal):
    """409 with a list: nothing was written, the account must send these blocks first.

    Attributes:
        ids: In the order of the hashmap, never holes; distinct, but for a long one. With a length.
        in_binary: To be told as bytes, not as JSON.
    """

    status = 409
    in_binary = False

    def __init__(self, ids: Ids) -> None:
        self.ids = ids
        super().__init__(f"{counted(len(ids), 'block is', 'blocks are')} missing")


class Gone(Refusal):
    """410: what changed since then can't be told; list the container."""

    status = 410


class LengthRequired(Refusal):
    """411: a header that must be there is not."""

    status = 411


class PreconditionFailed(Refusal):
    """412: a condition of the request doesn't hold; nothing was done."""

    status = 412


class TooLarge(Refusal):
    """413: a body beyond its bound."""

    status = 413


class OverQuota(TooLarge):
    """413: it would exceed a quota. Two forms, as in Pithos: the container's in the message, the account's in details.

    Attributes:
        details: "" for a container's.
    """

    def __init__(self, message: str, details: str = "") -> None:
        self.details = details
        super().__init__(message)


class RangeNotSatisfiable(Refusal):
    """416."""

    status = 416


class Unprocessable(Refusal):
    """422: the body has another MD5, or makes another object, than the request said."""

    status = 422


class NotModified(Refusal):
    """304: no refusal to a person, but nothing is sent.

    Attributes:
        tag: Entity tag of what the client has, as ETag tells it; None: not told.
    """

    status = 304

    def __init__(self, tag: str | None = None) -> None:
        self.tag = tag
        super().__init__("Not modified")


class TooMany(Refusal):
    """429: of this account there is enough under way already; later it may go."""

    status = 429


class NotImplementedHere(Refusal):
    """501: a transfer coding that this server does not undo."""

    status = 501
