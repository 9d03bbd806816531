"""What a request about an object asks for: its URL and its fields, read into a typed order. Pure.

The order of the checks is what a client sees of a request with two faults: keep it.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

from syncer.protocol import segments, swift
from syncer.protocol.extensions import blocklists, subtree
from syncer.protocol.extensions.hashmap_delta import MAX_DELTA_BYTES
from syncer.protocol.pithos import byteranges, hashmap, headers
from syncer.server.catalogue.conditions import Conditions
from syncer.server.catalogue.orders import (
    DeleteOrder,
    MetaOrder,
    Place,
    ReadOrder,
    Transfer,
    TransferOrder,
    WriteOrder,
    merged_meta,
)
from syncer.server.errors import BadRequest, Forbidden, LengthRequired, RangeNotSatisfiable
from syncer.server.http.asked import Asked, require_at_most
from syncer.server.http.urls import parse_reference
from syncer.server.store.updates import UpdateOrder

SHORT_BYTES: Final = 1 << 20
"""A body up to this comes in one piece, and is handed to a thread at once: a hop costs some 50 µs."""

_OF_PARTS: Final = ("Content-Range", headers.SOURCE_OBJECT, headers.OBJECT_BYTES)
"""They make a POST be about a part of the content. On a PUT they would replace the whole object by a part of it."""

_REFUSED_ON_WRITE: Final = ("X-Delete-At", "X-Delete-After")
"""Of Pithos, not supported yet. Ignoring them would store something else than was meant."""


class ContentOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Which bytes of an object are wanted.

    Attributes:
        read: Of which object.
        ranges: As Range says; what it means depends on the size. None: all.
        if_range: The ranges only if this fits; else all.
    """

    read: ReadOrder
    ranges: str | None
    if_range: str | None


class HashmapOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A block list that is wanted.

    Attributes:
        read: Of which object.
        since: Only what differs from this version; None: all.
        is_binary: In binary, without its holes; else in JSON.
    """

    read: ReadOrder
    since: int | None
    is_binary: bool


class BlockListOrder(msgspec.Struct, frozen=True, kw_only=True):
    """An object that is to be made of blocks that are here.

    Attributes:
        write: What is to be made.
        base_version: The body tells what differs from this version; None: all, or the body says what it is.
        is_binary: The body is in binary; else in JSON.
        limit_bytes: Longest body that is taken.
        is_long: It is looked at as it comes, not read as a whole.
    """

    write: WriteOrder
    base_version: int | None
    is_binary: bool
    limit_bytes: int
    is_long: bool


class PartOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A part of an object that is to be changed.

    Attributes:
        place: Which object.
        update: Where the new bytes go.
        source: Where they come from; None: they are the body.
    """

    place: Place
    update: UpdateOrder
    source: ReadOrder | None


def read(asked: Asked) -> ReadOrder:
    """HEAD."""
    return ReadOrder(
        place=asked.place,
        version=asked.number_parameter("version"),
        conditions=asked.conditions(),
        joins=_joins(asked) and not asked.is_foreign,
        tells=asked.method == "HEAD",
        reader=asked.account if asked.is_foreign else "",
    )


def _joins(asked: Asked) -> bool:
    """Whether it is about the segments of an object that is made of some, not about the manifest."""
    return asked.target.is_swift and asked.parameter(segments.PARAMETER) != "get"


def content(asked: Asked) -> ContentOrder:
    """GET."""
    return ContentOrder(read=read(asked), ranges=asked.header("Range"), if_range=asked.header("If-Range"))


def hashmap_of(asked: Asked) -> HashmapOrder:
    """GET of a hashmap."""
    is_binary = asked.parameter("format") == blocklists.FORMAT
    if not (is_binary or asked.wants_json):
        raise BadRequest("A hashmap is had with ?hashmap&format=json")
    since = asked.number_parameter("since_version")
    return HashmapOrder(read=read(asked), since=since, is_binary=is_binary)


def put_content(asked: Asked) -> WriteOrder:
    """PUT of a content."""
    _require_supported(asked, _OF_PARTS)
    if asked.target.is_swift and asked.fields.keys().isdisjoint({"content-length", "transfer-encoding"}):
        raise LengthRequired("Missing Content-Length header: how long the body is")
    conditions, meta = asked.conditions(), asked.meta()
    content_type = _content_type(asked)
    md5, manifest = asked.header("ETag"), asked.header(swift.MANIFEST)
    return WriteOrder(
        place=asked.place,
        content_type=content_type,
        meta=merged_meta({}, meta),  # of a new version, an empty value is as good as none
        conditions=conditions,
        manifest="" if manifest is None else swift.parse_manifest(manifest),
        fields=asked.kept_fields(),
        md5=None if md5 is None else md5.strip('"').lower(),
        readers=asked.readers(),
    )


