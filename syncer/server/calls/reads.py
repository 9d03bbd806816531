"""Reading objects over HTTP: their state, content, block list and versions."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator
from itertools import islice
from typing import Final

from starlette.responses import Response

from syncer.protocol import swift
from syncer.protocol.extensions import blocklists, hashmap_delta
from syncer.protocol.pithos import byteranges, hashmap, headers, listing, sharing
from syncer.server.calls import memory
from syncer.server.calls.call import JSON, Call, StreamedResponse, reply
from syncer.server.catalogue.conditions import range_fits
from syncer.server.catalogue.orders import Place, ReadOrder
from syncer.server.errors import BadRequest, RangeNotSatisfiable
from syncer.server.http.object_orders import ContentOrder, HashmapOrder
from syncer.server.store.reading import ObjectView

_HASHMAP_CHUNKS: Final = 4
"""Pieces of a hashmap that are made at once; one with fewer (up to 4096 ids) is sent as a whole, with its length."""


async def get_history(call: Call, place: Place) -> Response:
    """A list of versions. It is charged a few; a long one is begun again, with as much as it may take."""
    await call.reserve()
    rows = await call.run(call.store.history, place, memory.FEW_VERSIONS)
    if len(rows) == memory.FEW_VERSIONS:  # there may be more
        del rows
        await call.reserve(again=True)
        rows = await call.run(call.store.history, place)
    return reply(200, listing.encode_versions(rows), content_type=JSON)


async def head_object(call: Call, order: ReadOrder) -> Response:
    """What an object is."""

    def look() -> tuple[ObjectView, dict[str, str]]:
        opened = call.store.open_object(order)
        return opened, _fields(call, order, opened)

    opened, fields = await call.run(look)
    return reply(200, fields={**fields, "Content-Length": str(opened.state.size_bytes)})


async def get_hashmap(call: Call, order: HashmapOrder) -> Response:
    """A block list, or what differs from an older one."""

    def begin() -> tuple[ObjectView, list[bytes], Iterator[bytes]]:
        opened = _open(call, order.read)
        if opened.segments:
            raise BadRequest("An object made of segments has no hashmap")
        block_size, state = call.store.block_size, opened.state
        splices = None if order.since is None else call.store.splices(opened, order.read.place, order.since)
        if order.is_binary:
            base, told = (None, call.store.filled(opened)) if splices is None else (order.since, splices)
            chunks = blocklists.chunks(block_size, state.size_bytes, told, state.object_hash, base)
        elif splices is not None:
            chunks = hashmap_delta.delta_chunks(block_size, state.size_bytes, splices, state.object_hash)
        else:
            chunks = hashmap.hashmap_chunks(block_size, state.size_bytes, call.store.id_runs(opened))
        return opened, list(islice(chunks, _HASHMAP_CHUNKS)), chunks

    await call.reserve()
    opened, first, rest = await call.run(begin)
    fields = {**call.object_fields(opened.state), "Content-Type": blocklists.TYPE if order.is_binary else JSON}
    if len(first) < _HASHMAP_CHUNKS:
        return reply(200, b"".join(first), fields=fields)
    return StreamedResponse(_pieces(call, first, rest, memory.HASHMAP_BYTES), headers=fields)


async def get_content(call: Call, order: ContentOrder) -> Response:
    """The bytes of an object, or parts of them."""

    def begin() -> tuple[int, dict[str, str], list[bytes], Iterator[bytes]]:
        opened = _open(call, order.read)
        status, fields, body = _content(call, order, opened)
        # The first pieces come before the headers: an unreadable block is then an error, not a torn reply.
        told = {**_fields(call, order.read, opened), **fields}
        return status, told, _first_pieces(body), body

    await call.reserve()
    status, fields, first, rest = await call.run(begin)
    length, size = int(fields["Content-Length"]), call.size()
    call.purse.keep(min(length, memory.content_out(size)) + memory.READ_BYTES // 16)
    if len(first) == 1 and len(first[0]) == length:
        return reply(status, first[0], fields=fields)
    return StreamedResponse(_pieces(call, first, rest, memory.rest_out(size)), status_code=status, headers=fields)


def _open(call: Call, order: ReadOrder) -> ObjectView:
    """Open an object whose content, or hashmap, will be sent. Whoever reads may name the blocks from then on."""
    opened = call.store.open_object(order)
    if call.is_foreign:
        call.store.shares.possess(call.account, opened.state, call.store.leaf_keys(opened))
    return opened


def _fields(call: Call, order: ReadOrder, opened: ObjectView) -> dict[str, str]:
    """Describe a version in a reply, all but Content-Length."""
    fields = {**call.object_fields(opened.state), "Accept-Ranges": "bytes", **_sharing_fields(call, order.place)}
    if call.target.is_swift:  # not told in Pithos's way: our client's library would undo a Content-Encoding
        fields |= opened.record.fields
    if call.target.is_swift and opened.record.manifest:
        fields |= swift.manifest_fields(opened.record.manifest, opened.joined_md5)
    return fields


def _sharing_fields(call: Call, place: Place) -> dict[str, str]:
    """What a reply about an object tells about its sharing."""
    if call.is_foreign:
        return {headers.OBJECT_ALLOWED_TO: "read"}
    told = call.store.shares.told(place)
    if told is None:
        return {}
    by, readers = told
    fields = {headers.OBJECT_SHARING: sharing.sharing_value(readers)}
    if by != place.name:
        fields[headers.OBJECT_SHARED_BY] = headers.quote_value(f"{place.container}/{by}")
    return fields


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


def _first_pieces(body: Iterator[bytes]) -> list[bytes]:
    """As many pieces as our client asks for at once; at least one."""
    pieces = [next(body, b"")]
    size = len(pieces[0])
    while size < memory.WHOLE_BYTES and (piece := next(body, None)) is not None:
        pieces.append(piece)
        size += len(piece)
    return pieces


def _content(call: Call, order: ContentOrder, opened: ObjectView) -> tuple[int, dict[str, str], Iterator[bytes]]:
    """Status, header fields and body of a reply with the object, or with the parts of it that are wanted."""
    size, state, if_range = opened.state.size_bytes, opened.state, order.if_range
    fits = if_range is None or range_fits(if_range, order.read.conditions.tag_of(state) or "")
    # A joined object has no ETag of what its segments hold.
    if order.ranges is None or not fits or (if_range is not None and opened.segments):
        return 200, {"Content-Length": str(size)}, call.store.content(opened, 0, size)
    read_ranges = byteranges.parse_ranges_or_none if call.target.is_swift else byteranges.parse_ranges
    try:
        parts = read_ranges(order.ranges, size)
    except byteranges.RangeError as error:
        raise RangeNotSatisfiable(str(error), {"Content-Range": f"bytes */{size}"}) from None
    if parts is None:
        return 200, {"Content-Length": str(size)}, call.store.content(opened, 0, size)
    if len(parts) == 1:
        fields = {"Content-Length": str(len(parts[0])), "Content-Range": byteranges.content_range(parts[0], size)}
        return 206, fields, call.store.content(opened, parts[0].start, len(parts[0]))
    multipart = byteranges.Multipart(parts, size, opened.state.content_type, secrets.token_hex(16))
    fields = {"Content-Length": str(multipart.length), "Content-Type": multipart.content_type}
    return 206, fields, multipart.body(lambda part: call.store.content(opened, part.start, len(part)))
