"""HTTP for objects: translation only."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from itertools import islice
from typing import Final

from msgspec.structs import replace
from starlette.responses import Response, StreamingResponse

from syncer.protocol import swift
from syncer.protocol.extensions import blocklists, hashmap_delta, subtree
from syncer.protocol.extensions.subtree import SubtreeError
from syncer.protocol.pithos import byteranges, hashmap, headers, listing, sharing
from syncer.protocol.pithos.byteranges import RangeError
from syncer.protocol.pithos.headers import HeaderError, ObjectState
from syncer.server.calls.blocklists import put_block_list
from syncer.server.calls.call import JSON, Call, reply
from syncer.server.catalogue.conditions import Conditions, range_fits
from syncer.server.catalogue.objects import Place, Source, TransferOrder
from syncer.server.errors import (
    BadRequest,
    Forbidden,
    LengthRequired,
    RangeNotSatisfiable,
    Unprocessable,
)
from syncer.server.http.urls import parse_reference
from syncer.server.store.incoming import Incoming
from syncer.server.store.reading import ObjectView
from syncer.server.store.updates import UpdateOrder
from syncer.server.store.writing import MAX_PART_BLOCKS

_REFUSED_ON_PUT: Final = ("Content-Range", headers.SOURCE_OBJECT, headers.OBJECT_BYTES)
"""Of a POST. On a PUT they would replace the whole object by a part of it."""

_REFUSED_ON_WRITE: Final = ("X-Delete-At", "X-Delete-After", "Destination-Account")
"""Of Pithos, not supported yet. Ignoring them would store something else than was meant."""

Transfer = Callable[[Call, Place, Place, TransferOrder], Awaitable[Response]]
"""Move or copy: from, to, and what else."""

_BASE_VERSION: Final = "base_version"
_SINCE_VERSION: Final = "since_version"

_HASHMAP_CHUNKS: Final = 4
"""Pieces of a hashmap that are made at once; one with fewer (up to 4096 ids) is sent as a whole, with its length."""


_WHOLE_BYTES: Final = 4 << 20
"""So much of a reply is read before its headers are sent."""

_READ_BYTES: Final = 1 << 20  # a piece of a reply, or a block if that is more
_HASHMAP_BYTES: Final = 4 << 20  # needed to send a hashmap, of any length
_VERSION_BYTES: Final = 320  # needed for one in a list of versions
_FEW_VERSIONS: Final = 800  # in 256 KiB
_MANY_VERSIONS: Final = 100_000  # in 32 MiB
_BODY_BYTES: Final = 8 << 20  # needed to take a content: pieces of 1 MiB, or of a block, in several states
_ID_COPIES: Final = 6 * 32  # bytes of a block's id in a change of a part


async def get_object(call: Call) -> Response:
    """GET /account/container/object, its hashmap, or its versions."""
    version = call.target.parameters.get("version")
    if version == "list":
        return await _get_history(call)
    if "hashmap" in call.target.parameters:
        return await _get_hashmap(call)
    return await _get_content(call)


async def _get_history(call: Call) -> Response:
    """A list of versions. It is charged a few; a long one is begun again, with as much as it may take."""
    await call.reserve(_VERSION_BYTES * _FEW_VERSIONS)
    rows = await call.run(call.store.history, call.place, _FEW_VERSIONS)
    if len(rows) == _FEW_VERSIONS:  # there may be more
        del rows
        call.purse.keep(0)
        await call.reserve(_VERSION_BYTES * _MANY_VERSIONS)
        rows = await call.run(call.store.history, call.place)
    return reply(200, listing.encode_versions(rows), content_type=JSON)


async def head_object(call: Call) -> Response:
    """HEAD /account/container/object."""

    def look() -> tuple[ObjectView, dict[str, str]]:
        opened = _open(call)
        return opened, _fields(call, opened)

    opened, fields = await call.run(look)
    return reply(200, fields={**fields, "Content-Length": str(opened.state.size_bytes)})


async def put_object(call: Call) -> Response:
    """PUT /account/container/object: content, hashmap, or from another object."""
    _refuse_unsupported(call, _REFUSED_ON_PUT)
    readers = _readers(call)
    if readers is None:
        return await _put(call)
    # Who must not see the new content loses sight before it is there; who may gets it afterwards.
    await call.run(call.store.shares.narrow, call.place, readers)
    written = await _put(call)
    await call.run(call.store.shares.share, call.place, readers)
    return written


async def _put(call: Call) -> Response:
    if call.header(headers.MOVE_FROM) is not None:
        return await _put_transfer(call, headers.MOVE_FROM, _move)
    if call.header(headers.COPY_FROM) is not None:
        return await _put_transfer(call, headers.COPY_FROM, _copy)
    if "hashmap" in call.target.parameters:
        return await _put_hashmap(call)
    return await _put_content(call)


async def post_object(call: Call) -> Response:
    """POST /account/container/object: metadata; with ?update those not named stay."""
    _refuse_unsupported(call)
    if _changes_content(call):
        return await _post_part(call)
    meta, conditions, update, readers = call.meta(), call.conditions(), call.is_update, _readers(call)
    if readers is not None:
        await call.run(call.store.shares.share, call.place, readers)
        if update and not meta:  # no new version for that
            return reply(202)
    state = await call.run(lambda: call.store.set_meta(call.place, meta, conditions, update=update))
    return _written(call, 202, state)


def _changes_content(call: Call) -> bool:
    """Whether a POST is about a part of the content: as in Pithos, the body's type or a source says so."""
    if call.is_swift:
        return False
    about_content = ("Content-Range", headers.SOURCE_OBJECT, headers.OBJECT_BYTES)
    return call.header("Content-Type") == headers.FILE_TYPE or any(
        call.header(name) is not None for name in about_content
    )