def put_static(asked: Asked) -> WriteOrder:
    """PUT of a manifest that lists segments; an ETag is that of the whole."""
    _require_no_manifest(asked)
    require_at_most(asked.length, segments.MAX_BYTES)
    return put_content(asked)


def _content_type(asked: Asked) -> str:
    """The type of a new content; of OpenStack's, the name's ending tells it if nothing else does."""
    sent = asked.content_type()
    if asked.target.is_swift and (sent is None or asked.says_yes(asked.header(swift.DETECT_CONTENT_TYPE))):
        sent = swift.type_of_name(asked.target.name)
    return sent or headers.FILE_TYPE


def put_hashmap(asked: Asked) -> BlockListOrder:
    """PUT of a hashmap, whole or a difference."""
    _require_supported(asked, _OF_PARTS)
    content_type = asked.content_type()
    if content_type is None:
        raise LengthRequired("Missing Content-Type header: the object's type")
    _require_no_manifest(asked)
    is_binary = asked.parameter("format") == blocklists.FORMAT
    base_version, length = asked.number_parameter("base_version"), asked.length
    is_long = base_version is None and (length is None or length > SHORT_BYTES)
    longest = blocklists.MAX_BYTES if is_binary else hashmap.MAX_HASHMAP_BYTES
    limit_bytes = longest if is_long else MAX_DELTA_BYTES
    require_at_most(length, limit_bytes)
    write = WriteOrder(
        place=asked.place,
        content_type=content_type,
        conditions=asked.conditions(),
        meta=merged_meta({}, asked.meta()),
        fields=asked.kept_fields(),
        readers=asked.readers(),
    )
    return BlockListOrder(
        write=write, base_version=base_version, is_binary=is_binary, limit_bytes=limit_bytes, is_long=is_long
    )


def here(asked: Asked) -> Transfer:
    """PUT with X-Move-From or X-Copy-From. If-* are about the destination, which is what the URL names."""
    _require_supported(asked, _OF_PARTS)
    order = TransferOrder(
        source=Conditions(if_version=asked.number(headers.IF_SOURCE_VERSION)),
        destination=asked.conditions(),
        content_type=asked.content_type(),
        meta=asked.meta(),
        fields=asked.kept_fields(),
        is_fresh=_is_fresh(asked),
        readers=asked.readers(),
    )
    move_from = asked.header(headers.MOVE_FROM)
    source = _source(asked, asked.header(headers.COPY_FROM) or "" if move_from is None else move_from)
    return _transfer(asked, source, asked.place, order, moves=move_from is not None)


def is_tree_from_elsewhere(asked: Asked) -> bool:
    """Whether a PUT is a move or a copy of an object with all below it."""
    sources = (headers.MOVE_FROM, headers.COPY_FROM)
    return bool(asked.delimiter) and any(asked.header(name) is not None for name in sources)


def there(asked: Asked) -> Transfer:
    """MOVE or COPY to where Destination says. If-* are about the source, which is what the URL names."""
    _require_supported(asked, (headers.OBJECT_SHARING,))
    destination, owner = asked.header(headers.DESTINATION), asked.header(swift.DESTINATION_ACCOUNT)
    if destination is None:
        raise BadRequest(f"{asked.method} needs the header {headers.DESTINATION}: /CONTAINER/OBJECT")
    if owner is not None and headers.unquote_value(owner) != asked.account:
        raise Forbidden("This token is not for that account; what others share is only read")
    order = TransferOrder(
        source=asked.conditions(),
        destination=Conditions(if_version=asked.number(headers.IF_DESTINATION_VERSION)),
        content_type=asked.content_type(),
        meta=asked.meta(),
        fields=asked.kept_fields(),
        is_fresh=_is_fresh(asked),
    )
    return _transfer(asked, asked.place, _place(asked, destination), order, moves=asked.method == "MOVE")


def is_part(asked: Asked) -> bool:
    """Whether a POST is about a part of the content: as in Pithos, the body's type or a source says so."""
    says_so = asked.header("Content-Type") == headers.FILE_TYPE
    return not asked.target.is_swift and (says_so or any(asked.header(name) is not None for name in _OF_PARTS))


def post_part(asked: Asked) -> PartOrder:
    """POST of new bytes over a part of an object, behind its end, or from another object."""
    _require_supported(asked, (headers.OBJECT_SHARING,))
    where = asked.header("Content-Range")
    if where is None:
        raise BadRequest("Missing Content-Range header: where the bytes go; bytes */* appends")
    try:
        offset, length, total = byteranges.parse_content_range(where)
    except byteranges.RangeError as error:
        raise RangeNotSatisfiable(str(error)) from None
    update = UpdateOrder(
        offset=offset,
        length=length,
        total=total,
        cut=asked.number(headers.OBJECT_BYTES),
        meta=asked.meta(),
        keeps_meta=asked.is_update,
        conditions=asked.conditions(),
    )
    source, reference = None, asked.header(headers.SOURCE_OBJECT)
    if reference is not None:
        require_at_most(asked.length, 0)
        source = ReadOrder(place=_source(asked, reference), version=asked.number(headers.SOURCE_VERSION))
    elif asked.length is not None and length not in {None, asked.length}:
        raise BadRequest(f"The body has {asked.length} bytes, but Content-Range {length}")
    return PartOrder(place=asked.place, update=update, source=source)


