"""Many small things in one request over HTTP: `?bulk`, `?bulk-read` and OpenStack's `?bulk-delete`."""

from __future__ import annotations

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
        paths = [*(segment.name[1:] for segment in listed), f"{order.place.container}/{order.place.name}"]
        counted = _delete(call, [quote_name(path).encode() for path in paths])
        return swift.encode_bulk_result(*counted, as_json=False)

    await call.reserve()
    body = await call.run(work)
    return reply(204) if body is None else reply(200, body, content_type=TEXT)


def _delete(call: Call, paths: list[bytes]) -> tuple[int, int, list[tuple[str, str]]]:
    """How many are gone, how many were not there, and what went wrong."""
    deleted = missing = 0
    errors: list[tuple[str, str]] = []
    for raw in paths:
        path = raw.decode("latin-1")
        try:
            _delete_one(call, path)
            deleted += 1
        except NotFound:
            missing += 1
        except Refusal as refusal:
            errors.append((path, "409 Conflict" if isinstance(refusal, Conflict) else "400 Bad Request"))
    return deleted, missing, errors


def _delete_one(call: Call, path: str) -> None:
    if "/" not in path.rstrip("/"):
        call.store.delete_container(call.target.account, parse_reference(f"{path.rstrip('/')}/-")[0])
        return
    container, name = parse_reference(path)
    call.store.delete(DeleteOrder(place=Place(account=call.target.account, container=container, name=name)))
