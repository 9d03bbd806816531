"""Deaths at each call of the store while keys change, a device is forgotten, a repository is made.

Afterwards it opens with one of the secrets, all of it is there, and the same verb ends the work.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
import trio

from syncer.errors import AuthError, NotFoundError, SyncerError
from syncer.remote.repository.client import RepositoryClient, Writer
from syncer.remote.repository.format.keys import MasterKey, derive
from syncer.remote.repository.format.slots import Secret
from syncer.remote.repository.maintenance import keys
from syncer.remote.repository.maintenance.checking import Checker
from syncer.remote.repository.maintenance.devices import devices_of, forget
from syncer.remote.repository.maintenance.marking import GRACE_NS
from syncer.remote.repository.making import create
from syncer.remote.repository.objects import Objects
from syncer.remote.repository.opening import Kept, unlock, unlock_by
from syncer.remote.stores.memory import MemoryStore
from tests.unit.syncer.remote.repository.aging import HOUR_NS, DiedError, Mortal, Place
from tests.unit.syncer.remote.repository.nodes import KEYS
from tests.unit.syncer.remote.repository.share import fetched, listed, path, put, random_bytes

ONE, OTHER = "correct horse battery", "staple and more of it"
CHEAP = 10
LOST = "01" * 16
DATA = random_bytes(1, 50_000)
Verb = Callable[[MemoryStore], Awaitable[object]]


async def died(verb: Verb, store: MemoryStore) -> bool:
    """Whether the process was gone before it was done."""
    is_dead = False
    try:
        await verb(store)
    except* DiedError:
        is_dead = True
    return is_dead


def copy(place: Place) -> Place:
    found = Place()
    found.objects, found.now_ns = dict(place.objects), place.now_ns
    return found


async def at_each_call(start: Place, verb: Verb, afterwards: Callable[[Place], Awaitable[None]], *, after: bool) -> int:
    """Run a verb that dies at its first call, at its second, and so on; how many it makes."""
    at = 1
    while True:
        place = copy(start)
        was_killed = await died(verb, Mortal(place, at, after=after))
        await afterwards(place)
        if not was_killed:
            return at
        at += 1


# --- keys


async def a_repository() -> Place:
    """With two passphrases, a recovery key, and a file."""
    place = Place()
    kept, _ = await create(place.store(), ONE, grid=65536, log2_n=CHEAP)
    client = client_of(place, kept)
    await put_large(client, "file")
    return place


def client_of(place: Place, kept: Kept) -> RepositoryClient:
    writer = Writer(device=kept.device, name="host", tool="test")
    return RepositoryClient(objects_of(place, kept), kept.config, writer)


def objects_of(place: Place, kept: Kept) -> Objects:
    return Objects(place.store(), derive(MasterKey(kept.master), kept.repository))


async def put_large(client: RepositoryClient, name: str) -> None:
    await put(client, name, DATA[:4096])
    await client.commit()


async def whole(place: Place, *secrets: str) -> set[str]:
    """Which of some secrets open the repository; with each all is there, and a check that reads all finds nothing."""
    opening: set[str] = set()
    for secret in secrets:
        try:
            kept = await unlock(place.store(), secret)
        except AuthError:
            continue
        opening.add(secret)
        client = client_of(place, kept)
        assert await fetched(client, (await listed(client))[path("file")]) == DATA[:4096]
        found = await Checker(objects_of(place, kept), kept.config.grid, share=1.0).run()
        assert found.problems == []
    return opening


async def add(store: MemoryStore) -> None:
    kept, _ = await unlock_by(store, ONE)
    await keys.add(store, kept, OTHER, Secret.PASSPHRASE, "other", log2_n=CHEAP)


async def change(store: MemoryStore) -> None:
    """As `repo key change` does it."""
    kept, old = await unlock_by(store, ONE)
    new = await keys.add(store, kept, OTHER, Secret.PASSPHRASE, old.label, log2_n=CHEAP)
    await keys.replace(store, old, new)


async def remove(store: MemoryStore) -> None:
    _, stays = await unlock_by(store, OTHER)
    (gone,) = [slot.name for slot in await keys.keys_of(store, stays.repository) if slot.label == ""]
    await keys.remove(store, keys.id_of(gone), stays)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    ("verb", "always", "ended"), [(add, {ONE}, {ONE, OTHER}), (change, set(), {OTHER}), (remove, {OTHER}, {OTHER})]
)
def test_a_death_at_any_call_of_a_change_of_keys_locks_nobody_out(
    verb: Verb, always: set[str], ended: set[str], after: bool
) -> None:
    """Breaks when a key goes before the one that takes its place is there."""

    async def scenario() -> None:
        start = await a_repository()
        if verb is remove:
            await add(start.store())

        async def afterwards(place: Place) -> None:
            opening = await whole(place, ONE, OTHER)
            assert opening
            assert always <= opening
            if opening != ended:
                await verb(place.store())
            assert await whole(place, ONE, OTHER) == ended

        assert await at_each_call(start, verb, afterwards, after=after) > 5

    trio.run(scenario)


# --- devices


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_death_at_any_call_of_a_forgetting_loses_nothing_of_the_device(after: bool) -> None:
    async def scenario() -> None:
        start = Place()
        one, other = start.client(1), start.client(2)
        await put(one, "ones", DATA)
        await one.commit()
        start.now_ns += HOUR_NS
        await listed(other)
        await put(other, "others", b"data")
        await other.commit()

        async def holds(place: Place, *names: bytes) -> None:
            reader = place.client(9)
            there = await listed(reader)
            assert set(there) == set(names)
            assert await fetched(reader, there[path("ones")]) == DATA
            assert await place.problems() == []

        async def afterwards(place: Place) -> None:
            await holds(place, b"ones", b"others")
            try:
                await forget(Objects(place.store(), KEYS), LOST)
            except NotFoundError:
                assert place.count("heads/") == 1
            assert [each.device.hex() for each in await devices_of(Objects(place.store(), KEYS))] == ["02" * 16]
            for _ in range(3):
                place.now_ns += GRACE_NS + HOUR_NS
                await place.collect()
            await holds(place, b"ones", b"others")
            back = place.client(1)
            await listed(back)
            await put(back, "back", b"again")
            await back.commit()
            await holds(place, b"ones", b"others", b"back")

        async def verb(store: MemoryStore) -> None:
            await forget(Objects(store, KEYS), LOST)

        assert await at_each_call(start, verb, afterwards, after=after) > 8

    trio.run(scenario)


# --- making


async def no_sleep(seconds: float) -> None:
    """Who finds slots of others waits for their config: here nobody writes one."""
    del seconds
    await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_death_at_any_call_of_making_a_repository_leaves_one_or_a_place_for_one(after: bool) -> None:
    """Breaks when what a dead `init` left is in the way of the next one, or opens it."""

    async def scenario() -> None:
        async def afterwards(place: Place) -> None:
            is_made = "config" in place.objects
            if not is_made:
                with pytest.raises(NotFoundError):
                    await unlock(place.store(), ONE)
                await create(place.store(), OTHER, grid=65536, log2_n=CHEAP, sleep=no_sleep)
            secret, wrong = (ONE, OTHER) if is_made else (OTHER, ONE)
            kept = await unlock(place.store(), secret)
            with pytest.raises(AuthError):
                await unlock(place.store(), wrong)
            await put_large(client_of(place, kept), "file")
            assert await whole(place, secret) == {secret}

        async def verb(store: MemoryStore) -> None:
            await create(store, ONE, grid=65536, log2_n=CHEAP)

        assert await at_each_call(Place(), verb, afterwards, after=after) > 40

    trio.run(scenario)


def test_two_removals_of_each_others_key_of_which_one_dies_leave_a_key() -> None:
    """At each of its calls: the other one puts back what it took."""

    async def scenario() -> None:
        start = await a_repository()
        await add(start.store())
        _, first = await unlock_by(start.store(), ONE)
        _, second = await unlock_by(start.store(), OTHER)
        for at in range(1, 8):
            for after in (False, True):
                place = copy(start)

                class Meanwhile(MemoryStore):
                    """The other one runs, and dies, right before this one deletes."""

                    async def delete(self, name: str) -> None:
                        mortal = Mortal(place, at, after=after)  # noqa: B023 - called in this round
                        with suppress(DiedError, SyncerError):
                            await keys.remove(mortal, keys.id_of(second.name), first)
                        await super().delete(name)

                with suppress(SyncerError):
                    await keys.remove(Meanwhile(place.objects), keys.id_of(first.name), second)
                assert await whole(place, ONE, OTHER)

    trio.run(scenario)
