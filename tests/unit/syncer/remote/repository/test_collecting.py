"""Collecting beside devices that write: what they have stays whole, and what nobody needs goes."""

from __future__ import annotations

import contextlib
from random import Random

import pytest
import trio

from syncer.core.model import Kind
from syncer.errors import CorruptionError, DamagedObjectError, NotFoundError, RemoteUnavailableError
from syncer.ports.orders import Delete, write_one
from syncer.remote.repository.client import DRAFT_S, RepositoryClient
from syncer.remote.repository.format import condemned
from syncer.remote.repository.format.condemned import Condemned
from syncer.remote.repository.format.history import DeviceId
from syncer.remote.repository.format.keys import Content
from syncer.remote.repository.format.packs import read_pack
from syncer.remote.repository.format.settings import Settings
from syncer.remote.repository.maintenance.collecting import Collector
from syncer.remote.repository.maintenance.marking import GRACE_NS
from syncer.remote.repository.objects import Objects
from syncer.remote.stores.memory import MemoryStore
from syncer.remote.stores.port import MAX_BLOB_BYTES, Blob
from tests import effort
from tests.unit.syncer.remote.repository.aging import HOUR_NS, Place, committed
from tests.unit.syncer.remote.repository.nodes import KEYS
from tests.unit.syncer.remote.repository.share import fetched, listed, path, put, random_bytes

KEEP_NS = Settings().keep_ns


def test_what_was_deleted_goes_after_its_time_and_not_before() -> None:
    async def scenario() -> None:
        place = Place()
        one = place.client(1)
        await put(one, "gone", random_bytes(1, 200_000))
        await put(one, "kept", random_bytes(2, 1000))
        await one.commit()
        await write_one(one, Delete(path=path("gone"), expect=(await listed(one))[path("gone")].tag))
        await put(one, "new", random_bytes(3, 1000))
        await one.commit()
        size = sum(len(raw) for raw, _ in place.objects.values())
        place.now_ns += GRACE_NS + HOUR_NS
        assert (await place.collect(KEEP_NS)).condemned_packs == 0  # the commit before is kept
        place.now_ns += KEEP_NS
        first = await place.collect(KEEP_NS)
        assert (first.condemned_packs > 0, first.deleted_packs) == (True, 0)
        place.now_ns += GRACE_NS - HOUR_NS
        assert (await place.collect(KEEP_NS)).deleted_packs == 0
        place.now_ns += 2 * HOUR_NS
        second = await place.collect(KEEP_NS)
        assert second.deleted_packs == first.condemned_packs
        # "kept" lies in the pack that "gone" was in: that one stays.
        assert await place.problems() == []
        assert (await place.collect(KEEP_NS)).deleted_packs == 0
        for _ in range(3):
            place.now_ns += GRACE_NS + HOUR_NS
            await place.collect(KEEP_NS)
        assert place.count("condemned/") == 0
        assert await place.problems() == []
        assert sum(len(raw) for raw, _ in place.objects.values()) < size
        other = place.client(2)
        assert set(await listed(other)) == {b"kept", b"new"}

    trio.run(scenario)


def test_what_is_condemned_is_sent_anew_by_who_needs_it() -> None:
    async def scenario() -> None:
        place = Place()
        one = place.client(1)
        data = random_bytes(1, 300_000)
        await put(one, "file", data)
        await one.commit()
        await write_one(one, Delete(path=path("file"), expect=(await listed(one))[path("file")].tag))
        await one.commit()
        place.now_ns += GRACE_NS + HOUR_NS
        assert (await place.collect()).condemned_packs > 0
        other = place.client(2)
        await put(other, "again", data)
        await other.commit()
        place.now_ns += GRACE_NS + HOUR_NS
        assert (await place.collect()).deleted_packs > 0
        assert await place.problems() == []
        assert await fetched(other, (await listed(other))[path("again")]) == data

    trio.run(scenario)


def test_what_somebody_who_began_before_has_named_meanwhile_stays() -> None:
    async def scenario() -> None:
        place = Place()
        one, other = place.client(1), place.client(2)
        data = random_bytes(1, 300_000)
        await put(one, "file", data)
        await one.commit()
        await write_one(one, Delete(path=path("file"), expect=(await listed(one))[path("file")].tag))
        await one.commit()
        place.now_ns += GRACE_NS + HOUR_NS
        await put(other, "again", data)  # builds on the pack that is condemned now
        assert (await place.collect()).condemned_packs > 0
        await other.commit()
        place.now_ns += GRACE_NS + HOUR_NS
        await place.collect()
        assert await place.problems() == []
        assert await fetched(other, (await listed(other))[path("again")]) == data

    trio.run(scenario)


