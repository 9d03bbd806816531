"""Accounts and containers over HTTP: what they are, what is in them, their settings, and blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from starlette.responses import Response

from syncer.protocol import swift
from syncer.protocol.pithos import hashmap, headers, listing
from syncer.server.calls.call import JSON, TEXT, XML, Call, reply
from syncer.server.catalogue.containers import AccountSummary
from syncer.server.catalogue.listings import Heavy
from syncer.server.catalogue.orders import Place, SettingsOrder
from syncer.server.http.asked import require_at_most
from syncer.server.http.container_orders import ListingOrder
from syncer.server.store.store import ContainerView

MAX_POST_BYTES: Final = 64 << 20
"""Blocks of one POST: what a lost connection makes the client send again."""

_EXTENSIONS: Final = ", ".join(
    sorted(
        {
            headers.EXTENSION_BLOCK_LISTS,
            headers.EXTENSION_BULK,
            headers.EXTENSION_BULK_READ,
            headers.EXTENSION_CHANGES,
            headers.EXTENSION_DELTA,
            headers.EXTENSION_SUBTREES,
            headers.EXTENSION_WITHOUT,
        }
    )
)

CONTAINERS: Final = listing.encode_containers, swift.encode_containers, swift.containers_xml
OBJECTS: Final = listing.encode_objects, swift.encode_objects, swift.objects_xml
"""How rows are told in JSON to clients of Pithos, and of OpenStack, and in XML."""

Listed = TypeVar("Listed")
Row = TypeVar("Row", bound=listing.ContainerRow | listing.ObjectRow | listing.SubdirectoryRow)


async def head_account(call: Call, at: Place) -> Response:
    """What an account is."""
    found = await call.run(call.store.account, at.account)
    return reply(204, fields=_account_fields(call, found))


def _account_fields(call: Call, found: AccountSummary) -> dict[str, str]:
    fields = {
        headers.ACCOUNT_CONTAINER_COUNT: str(found.containers),
        headers.ACCOUNT_OBJECT_COUNT: str(found.objects),
        headers.ACCOUNT_BYTES_USED: str(found.bytes_used),
        headers.ACCOUNT_QUOTA: str(found.settings.quota_bytes),
        **headers.meta_headers(found.settings.meta, headers.ACCOUNT_META_PREFIX, quoted=not call.target.is_swift),
    }
    if found.modified_us:
        fields["Last-Modified"] = headers.http_date(found.modified_us)
    return fields


async def post_account(call: Call, order: SettingsOrder) -> Response:
    """An account's metadata."""
    await call.run(call.store.set_account, call.target.account, order)
    return _settled(call)


async def list_containers(call: Call, order: ListingOrder) -> Response:
    """An account's containers; to OpenStack's clients, also what the account is."""
    account = call.target.account
    rows = await call.run(call.store.containers, account, order.selection)
    fields = _account_fields(call, await call.run(call.store.account, account)) if call.target.is_swift else None
    return await rows_reply(call, order, rows, CONTAINERS, fields)


async def rows_reply(
    call: Call,
    order: ListingOrder,
    rows: Sequence[Row],
    encode: tuple[
        Callable[[Sequence[Row]], bytes], Callable[[Sequence[Row]], bytes], Callable[[str, Sequence[Row]], bytes]
    ],
    fields: dict[str, str] | None = None,
) -> Response:
    """A list: in JSON of either dialect, in XML, or one name a line. 204 for no line, as in Pithos."""
    pithos, openstack, xml = encode
    if order.form is not swift.Form.PLAIN:
        if order.form is swift.Form.JSON:
            body, kind = (openstack if call.target.is_swift else pithos)(rows), JSON
        else:
            # A name may be ten times as long then: not in the thread that all others wait for.
            body, kind = await call.run(xml, call.target.container or call.target.account, rows), XML
        call.purse.keep(2 * len(body))
        return reply(200, body, content_type=kind, fields=fields)
    names = listing.encode_names(row.name for row in rows)
    return reply(200 if rows else 204, names, content_type=TEXT, fields=fields)


