"""A store that fails: whatever it refuses, and whatever replies are lost, what was told as committed is there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from random import Random
from typing import TypeVar

import pytest
import trio

from syncer.core.model import Kind
from syncer.errors import OverQuotaError, RemoteUnavailableError, SyncerError
from syncer.ports.orders import Delete, Order, Stored
from syncer.remote.http.retry import Retry, RetryPolicy
from syncer.remote.http.transport import ReplyLostError
from syncer.remote.repository.client import RepositoryClient, Writer
from syncer.remote.repository.format import packs
from syncer.remote.repository.format.history import DeviceId
from syncer.remote.repository.maintenance.checking import Checker
from syncer.remote.repository.objects import Objects
from syncer.remote.stores.memory import MemoryStore
from syncer.remote.stores.port import MAX_BLOB_BYTES, Blob, BlobStore
from syncer.remote.stores.retrying import RetryingStore
from syncer.remote.stores.wrapped import WrappedStore
from tests import effort
from tests.contract.writing import Shelf, store_order, write_list
from tests.fakes.faulty_store import FaultyStore
from tests.unit.syncer.remote.repository.nodes import KEYS
from tests.unit.syncer.remote.repository.share import CONFIG, GRID, META, fetched, listed, path, put, random_bytes

T = TypeVar("T")
PACK = 60_000
STRIDE = 100 // effort.count("repository calls that fail")


@pytest.fixture(autouse=True)
def small_packs(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a content takes several."""
    monkeypatch.setattr(packs, "TARGET_BYTES", PACK)


class Way(Enum):
    """How a call fails."""

    BEFORE = "it never arrived"
    AFTER = "done, and the reply lost"
    REFUSED = "over quota"


class Failing(WrappedStore):
    """One call fails, or all from one on; which, is told by its number."""

    def __init__(self, inner: BlobStore, way: Way, at: int, behind: int) -> None:
        super().__init__(inner)
        self.way, self.at, self.behind = way, at, behind
        self.calls = 0

    async def get(self, name: str, span: tuple[int, int] | None = None, *, most_bytes: int = MAX_BLOB_BYTES) -> bytes:
        return await self._call(lambda: self.inner.get(name, span, most_bytes=most_bytes))

    async def put(self, name: str, data: bytes | Sequence[bytes], *, absent: bool = False) -> bool:
        return await self._call(lambda: self.inner.put(name, data, absent=absent), writes=True)

    async def listing(self, *prefixes: str) -> list[Blob]:
        return await self._call(lambda: self.inner.listing(*prefixes))

    async def _call(self, call: Callable[[], Awaitable[T]], *, writes: bool = False) -> T:
        number, self.calls = self.calls, self.calls + 1
        if not self.at <= number < self.behind:
            return await call()
        if writes and self.way is Way.REFUSED:
            raise OverQuotaError("no room")
        if self.way is Way.AFTER:
            await call()
            raise ReplyLostError("503: it may have happened")
        raise RemoteUnavailableError("it never arrived")


def client_on(store: BlobStore, number: int) -> RepositoryClient:
    writer = Writer(device=DeviceId(bytes([number]) * 16), name=f"host{number}", tool="test")
    return RepositoryClient(Objects(store, KEYS), CONFIG, writer)


def store_of(name: str, data: bytes, there: dict[bytes, object]) -> Order:
    stat = there.get(path(name))
    return store_order(path(name), Kind.FILE, data, META, None if stat is None else stat.tag, GRID)  # type: ignore[attr-defined]


async def cycle(client: RepositoryClient, wanted: dict[str, bytes]) -> dict[str, bytes | None]:
    """As the engine does it: look, write what differs, commit. Returns what was told as done."""
    there = await listed(client)
    told: dict[str, bytes | None] = {}
    try:
        for name, data in wanted.items():
            order = store_of(name, data, there)  # type: ignore[arg-type]
            (outcome,) = await write_list(client, [order], Shelf([data], GRID))
            if isinstance(outcome, Stored):
                told[name] = data
    finally:
        await client.commit()  # whatever was told is booked if this returns
    return told


