"""HTTP for accounts and containers: translation only."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from starlette.responses import Response

from syncer.protocol import swift
from syncer.protocol.extensions.changes import encode_changes
from syncer.protocol.pithos import hashmap, headers, listing
from syncer.protocol.pithos.metafilter import NO_FILTER, parse_filter
from syncer.server.calls import swift_bulk
from syncer.server.calls.bulk import post_bulk, post_bulk_read
from syncer.server.calls.call import JSON, TEXT, Call, reply
from syncer.server.calls.changes import wanted_changes
from syncer.server.catalogue.listings import Heavy, Selection
from syncer.server.catalogue.settings import NO_SETTINGS, SettingsOrder
from syncer.server.errors import BadRequest
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
_POST_BYTES: Final = 8 << 20  # needed to take blocks: pieces of 1 MiB, or of a block, in several states

LISTING_ROW_BYTES: Final = 4 << 10
"""Memory of a row of a listing, and of its text."""

HEAVY_ROW_BYTES: Final = 64 << 10
"""With as many and as long metadata as there may be."""

Listed = TypeVar("Listed")

_POLICY_PREFIX: Final = "x-container-policy-"
_POLICIES: Final = frozenset({headers.CONTAINER_QUOTA.lower(), headers.CONTAINER_VERSIONING.lower()})
_VERSIONING: Final = {"auto": True, "none": False}
_GROUP_PREFIX: Final = "x-account-group-"


async def head_account(call: Call) -> Response:
    """HEAD /account."""
    found = await call.run(call.store.account, call.target.account)
    fields = {
        headers.ACCOUNT_CONTAINER_COUNT: str(found.containers),
        headers.ACCOUNT_OBJECT_COUNT: str(found.objects),
        headers.ACCOUNT_BYTES_USED: str(found.bytes_used),
        headers.ACCOUNT_QUOTA: str(found.settings.quota_bytes),
        **headers.meta_headers(found.settings.meta, headers.ACCOUNT_META_PREFIX),
    }
    if found.modified_us:
        fields["Last-Modified"] = headers.http_date(found.modified_us)
    return reply(204, fields=fields)


async def post_account(call: Call) -> Response:
    """POST /account: its metadata; with ?update those not named stay."""
    if swift_bulk.PARAMETER in call.target.parameters:
        return await swift_bulk.delete_many(call)
    names = [name for name in call.request.headers if name.startswith(_GROUP_PREFIX)]
    if names:
        raise BadRequest(f"This server does not support groups of accounts ({names[0]!r})")
    order = SettingsOrder(meta=call.meta(headers.ACCOUNT_META_PREFIX), replaces_meta=not call.is_update)
    await call.run(call.store.set_account, call.target.account, order)
    return reply(202)


async def list_containers(call: Call) -> Response:
    """GET /account: its containers."""
    wants_json = call.wants_json
    marker, prefix, limit = call.page()
    rows = await call.run(lambda: call.store.containers(call.target.account, marker=marker, prefix=prefix, limit=limit))
    if wants_json:
        body = swift.encode_containers(rows) if call.is_swift else listing.encode_containers(rows)
        return reply(200, body, content_type=JSON)
    return _text([row.name for row in rows], {})


async def head_container(call: Call) -> Response:
    """HEAD /account/container."""
    found = await call.run(call.store.container, call.target.account, call.target.container)
    return reply(204, fields=_container_fields(call, found))


async def list_objects(call: Call) -> Response:
    """GET /account/container: its objects."""
    if "changes" in call.target.parameters:
        page = await wanted_changes(call)
        return reply(200, encode_changes(page), content_type=JSON, fields=_lasting_fields(call, page.identity))
    wants_json = call.wants_json
    wanted = selection(call)
    since = call.header("If-Modified-Since") if wanted.until_us is None else None
    found, rows = await listed(
        call,
        wanted.limit,
        partial(
            call.store.listing,
            call.target.account,
            call.target.container,
            wanted,
            since=None if since is None else headers.parse_http_date(since),
        ),
    )
    fields = _container_fields(call, found)
    if wants_json:
        body = swift.encode_objects(rows) if call.is_swift else listing.encode_objects(rows)
        call.purse.keep(2 * len(body))
        return reply(200, body, content_type=JSON, fields=fields)
    return _text([row.name for row in rows], fields)


async def listed(call: Call, limit: int, look: Callable[..., Listed]) -> Listed:
    """What a listing finds. One with much metadata is begun again when it has the account's memory for itself.

    Args:
        call: The request.
        limit: Rows at the most.
        look: Makes it; takes `most_bytes`, and raises Heavy beyond.
    """
    await call.reserve(LISTING_ROW_BYTES * limit)
    try:
        return await call.run(partial(look, most_bytes=LISTING_ROW_BYTES * limit))
    except Heavy:
        call.purse.keep(0)
    await call.reserve(HEAVY_ROW_BYTES * limit)
    return await call.run(look)


def selection(call: Call) -> Selection:
    """What of the container is wanted.

    `path` is Pithos's for "directly in this directory". Nothing is published here: `public` alone lists nothing.
    """
    marker, prefix, limit = call.page()
    path, delimiter = call.target.parameters.get("path", ""), call.delimiter
    if path:
        prefix, delimiter = path, "/"
    if prefix and delimiter and not prefix.endswith(delimiter):
        prefix += delimiter  # as in Pithos: with a delimiter, the prefix is a directory
    parameters = call.target.parameters
    return Selection(
        marker=marker,
        prefix=prefix,
        delimiter=delimiter,
        hides_groups=bool(path),
        limit=limit,
        only_shared="shared" in parameters,
        until_us=call.until_us,
        meta=parse_filter(parameters["meta"]) if "meta" in parameters else NO_FILTER,
        visible=_nothing if "public" in parameters and "shared" not in parameters else None,
    )


def _nothing(_name: str) -> bool:
    return False


async def put_container(call: Call) -> Response:
    """PUT /account/container: 201 made, 202 there already."""
    order = _settings_order(call, replaces_meta=False)
    made = await call.run(call.store.create_container, call.target.account, call.target.container, order)
    found = await call.run(call.store.container, call.target.account, call.target.container)
    return reply(201 if made else 202, fields=_container_fields(call, found))


async def delete_container(call: Call) -> Response:
    """DELETE /account/container: only an empty one.

    With ?delimiter=/, its objects go and it stays, as in Pithos. With ?until=SECONDS, only history goes. An `until`
    that is no whole number counts as none there, and so here: kamaki deletes containers with the time of day, fraction
    and all.
    """
    if call.target.parameters.get("until", "").isdecimal():
        until_us = call.until_us
        assert until_us is not None
        await call.run(call.store.purge, call.target.account, call.target.container, until_us)
        return reply(204)
    if call.delimiter:
        await call.run(call.store.empty_container, call.target.account, call.target.container)
        return reply(204)
    await call.run(call.store.delete_container, call.target.account, call.target.container)
    return reply(204)


async def post_container(call: Call) -> Response:
    """POST /account/container: settings when there is no body, else blocks."""
    if "bulk" in call.target.parameters:
        return await post_bulk(call)
    if "bulk-read" in call.target.parameters:
        return await post_bulk_read(call)
    order = _settings_order(call, replaces_meta=not call.is_update)
    if call.is_empty and (call.header("Content-Type") != headers.FILE_TYPE or order != NO_SETTINGS):
        await call.run(call.store.set_container, call.target.account, call.target.container, order)
        return reply(202)
    if order != NO_SETTINGS:
        raise BadRequest("To store blocks, POST with ?update&format=json and without metadata and policies")
    return await _post_blocks(call)


def _settings_order(call: Call, *, replaces_meta: bool) -> SettingsOrder:
    """X-Container-Meta-* and X-Container-Policy-* of a request."""
    for name in call.request.headers:
        if name.startswith(_POLICY_PREFIX) and name not in _POLICIES:
            raise BadRequest(f"This server does not support the header {name!r}")
    versioning = call.header(headers.CONTAINER_VERSIONING)
    if versioning is not None and versioning not in _VERSIONING:
        raise BadRequest(f"{headers.CONTAINER_VERSIONING}: expected auto or none, got {versioning[:40]!r}")
    return SettingsOrder(
        quota_bytes=call.number(headers.CONTAINER_QUOTA),
        keeps_history=None if versioning is None else _VERSIONING[versioning],
        meta=call.meta(headers.CONTAINER_META_PREFIX),
        replaces_meta=replaces_meta,
    )


async def _post_blocks(call: Call) -> Response:
    """Store the body's blocks; answers their ids."""
    if call.header("Content-Type") != headers.FILE_TYPE:
        raise BadRequest(f"Content-Type: expected exactly {headers.FILE_TYPE}; nothing was stored")
    account = call.target.account
    wants_json = call.wants_json
    await call.run(call.store.container, account, call.target.container)  # no blocks for no container
    call.refuse_announced(MAX_POST_BYTES)
    most = _POST_BYTES + 2 * call.store.block_size
    await call.reserve(most if call.length is None else min(most, 4 * call.length))
    ids = await call.receive(MAX_POST_BYTES, lambda incoming: call.store.upload(account, incoming))
    if wants_json:
        return reply(202, hashmap.encode_ids(ids), content_type=JSON)
    return reply(202, listing.encode_names(block_id.hex() for block_id in ids), content_type=TEXT)