async def head_container(call: Call, at: Place) -> Response:
    """What a container is."""
    found = await call.run(call.store.container, at.account, at.container)
    return reply(204, fields=_container_fields(call, found))


async def list_objects(call: Call, order: ListingOrder) -> Response:
    """A container's objects."""
    target = call.target
    look = partial(call.store.listing, target.account, target.container, order.selection, since=order.since)
    found, rows = await listed(call, order, look)
    return await rows_reply(call, order, rows, OBJECTS, _container_fields(call, found))


async def listed(call: Call, order: ListingOrder, look: Callable[..., Listed]) -> Listed:
    """What a listing finds. One with much metadata is begun again when it has the account's memory for itself.

    Args:
        call: The request.
        order: What is wanted.
        look: Makes it; takes `most_bytes`, and raises Heavy beyond.
    """
    limit = order.selection.limit
    await call.reserve(limit)
    try:
        return await call.run(partial(look, most_bytes=call.purse.held_bytes))
    except Heavy:
        await call.reserve(limit, again=True)
    return await call.run(look)


async def put_container(call: Call, order: SettingsOrder) -> Response:
    """A container is to be there: 201 made, 202 there already."""
    made = await call.run(call.store.create_container, call.target.account, call.target.container, order)
    found = await call.run(call.store.container, call.target.account, call.target.container)
    return reply(201 if made else 202, fields=_container_fields(call, found))


async def post_container(call: Call, order: SettingsOrder) -> Response:
    """A container's settings."""
    await call.run(call.store.set_container, call.target.account, call.target.container, order)
    return _settled(call)


def _settled(call: Call) -> Response:
    return reply(204 if call.target.is_swift else 202)


async def empty_container(call: Call, at: Place) -> Response:
    """A container's objects go and it stays, as in Pithos."""
    await call.run(call.store.empty_container, at.account, at.container)
    return reply(204)


async def delete_container(call: Call, at: Place) -> Response:
    """A container goes, if it is empty."""
    await call.run(call.store.delete_container, at.account, at.container)
    return reply(204)


async def post_blocks(call: Call, as_json: bool) -> Response:
    """The body's blocks are stored; answers their ids."""
    account = call.target.account
    await call.run(call.store.container, account, call.target.container)  # no blocks for no container
    require_at_most(call.length, MAX_POST_BYTES)
    await call.reserve()
    ids = await call.receive(MAX_POST_BYTES, partial(call.store.upload, account))
    if as_json:
        return reply(202, hashmap.encode_ids(ids), content_type=JSON)
    return reply(202, listing.encode_names(block_id.hex() for block_id in ids), content_type=TEXT)


def block_fields(call: Call) -> dict[str, str]:
    """What whoever reads must know."""
    return {
        headers.CONTAINER_BLOCK_SIZE: str(call.store.block_size),
        headers.CONTAINER_BLOCK_HASH: hashmap.BLOCK_HASH,
    }


def lasting_fields(call: Call, identity: str) -> dict[str, str]:
    """What stays as it is for as long as the container is there."""
    return {
        **block_fields(call),
        headers.CONTAINER_IDENTITY: identity,
        headers.ATOMIC_CONDITIONS: "1",
        headers.EXTENSIONS: _EXTENSIONS,
    }


def _container_fields(call: Call, found: ContainerView) -> dict[str, str]:
    record = found.record
    return {
        **lasting_fields(call, found.identity),
        headers.CONTAINER_OBJECT_COUNT: str(record.object_count),
        headers.CONTAINER_BYTES_USED: str(record.bytes_used),
        headers.CONTAINER_VERSION: str(record.version),
        headers.CONTAINER_QUOTA: str(found.settings.quota_bytes),
        headers.CONTAINER_VERSIONING: "auto" if found.settings.keeps_history else "none",
        **headers.meta_headers(found.settings.meta, headers.CONTAINER_META_PREFIX, quoted=not call.target.is_swift),
        headers.CONTAINER_VERSION_TIMESTAMP: headers.timestamp_text(record.modified_us),
        "Last-Modified": headers.http_date(found.settled_us),
        **({swift.TIMESTAMP: swift.timestamp(record.created_us)} if call.target.is_swift else {}),
    }