def test_what_lay_uncommitted_for_too_long_is_given_up() -> None:
    async def scenario() -> None:
        place = Place()
        one = place.client(1)
        await put(one, "file", b"data")
        place.now_ns += int(DRAFT_S + 1) * 10**9
        with pytest.raises(RemoteUnavailableError, match="too long"):
            await one.commit()
        assert place.count("heads/") == 0
        await put(one, "file", b"data")
        await one.commit()
        assert set(await listed(place.client(2))) == {b"file"}

    trio.run(scenario)


def test_who_writes_while_packs_are_deleted_leaves_no_places_in_them() -> None:
    """Breaks when indexes are written again with rows of such packs: who sends these bytes next builds on them."""

    async def scenario() -> None:
        place = Place()
        one, other = place.client(1), place.client(2)
        data = random_bytes(1, 300_000)
        await put(one, "file", data)
        await one.commit()
        await write_one(one, Delete(path=path("file"), expect=(await listed(one))[path("file")].tag))
        await one.commit()
        place.now_ns += GRACE_NS + HOUR_NS
        assert (await place.collect()).condemned_packs > 0
        place.now_ns += GRACE_NS - HOUR_NS
        await put(other, "other", b"other")
        place.now_ns += 2 * HOUR_NS
        assert (await place.collect()).deleted_packs > 0
        await other.commit()
        third = place.client(3)
        await put(third, "again", data)
        await third.commit()
        assert await place.problems() == []
        assert await fetched(other, (await listed(other))[path("again")]) == data
        await place.collect()

    trio.run(scenario)


def test_what_was_named_again_after_it_was_condemned_does_not_go_as_soon_as_nobody_needs_it() -> None:
    """Somebody may have looked just before, and build on it."""

    async def scenario() -> None:
        place = Place()
        one, other, third = place.client(1), place.client(2), place.client(3)
        data = random_bytes(1, 300_000)
        await put(one, "file", data)
        await one.commit()
        await write_one(one, Delete(path=path("file"), expect=(await listed(one))[path("file")].tag))
        await one.commit()
        place.now_ns += GRACE_NS + HOUR_NS
        await put(other, "again", data)
        await place.collect()
        await other.commit()  # names what is condemned now
        place.now_ns += GRACE_NS + HOUR_NS
        await put(third, "new", b"new")  # of a view that has it
        found = (await listed(other))[path("again")]
        await write_one(other, Delete(path=found.path, expect=found.tag))
        await other.commit()
        await place.collect()
        await third.commit()
        assert await place.problems() == []
        assert set(await listed(other)) == {b"new"}

    trio.run(scenario)


def test_who_looked_long_ago_looks_again_before_it_builds_on_that() -> None:
    """A laptop that sleeps between its look and its first write, while others commit and collect."""

    async def scenario() -> None:
        place = Place()
        one, other = place.client(1), place.client(2)
        for number in range(30):
            await put(one, f"file{number}", random_bytes(number, 3000))
        await one.commit()
        assert len(await listed(other)) == 30
        for stat in list((await listed(one)).values())[1:]:
            await write_one(one, Delete(path=stat.path, expect=stat.tag))
        await one.commit()
        for _ in range(3):
            place.now_ns += GRACE_NS + HOUR_NS
            await place.collect()
        await put(other, "new", b"new")
        await other.commit()
        assert await place.problems() == []
        assert set(await listed(place.client(3))) == {b"file0", b"new"}

    trio.run(scenario)


class Sleepy(MemoryStore):
    """Whose machine sleeps for days in a look at the indexes, when commits are gone, before they are written."""

    def __init__(self, place: Place, *, before: bool) -> None:
        super().__init__(place.objects, clock=lambda: place.now_ns)
        self._place = place
        self._before = before
        self._is_deleting = False

    async def delete(self, name: str) -> None:
        self._is_deleting = True
        await super().delete(name)

    async def listing(self, *prefixes: str) -> list[Blob]:
        is_now, self._is_deleting = self._is_deleting and "indexes/" in prefixes, False
        if is_now and self._before:
            self._place.now_ns += 2 * GRACE_NS
        found = await super().listing(*prefixes)
        if is_now and not self._before:
            self._place.now_ns += 2 * GRACE_NS
        return found


