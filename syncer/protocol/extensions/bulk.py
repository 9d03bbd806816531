"""Many small changes of one container in one request: our extension `bulk`. Pure.

A body is one line of JSON, `{"operations": [...]}`, and behind it the contents that it announces, one after the other.
Operations are done in order, each under its own condition; one that fails does not touch the others. The answer is
`{"results": [...]}`, one for each.

    {"op": "put", "name": N, "type": T, "meta": {…}, "bytes": LENGTH, "if_version": V}
    {"op": "delete", "name": N, "if_version": V}
    {"op": "move", "name": N, "to": N2, "if_version": V, "if_to_version": V2}

Versions are as in X-If-Object-Version: 0 is "no object"; without one, there is no condition.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import msgspec

from syncer.protocol.jsontext import MALFORMED
from syncer.protocol.pithos.headers import (
    FILE_TYPE,
    MAX_META_ITEMS,
    MAX_META_KEY_CHARACTERS,
    MAX_META_VALUE_CHARACTERS,
)
from syncer.protocol.pithos.names import object_name_problem

MAX_OPERATIONS: Final = 1024  # of one request: what others have to wait for, some 0.2 s
MAX_CONTENT_BYTES: Final = 8 << 20  # of one request, all contents together (one block more, if it is alone)
MAX_BODY_BYTES: Final = 64 << 20

_MAX_TYPE_CHARACTERS: Final = 256
_MAX_SERIAL: Final = (1 << 63) - 1


class BulkError(ValueError):
    """A body that is not what it should be. The message fits into a fault."""


class Put(msgspec.Struct, frozen=True, kw_only=True):
    """Make an object, or a new version of it, of at most one block."""

    name: str
    data: bytes
    content_type: str = FILE_TYPE
    meta: dict[str, str]
    if_version: int | None = None


class Delete(msgspec.Struct, frozen=True, kw_only=True):
    """Delete an object."""

    name: str
    if_version: int | None = None


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """Move an object, its uuid goes along."""

    name: str
    to: str
    if_version: int | None = None
    if_to_version: int | None = None


Operation: TypeAlias = Put | Delete | Move


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one operation.

    Attributes:
        status: As the single request would have been answered.
        message: Why not, for a person; "" if it was done.
        version: Of what was made; the deletion's serial for a deletion.
        uuid: Of the object; "" for a deletion.
        object_hash: In hex; "" for a deletion.
    """

    status: int
    message: str = ""
    version: int = 0
    uuid: str = ""
    object_hash: str = ""


class _Put(msgspec.Struct, tag_field="op", tag="put", omit_defaults=True):
    name: str
    size_bytes: int = msgspec.field(name="bytes")
    content_type: str = msgspec.field(name="type", default=FILE_TYPE)
    meta: dict[str, str] = {}
    if_version: int | None = None


class _Delete(msgspec.Struct, tag_field="op", tag="delete", omit_defaults=True):
    name: str
    if_version: int | None = None


class _Move(msgspec.Struct, tag_field="op", tag="move", omit_defaults=True):
    name: str
    to: str
    if_version: int | None = None
    if_to_version: int | None = None


class _Operations(msgspec.Struct):
    operations: list[_Put | _Delete | _Move]


class _Result(msgspec.Struct, omit_defaults=True):
    status: int
    message: str = ""
    version: int = msgspec.field(name="x_object_version", default=0)
    uuid: str = msgspec.field(name="x_object_uuid", default="")
    object_hash: str = msgspec.field(name="x_object_hash", default="")


class _Results(msgspec.Struct):
    results: list[_Result]


_OPERATIONS: Final = msgspec.json.Decoder(_Operations)
_RESULTS: Final = msgspec.json.Decoder(_Results)


def encode_operations(operations: Sequence[Operation]) -> bytes:
    """Write a request."""
    head = msgspec.json.encode(_Operations(operations=[_wire(operation) for operation in operations]))
    return b"".join([head, b"\n", *(operation.data for operation in operations if isinstance(operation, Put))])


