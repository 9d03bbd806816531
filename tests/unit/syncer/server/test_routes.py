"""The table of requests: the reference tells the same, and nothing else reads what a client sent."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from syncer.core.subtrees import Guard
from syncer.protocol.pithos.headers import HeaderError
from syncer.server.calls.memory import Size
from syncer.server.calls.routes import ROUTES, Route, route_of
from syncer.server.catalogue.conditions import Conditions
from syncer.server.catalogue.orders import Place, Transfer, TransferOrder
from syncer.server.errors import BadRequest, Forbidden, NotAllowed
from syncer.server.http import object_orders
from syncer.server.http.asked import Asked, header_fields
from syncer.server.http.urls import Level, parse_target

PROJECT = Path(__file__).resolve().parents[4]
PATHS = {Level.ACCOUNT: "/a", Level.CONTAINER: "/a/c", Level.OBJECT: "/a/c/o"}


def asked(method: str, url: str, *pairs: tuple[str, str], account: str = "a", **fields: str) -> Asked:
    path, _, query = url.partition("?")
    raw = [*pairs, *((name.replace("_", "-").lower(), value) for name, value in fields.items())]
    told = header_fields([(name.encode(), value.encode()) for name, value in raw])
    target = parse_target(path.encode(), query.encode())
    return Asked(method=method, target=target, account=account, fields=dict(reversed(told)), pairs=told)


def written(route: Route) -> str:
    """A request as the reference writes it."""
    path, mark = PATHS[route.level], route.mark
    if mark.startswith("?"):
        return f"{route.method} `{path}{mark}`"
    return f"{route.method} `{path}`" + {"": "", "body": " + a body"}.get(mark, f" + {mark}")


def memory(route: Route) -> str:
    """At most: of a body that does not say its length, in blocks of 64 KiB, with as many rows as there may be."""
    size = Size(length=None, block_size=64 << 10)
    needs = [need if isinstance(need, int) else need(size) for need in route.needs]
    return ", ".join(f"{need / (1 << 20):.3g} MiB" for need in needs)


def test_the_reference_has_a_row_for_each_kind_of_request_with_who_may_and_what_memory_it_is_charged() -> None:
    text = (PROJECT / "docs" / "reference" / "server.md").read_text()
    table = text.partition("| request | who | memory | reply |\n")[2].partition("\n\n")[0]
    told = [tuple(cell.strip() for cell in line.strip("|").split("|")[:3]) for line in table.splitlines()[1:]]
    rows: dict[str, tuple[list[str], str]] = {}
    for route in ROUTES:
        rows.setdefault(written(route), ([], memory(route)))[0].append(route.who.value)
    assert told == [(request, ", ".join(who), needs) for request, (who, needs) in rows.items()]


@pytest.mark.parametrize(
    ("one", "mark"),
    [
        (asked("GET", "/a/c/o?version=3"), ""),
        (asked("GET", "/a/c/o?version=list"), "?version=list"),
        (asked("PUT", "/a/c/o?hashmap", X_Copy_From="/c/p"), "X-Copy-From"),
        (asked("PUT", "/a/c/o?hashmap&base_version=4"), "?hashmap&base_version"),
        (asked("POST", "/a/c/o", X_Object_Bytes="4"), "Content-Range"),
        (asked("POST", "/swift/v1/a/c/o", X_Object_Bytes="4"), ""),
        (asked("POST", "/a/c?update", Content_Length="0"), ""),
        (asked("POST", "/a/c?update", Content_Type="application/octet-stream"), "body"),
        (asked("POST", "/a/c?update", Transfer_Encoding="chunked"), "body"),
        (asked("PUT", "/a/c/o?delimiter=/", X_Copy_From="/c/p"), "?delimiter"),
        (asked("PUT", "/a/c/o?delimiter=", X_Move_From="/c/p"), "X-Move-From"),
        (asked("PUT", "/a/c/o?delimiter=/"), ""),
        (asked("MOVE", "/a/c/o?delimiter=/"), "?delimiter"),
        (asked("DELETE", "/a/c?until=1.5"), ""),
        (asked("DELETE", "/a/c?until=1&delimiter=/"), "?until"),
        (asked("DELETE", "/a/c?delimiter="), ""),
        (asked("DELETE", "/a/c/o?multipart-manifest=delete"), ""),
        (asked("DELETE", "/swift/v1/a/c/o?multipart-manifest=delete"), "?multipart-manifest=delete"),
    ],
    ids=lambda value: value.method if isinstance(value, Asked) else value or "none",
)
def test_what_kind_a_request_is(one: Asked, mark: str) -> None:
    assert route_of(one).mark == mark


def test_what_others_share_is_only_read_and_what_nobody_does_is_told_with_what_one_may() -> None:
    with pytest.raises(Forbidden):
        route_of(asked("DELETE", "/a/c/o", account="b"))
    with pytest.raises(NotAllowed) as refusal:
        route_of(asked("MOVE", "/a/c", account="b"))
    assert refusal.value.headers == {"Allow": "GET, HEAD"}


def test_a_move_is_the_same_order_however_it_is_asked_for() -> None:
    here = object_orders.here(asked("PUT", "/a/c/o", X_Move_From="/c/p", X_If_Object_Version="4"))
    there = object_orders.there(asked("MOVE", "/a/c/p", Destination="/c/o", X_If_Destination_Version="4"))
    source, destination = (Place(account="a", container="c", name=name) for name in "po")
    order = TransferOrder(destination=Conditions(if_version=4))
    assert here == there == Transfer(source=source, destination=destination, moves=True, order=order)
    with pytest.raises(BadRequest):
        object_orders.there(asked("MOVE", "/a/c/p"))


def test_header_fields_that_a_proxy_adds_change_nothing_below_pithoss_path() -> None:
    """Breaks when a device behind a proxy (Squid adds Cache-Control) can no longer move a directory as a whole."""
    guard, added = Guard(count=1, digest="0" * 64), {"Cache_Control": "max-age=259200", "Expires": "x" * 1025}
    fields = {"Destination": "/c/o", "X_If_Subtree": guard.text, **added}
    assert object_orders.there(asked("MOVE", "/a/c/p?delimiter=/", **fields)).guard == guard
    with pytest.raises(BadRequest):
        object_orders.there(asked("MOVE", "/a/c/p?delimiter=/", X_Object_Meta_K="v", **fields))
    with pytest.raises(HeaderError):
        object_orders.put_content(asked("PUT", "/swift/v1/a/c/p", Content_Length="0", **added))


def test_of_equal_header_fields_the_first_counts_but_of_metadata_the_last() -> None:
    types, items = [("content-type", "a/b"), ("content-type", "c/d")], [("x-object-meta-k", one) for one in "12"]
    order = object_orders.put_content(asked("PUT", "/a/c/o", *types, *items))
    assert (order.content_type, order.meta) == ("a/b", {"k": "2"})


def test_only_the_edge_reads_header_fields_and_parameters() -> None:
    """Breaks when a handler or the store looks into the request again: it would be parsed in two places."""
    package = PROJECT / "syncer" / "server"
    inner = [
        *(package / "calls").glob("*.py"),
        *(package / "store").glob("*.py"),
        *(package / "catalogue").glob("*.py"),
    ]
    reads = re.compile(r"request\.(headers|query_params|scope)|target\.parameters|\.header\(")
    readers = {path.name for path in inner if reads.search(path.read_text())}
    assert readers == {"routes.py", "identity.py"}  # which kind it is; and those that have no account yet
