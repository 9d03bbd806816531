"""Writing objects over HTTP: contents, parts, block lists, metadata, moves, copies and deletions."""

from __future__ import annotations

from functools import partial

from starlette.responses import Response

from syncer.protocol import segments, swift
from syncer.protocol.pithos import hashmap, headers
from syncer.server.calls.blocklists import take_block_list
from syncer.server.calls.call import Call, reply
from syncer.server.catalogue.orders import DeleteOrder, MetaOrder, PurgeOrder, Transfer, WriteOrder
from syncer.server.errors import BadRequest
from syncer.server.http.object_orders import BlockListOrder, PartOrder
from syncer.server.store.incoming import Incoming


async def put_content(call: Call, order: WriteOrder) -> Response:
    """A content from the body."""
    limit = hashmap.MAX_BLOCKS * call.store.block_size
    check = partial(call.store.check_write, order, call.length)
    await call.reserve()
    state = await call.receive(limit, partial(call.store.put_content, order), check=check, md5=True)
    return _written(call, 201, state)


async def put_static(call: Call, order: WriteOrder) -> Response:
    """An object made of the segments that the body lists."""
    await call.reserve()
    wanted = segments.parse_wanted(await call.body(segments.MAX_BYTES))
    state, etag = await call.run(call.store.put_static, order, wanted)
    made = _written(call, 201, state)
    made.headers["ETag"] = f'"{etag}"'
    return made


async def put_block_list(call: Call, order: BlockListOrder) -> Response:
    """An object of blocks that are here; see `take_block_list`."""
    return _written(call, 201, await take_block_list(call, order))


async def transfer(call: Call, order: Transfer) -> Response:
    """A move or a copy; with a guard, of a subtree that must be what the client thinks it is."""
    if order.guard is None:
        rewrites = order.joins or order.ranges is not None
        if order.delimiter or (rewrites and await call.run(call.store.rewrites, order)):
            await call.reserve()
        copied = _written(call, 201, await call.run(call.store.transfer, order))
        if call.target.is_swift and not order.moves:
            source = order.source
            copied.headers.update(swift.copied_fields(source.account, source.container, source.name))
        return copied
    moved = await call.run(call.store.move_subtree, order.source, order.destination, order.guard)
    written = _written(call, 201, moved.state)
    written.headers[headers.SUBTREE_FIRST] = str(moved.move.first)
    return written


async def post_meta(call: Call, order: MetaOrder) -> Response:
    """Metadata, and who may read."""
    if order.readers is not None and order.keeps_meta and not (order.meta or order.fields):  # no new version for that
        await call.run(call.store.shares.share, order.place, order.readers, order.conditions)
        return reply(202)
    return _written(call, 202, await call.run(call.store.set_meta, order))


async def post_part(call: Call, order: PartOrder) -> Response:
    """New bytes over a part of an object, or behind its end."""
    place, update, length = order.place, order.update, call.length
    check = None if length is None else partial(call.store.check_update, place, update, length)

    def finish(incoming: Incoming) -> headers.ObjectState:
        if update.length not in {None, incoming.size_bytes}:
            raise BadRequest(f"The body has {incoming.size_bytes} bytes, but Content-Range {update.length}")
        return call.store.update_content(place, update, incoming)

    await call.reserve()
    limit = hashmap.MAX_BLOCKS * call.store.block_size
    return _written(call, 204, await call.receive(limit, finish, check=check))


async def post_part_from_source(call: Call, order: PartOrder) -> Response:
    """The same from another object."""
    assert order.source is not None
    await call.reserve()
    return _written(call, 204, await call.run(call.store.update_content, order.place, order.update, order.source))


async def delete_object(call: Call, order: DeleteOrder) -> Response:
    """An object, or all below it as well."""
    serial = await call.run(call.store.delete, order)
    return reply(204, fields={headers.OBJECT_VERSION: str(serial)})


async def purge(call: Call, order: PurgeOrder) -> Response:
    """Only history: an object's, or a container's."""
    await call.run(call.store.purge, order)
    return reply(204)


def _written(call: Call, status: int, state: headers.ObjectState) -> Response:
    """What a write answers: the version it made. The body is empty."""
    fields = call.object_fields(state)
    names = ("ETag", "Last-Modified", headers.OBJECT_HASH, headers.OBJECT_UUID, headers.OBJECT_VERSION)
    stamp = headers.OBJECT_VERSION_TIMESTAMP
    return reply(status, fields={name: fields[name] for name in (*names, stamp) if name in fields})