async def _post_part(call: Call) -> Response:
    """New bytes over a part of an object, behind its end, or from another object."""
    _refuse_unsupported(call, (headers.OBJECT_SHARING,))
    order = _update_order(call)
    source = call.header(headers.SOURCE_OBJECT)
    if source is not None:
        call.refuse_announced(0)
        await call.reserve(_ID_COPIES * MAX_PART_BLOCKS)
        found = Source(place=_source_place(call, source), version=call.number(headers.SOURCE_VERSION))
        state = await call.run(lambda: call.store.update_content(call.place, order, found))
        return _written(call, 204, state)
    length = call.length
    if length is not None and order.length not in {None, length}:
        raise BadRequest(f"The body has {length} bytes, but Content-Range {order.length}")

    def check() -> None:
        if length is not None:
            call.store.check_update(call.place, order, length)

    def finish(incoming: Incoming) -> ObjectState:
        if order.length not in {None, incoming.size_bytes}:
            raise BadRequest(f"The body has {incoming.size_bytes} bytes, but Content-Range {order.length}")
        return call.store.update_content(call.place, order, incoming)

    await call.reserve(_body_bytes(call) + _ID_COPIES * _part_blocks(call))
    limit = hashmap.MAX_BLOCKS * call.store.block_size
    return _written(call, 204, await call.receive(limit, finish, check=check))


def _update_order(call: Call) -> UpdateOrder:
    where = call.header("Content-Range")
    if where is None:
        raise BadRequest("Missing Content-Range header: where the bytes go; bytes */* appends")
    try:
        offset, length, total = byteranges.parse_content_range(where)
    except RangeError as error:
        raise RangeNotSatisfiable(str(error)) from None
    return UpdateOrder(
        offset=offset,
        length=length,
        total=total,
        cut=call.number(headers.OBJECT_BYTES),
        meta=call.meta(),
        keeps_meta=call.is_update,
        conditions=call.conditions(),
    )


async def move_object(call: Call) -> Response:
    """MOVE /account/container/object with Destination; If-* are about the source."""
    return await _transfer_to(call, _move)


async def copy_object(call: Call) -> Response:
    """COPY /account/container/object with Destination; If-* are about the source."""
    return await _transfer_to(call, _copy)


async def delete_object(call: Call) -> Response:
    """DELETE /account/container/object; with ?delimiter=/ also what is below it; with ?until only older versions."""
    until_us = call.until_us
    if until_us is not None:
        if call.delimiter:
            raise BadRequest("until and delimiter don't go together")
        await call.run(call.store.purge_object, call.place, until_us)
        return reply(204)
    conditions, delimiter = call.conditions(), call.delimiter
    serial = await call.run(lambda: call.store.delete(call.place, conditions, delimiter=delimiter))
    return reply(204, fields={headers.OBJECT_VERSION: str(serial)})


