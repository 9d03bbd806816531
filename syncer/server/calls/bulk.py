"""Many small things in one request over HTTP: `?bulk`, `?bulk-read` and OpenStack's `?bulk-delete`."""

from __future__ import annotations

from functools import partial
from itertools import groupby
from typing import Final

from msgspec.structs import replace
from starlette.responses import Response

from syncer.protocol import swift
from syncer.protocol.extensions import bulk, bulk_read
from syncer.protocol.pithos.headers import FILE_TYPE
from syncer.protocol.pithos.names import quote_name
from syncer.server.calls import memory
from syncer.server.calls.call import JSON, TEXT, Call, reply
from syncer.server.catalogue.orders import DeleteOrder, Place, ReadOrder
from syncer.server.errors import BadRequest, Conflict, NotFound, Refusal
from syncer.server.http.asked import require_at_most
from syncer.server.http.urls import parse_reference

_DELETED: Final = 204


async def post_bulk(call: Call, at: Place) -> Response:
    """Several small changes, each with its own answer."""
    body = await _body(call, at, bulk.MAX_BODY_BYTES)

    def work() -> list[bulk.Result]:
        try:
            operations = bulk.decode_operations(body, call.store.block_size)
        except bulk.BulkError as error:
            raise BadRequest(str(error)) from None
        return call.store.bulk(at, operations)

    return reply(200, bulk.encode_results(await call.run(work)), content_type=JSON)


async def post_bulk_read(call: Call, at: Place) -> Response:
    """Several small contents."""
    body = await _body(call, at, bulk_read.MAX_REQUEST_BYTES)

    def work() -> bytes:
        try:
            wanted = bulk_read.decode_wanted(body)
        except bulk_read.BulkReadError as error:
            raise BadRequest(str(error)) from None
        return bulk_read.encode_contents(call.store.small_contents(at, wanted, bulk_read.MAX_CONTENT_BYTES))

    told = await call.run(work)
    call.purse.keep(2 * len(told))
    return reply(200, told, content_type=FILE_TYPE)


async def _body(call: Call, at: Place, limit_bytes: int) -> bytes:
    await call.run(call.store.container, at.account, at.container)  # no body is read for no container
    require_at_most(call.length, limit_bytes)
    await call.reserve()
    return await call.body(limit_bytes)


async def delete_many(call: Call, as_json: bool) -> Response:
    """Objects and empty containers, one path a line, each on its own."""
    await call.reserve()
    paths = swift.parse_bulk_delete(await call.body(memory.DELETION_BYTES // 2))
    counted = await call.run(_delete, call, paths)
    body = swift.encode_bulk_result(*counted, as_json=as_json)
    return reply(200, body, content_type=JSON if as_json else TEXT)


async def delete_static(call: Call, order: ReadOrder) -> Response:
    """An object with the segments that its manifest lists now; one that lists none goes by itself."""

    def work() -> bytes | None:
        listed = call.store.listed_segments(replace(order, joins=False, version=None))
        if listed is None:
            call.store.delete(DeleteOrder(place=order.place, conditions=order.conditions))
            return None
        paths = [*(segment.name for segment in listed), f"/{order.place.container}/{order.place.name}"]
        counted = _delete(call, [quote_name(path).encode() for path in paths])
        return swift.encode_bulk_result(*counted, as_json=False)

    await call.reserve()
    body = await call.run(work)
    return reply(204) if body is None else reply(200, body, content_type=TEXT)


def _delete(call: Call, paths: list[bytes]) -> tuple[int, int, list[tuple[str, str]]]:
    """How many are gone, how many were not there, and what went wrong."""
    statuses: list[int] = []
    places = map(partial(_place, call), paths)
    for _, same in groupby(places, lambda place: place and (place.container, bool(place.name))):
        some = list(same)
        for start in range(0, len(some), bulk.MAX_OPERATIONS):
            statuses += _delete_some(call, some[start : start + bulk.MAX_OPERATIONS])
    errors = [
        (raw.decode("latin-1"), "409 Conflict" if status == Conflict.status else "400 Bad Request")
        for raw, status in zip(paths, statuses, strict=True)
        if status not in {_DELETED, NotFound.status}
    ]
    return statuses.count(_DELETED), statuses.count(NotFound.status), errors


def _place(call: Call, path: bytes) -> Place | None:
    """The object, or the container, that a path names; None: nothing may be called so."""
    text = path.decode("latin-1").removeprefix("/")
    is_container = "/" not in text.rstrip("/")
    try:
        container, name = parse_reference(f"{text.rstrip('/')}/-" if is_container else text)
    except Refusal:
        return None
    return Place(account=call.target.account, container=container, name="" if is_container else name)


def _delete_some(call: Call, places: list[Place | None]) -> list[int]:
    """What became of neighbours: objects of one container go in one transaction, which waits for the disk once."""
    first = places[0]
    if first is None:
        return [BadRequest.status] * len(places)
    try:
        if first.name:
            operations = [bulk.Delete(name=place.name) for place in places if place is not None]
            return [result.status for result in call.store.bulk(first, operations)]
        call.store.delete_container(first.account, first.container)
    except Refusal as refusal:
        return [refusal.status] * len(places)
    return [_DELETED, *[NotFound.status] * (len(places) - 1)]
