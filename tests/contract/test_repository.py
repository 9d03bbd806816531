"""A repository on every kind of store, real ones among them: what a `Remote` promises, and what else may go wrong."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import msgspec
import pytest
import trio

from syncer.core.conflict import parse_conflict_name
from syncer.core.model import Kind, Position, RemoteStat, meta_of
from syncer.errors import OverQuotaError, SyncerError
from syncer.ports.orders import Delete, Move, SetMeta, Stored, write_one
from syncer.remote.http.retry import Retry
from syncer.remote.http.transport import HttpSettings
from syncer.remote.repository.client import RepositoryClient, Writer
from syncer.remote.repository.format.history import DeviceId
from syncer.remote.repository.maintenance.checking import Checker
from syncer.remote.repository.objects import Objects
from syncer.remote.stores.memory import MemoryStore
from syncer.remote.stores.port import BlobStore
from syncer.remote.stores.retrying import RetryingStore
from syncer.remote.stores.swift import SwiftStore
from tests.contract.blobplaces import KINDS, PATIENT, WITHIN_S, Place, place_of
from tests.contract.writing import Shelf, store_order, write_list
from tests.kit.swift import Swift
from tests.unit.syncer.remote.repository.nodes import KEYS
from tests.unit.syncer.remote.repository.share import CONFIG, GRID, META, fetched, listed, path, put, random_bytes


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Place:
    return place_of(request.param, request, tmp_path_factory)


def client_on(store: BlobStore, number: int) -> RepositoryClient:
    writer = Writer(device=DeviceId(bytes([number]) * 16), name=f"host{number}", tool="test")
    patient = RetryingStore(store, Retry(policy=PATIENT, draw=random.random, host="the store"))
    return RepositoryClient(Objects(patient, KEYS), CONFIG, writer)


class Share:
    """Devices on one place."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self.clients: list[RepositoryClient] = []

    async def device(self, number: int) -> RepositoryClient:
        client = client_on(self._place.client(), number)
        await client.open(create=True)
        self.clients.append(client)
        return client

    async def problems(self) -> list[str]:
        return (await Checker(self.clients[0]._objects, GRID, share=1.0).run()).problems


@asynccontextmanager
async def share_on(place: Place) -> AsyncIterator[Share]:
    await place.make()
    share = Share(place)
    try:
        with trio.fail_after(WITHIN_S):
            yield share
    finally:
        for client in share.clients:
            await client.close()


def run(place: Place, scenario: Callable[[Share], Awaitable[None]]) -> None:
    async def main() -> None:
        async with share_on(place) as share:
            await scenario(share)

    trio.run(main)


async def contents(client: RepositoryClient) -> dict[str, bytes | None]:
    stats = await listed(client)
    return {
        where.decode(): await fetched(client, stat) if stat.kind is Kind.FILE else stat.target
        for where, stat in stats.items()
    }


def test_devices_of_a_repository_see_what_others_committed_and_nothing_else(place: Place) -> None:
    """R5, R6, R7, R9, R13, R14, on each store."""

    async def scenario(share: Share) -> None:
        one, other = await share.device(1), await share.device(2)
        beginning = (await other.list_objects()).position
        sparse = random_bytes(1, 70_000) + bytes(5 << 20) + b"end"
        wrote: dict[str, bytes | None] = {"sparse": sparse, "small": b"small", "empty": b"", "d/deep": b"d" * 9000}
        for name, data in wrote.items():
            await put(one, name, data or b"")
        await write_one(one, store_order(path("link"), Kind.SYMLINK, b"to", meta_of(None)))
        await write_one(one, store_order(path("d"), Kind.DIRECTORY, b"", meta_of(0o750)))
        assert await listed(other) == {}
        await one.commit()
        wrote |= {"link": b"to", "d": None}
        before = other.counters.snapshot()
        assert await contents(other) == await contents(one) == wrote
        told = await other.changes(beginning)
        assert told is not None
        assert {stat.path: stat for stat in told.objects} == await listed(one)
        assert other.counters.since(before).mutating_requests == 0
        mutating = one.counters.mutating_requests
        await one.commit()
        assert one.counters.mutating_requests == mutating
        # Changes of all kinds, and their difference.
        seen, stats = await other.list_objects(), await listed(one)
        await put(one, "sparse", sparse[:-3] + b"END", stats[path("sparse")])
        await write_one(one, Delete(path=path("empty"), expect=stats[path("empty")].tag))
        await write_one(one, Move(source=path("small"), target=path("d/small"), expect=stats[path("small")].tag))
        await write_one(one, SetMeta(path=path("d/deep"), meta=meta_of(0o600), expect=stats[path("d/deep")].tag))
        await one.commit()
        told, now = await other.changes(seen.position), await other.list_objects()
        assert told is not None
        old = {stat.path: stat for stat in seen.objects}
        assert told.objects == [stat for stat in now.objects if old.get(stat.path) != stat]
        assert sorted(told.deleted) == [b"empty", b"small"]
        assert told.position == now.position
        # A process of later goes on.
        again = await share.device(1)
        await put(again, "more", b"more")
        await again.commit()
        assert await contents(other) == await contents(again)
        assert await share.problems() == []

    run(place, scenario)


