"""What accounts share with the caller, over HTTP: who does, what it is, and who may read it."""

from __future__ import annotations

from functools import partial

from starlette.responses import Response

from syncer.server.calls.call import Call, reply
from syncer.server.calls.containers import CONTAINERS, OBJECTS, block_fields, listed, rows_reply
from syncer.server.catalogue import listings
from syncer.server.catalogue.orders import Place
from syncer.server.errors import Forbidden
from syncer.server.http.asked import Asked
from syncer.server.http.container_orders import ListingOrder
from syncer.server.http.object_orders import shared_version


async def admit(call: Call, asked: Asked) -> None:
    """Go on for a reader of an object, or refuse, before anything else is looked at."""
    await call.run(call.store.shares.require_readable, call.account, asked.place, shared_version(asked))


async def head_account(call: Call, at: Place) -> Response:
    """That an account shares something, and nothing more."""
    await call.run(call.store.shares.containers, call.account, at.account)
    return reply(204)


async def list_containers(call: Call, order: ListingOrder) -> Response:
    """An account's containers that have something shared."""
    found = await call.run(call.store.shares.containers, call.account, call.target.account)
    wanted = order.selection
    behind = [row for row in found if row.name > wanted.marker and row.name.startswith(wanted.prefix)]
    rows = [row for row in behind if not wanted.end or row.name < wanted.end]
    return await rows_reply(call, order, list(listings.page(rows, wanted)), CONTAINERS)


async def head_container(call: Call, at: Place) -> Response:
    """What a reader must know to read."""
    rows = await call.run(call.store.shares.containers, call.account, at.account)
    if at.container not in [row.name for row in rows]:
        raise Forbidden("Nothing in this container is shared with you")
    return reply(204, fields=block_fields(call))


async def list_objects(call: Call, order: ListingOrder) -> Response:
    """What a reader may see."""
    target = call.target
    look = partial(call.store.shares.listing, call.account, target.account, target.container, order.selection)
    return await rows_reply(call, order, await listed(call, order, look), OBJECTS, block_fields(call))