FIRST = {"small": random_bytes(1, 3000), "tiny": b"tiny", "large": random_bytes(2, 150_000)}
SECOND = {
    "large": FIRST["large"][:70_000] + random_bytes(3, 100) + FIRST["large"][70_100:],
    "small": random_bytes(4, 2000) + FIRST["tiny"],
    "other": random_bytes(5, 90_000) + FIRST["small"],
}


async def life(way: Way, at: int, behind: int) -> int:
    """Two rounds of writes on a store that fails meanwhile; the number of calls."""
    objects: dict[str, tuple[bytes, int]] = {}
    store = Failing(MemoryStore(objects), way, at, behind)
    client = client_on(store, 1)
    booked: dict[str, set[bytes | None]] = {}
    for wanted in (FIRST, SECOND):
        try:
            told = await cycle(client, wanted)
        except SyncerError:
            for name, data in wanted.items():  # either
                booked.setdefault(name, {None}).add(data)
        else:
            booked.update({name: {data} for name, data in told.items()})
    calls, store.at, store.behind = store.calls, 0, 0
    other = client_on(MemoryStore(objects), 2)
    there = await listed(other)
    for name, allowed in booked.items():
        stat = there.get(path(name))
        assert (None if stat is None else await fetched(other, stat)) in allowed, name
    # And the same client goes on as if nothing had been: no draft of before is in its way.
    told = await cycle(client, SECOND)
    assert told == SECOND
    there = await listed(other)
    assert {name: await fetched(other, there[path(name)]) for name in SECOND} == SECOND
    found = await Checker(Objects(MemoryStore(objects), KEYS), GRID, share=1.0).run()
    assert found.problems == []
    return calls


@pytest.mark.parametrize("lasting", [False, True], ids=["once", "from there on"])
@pytest.mark.parametrize("way", Way)
def test_what_was_told_as_committed_is_there_whichever_call_failed(way: Way, lasting: bool) -> None:
    """Breaks when a pack is given up that has chunks of what was told before, or a draft outlives its commit."""
    calls = trio.run(life, way, 0, 0)
    assert calls > 15
    for at in range(0, calls, STRIDE):
        trio.run(life, way, at, calls + 100 if lasting else at + 1)


def test_packs_of_a_commit_that_failed_are_not_sent_again() -> None:
    async def main() -> None:
        objects: dict[str, tuple[bytes, int]] = {}
        store = Failing(MemoryStore(objects), Way.BEFORE, 0, 0)
        client = client_on(store, 1)
        data = random_bytes(1, 300_000)
        await put(client, "file", data)
        store.at, store.behind = store.calls + 4, store.calls + 5
        with pytest.raises(RemoteUnavailableError):
            await client.commit()
        sent = client.counters.bytes_sent
        assert sent > len(data)
        await put(client, "file", data)
        await client.commit()
        assert client.counters.bytes_sent - sent < 10_000
        other = client_on(MemoryStore(objects), 2)
        assert await fetched(other, (await listed(other))[path("file")]) == data

    trio.run(main)


def test_a_head_that_was_not_seen_is_not_replaced() -> None:
    """Two machines with one device's state, as clones of a disk have: neither loses what the other one committed."""

    async def main() -> None:
        objects: dict[str, tuple[bytes, int]] = {}
        one, clone = client_on(MemoryStore(objects), 1), client_on(MemoryStore(objects), 1)
        await put(one, "common", b"common")
        await one.commit()
        await listed(clone)
        await put(one, "one's", b"one's")
        await put(clone, "clone's", b"clone's")
        await one.commit()
        with pytest.raises(RemoteUnavailableError, match="on another machine"):
            await clone.commit()
        assert set(await listed(clone)) == {b"common", b"one's"}
        await put(clone, "clone's", b"clone's")
        await clone.commit()
        assert set(await listed(one)) == set(await listed(client_on(MemoryStore(objects), 2)))
        assert set(await listed(one)) == {b"common", b"one's", b"clone's"}

    trio.run(main)