def test_of_those_that_commit_at_the_same_moment_all_are_kept(place: Place) -> None:
    """R3: and all see the same."""

    async def scenario(share: Share) -> None:
        crowd = [await share.device(number) for number in (1, 2, 3)]
        await put(crowd[0], "file", b"first")
        await crowd[0].commit()
        for number, client in enumerate(crowd):
            stat = (await listed(client))[path("file")]
            await put(client, "file", b"version %d" % number, stat)
            await put(client, f"new{number}", random_bytes(number, 20_000))
        async with trio.open_nursery() as nursery:
            for client in crowd:
                nursery.start_soon(client.commit)
        found = [await contents(client) for client in crowd]
        assert found[0] == found[1] == found[2]
        assert {b"version 0", b"version 1", b"version 2"} <= set(found[0].values())
        assert len(found[0]) == 6
        copies = {name.host: data for where, data in found[0].items() if (name := parse_conflict_name(where.encode()))}
        versions = {f"host{number + 1}": b"version %d" % number for number in range(3)}
        assert copies.items() < versions.items()  # each is called after the device that wrote it
        assert {found[0]["file"], *copies.values()} == set(versions.values())
        assert await share.problems() == []

    run(place, scenario)


def test_a_commit_ends_the_wait_of_others(place: Place) -> None:
    async def scenario(share: Share) -> None:
        one, other = await share.device(1), await share.device(2)
        seen = await other.wait(None)
        told: list[Position] = []

        async def wait() -> None:
            told.append(await other.wait(seen))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await put(one, "news", b"!")
            await one.commit()
            if place.__class__.__name__ == "MemoryPlace":  # tells only of what is written through it
                other._objects.store.inner._tell()  # type: ignore[attr-defined]
        assert told == [(await other.list_objects()).position]

    run(place, scenario)


# --- what is not so in every remote


def test_positions_of_another_remote_or_another_life_tell_nothing() -> None:
    """R8."""

    async def main() -> None:
        objects: dict[str, tuple[bytes, int]] = {}
        client = client_on(MemoryStore(objects), 1)
        await put(client, "file", b"1")
        await client.commit()
        for raw in (b"", b"garbage", b"{}", b'{"identity":"x","version":3,"modified_us":4}'):
            assert await client.changes(Position(raw=raw)) is None
        position = (await client.list_objects()).position
        other = msgspec.json.decode(position.raw)
        assert await client.changes(Position(raw=msgspec.json.encode({**other, "repository": "00" * 16}))) is None
        objects.clear()  # all is gone, and begun anew
        fresh = client_on(MemoryStore(objects), 1)
        assert await fresh.changes(position) is None
        listing = await fresh.list_objects()
        assert fresh.ages.is_later(position, listing.position)

    trio.run(main)


# --- a real Swift


EXPIRED = "AUTH_tk_expired"


class Expiring(SwiftStore):
    """Each time that something is put, the token that we have is not known any more."""

    expired = 0

    async def put(self, name: str, data: bytes | Sequence[bytes], *, absent: bool = False) -> bool:
        access = self._session._access
        assert access is not None
        if access.token != EXPIRED:  # else a put at its side would be given this one in place of a fresh one
            self._session._access = msgspec.structs.replace(access, token=EXPIRED)
        self.expired += 1
        return await super().put(name, data, absent=absent)


def test_tokens_that_expire_in_the_middle_of_a_push_and_a_commit_cost_nothing_but_a_sign_in(swift: Swift) -> None:
    async def main() -> None:
        store = Expiring(swift.credentials, "tokens of a repository", settings=HttpSettings())
        client = client_on(store, 1)
        data = random_bytes(1, 3_000_000)

        with trio.fail_after(WITHIN_S):
            await client.open(create=True)
            await put(client, "file", data)
            await client.commit()
            assert store.expired >= 5  # packs, the index, the commit, the head
            other = client_on(SwiftStore(swift.credentials, "tokens of a repository", settings=HttpSettings()), 2)
            await other.open()
            assert await contents(other) == {"file": data}
            await other.close()
        await client.close()

    trio.run(main)


def test_a_full_account_loses_nothing_and_takes_what_has_room(swift: Swift) -> None:
    async def main() -> None:
        def device(number: int) -> RepositoryClient:
            account = swift.account_with_quota(400_000)
            return client_on(SwiftStore(account, "repository", settings=HttpSettings()), number)

        one, other = device(1), device(2)
        with trio.fail_after(WITHIN_S):
            await one.open(create=True)
            await other.open()
            await put(one, "first", random_bytes(1, 50_000))
            await one.commit()
            large = random_bytes(2, 500_000)
            order = store_order(path("large"), Kind.FILE, large, META, None, GRID)
            (outcome,) = await write_list(one, [order], Shelf([large], GRID))
            assert isinstance(outcome, Stored | SyncerError)
            with pytest.raises(OverQuotaError):
                await one.commit()
            assert set(await listed(other)) == {b"first"}
            await put(one, "small", b"small")
            await one.commit()
            stats: dict[bytes, RemoteStat] = {**await listed(other)}
            assert set(stats) == {b"first", b"small"}
            assert await contents(other) == {"first": random_bytes(1, 50_000), "small": b"small"}
        await one.close()
        await other.close()

    trio.run(main)