@pytest.mark.parametrize("frozen", [False, True])
def test_a_collection_that_slept_takes_nothing_out_of_the_indexes(frozen: bool) -> None:
    """By its own clock, or if that stood still by the store's: breaks when rows go that are needed by then.

    Others may have found by then that the pack is needed, for the other one that had its chunks is gone.
    """

    async def scenario() -> None:
        place = Place()
        one = place.client(1)
        for number in range(2):
            await put(one, f"file{number}", random_bytes(number, 50_000))
            await one.commit()
        gone = (await listed(one))[path("file0")]
        await write_one(one, Delete(path=gone.path, expect=gone.tag))
        await one.commit()
        for _ in range(2):
            place.now_ns += GRACE_NS + HOUR_NS
            before = {name for name in place.objects if name.startswith(("indexes/", "packs/"))}
            clock_s = (lambda: 0.0) if frozen else lambda: place.now_ns / 1e9
            objects = Objects(Sleepy(place, before=frozen), KEYS, clock_s)
            collector = Collector(objects, DeviceId(b"g" * 16), keep_ns=0)
            if place.count("condemned/"):
                with pytest.raises(RemoteUnavailableError, match="too long"):
                    await collector.run()
            else:
                await collector.run()
        assert {name for name in place.objects if name.startswith(("indexes/", "packs/"))} == before
        for _ in range(2):
            place.now_ns += GRACE_NS + HOUR_NS
            await place.collect()
        assert await place.problems() == []
        assert len(before - place.objects.keys()) > 1

    trio.run(scenario)


def test_nothing_is_collected_where_something_that_is_needed_is_missing() -> None:
    async def scenario() -> None:
        place = Place()
        one = place.client(1)
        await put(one, "file", random_bytes(1, 100_000))
        await one.commit()
        await put(one, "other", random_bytes(2, 100_000))
        await one.commit()
        place.now_ns += GRACE_NS + HOUR_NS
        data = max(
            (name for name in place.objects if name.startswith("packs/")), key=lambda n: len(place.objects[n][0])
        )
        del place.objects[data]
        before = dict(place.objects)
        with pytest.raises(CorruptionError, match="nothing was collected"):
            await place.collect()
        assert place.objects == before

    trio.run(scenario)


def test_a_commit_that_is_missing_is_damage_if_a_head_names_it_or_the_store_lists_it() -> None:
    class Withholds(MemoryStore):
        async def get(
            self, name: str, span: tuple[int, int] | None = None, *, most_bytes: int = MAX_BLOB_BYTES
        ) -> bytes:
            if name == older:
                raise NotFoundError(name)
            return await super().get(name, span, most_bytes=most_bytes)

    async def scenario() -> None:
        nonlocal older
        place = Place()
        one = place.client(1)
        await put(one, "file", b"1")
        await one.commit()
        (older,) = (name for name in place.objects if name.startswith("commits/"))
        await put(one, "file", b"2", (await listed(one))[path("file")])
        await one.commit()
        (newer,) = (name for name in place.objects if name.startswith("commits/") and name != older)
        with pytest.raises(DamagedObjectError, match=f"{older} .*is missing"):
            await place.collect(store=Withholds(place.objects, clock=lambda: place.now_ns))
        del place.objects[newer]
        for work in (place.collect, place.repack):
            with pytest.raises(DamagedObjectError, match=f"{newer} .*is missing: a head names it"):
                await work()

    older = ""
    trio.run(scenario)


def test_a_commit_that_another_collection_deletes_meanwhile_is_none() -> None:
    class Collected(MemoryStore):
        async def get(
            self, name: str, span: tuple[int, int] | None = None, *, most_bytes: int = MAX_BLOB_BYTES
        ) -> bytes:
            if name == older:
                await self.delete(name)
            return await super().get(name, span, most_bytes=most_bytes)

    async def scenario() -> None:
        nonlocal older
        place = Place()
        one = place.client(1)
        await put(one, "file", b"1")
        await one.commit()
        (older,) = (name for name in place.objects if name.startswith("commits/"))
        await put(one, "file", b"2", (await listed(one))[path("file")])
        await one.commit()
        await place.collect(KEEP_NS, store=Collected(place.objects, clock=lambda: place.now_ns))
        assert older not in place.objects

    older = ""
    trio.run(scenario)