def post_meta(asked: Asked) -> MetaOrder:
    """POST of metadata; with ?update those not named stay. OpenStack's may tell another type, too."""
    _require_supported(asked)
    return MetaOrder(
        place=asked.place,
        meta=asked.meta(),
        conditions=asked.conditions(),
        keeps_meta=asked.is_update,
        content_type=asked.content_type() if asked.target.is_swift else None,
        fields=asked.kept_fields(),
        readers=asked.readers(),
    )


def delete(asked: Asked) -> DeleteOrder:
    """DELETE; with ?delimiter=/ also of what is below it."""
    return DeleteOrder(place=asked.place, conditions=asked.conditions(), delimiter=asked.delimiter)


def shared_version(asked: Asked) -> int | None:
    """Which version of an object a reader asks for.

    Raises:
        Forbidden: Older ones, whichever they are.
    """
    if asked.parameter("version") == "list" or "since_version" in asked.target.parameters:
        raise Forbidden("Only the current version of this object is shared with you")
    return asked.number_parameter("version")


def _transfer(asked: Asked, source: Place, destination: Place, order: TransferOrder, *, moves: bool) -> Transfer:
    _require_no_manifest(asked)
    delimiter, is_content = asked.delimiter, asked.target.is_swift and not moves
    ranges = asked.header("Range") if is_content else None
    if ranges is not None and delimiter:
        raise BadRequest("Range and delimiter don't go together")
    if source.account != destination.account and (moves or delimiter):
        text = "What another account shares "
        raise Forbidden(text + ("can be copied, not moved" if moves else "is copied one by one"))
    require_at_most(asked.length, 0)
    wanted = asked.header(headers.IF_SUBTREE) if moves else None
    guard = None
    if wanted is not None:
        try:
            guard = subtree.parse_guard(wanted)
        except subtree.SubtreeError as error:
            raise BadRequest(f"{headers.IF_SUBTREE}: {error}") from None
        # Header fields are no objection: proxies add some (Cache-Control) to requests.
        if delimiter != "/" or replace(order, fields={}) != TransferOrder():
            text = f"{headers.IF_SUBTREE} goes with delimiter=/, without other conditions, type and metadata"
            raise BadRequest(text)
    return Transfer(
        source=source,
        destination=destination,
        moves=moves,
        version=None if moves else asked.number(headers.SOURCE_VERSION),
        order=order,
        delimiter=delimiter,
        guard=guard,
        joins=is_content and _joins(asked) and not delimiter,
        ranges=ranges,
    )


def _place(asked: Asked, reference: str) -> Place:
    """An object of the same account, named by a header."""
    container, name = parse_reference(reference)
    return replace(asked.place, container=container, name=name)


def _source(asked: Asked, reference: str) -> Place:
    """Where something is taken from: of the account that X-Source-Account names, else of the caller's.

    OpenStack's clients call it X-Copy-From-Account.
    """
    account = asked.header(headers.SOURCE_ACCOUNT)
    if account is None and asked.target.is_swift:
        account = asked.header(swift.COPY_FROM_ACCOUNT)
    place = _place(asked, reference)
    return replace(place, account=headers.unquote_value(account)) if account else place


def _require_no_manifest(asked: Asked) -> None:
    """Only a PUT with a body of its own makes an object of segments."""
    if asked.header(swift.MANIFEST) is not None:
        raise BadRequest(f"{swift.MANIFEST} does not go together with this request")


def _is_fresh(asked: Asked) -> bool:
    """Whether a copy of OpenStack's leaves the old metadata behind."""
    return asked.target.is_swift and asked.says_yes(asked.header(swift.FRESH_METADATA))


def _require_supported(asked: Asked, more: tuple[str, ...] = ()) -> None:
    if asked.header(swift.MANIFEST) is not None and not asked.target.is_swift:
        raise BadRequest("Objects made of segments are OpenStack's; this server has them below /swift/v1 only")
    if asked.header(headers.OBJECT_PUBLIC) not in {None, "False", "false"}:
        raise BadRequest("This server does not publish objects")
    if asked.header(swift.DESTINATION_ACCOUNT) is not None and not asked.target.is_swift:
        raise BadRequest(f"This server does not support the header {swift.DESTINATION_ACCOUNT!r}")
    for name in (*_REFUSED_ON_WRITE, *(swift.REFUSED_FIELDS if asked.target.is_swift else ()), *more):
        if asked.header(name) is not None:
            raise BadRequest(f"This server does not support the header {name!r}")
