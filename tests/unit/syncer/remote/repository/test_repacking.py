"""Repacking beside devices that write: what is needed of sparse packs moves, nothing of it is lost, the rest goes."""

from __future__ import annotations

from random import Random

import pytest
import trio

from syncer.core.model import Kind
from syncer.errors import DamagedObjectError
from syncer.ports.orders import Delete, write_one
from syncer.remote.repository.client import RepositoryClient
from syncer.remote.repository.format.settings import Settings
from syncer.remote.repository.maintenance.marking import GRACE_NS
from syncer.remote.stores.memory import MemoryStore
from tests import effort
from tests.unit.syncer.remote.repository.aging import HOUR_NS, DiedError, Mortal, Place, committed
from tests.unit.syncer.remote.repository.share import fetched, listed, path, put, random_bytes

LATER_NS = GRACE_NS + HOUR_NS
KEEP_NS = Settings().keep_ns


async def remove(client: RepositoryClient, *names: str) -> None:
    for name in names:
        await write_one(client, Delete(path=path(name), expect=(await listed(client))[path(name)].tag))
    await client.commit()


async def sparse(place: Place) -> dict[str, bytes]:
    """Packs of which little is needed, and what the share holds: nobody keeps what was before."""
    one = place.client(1)
    contents = {f"file{number}": random_bytes(number, 60_000) for number in range(8)}
    for name, data in contents.items():
        await put(one, name, data)
    await one.commit()
    gone = [f"file{number}" for number in range(8) if number % 4]
    await remove(one, *gone)
    place.now_ns += LATER_NS
    return {name: data for name, data in contents.items() if name not in gone}


async def holds(place: Place, contents: dict[str, bytes]) -> None:
    """The share is whole, and what it was."""
    assert await place.problems() == []
    reader = place.client(9)
    stats = await listed(reader)
    assert {name.decode() for name in stats} == set(contents)
    for name, data in contents.items():
        assert await fetched(reader, stats[path(name)]) == data


async def settle(place: Place) -> None:
    """Collect until nothing is left to do."""
    for _ in range(5):
        await place.collect()
        place.now_ns += LATER_NS


def test_what_is_needed_of_sparse_packs_moves_and_the_old_ones_go_a_grace_later() -> None:
    async def scenario() -> None:
        place = Place()
        contents = await sparse(place)
        before = place.size("packs/")
        told = await place.repack(dry=True)
        assert told.sparse_packs > 0
        assert told.new_packs == 0
        assert place.size("packs/") == before
        done = await place.repack()
        assert done.sparse_packs == told.sparse_packs
        assert done.live_bytes < done.sparse_bytes / 2
        await holds(place, contents)
        assert (await place.collect()).deleted_packs == 0  # not yet
        place.now_ns += LATER_NS
        assert (await place.collect()).deleted_packs >= 1
        await holds(place, contents)
        assert place.size("packs/") < 0.5 * before
        assert (await place.repack()).sparse_packs == 0

    trio.run(scenario)


def test_a_pack_that_is_mostly_needed_or_young_or_kept_for_old_commits_stays() -> None:
    async def scenario() -> None:
        place = Place()
        one = place.client(1)
        for number in range(4):
            await put(one, f"file{number}", random_bytes(number, 60_000))
        await one.commit()
        await remove(one, "file1")
        place.now_ns += LATER_NS
        contents = 240_000  # packs of nodes are short
        assert (await place.repack(dry=True)).sparse_bytes < contents
        await remove(one, "file2", "file3")
        assert (await place.repack(KEEP_NS, dry=True)).sparse_bytes < contents
        assert (await place.repack(dry=True)).sparse_bytes > contents

    trio.run(scenario)


def test_who_looked_before_finds_what_has_moved() -> None:
    async def scenario() -> None:
        place = Place()
        contents = await sparse(place)
        reader = place.client(3)
        stats = await listed(reader)
        await place.repack()
        for _ in range(2):
            place.now_ns += LATER_NS
            await place.collect()
        for name, data in contents.items():
            assert await fetched(reader, stats[path(name)]) == data

    trio.run(scenario)


def test_an_edit_of_a_file_whose_pack_is_gone_names_where_its_chunks_are_now() -> None:
    async def scenario() -> None:
        place = Place()
        one = place.client(1)
        data = random_bytes(1, 3 << 20)
        await put(one, "file", data)
        await put(one, "other", random_bytes(2, 12 << 20))
        await one.commit()
        await remove(one, "other")
        place.now_ns += LATER_NS
        assert (await place.repack()).sparse_packs >= 1
        await settle(place)
        other = place.client(2)
        edited = data[:2_000_000] + b"edit" + data[2_000_004:]
        await put(other, "file", edited, (await listed(other))[path("file")])
        await other.commit()
        await holds(place, {"file": edited})

    trio.run(scenario)