def test_no_commit_seems_to_have_what_was_dropped_before_it() -> None:
    """Another process commits as this device between two writes of a cycle: no row may speak of the first one."""

    async def main() -> None:
        objects: dict[str, tuple[bytes, int]] = {}
        one, other = client_on(MemoryStore(objects), 1), client_on(MemoryStore(objects), 1)
        await put(one, "first", b"first")
        await put(other, "other's", b"other's")
        await other.commit()
        await one.list_objects()
        await put(one, "second", b"second")
        with pytest.raises(RemoteUnavailableError):
            await one.commit()
        await put(one, "third", b"third")
        await one.commit()
        assert set(await listed(client_on(MemoryStore(objects), 2))) == {b"other's", b"third"}

    trio.run(main)


class Coarse(MemoryStore):
    """Its clock tells seconds, as S3's and SFTP's do."""

    def __init__(self, objects: dict[str, tuple[bytes, int]], now_s: list[int]) -> None:
        super().__init__(objects, clock=lambda: now_s[0] * 10**9)


def test_two_heads_of_one_second_are_two() -> None:
    """Breaks when a device that watches never learns of the second one: all that is told of both is equal."""

    async def main() -> None:
        objects: dict[str, tuple[bytes, int]] = {}
        now_s = [1_700_000_000]
        one, other = client_on(Coarse(objects, now_s), 1), client_on(Coarse(objects, now_s), 2)
        await put(one, "first", b"first")
        await one.commit()
        assert set(await listed(other)) == {b"first"}
        await put(one, "second", b"second")
        await one.commit()
        assert set(await listed(other)) == {b"first", b"second"}

    trio.run(main)


# --- many devices, all kinds of faults


@pytest.mark.parametrize("seed", range(effort.count("repository on a faulty store")))
def test_nothing_that_was_committed_is_lost_on_a_store_with_faults(seed: int) -> None:
    """Lost replies, writes that happen later, damaged bodies, listings of some time ago, quotas; patience that ends."""
    random = Random(seed)
    objects: dict[str, tuple[bytes, int]] = {}
    policy = RetryPolicy(attempts=random.choice([2, 4]), first_delay_s=0.0, max_delay_s=0.0, deadline_s=60.0)
    faulty: list[FaultyStore] = []

    def device(number: int) -> RepositoryClient:
        quota = random.choice([None, None, 50_000])
        store = FaultyStore(MemoryStore(objects), random, 0, stale=random.random() < 0.5, quota_bytes=quota)
        faulty.append(store)
        return client_on(RetryingStore(store, Retry(policy=policy, draw=lambda: 0.0, host="the store")), number)

    async def main() -> None:
        clients = {number: device(number) for number in (1, 2, 3)}
        truth: dict[str, set[bytes | None]] = {}
        for _ in range(25):
            number = random.choice(list(clients))
            if random.random() < 0.15:
                for store in faulty:  # dies; what it wrote happens before it is started again
                    store.rate = 0
                    await store.head("heads")
                clients[number] = device(number)
            for store in faulty:
                store.rate = random.choice([0, 5, 15, 30])
            client = clients[number]
            name, data = (
                f"{number}-{random.randrange(3)}",
                random_bytes(random.randrange(40), random.choice([9, 80_000])),
            )
            try:
                there = await listed(client)
                stat = there.get(path(name))
                if stat is not None and random.random() < 0.2:
                    order: Order = Delete(path=stat.path, expect=stat.tag)
                    new = None
                else:
                    order, new = store_of(name, data, there), data  # type: ignore[arg-type]
                truth.setdefault(name, {None}).add(new)
                (outcome,) = await write_list(client, [order], Shelf([data], GRID))
                await client.commit()
            except SyncerError:
                continue
            if isinstance(outcome, Stored):
                truth[name] = {new}
        for store in faulty:
            store.rate, store.stale = 0, False
            await store.head("heads")
        other = client_on(MemoryStore(objects), 9)
        there = await listed(other)
        for name, allowed in truth.items():
            stat = there.get(path(name))
            assert (None if stat is None else await fetched(other, stat)) in allowed, name
        assert {bytes(each).decode() for each in there} <= truth.keys()
        found = await Checker(Objects(MemoryStore(objects), KEYS), GRID, share=1.0).run()
        assert found.problems == []

    trio.run(main)