def _readers(call: Call) -> list[str] | None:
    """Who may read from now on; None: as before."""
    value = call.header(headers.OBJECT_SHARING)
    return None if value is None else sharing.parse_sharing(value)


def _sharing_fields(call: Call) -> dict[str, str]:
    """What a reply about an object tells about its sharing."""
    told = call.store.shares.told(call.place)
    if call.is_foreign:
        return {headers.OBJECT_ALLOWED_TO: "read"}
    if told is None:
        return {}
    by, readers = told
    fields = {headers.OBJECT_SHARING: sharing.sharing_value(readers)}
    if by != call.target.name:
        fields[headers.OBJECT_SHARED_BY] = headers.quote_value(f"{call.target.container}/{by}")
    return fields


def _open(call: Call) -> ObjectView:
    """The version that the URL names."""
    text = call.target.parameters.get("version")
    try:
        version = None if text is None else headers.parse_decimal("version", text)
    except HeaderError as error:
        raise BadRequest(str(error)) from None
    joins = call.is_swift and not call.is_foreign
    return call.store.open_object(call.place, version=version, conditions=call.conditions(), joins=joins)


def _fields(call: Call, opened: ObjectView) -> dict[str, str]:
    """Describe a version in a reply, all but Content-Length."""
    fields = {**call.object_fields(opened.state), **_sharing_fields(call)}
    if call.is_swift and opened.manifest:
        fields |= swift.manifest_fields(opened.manifest, (segment.state.md5 for segment in opened.segments))
    return fields


def _read(call: Call) -> ObjectView:
    """Open an object whose content, or hashmap, will be sent."""
    opened = _open(call)
    if call.is_foreign:
        call.store.shares.possess(call.account, opened.state, call.store.leaf_keys(opened))
    return opened


async def _get_hashmap(call: Call) -> Response:
    is_binary = call.target.parameters.get("format") == blocklists.FORMAT
    if not (is_binary or call.wants_json):
        raise BadRequest("A hashmap is had with ?hashmap&format=json")

    since = call.serial_parameter(_SINCE_VERSION)

    def begin() -> tuple[ObjectView, list[bytes], Iterator[bytes]]:
        opened = _read(call)
        if opened.segments:
            raise BadRequest("An object made of segments has no hashmap")
        block_size, state = call.store.block_size, opened.state
        splices = None if since is None else call.store.splices(opened, call.place, since)
        if is_binary:
            base, told = (None, call.store.filled(opened)) if splices is None else (since, splices)
            chunks = blocklists.chunks(block_size, state.size_bytes, told, state.object_hash, base)
        elif splices is not None:
            chunks = hashmap_delta.delta_chunks(block_size, state.size_bytes, splices, state.object_hash)
        else:
            chunks = hashmap.hashmap_chunks(block_size, state.size_bytes, call.store.id_runs(opened))
        return opened, list(islice(chunks, _HASHMAP_CHUNKS)), chunks

    await call.reserve(_HASHMAP_BYTES)
    opened, first, rest = await call.run(begin)
    fields = {**call.object_fields(opened.state), "Content-Type": blocklists.TYPE if is_binary else JSON}
    if len(first) < _HASHMAP_CHUNKS:
        return reply(200, b"".join(first), fields=fields)
    return StreamingResponse(_pieces(call, first, rest, _HASHMAP_BYTES), headers=fields)


async def _pieces(call: Call, first: list[bytes], rest: Iterator[bytes], then_bytes: int) -> AsyncIterator[bytes]:
    """A body: what is there already, which is let go as it is sent, then the rest as it is taken.

    Args:
        call: The request.
        first: The beginning.
        rest: Pieces; each `next` may wait for the disk.
        then_bytes: What is needed when the beginning is sent.
    """
    first.reverse()
    while first:
        yield first.pop()
    call.purse.keep(then_bytes)
    while (piece := await call.run(next, rest, None)) is not None:
        yield piece


