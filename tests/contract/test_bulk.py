"""Many small changes at once: the same outcome on every server, few requests on ours, none lost with a message."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from syncer.core.model import Kind, Meta, RelPath
from syncer.errors import ConflictOnRemoteError, UnsafeNameError
from syncer.ports.orders import Delete, Move, Order, Stored
from syncer.ports.remote import Remote
from syncer.remote.pithos.client import PithosClient
from syncer.remote.serials import cursor_of
from tests.contract.remotes import (
    META,
    Loss,
    LossyTransport,
    ServeRemote,
    Subject,
    fetch_blocks,
    head,
    list_of,
    path,
    put_many,
    resolved,
    run,
    run_through,
)
from tests.contract.writing import Made, New, Shelf, made_of, make_all, put_small, set_meta, write_list

FILES = 200


async def check(client: Remote, expected: dict[bytes, bytes]) -> None:
    listing = await client.list_objects()
    assert {stat.path for stat in listing.objects} == set(expected)
    for stat in listing.objects[::20]:
        blocks = await list_of(client, stat)
        assert await fetch_blocks(client, stat, blocks, [0]) == {0: expected[stat.path]}


def test_many_small_changes_at_once(remote: Subject) -> None:
    async def scenario(client: Remote) -> None:
        before = client.counters.snapshot()
        await put_many(client, FILES)
        made = client.counters.since(before)
        await check(client, {b"d/%d" % number: b"%d" % number for number in range(FILES)})
        stats = {stat.path: stat for stat in (await client.list_objects()).objects}
        before = client.counters.snapshot()
        orders: list[Order] = []
        for number in range(0, FILES, 2):
            source, victim = stats[path(f"d/{number}")], stats[path(f"d/{number + 1}")]
            orders.append(Move(source=source.path, target=path(f"e/{number}"), expect=source.tag))
            orders.append(Delete(path=victim.path, expect=victim.tag))
        assert all(isinstance(one, Stored) for one in await write_list(client, orders, Shelf([])))
        changed = client.counters.since(before)
        await check(client, {b"e/%d" % number: b"%d" % number for number in range(0, FILES, 2)})
        moved = {stat.path: stat.tag.uuid for stat in (await client.list_objects()).objects}
        assert moved == {path(f"e/{number}"): stats[path(f"d/{number}")].tag.uuid for number in range(0, FILES, 2)}
        if remote.name == "serve":
            assert made.requests <= 10
            assert changed.requests <= 10

    run(remote, scenario)


def test_each_change_has_its_own_condition(remote: Subject) -> None:
    async def scenario(client: Remote) -> None:
        await put_many(client, 10)
        stats = {stat.path: stat for stat in (await client.list_objects()).objects}
        news = [New(path=path(f"d/{at}"), kind=Kind.FILE, data=b"other", meta=META) for at in range(5, 15)]
        refused = [isinstance(one, ConflictOnRemoteError) for one in await make_all(client, news)]
        assert refused == [at < 10 for at in range(5, 15)]
        now = {stat.path: stat for stat in (await client.list_objects()).objects}
        assert all(now[name] == stat for name, stat in stats.items())

    run(remote, scenario)


@pytest.mark.parametrize("loss", Loss)
@pytest.mark.parametrize("place", range(3))
def test_a_lost_message_loses_and_doubles_no_change(serve: ServeRemote, loss: Loss, place: int) -> None:
    async def scenario(client: PithosClient, transport: LossyTransport) -> None:
        transport.lose(loss, place)
        await put_many(client, 50)
        stats = (await client.list_objects()).objects
        transport.lose(loss, place)
        orders: list[Order] = [Delete(path=stat.path, expect=stat.tag) for stat in stats[:25]]
        orders += [
            Move(source=stat.path, target=path(f"to/{stat.path.decode()}"), expect=stat.tag) for stat in stats[25:]
        ]
        assert all(isinstance(one, Stored) for one in await write_list(client, orders, Shelf([])))
        transport.lose(loss, None)
        listing = await client.list_objects()
        assert [stat.path for stat in listing.objects] == [path(f"to/{stat.path.decode()}") for stat in stats[25:]]
        # One version each for what was made and deleted, two more for what was moved: nothing was done twice.
        assert cursor_of(listing.position).version - stats[0].tag.version <= 50 + 25 + 2 * 25

    run_through(serve, LossyTransport, scenario)


async def move_all(client: Remote, orders: Sequence[Move]) -> list[Made]:
    found = await write_list(client, orders, Shelf([]))
    for one in found:
        if isinstance(one, Exception):
            raise one
    return [made_of(one) for one in found if isinstance(one, Stored)]


async def orders_of(client: Remote) -> list[Move]:
    stats = (await client.list_objects()).objects
    return [
        Move(source=stat.path, target=path(f"to/{stat.path.decode()}"), expect=stat.tag) for stat in reversed(stats)
    ]


def test_a_folder_full_of_objects_moves(remote: Subject) -> None:
    async def scenario(client: Remote) -> None:
        await put_many(client, 50)
        orders = await orders_of(client)
        before = client.counters.snapshot()
        results = await move_all(client, orders)
        moved = {stat.path: stat.tag for stat in (await client.list_objects()).objects}
        assert {order.target: result.tag for order, result in zip(orders, results, strict=True)} == moved
        assert {tag.uuid for tag in moved.values()} == {order.expect.uuid for order in orders}
        if remote.name == "serve":
            assert client.counters.since(before).mutating_requests == 1
        assert await move_all(client, []) == []

    run(remote, scenario)


def test_what_can_not_be_moved_stays(remote: Subject) -> None:
    async def scenario(client: Remote) -> None:
        await put_many(client, 10)
        orders = await orders_of(client)
        theirs = await set_meta(client, orders[3].source, Meta(mode=0o600, mtime_ns=5), orders[3].expect)
        await put_small(client, orders[5].target, Kind.FILE, b"in the way", META, None)
        for wrong in (3, 5):
            with pytest.raises(ConflictOnRemoteError):
                await move_all(client, [orders[wrong]])
        now = {stat.path: stat for stat in (await client.list_objects()).objects}
        assert now[orders[3].source].tag == theirs.tag
        assert now[orders[5].source].tag == orders[5].expect

    run(remote, scenario)


@pytest.mark.parametrize("loss", Loss)
def test_a_folder_moves_once_whatever_is_lost(serve: ServeRemote, loss: Loss) -> None:
    async def scenario(client: PithosClient, transport: LossyTransport) -> None:
        await put_many(client, 30)
        orders = await orders_of(client)
        transport.lose(loss, 0)
        results = await move_all(client, orders)
        transport.lose(loss, None)
        listing = await client.list_objects()
        assert {stat.path: stat.tag for stat in listing.objects} == {
            order.target: result.tag for order, result in zip(orders, results, strict=True)
        }
        assert cursor_of(listing.position).version == max(order.expect.version for order in orders) + 60

    run_through(serve, LossyTransport, scenario)


def orders_to_make(count: int) -> list[New]:
    made = [New(path=path("d"), kind=Kind.DIRECTORY, data=b"", meta=Meta(mode=0o750, special=0))]
    return made + [
        New(path=path(f"d/{number}"), kind=Kind.FILE, data=b"%d" % number * (number % 3), meta=META)
        for number in range(count)
    ]


async def expect_made(client: Remote, orders: list[New], results: list[Made | Exception]) -> None:
    stats = {stat.path: await resolved(client, stat) for stat in (await client.list_objects()).objects}
    assert len(stats) == len(orders) == len(results)
    for order, result in zip(orders, results, strict=True):
        stat = stats[order.path]
        assert isinstance(result, Made)
        assert (stat.tag, stat.kind, stat.meta) == (result.tag, order.kind, order.meta)
        assert stat.tag.size_bytes == len(order.data)


def test_many_small_objects_are_made_in_one_request(remote: Subject) -> None:
    async def scenario(client: Remote) -> None:
        await client.open()
        before, orders = client.counters.snapshot(), orders_to_make(50)
        results = await make_all(client, orders)
        if remote.name == "serve":
            assert client.counters.since(before).requests == 1
        await expect_made(client, orders, results)
        assert await make_all(client, []) == []

    run(remote, scenario)


def test_of_many_small_objects_each_has_its_own_fate(remote: Subject) -> None:
    async def scenario(client: Remote) -> None:
        theirs = await put_small(client, path("d/7"), Kind.FILE, b"theirs", META, None)
        orders = orders_to_make(10)
        orders[3] = replace(orders[3], path=RelPath(b".blocksync/private"))
        results = (
            await make_all(client, orders)
            if remote.name != "memory"
            else await make_all(client, [order for order in orders if order is not orders[3]])
        )
        told = [type(result) for result in results]
        if remote.name != "memory":
            assert issubclass(told.pop(3), UnsafeNameError)
        assert [issubclass(each, ConflictOnRemoteError) for each in told] == [at == 7 for at in range(len(told))]
        found = await head(client, path("d/7"))
        assert found is not None
        assert found.tag == theirs.tag

    run(remote, scenario)


@pytest.mark.parametrize("loss", Loss)
def test_objects_are_made_once_whatever_is_lost(serve: ServeRemote, loss: Loss) -> None:
    async def scenario(client: PithosClient, transport: LossyTransport) -> None:
        orders = orders_to_make(30)
        transport.lose(loss, 0)
        results = await make_all(client, orders)
        transport.lose(loss, None)
        await expect_made(client, orders, results)
        versions = [result.tag.version for result in results if isinstance(result, Made)]
        assert max(versions) - min(versions) == len(orders) - 1

    run_through(serve, LossyTransport, scenario)
