"""Many small changes at once: the same outcome on every server, few requests on ours, none lost with a message."""

from __future__ import annotations

import pytest
import trio
from msgspec.structs import replace

from syncer.core.model import Kind, Meta, RelPath
from syncer.errors import ConflictOnRemoteError, SyncerError, UnsafeNameError
from syncer.remote.client import CloudClient, MoveOrder, PutOrder, PutResult
from syncer.remote.pithos.client import PithosClient
from syncer.remote.serials import cursor_of
from tests.contract.remotes import (
    META,
    Loss,
    LossyTransport,
    Remote,
    ServeRemote,
    list_of,
    path,
    put_many,
    resolved,
    run,
    run_through,
)

FILES = 200


async def check(client: CloudClient, expected: dict[bytes, bytes]) -> None:
    listing = await client.list_objects()
    assert {stat.path for stat in listing.objects} == set(expected)
    for stat in listing.objects[::20]:
        blocks = await list_of(client, stat)
        assert await client.read_block(stat.path, stat.tag, blocks, 0) == expected[stat.path]


def test_many_small_changes_at_once(remote: Remote) -> None:
    async def scenario(client: CloudClient) -> None:
        before = client.counters.snapshot()
        await put_many(client, FILES)
        made = client.counters.since(before)
        await check(client, {b"d/%d" % number: b"%d" % number for number in range(FILES)})
        stats = {stat.path: stat for stat in (await client.list_objects()).objects}
        before = client.counters.snapshot()
        async with trio.open_nursery() as nursery:
            for number in range(0, FILES, 2):
                source = stats[path(f"d/{number}")]
                nursery.start_soon(client.move, source.path, path(f"e/{number}"), source.tag)
                victim = stats[path(f"d/{number + 1}")]
                nursery.start_soon(client.delete, victim.path, victim.tag)
        changed = client.counters.since(before)
        await check(client, {b"e/%d" % number: b"%d" % number for number in range(0, FILES, 2)})
        moved = {stat.path: stat.tag.uuid for stat in (await client.list_objects()).objects}
        assert moved == {path(f"e/{number}"): stats[path(f"d/{number}")].tag.uuid for number in range(0, FILES, 2)}
        if remote.name == "serve":
            assert made.requests <= 10
            assert changed.requests <= 10

    run(remote, scenario)


def test_each_change_has_its_own_condition(remote: Remote) -> None:
    async def scenario(client: CloudClient) -> None:
        await put_many(client, 10)
        stats = {stat.path: stat for stat in (await client.list_objects()).objects}
        heard: dict[int, str] = {}

        async def create_again(number: int) -> None:
            try:
                await client.put_small(path(f"d/{number}"), Kind.FILE, b"other", META, None)
                heard[number] = "made"
            except ConflictOnRemoteError:
                heard[number] = "conflict"

        async with trio.open_nursery() as nursery:
            for number in range(5, 15):
                nursery.start_soon(create_again, number)
        assert heard == {number: "conflict" if number < 10 else "made" for number in range(5, 15)}
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
        async with trio.open_nursery() as nursery:
            for stat in stats[:25]:
                nursery.start_soon(client.delete, stat.path, stat.tag)
            for stat in stats[25:]:
                nursery.start_soon(client.move, stat.path, path(f"to/{stat.path.decode()}"), stat.tag)
        transport.lose(loss, None)
        listing = await client.list_objects()
        assert [stat.path for stat in listing.objects] == [path(f"to/{stat.path.decode()}") for stat in stats[25:]]
        # One version each for what was made and deleted, two more for what was moved: nothing was done twice.
        assert cursor_of(listing.position).version - stats[0].tag.version <= 50 + 25 + 2 * 25

    run_through(serve, LossyTransport, scenario)


async def orders_of(client: CloudClient) -> list[MoveOrder]:
    stats = (await client.list_objects()).objects
    return [
        MoveOrder(source=stat.path, target=path(f"to/{stat.path.decode()}"), expect=stat.tag)
        for stat in reversed(stats)
    ]


