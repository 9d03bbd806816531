"""HTTP for what belongs to other accounts: reading what they share. Translation only."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response

from syncer.protocol import swift
from syncer.protocol.pithos import hashmap, headers, listing
from syncer.protocol.pithos.listing import MAX_ROWS
from syncer.server.calls import containers as container_calls
from syncer.server.calls import objects as object_calls
from syncer.server.calls.call import JSON, TEXT, Call, reply
from syncer.server.errors import BadRequest, Forbidden, NotAllowed
from syncer.server.http.urls import Level, parse_parameters
from syncer.server.store.store import Store


async def list_sharers(request: Request, store: Store, account: str) -> Response:
    """GET /: accounts that share something with the caller."""
    if request.method not in {"GET", "HEAD"}:
        raise NotAllowed("Only GET does something here", {"Allow": "GET, HEAD"})
    query = parse_parameters(request.scope["query_string"])
    limit = headers.parse_decimal("limit", query.get("limit", str(MAX_ROWS)))
    sharers = await to_thread.run_sync(store.shares.sharers, account)
    rows = [one for one in sharers if one.account > query.get("marker", "")][:limit]
    if query.get("format") == "json":
        return reply(200, listing.encode_accounts((one.account, one.modified_us) for one in rows), content_type=JSON)
    return reply(200 if rows else 204, listing.encode_names(one.account for one in rows), content_type=TEXT)


async def head_account(call: Call) -> Response:
    """HEAD /account: that it shares something, and nothing more."""
    await call.run(call.store.shares.containers, call.account, call.target.account)
    return reply(204)


async def list_containers(call: Call) -> Response:
    """GET /account: its containers that have something shared."""
    wants_json = call.wants_json
    marker, prefix, limit = call.page()
    found = await call.run(call.store.shares.containers, call.account, call.target.account)
    rows = [row for row in found if row.name > marker and row.name.startswith(prefix)][:limit]
    if wants_json:
        body = swift.encode_containers(rows) if call.is_swift else listing.encode_containers(rows)
        return reply(200, body, content_type=JSON)
    return reply(200 if rows else 204, listing.encode_names(row.name for row in rows), content_type=TEXT)


async def head_container(call: Call) -> Response:
    """HEAD /account/container: what a reader must know to read."""
    await _require_something(call)
    return reply(204, fields=_container_fields(call))


async def list_objects(call: Call) -> Response:
    """GET /account/container: what a reader may see."""
    if "changes" in call.target.parameters:
        raise Forbidden("Only the owner of a container is told what changes in it")
    if "until" in call.target.parameters:
        raise Forbidden("Only the current version of an object is shared")
    wants_json = call.wants_json
    wanted = container_calls.selection(call)
    owner, container = call.target.account, call.target.container
    look = partial(call.store.shares.listing, call.account, owner, container, wanted)
    found = await container_calls.listed(call, wanted.limit, look)
    if wants_json:
        body = swift.encode_objects(found) if call.is_swift else listing.encode_objects(found)
        return reply(200, body, content_type=JSON, fields=_container_fields(call))
    names = listing.encode_names(row.name for row in found)
    return reply(200 if found else 204, names, content_type=TEXT, fields=_container_fields(call))


async def head_object(call: Call) -> Response:
    """HEAD /account/container/object."""
    await _require_readable(call)
    return await object_calls.head_object(call)


async def get_object(call: Call) -> Response:
    """GET /account/container/object, or its hashmap. Whoever reads may name the blocks from then on."""
    await _require_readable(call)
    return await object_calls.get_object(call)


HANDLERS: Final[dict[Level, dict[str, Callable[[Call], Awaitable[Response]]]]] = {
    Level.ACCOUNT: {"HEAD": head_account, "GET": list_containers},
    Level.CONTAINER: {"HEAD": head_container, "GET": list_objects},
    Level.OBJECT: {"HEAD": head_object, "GET": get_object},
}


async def _require_something(call: Call) -> None:
    rows = await call.run(call.store.shares.containers, call.account, call.target.account)
    if call.target.container not in [row.name for row in rows]:
        raise Forbidden("Nothing in this container is shared with you")


async def _require_readable(call: Call) -> None:
    text = call.target.parameters.get("version")
    if text == "list" or "since_version" in call.target.parameters:
        raise Forbidden("Only the current version of this object is shared with you")
    try:
        version = None if text is None else headers.parse_decimal("version", text)
    except headers.HeaderError as error:
        raise BadRequest(str(error)) from None
    await call.run(call.store.shares.require_readable, call.account, call.place, version)


def _container_fields(call: Call) -> dict[str, str]:
    return {
        headers.CONTAINER_BLOCK_SIZE: str(call.store.block_size),
        headers.CONTAINER_BLOCK_HASH: hashmap.BLOCK_HASH,
    }
