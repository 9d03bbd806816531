"""HTTP for `?bulk` and `?bulk-read`: translation only."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from syncer.protocol.extensions import bulk, bulk_read
from syncer.protocol.extensions.bulk import BulkError, Result
from syncer.protocol.extensions.bulk_read import BulkReadError
from syncer.protocol.pithos.headers import FILE_TYPE
from syncer.server.calls.call import JSON, Call, reply
from syncer.server.catalogue.objects import Place
from syncer.server.errors import BadRequest

_TIMES_BODY: Final = 3  # memory of a body while it is taken apart


async def post_bulk(call: Call) -> Response:
    """POST /account/container?bulk: several small changes, each with its own answer."""
    at = Place(account=call.target.account, container=call.target.container, name="")
    await call.run(call.store.container, at.account, at.container)  # no body is read for no container
    call.refuse_announced(bulk.MAX_BODY_BYTES)
    await call.reserve(_TIMES_BODY * (bulk.MAX_BODY_BYTES if call.length is None else call.length))
    body = await call.body(bulk.MAX_BODY_BYTES)

    def work() -> list[Result]:
        try:
            operations = bulk.decode_operations(body, call.store.block_size)
        except BulkError as error:
            raise BadRequest(str(error)) from None
        return call.store.bulk(at, operations)

    return reply(200, bulk.encode_results(await call.run(work)), content_type=JSON)


async def post_bulk_read(call: Call) -> Response:
    """POST /account/container?bulk-read: several small contents."""
    at = Place(account=call.target.account, container=call.target.container, name="")
    await call.run(call.store.container, at.account, at.container)
    call.refuse_announced(bulk_read.MAX_REQUEST_BYTES)
    asked = bulk_read.MAX_REQUEST_BYTES if call.length is None else call.length
    await call.reserve(_TIMES_BODY * (asked + bulk_read.MAX_CONTENT_BYTES))
    body = await call.body(bulk_read.MAX_REQUEST_BYTES)

    def work() -> bytes:
        try:
            wanted = bulk_read.decode_wanted(body)
        except BulkReadError as error:
            raise BadRequest(str(error)) from None
        return bulk_read.encode_contents(call.store.small_contents(at, wanted, bulk_read.MAX_CONTENT_BYTES))

    told = await call.run(work)
    call.purse.keep(2 * len(told))
    return reply(200, told, content_type=FILE_TYPE)