async def _get_content(call: Call) -> Response:
    def begin() -> tuple[int, dict[str, str], list[bytes], Iterator[bytes]]:
        opened = _read(call)
        status, fields, body = _content(call, opened)
        # The first pieces come before the headers: an unreadable block is then an error, not a torn reply.
        return (
            status,
            {**_fields(call, opened), "Accept-Ranges": "bytes", **fields},
            _first_pieces(body),
            body,
        )

    piece_bytes = max(_READ_BYTES, call.store.block_size)
    await call.reserve(_WHOLE_BYTES + 2 * piece_bytes)
    status, fields, first, rest = await call.run(begin)
    length = int(fields["Content-Length"])
    call.purse.keep(min(length, _WHOLE_BYTES + 2 * piece_bytes) + _READ_BYTES // 16)
    if len(first) == 1 and len(first[0]) == length:
        return reply(status, first[0], fields=fields)
    return StreamingResponse(_pieces(call, first, rest, 2 * piece_bytes), status_code=status, headers=fields)


def _first_pieces(body: Iterator[bytes]) -> list[bytes]:
    """As many pieces as our client asks for at once; at least one."""
    pieces = [next(body, b"")]
    size = len(pieces[0])
    while size < _WHOLE_BYTES and (piece := next(body, None)) is not None:
        pieces.append(piece)
        size += len(piece)
    return pieces


def _content(call: Call, opened: ObjectView) -> tuple[int, dict[str, str], Iterator[bytes]]:
    """Status, header fields and body of a reply with the object, or with the parts of it that are wanted."""
    size = opened.state.size_bytes
    if not _wants_part(call, opened):
        return 200, {"Content-Length": str(size)}, call.store.content(opened, 0, size)
    parts = _ranges(call, size)
    if len(parts) == 1:
        fields = {"Content-Length": str(len(parts[0])), "Content-Range": byteranges.content_range(parts[0], size)}
        return 206, fields, call.store.content(opened, parts[0].start, len(parts[0]))
    multipart = byteranges.Multipart(parts, size, opened.state.content_type, secrets.token_hex(16))
    fields = {"Content-Length": str(multipart.length), "Content-Type": multipart.content_type}
    return 206, fields, multipart.body(lambda part: call.store.content(opened, part.start, len(part)))


def _ranges(call: Call, size_bytes: int) -> list[range]:
    """The bytes that are wanted."""
    try:
        return byteranges.parse_ranges(call.header("Range") or "", size_bytes)
    except RangeError as error:
        raise RangeNotSatisfiable(str(error), {"Content-Range": f"bytes */{size_bytes}"}) from None


def _wants_part(call: Call, opened: ObjectView) -> bool:
    """Whether a range is to be answered, or the whole. A joined object has no ETag of what its segments hold."""
    if call.header("Range") is None:
        return False
    if_range = call.header("If-Range")
    if if_range is None:
        return True
    return not opened.segments and range_fits(if_range, call.conditions().tag_of(opened.state) or "")


async def _put_content(call: Call) -> Response:
    place, conditions, meta = call.place, call.conditions(), call.own_meta()
    content_type = call.content_type() or headers.FILE_TYPE
    expected_md5, value = call.header("ETag"), call.header(swift.MANIFEST)
    manifest = "" if value is None else swift.parse_manifest(value)

    def finish(incoming: Incoming) -> ObjectState:
        if incoming.md5 is not None and expected_md5 is not None:
            found = incoming.md5.hexdigest()
            if found != expected_md5.strip('"').lower():
                raise Unprocessable(f"The body has the MD5 {found}; nothing was stored")
        return call.store.put_content(
            place, incoming, content_type=content_type, meta=meta, conditions=conditions, manifest=manifest
        )

    limit = hashmap.MAX_BLOCKS * call.store.block_size
    length = call.length
    check = partial(call.store.check_write, place, conditions, length)
    await call.reserve(_body_bytes(call))
    return _written(call, 201, await call.receive(limit, finish, check=check, md5=True))


def _body_bytes(call: Call) -> int:
    """Memory that a content needs on its way in."""
    most = _BODY_BYTES + 2 * call.store.block_size
    return most if call.length is None else min(most, 4 * call.length)


def _part_blocks(call: Call) -> int:
    """Blocks that a change of a part may touch."""
    return MAX_PART_BLOCKS if call.length is None else min(MAX_PART_BLOCKS, call.length // call.store.block_size + 2)


async def _put_hashmap(call: Call) -> Response:
    content_type = call.content_type()
    if content_type is None:
        raise LengthRequired("Missing Content-Type header: the object's type")
    _refuse_manifest(call)
    made = await put_block_list(call, content_type)
    return made if isinstance(made, Response) else _written(call, 201, made)


async def _transfer_to(call: Call, transfer: Transfer) -> Response:
    """To where Destination says."""
    _refuse_unsupported(call, (headers.OBJECT_SHARING,))
    destination = call.header(headers.DESTINATION)
    if destination is None:
        raise BadRequest(f"{call.request.method} needs the header {headers.DESTINATION}: /CONTAINER/OBJECT")
    order = TransferOrder(
        source=call.conditions(),
        destination=Conditions(if_version=call.number(headers.IF_DESTINATION_VERSION)),
        content_type=call.content_type(),
        meta=call.meta(),
    )
    return await transfer(call, call.place, _place(call, destination), order)


async def _put_transfer(call: Call, source_header: str, transfer: Transfer) -> Response:
    """From where a header says. If-* are about the destination here, which is what the URL names."""
    order = TransferOrder(
        source=Conditions(if_version=call.number(headers.IF_SOURCE_VERSION)),
        destination=call.conditions(),
        content_type=call.content_type(),
        meta=call.meta(),
    )
    return await transfer(call, _source_place(call, call.header(source_header) or ""), call.place, order)


async def _move(call: Call, source: Place, destination: Place, order: TransferOrder) -> Response:
    _refuse_manifest(call)
    if source.account != destination.account:
        raise Forbidden("What another account shares can be copied, not moved")
    call.refuse_announced(0)
    if call.header(headers.IF_SUBTREE) is not None:
        return await _move_whole(call, source, destination, order)
    state = await call.run(lambda: call.store.move(source, destination, order, delimiter=call.delimiter))
    return _written(call, 201, state)


async def _move_whole(call: Call, source: Place, destination: Place, order: TransferOrder) -> Response:
    """A subtree that must be what the client thinks it is."""
    try:
        guard = subtree.parse_guard(call.header(headers.IF_SUBTREE) or "")
    except SubtreeError as error:
        raise BadRequest(f"{headers.IF_SUBTREE}: {error}") from None
    if call.delimiter != "/" or order != TransferOrder():
        raise BadRequest(f"{headers.IF_SUBTREE} goes with delimiter=/, without other conditions, type and metadata")
    moved = await call.run(lambda: call.store.move_whole(source, destination, guard))
    written = _written(call, 201, moved.state)
    written.headers[headers.SUBTREE_FIRST] = str(moved.move.first)
    return written


async def _copy(call: Call, source: Place, destination: Place, order: TransferOrder) -> Response:
    _refuse_manifest(call)
    if call.delimiter and source.account != destination.account:
        raise Forbidden("What another account shares is copied one by one")
    call.refuse_announced(0)
    version = call.number(headers.SOURCE_VERSION)
    state = await call.run(
        lambda: call.store.copy(source, destination, order, version=version, delimiter=call.delimiter)
    )
    return _written(call, 201, state)


def _place(call: Call, reference: str) -> Place:
    """An object of the same account, named by a header."""
    container, name = parse_reference(reference)
    return replace(call.place, container=container, name=name)


def _refuse_manifest(call: Call) -> None:
    """Only a PUT with a body of its own makes an object of segments."""
    if call.header(swift.MANIFEST) is not None:
        raise BadRequest(f"{swift.MANIFEST} does not go together with this request")


def _source_place(call: Call, reference: str) -> Place:
    """Where something is taken from: of the account that X-Source-Account names, else of the caller's."""
    account = call.header(headers.SOURCE_ACCOUNT)
    place = _place(call, reference)
    return place if account is None else replace(place, account=headers.unquote_value(account))


def _refuse_unsupported(call: Call, more: tuple[str, ...] = ()) -> None:
    if call.header(swift.MANIFEST) is not None and not call.is_swift:
        raise BadRequest("Objects made of segments are OpenStack's; this server has them below /swift/v1 only")
    if call.header("X-Object-Public") not in {None, "False", "false"}:
        raise BadRequest("This server does not publish objects")
    for name in (*_REFUSED_ON_WRITE, *more):
        if call.header(name) is not None:
            raise BadRequest(f"This server does not support the header {name!r}")


def _written(call: Call, status: int, state: ObjectState) -> Response:
    """What a write answers: the version it made. The body is empty."""
    fields = call.object_fields(state)
    names = ("ETag", "Last-Modified", headers.OBJECT_HASH, headers.OBJECT_UUID, headers.OBJECT_VERSION)
    stamp = headers.OBJECT_VERSION_TIMESTAMP
    return reply(status, fields={name: fields[name] for name in (*names, stamp) if name in fields})
