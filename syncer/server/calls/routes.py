"""Which request is which: what reads it, what does it, who may, and how much memory it is charged.

The reference (docs/reference/server.md, "URLs and replies") has the same rows; a test compares them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Final, TypeVar

import msgspec
from starlette.responses import Response

from syncer.protocol import segments
from syncer.server.calls import bulk, changes, containers, memory, reads, sharing, writes
from syncer.server.calls.call import Call
from syncer.server.catalogue.change_feed import MAX_PAGE_BYTES
from syncer.server.catalogue.orders import Place
from syncer.server.errors import Forbidden, NotAllowed
from syncer.server.http import container_orders, object_orders
from syncer.server.http.asked import Asked
from syncer.server.http.urls import Level

Order = TypeVar("Order")
Serve = Callable[[Call, Asked], Awaitable[Response]]


class Who(Enum):
    """Who may send a request about something of an account."""

    OWNER = "owner"  # whose token it is
    READERS = "readers"  # other accounts with whom something is shared


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of request.

    Attributes:
        who: Who may.
        method: HTTP's.
        level: What its URL names.
        mark: What tells it from others: `?parameter`, `?parameter=value`, the name of a header field, or `body`; "" for
            what is left.
        serve: Reads it into its order, then carries that out.
        applies: Whether a request is of this kind, if it is of none before it.
        needs: Memory that it is charged at first, and if that was too little.
    """

    who: Who
    method: str
    level: Level
    mark: str
    serve: Serve
    applies: Callable[[Asked], bool]
    needs: tuple[memory.Need, ...]


def route_of(asked: Asked) -> Route:
    """Which kind of request this is.

    Raises:
        Forbidden: Only the owner of the account may do this.
        NotAllowed: Nobody can.
    """
    level = asked.target.level
    mine = _TABLE[Who.OWNER, level]
    methods = _TABLE[Who.READERS, level] if asked.is_foreign else mine
    for route in methods.get(asked.method, ()):
        if route.applies(asked):
            return route
    if asked.is_foreign and asked.method in mine:
        raise Forbidden("This token is not for that account; what others share is only read")
    allowed = ", ".join(sorted(methods))
    raise NotAllowed(f"{asked.method} does nothing here; allowed: {allowed}", {"Allow": allowed})


def _route(
    who: Who,
    method: str,
    level: Level,
    mark: str | tuple[str, Callable[[Asked], bool]],
    parse: Callable[[Asked], Order],
    act: Callable[[Call, Order], Awaitable[Response]],
    *needs: memory.Need,
) -> Route:
    text, applies = mark if isinstance(mark, tuple) else (mark, _has(mark))
    admits = who is Who.READERS and level is Level.OBJECT

    async def serve(call: Call, asked: Asked) -> Response:
        if admits:
            await sharing.admit(call, asked)
        return await act(call, parse(asked))

    return Route(who=who, method=method, level=level, mark=text, serve=serve, applies=applies, needs=needs)


def _has(mark: str) -> Callable[[Asked], bool]:
    """Whether a request has a mark."""
    name, _, value = mark.removeprefix("?").partition("=")
    if mark.startswith("?"):
        return lambda asked: name in asked.target.parameters and value in {"", asked.target.parameters[name]}
    return lambda asked: not mark or asked.header(name) is not None


def _place(asked: Asked) -> Place:
    return asked.place


_MINE, _OTHERS = Who.OWNER, Who.READERS
_A, _C, _O = Level

_ANY_DELETE: Final = (f"?{container_orders.BULK_DELETE}", lambda _asked: True)  # refuses all others, and says why
_BLOCKS: Final = ("body", container_orders.has_blocks)
_DIFFERENCE: Final = ("?hashmap&base_version", lambda asked: "base_version" in asked.target.parameters)
# As in Pithos, an `until` that is no whole number is none: kamaki deletes containers with the time of day.
_HISTORY: Final = ("?until", lambda asked: (asked.parameter("until") or "").isdecimal())
_VERSIONS: Final = (memory.FEW_VERSIONS_BYTES, memory.MANY_VERSIONS_BYTES)
_LISTED: Final = (memory.rows, memory.heavy_rows)
_OBJECTS: Final = ("?delimiter", lambda asked: bool(asked.delimiter))
_TREE_HERE: Final = ("?delimiter", object_orders.is_tree_from_elsewhere)
_PART: Final = ("Content-Range", object_orders.is_part)
_SOURCE: Final = ("X-Source-Object", lambda asked: object_orders.is_part(asked) and "x-source-object" in asked.fields)

_PUTS_MANIFEST: Final = "?multipart-manifest=put"
_DELETES_SEGMENTS: Final = (  # below Pithos's path the parameter means nothing, as ever
    "?multipart-manifest=delete",
    lambda asked: asked.target.is_swift and asked.parameter(segments.PARAMETER) == "delete",
)