def test_what_is_damaged_is_not_written_anew_and_its_pack_stays() -> None:
    async def scenario() -> None:
        place = Place()
        await sparse(place)
        name = max(
            (name for name in place.objects if name.startswith("packs/")), key=lambda n: len(place.objects[n][0])
        )
        raw, when = place.objects[name]
        for at in range(100, len(raw) - 1000, 500):
            raw = raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]
        place.objects[name] = raw, when
        with pytest.raises(DamagedObjectError, match=name):
            await place.repack()
        assert place.count("condemned/") == 0

    trio.run(scenario)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("verb", ["repack", "condemn", "delete"])
def test_a_death_at_any_call_loses_nothing_and_the_next_run_ends_the_work(verb: str, after: bool) -> None:
    """Every call of a store that a run makes is once the last one."""

    async def scenario() -> None:
        start = Place()
        contents = await sparse(start)
        if verb != "repack":
            await start.repack()
            start.now_ns += LATER_NS
        if verb == "delete":
            await start.collect()
            start.now_ns += LATER_NS
        at, ended = 0, False
        while not ended:
            at += 1
            place = Place()
            place.objects, place.now_ns = dict(start.objects), start.now_ns
            store = Mortal(place, at, after=after)
            try:
                await (place.repack(store=store) if verb == "repack" else place.collect(store=store))
                ended = True
            except DiedError:
                pass
            await holds(place, contents)
            await place.repack()
            await settle(place)
            await holds(place, contents)
            assert place.size("packs/") < 0.5 * start.size("packs/") or verb == "delete"
            assert (await place.repack(dry=True)).sparse_packs == 0
        assert at > 8

    trio.run(scenario)


def test_rows_of_a_pack_that_is_gone_come_back_by_who_read_them_before_and_mislead_nobody() -> None:
    """A device that merges an index which it read before the pack went writes its rows again."""

    async def scenario() -> None:
        place = Place()
        await sparse(place)
        one = place.client(1)
        gone = random_bytes(1, 60_000)  # of a file that was removed
        await place.collect()
        place.now_ns += LATER_NS
        slow = place.client(4)
        await put(slow, "slow", b"begun before")  # has read the indexes, and the lists
        await place.collect()
        await slow.commit()  # merges what it had read
        for _ in range(4):
            writer = place.client(5)
            await put(writer, f"again{place.now_ns}", gone)
            await writer.commit()
            assert await place.problems() == []
            place.now_ns += LATER_NS
            await place.collect()
        assert await place.problems() == []
        assert place.count("condemned/") <= 2
        await listed(one)

    trio.run(scenario)


@pytest.mark.parametrize("seed", range(effort.count("repository repackings")))
def test_devices_that_write_beside_collections_repackings_and_deaths_lose_nothing(seed: int) -> None:
    async def scenario() -> None:
        random, place = Random(seed), Place()
        clients = {number: place.client(number) for number in (1, 2, 3)}
        for step in range(40):
            number = random.choice(list(clients))
            client = clients[number]
            keep_ns = random.choice([0, 0, KEEP_NS])
            store: MemoryStore = Mortal(place, random.randrange(1, 120), after=random.random() < 0.5)
            try:
                match random.randrange(10):
                    case 0 | 1:
                        place.now_ns += random.choice([HOUR_NS, GRACE_NS // 3, LATER_NS])
                    case 2 | 3:
                        await place.collect(keep_ns, store=store)
                    case 4 | 5:
                        await place.repack(keep_ns, store=store)
                    case 6:
                        clients[number] = place.client(number)  # dies: its draft is lost
                    case 7:
                        await committed(client)
                        there = await listed(client)
                        if there:
                            found = random.choice([there[name] for name in sorted(there)])
                            await write_one(client, Delete(path=found.path, expect=found.tag))
                            await committed(client)
                    case _:
                        name = f"{number}-{random.randrange(4)}"
                        await committed(client)
                        found = (await listed(client)).get(path(name))
                        data = random_bytes(random.randrange(12), random.choice([100, 30_000, 200_000, 1_000_000]))
                        await put(client, name, data, found)
                        if random.random() < 0.7:
                            await committed(client)
            except DiedError:
                pass
            if step % 8 == 7:
                assert await place.problems() == []
                for stat in (await listed(place.client(9))).values():
                    if stat.kind is Kind.FILE:
                        await fetched(place.client(9), stat)

    trio.run(scenario)