def decode_operations(body: bytes, block_size: int) -> list[Operation]:
    """Read a request.

    Args:
        body: JSON line and contents.
        block_size: Longest content of one object.

    Raises:
        BulkError: Not such a body; an unsafe name; too many operations; contents that are too long, or of another
            length than was announced.
    """
    head, newline, contents = body.partition(b"\n")
    if not newline:
        raise BulkError("expected a line of JSON and then the contents")
    try:
        wire = _OPERATIONS.decode(head).operations
    except MALFORMED as error:
        raise BulkError(f"Invalid data formatting: {error}") from None
    if not 0 < len(wire) <= MAX_OPERATIONS:
        raise BulkError(f"expected 1 to {MAX_OPERATIONS} operations, got {len(wire)}")
    announced = sum(one.size_bytes for one in wire if isinstance(one, _Put))
    operations: list[Operation] = []
    at = 0
    for one in wire:
        _check(one, block_size)
        if isinstance(one, _Put):
            data = contents[at : at + one.size_bytes]
            at += one.size_bytes
            meta = {key.lower(): value for key, value in one.meta.items() if value}
            operations.append(
                Put(name=one.name, data=data, content_type=one.content_type, meta=meta, if_version=one.if_version)
            )
        elif isinstance(one, _Delete):
            operations.append(Delete(name=one.name, if_version=one.if_version))
        else:
            operations.append(
                Move(name=one.name, to=one.to, if_version=one.if_version, if_to_version=one.if_to_version)
            )
    if announced != len(contents):
        raise BulkError(f"{announced} bytes of contents were announced, {len(contents)} came")
    return operations


def encode_results(results: Sequence[Result]) -> bytes:
    """Write an answer."""
    return msgspec.json.encode(
        _Results(
            results=[
                _Result(
                    status=one.status,
                    message=one.message,
                    version=one.version,
                    uuid=one.uuid,
                    object_hash=one.object_hash,
                )
                for one in results
            ]
        )
    )


def decode_results(body: bytes, count: int) -> list[Result]:
    """Read the answer to a request of `count` operations.

    Raises:
        BulkError: Not such an answer, or not as many.
    """
    try:
        wire = _RESULTS.decode(body).results
    except MALFORMED as error:
        raise BulkError(f"not an answer to a bulk request: {error}") from None
    if len(wire) != count:
        raise BulkError(f"{len(wire)} results for {count} operations")
    found = []
    for one in wire:
        if not 200 <= one.status <= 599 or not 0 <= one.version <= _MAX_SERIAL:
            raise BulkError(f"a result with status {one.status} and version {one.version}")
        found.append(
            Result(
                status=one.status,
                message=one.message,
                version=one.version,
                uuid=one.uuid,
                object_hash=one.object_hash,
            )
        )
    return found


def _wire(operation: Operation) -> _Put | _Delete | _Move:
    match operation:
        case Put():
            return _Put(
                name=operation.name,
                size_bytes=len(operation.data),
                content_type=operation.content_type,
                meta=operation.meta,
                if_version=operation.if_version,
            )
        case Delete():
            return _Delete(name=operation.name, if_version=operation.if_version)
        case Move():
            return _Move(
                name=operation.name,
                to=operation.to,
                if_version=operation.if_version,
                if_to_version=operation.if_to_version,
            )


def _check(one: _Put | _Delete | _Move, block_size: int) -> None:
    """Refuse what no single request could say either."""
    for name in (one.name, one.to) if isinstance(one, _Move) else (one.name,):
        problem = object_name_problem(name)
        if problem is not None:
            raise BulkError(f"Unsafe object name {name[:100]!r}: {problem}")
    for version in (one.if_version, one.if_to_version if isinstance(one, _Move) else None):
        if version is not None and not 0 <= version <= _MAX_SERIAL:
            raise BulkError(f"{version} is no version")
    if isinstance(one, _Put):
        _check_put(one, block_size)


def _check_put(one: _Put, block_size: int) -> None:
    if not 0 <= one.size_bytes <= block_size:
        raise BulkError(f"{one.name[:100]!r}: a content of {one.size_bytes} bytes; expected at most {block_size}")
    if not 0 < len(one.content_type) <= _MAX_TYPE_CHARACTERS or not one.content_type.isprintable():
        raise BulkError(f"{one.name[:100]!r}: expected a type of at most {_MAX_TYPE_CHARACTERS} printable characters")
    if len(one.meta) > MAX_META_ITEMS:
        raise BulkError(f"{one.name[:100]!r}: at most {MAX_META_ITEMS} metadata items, not {len(one.meta)}")
    for key, value in one.meta.items():
        if not 0 < len(key) <= MAX_META_KEY_CHARACTERS or len(value) > MAX_META_VALUE_CHARACTERS:
            raise BulkError(f"{one.name[:100]!r}: a metadata key or value is empty or too long")