def test_a_folder_full_of_objects_moves(remote: Remote) -> None:
    async def scenario(client: CloudClient) -> None:
        await put_many(client, 50)
        orders = await orders_of(client)
        before = client.counters.snapshot()
        results = await client.move_all(orders)
        moved = {stat.path: stat.tag for stat in (await client.list_objects()).objects}
        assert {order.target: result.tag for order, result in zip(orders, results, strict=True)} == moved
        assert {tag.uuid for tag in moved.values()} == {order.expect.uuid for order in orders}
        if remote.name == "serve":
            assert client.counters.since(before).mutating_requests == 1
        assert await client.move_all([]) == []

    run(remote, scenario)


def test_what_can_not_be_moved_stays(remote: Remote) -> None:
    async def scenario(client: CloudClient) -> None:
        await put_many(client, 10)
        orders = await orders_of(client)
        theirs = await client.set_meta(orders[3].source, Meta(mode=0o600, mtime_ns=5), orders[3].expect)
        await client.put_small(orders[5].target, Kind.FILE, b"in the way", META, None)
        for wrong in (3, 5):
            with pytest.raises(ConflictOnRemoteError):
                await client.move_all([orders[wrong]])
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
        results = await client.move_all(orders)
        transport.lose(loss, None)
        listing = await client.list_objects()
        assert {stat.path: stat.tag for stat in listing.objects} == {
            order.target: result.tag for order, result in zip(orders, results, strict=True)
        }
        assert cursor_of(listing.position).version == max(order.expect.version for order in orders) + 60

    run_through(serve, LossyTransport, scenario)


def orders_to_make(count: int) -> list[PutOrder]:
    made = [PutOrder(path=path("d"), kind=Kind.DIRECTORY, data=b"", meta=Meta(mode=0o750, special=0))]
    return made + [
        PutOrder(path=path(f"d/{number}"), kind=Kind.FILE, data=b"%d" % number * (number % 3), meta=META)
        for number in range(count)
    ]


async def expect_made(client: CloudClient, orders: list[PutOrder], results: list[PutResult | SyncerError]) -> None:
    stats = {stat.path: await resolved(client, stat) for stat in (await client.list_objects()).objects}
    assert len(stats) == len(orders) == len(results)
    for order, result in zip(orders, results, strict=True):
        stat = stats[order.path]
        assert isinstance(result, PutResult)
        assert (stat.tag, stat.kind, stat.meta) == (result.tag, order.kind, order.meta)
        assert stat.tag.size_bytes == len(order.data)


def test_many_small_objects_are_made_in_one_request(remote: Remote) -> None:
    async def scenario(client: CloudClient) -> None:
        await client.container_info()
        before, orders = client.counters.snapshot(), orders_to_make(50)
        results = await client.put_all(orders)
        if remote.name == "serve":
            assert client.counters.since(before).requests == 1
        await expect_made(client, orders, results)
        assert await client.put_all([]) == []

    run(remote, scenario)


def test_of_many_small_objects_each_has_its_own_fate(remote: Remote) -> None:
    async def scenario(client: CloudClient) -> None:
        theirs = await client.put_small(path("d/7"), Kind.FILE, b"theirs", META, None)
        orders = orders_to_make(10)
        orders[3] = replace(orders[3], path=RelPath(b".blocksync/private"))
        results = (
            await client.put_all(orders)
            if remote.name != "memory"
            else await client.put_all([order for order in orders if order is not orders[3]])
        )
        told = [type(result) for result in results]
        if remote.name != "memory":
            assert issubclass(told.pop(3), UnsafeNameError)
        assert [issubclass(each, ConflictOnRemoteError) for each in told] == [at == 7 for at in range(len(told))]
        found = await client.head(path("d/7"))
        assert found is not None
        assert found.tag == theirs.tag

    run(remote, scenario)


@pytest.mark.parametrize("loss", Loss)
def test_objects_are_made_once_whatever_is_lost(serve: ServeRemote, loss: Loss) -> None:
    async def scenario(client: PithosClient, transport: LossyTransport) -> None:
        orders = orders_to_make(30)
        transport.lose(loss, 0)
        results = await client.put_all(orders)
        transport.lose(loss, None)
        await expect_made(client, orders, results)
        versions = [result.tag.version for result in results if isinstance(result, PutResult)]
        assert max(versions) - min(versions) == len(orders) - 1

    run_through(serve, LossyTransport, scenario)
