"""JSON error bodies: `{"itemNotFound": {"code": 404, "message": "…", "details": "…"}}`. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

from syncer.protocol.jsontext import MALFORMED

_NAMES: Final = {
    400: "badRequest",
    401: "unauthorized",
    403: "forbidden",
    404: "itemNotFound",
    405: "notAllowed",
    408: "requestTimeout",
    409: "conflict",
    410: "gone",  # ours: changes since a version that is not this container's
    411: "lengthRequired",
    412: "preconditionFailed",
    413: "requestEntityTooLarge",
    416: "rangeNotSatisfiable",
    422: "unprocessableEntity",
    429: "tooManyRequests",  # ours: of this account there is enough under way
    500: "internalServerError",
    501: "notImplemented",
    503: "serviceUnavailable",
    507: "insufficientStorage",  # ours: the server's disk is full; Pithos knows only quotas (413)
}


CORRUPT_BLOCK: Final = "corruptBlock"
"""Name of ours, with 500: a stored block is damaged. Asking again does not help; other objects are not concerned."""


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """What a server says when it refuses.

    Attributes:
        code: HTTP status.
        message: For a person, one line.
        details: More of it, or "".
        name: The body's key; "" for the one of the status. Pithos calls what Astakos refuses just `fault`.
    """

    code: int
    message: str
    details: str = ""
    name: str = ""


class _Wire(msgspec.Struct):
    """The inner object; servers leave things out."""

    message: str = ""
    details: str | None = ""


_DECODER: Final = msgspec.json.Decoder(dict[str, _Wire])


def encode_fault(fault: Fault) -> bytes:
    """Write an error body."""
    name = fault.name or _NAMES.get(fault.code, "fault")
    body = {name: {"code": fault.code, "message": fault.message, "details": fault.details}}
    return msgspec.json.encode(body)


def decode_fault(code: int, body: bytes) -> Fault | None:
    """Read an error body.

    Args:
        code: HTTP status of the reply; the body's own is ignored.
        body: What came with it, from whatever answered.

    Returns:
        None when the body is not a fault: an HTML page of a proxy, nothing at all, or the list of missing blocks of a
        409.
    """
    try:
        faults = _DECODER.decode(body)
    except MALFORMED:
        return None
    for name, wire in faults.items():
        usual = name == _NAMES.get(code, "fault")
        return Fault(code=code, message=wire.message, details=wire.details or "", name="" if usual else name)
    return None