async def put_random(random: Random, client: RepositoryClient, number: int) -> None:
    """A file of a device's own, whose content may have been there before."""
    name = f"{number}-{random.randrange(4)}"
    found = (await listed(client)).get(path(name))
    await put(client, name, random_bytes(random.randrange(12), random.choice([100, 30_000, 200_000])), found)


@pytest.mark.parametrize("seed", range(effort.count("repository collections")))
def test_devices_that_write_beside_collections_lose_nothing(seed: int) -> None:
    async def scenario() -> None:
        random, place = Random(seed), Place()
        clients = {number: place.client(number) for number in (1, 2, 3)}
        truth: dict[bytes, bytes] = {}
        for step in range(40):
            number = random.choice(list(clients))
            client = clients[number]
            match random.randrange(9):
                case 8:  # an hour before something is deleted somebody may build on it
                    await committed(client)
                    place.now_ns += GRACE_NS + HOUR_NS
                    await place.collect()
                    place.now_ns = max(place.now_ns, place.due_ns() - HOUR_NS)
                    await put_random(random, client, number)
                    place.now_ns += 2 * HOUR_NS
                    await place.collect()
                    await committed(client)
                case 0:
                    place.now_ns += random.choice([HOUR_NS, GRACE_NS // 3, GRACE_NS + HOUR_NS])
                case 1:
                    await place.collect(random.choice([0, KEEP_NS]))
                case 2:
                    clients[number] = place.client(number)  # dies: its draft is lost
                case 3 if truth:
                    name = random.choice(sorted(truth))
                    await committed(client)
                    found = (await listed(client)).get(path(name.decode()))
                    if found is not None:
                        await write_one(client, Delete(path=found.path, expect=found.tag))
                        await committed(client)
                case _:
                    await committed(client)
                    await put_random(random, client, number)
                    if random.random() < 0.7:
                        await committed(client)
            view = await listed(place.client(9))
            truth = {bytes(each): b"" for each in view}
            if step % 8 == 7:
                assert await place.problems() == []
                for stat in view.values():
                    if stat.kind is Kind.FILE:
                        await fetched(place.client(9), stat)

    trio.run(scenario)


def test_what_a_commit_has_that_nobody_keeps_stays_though_another_such_one_is_damaged() -> None:
    """What both have is looked at with the first of them; it may be the one that can't be read to its end."""

    async def scenario() -> None:
        place = Place()
        one, contents = place.client(1), random_bytes(1, 100_000)
        await put(one, "shared", contents)
        for number in range(200):
            await put(one, f"small{number}", b"%d" % number)
        await one.commit()
        needed = {name for name in place.objects if name.startswith("packs/")}
        (first,) = (name for name in place.objects if name.startswith("commits/"))
        made: list[set[str]] = []
        for number in (1, 2):  # each has nodes of its own
            await put(one, f"z{number}", b"data")
            before = set(place.objects)
            await one.commit()
            made.append({name for name in place.objects.keys() - before if name.startswith("packs/")})
        for name, stat in (await listed(one)).items():
            await write_one(one, Delete(path=name, expect=stat.tag))
        await one.commit()
        del place.objects[first]  # was collected
        codec = Objects(place.store(), KEYS).codec
        for each in sorted(needed):
            packs = (bytes.fromhex(each[-64:]),)
            told = Condemned(device=DeviceId(b"g" * 16), time_ns=0, packs=packs, indexes=(), commits=())
            name, raw = condemned.encode(KEYS, bytes(16), told, codec)
            await place.store().put(name, raw)
        place.now_ns += GRACE_NS + HOUR_NS
        for names in made:  # whichever is looked at first
            there = dict(place.objects)
            for name in names:
                raw, when_ns = place.objects[name]
                with contextlib.suppress(DamagedObjectError):  # it holds chunks
                    pack, _ = read_pack(KEYS, Content.TREES, name, raw)
                    at = max(entry.offset for entry in pack.entries) + 5  # a leaf
                    place.objects[name] = raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :], when_ns
            await place.collect()
            assert needed <= place.objects.keys()
            place.objects.clear()
            place.objects.update(there)

    trio.run(scenario)