ROUTES: Final = (
    _route(_MINE, "HEAD", _A, "", _place, containers.head_account),
    _route(_MINE, "GET", _A, "", container_orders.containers, containers.list_containers),
    _route(_MINE, "POST", _A, "?bulk-delete", container_orders.bulk_deletion, bulk.delete_many, memory.DELETION_BYTES),
    _route(_MINE, "POST", _A, "", container_orders.account_settings, containers.post_account),
    _route(_MINE, "DELETE", _A, _ANY_DELETE, container_orders.bulk_deletion, bulk.delete_many, memory.DELETION_BYTES),
    _route(_MINE, "HEAD", _C, "", _place, containers.head_container),
    _route(_MINE, "GET", _C, "?changes", container_orders.wait, changes.get_changes, MAX_PAGE_BYTES),
    _route(_MINE, "GET", _C, "", container_orders.listing, containers.list_objects, *_LISTED),
    _route(_MINE, "PUT", _C, "", container_orders.settings, containers.put_container),
    _route(_MINE, "POST", _C, "?bulk", _place, bulk.post_bulk, memory.bulk_in),
    _route(_MINE, "POST", _C, "?bulk-read", _place, bulk.post_bulk_read, memory.bulk_out),
    _route(_MINE, "POST", _C, _BLOCKS, container_orders.post_blocks, containers.post_blocks, memory.content_in),
    _route(_MINE, "POST", _C, "", container_orders.settings, containers.post_container),
    _route(_MINE, "DELETE", _C, _HISTORY, container_orders.purge, writes.purge),
    _route(_MINE, "DELETE", _C, _OBJECTS, _place, containers.empty_container),
    _route(_MINE, "DELETE", _C, "", _place, containers.delete_container),
    _route(_MINE, "HEAD", _O, "", object_orders.read, reads.head_object),
    _route(_MINE, "GET", _O, "?version=list", _place, reads.get_history, *_VERSIONS),
    _route(_MINE, "GET", _O, "?hashmap", object_orders.hashmap_of, reads.get_hashmap, memory.HASHMAP_BYTES),
    _route(_MINE, "GET", _O, "", object_orders.content, reads.get_content, memory.content_out),
    _route(_MINE, "PUT", _O, _TREE_HERE, object_orders.here, writes.transfer, memory.TREE_BYTES),
    _route(_MINE, "PUT", _O, "X-Move-From", object_orders.here, writes.transfer),
    _route(_MINE, "PUT", _O, "X-Copy-From", object_orders.here, writes.transfer, memory.copied),
    _route(_MINE, "PUT", _O, _DIFFERENCE, object_orders.put_hashmap, writes.put_block_list, memory.difference_in),
    _route(_MINE, "PUT", _O, "?hashmap", object_orders.put_hashmap, writes.put_block_list, memory.block_list_in),
    _route(_MINE, "PUT", _O, _PUTS_MANIFEST, object_orders.put_static, writes.put_static, memory.MANIFEST_BYTES),
    _route(_MINE, "PUT", _O, "", object_orders.put_content, writes.put_content, memory.content_in),
    _route(_MINE, "POST", _O, _SOURCE, object_orders.post_part, writes.post_part_from_source, memory.SOURCE_BYTES),
    _route(_MINE, "POST", _O, _PART, object_orders.post_part, writes.post_part, memory.part),
    _route(_MINE, "POST", _O, "", object_orders.post_meta, writes.post_meta),
    _route(_MINE, "COPY", _O, _OBJECTS, object_orders.there, writes.transfer, memory.TREE_BYTES),
    _route(_MINE, "COPY", _O, "", object_orders.there, writes.transfer, memory.copied),
    _route(_MINE, "MOVE", _O, _OBJECTS, object_orders.there, writes.transfer, memory.TREE_BYTES),
    _route(_MINE, "MOVE", _O, "", object_orders.there, writes.transfer),
    _route(_MINE, "DELETE", _O, "?until", container_orders.purge, writes.purge),
    _route(_MINE, "DELETE", _O, _DELETES_SEGMENTS, object_orders.read, bulk.delete_static, memory.MANIFEST_BYTES),
    _route(_MINE, "DELETE", _O, "", object_orders.delete, writes.delete_object),
    _route(_OTHERS, "HEAD", _A, "", _place, sharing.head_account),
    _route(_OTHERS, "GET", _A, "", container_orders.containers, sharing.list_containers),
    _route(_OTHERS, "HEAD", _C, "", _place, sharing.head_container),
    _route(_OTHERS, "GET", _C, "", container_orders.shared_listing, sharing.list_objects, *_LISTED),
    _route(_OTHERS, "HEAD", _O, "", object_orders.read, reads.head_object),
    _route(_OTHERS, "GET", _O, "?hashmap", object_orders.hashmap_of, reads.get_hashmap, memory.HASHMAP_BYTES),
    _route(_OTHERS, "GET", _O, "", object_orders.content, reads.get_content, memory.content_out),
)
"""All of them; of one account, method and level, the first that applies is it."""

_TABLE: Final[dict[tuple[Who, Level], dict[str, list[Route]]]] = {(who, level): {} for who in Who for level in Level}
for _each in ROUTES:
    _TABLE[_each.who, _each.level].setdefault(_each.method, []).append(_each)