def _lasting_fields(call: Call, identity: str) -> dict[str, str]:
    """What stays as it is for as long as the container is there."""
    return {
        headers.CONTAINER_BLOCK_SIZE: str(call.store.block_size),
        headers.CONTAINER_BLOCK_HASH: hashmap.BLOCK_HASH,
        headers.CONTAINER_IDENTITY: identity,
        headers.ATOMIC_CONDITIONS: "1",
        headers.EXTENSIONS: _EXTENSIONS,
    }


def _container_fields(call: Call, found: ContainerView) -> dict[str, str]:
    record = found.record
    return {
        **_lasting_fields(call, found.identity),
        headers.CONTAINER_OBJECT_COUNT: str(record.object_count),
        headers.CONTAINER_BYTES_USED: str(record.bytes_used),
        headers.CONTAINER_VERSION: str(record.version),
        headers.CONTAINER_QUOTA: str(found.settings.quota_bytes),
        headers.CONTAINER_VERSIONING: "auto" if found.settings.keeps_history else "none",
        **headers.meta_headers(found.settings.meta, headers.CONTAINER_META_PREFIX),
        headers.CONTAINER_VERSION_TIMESTAMP: headers.timestamp_text(record.modified_us),
        "Last-Modified": headers.http_date(found.settled_us),
        **({swift.TIMESTAMP: swift.timestamp(record.created_us)} if call.is_swift else {}),
    }


def _text(names: list[str], fields: dict[str, str]) -> Response:
    """One name a line; 204 for none, as in Pithos."""
    return reply(200 if names else 204, listing.encode_names(names), content_type=TEXT, fields=fields)
