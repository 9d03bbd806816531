"""A store that cuts, flips, swaps, withholds and replays: what a device gets is right, or it is told what is not.

Nothing that the store shows for a while does harm for good: when it shows again what it was given, all is there.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TypeAlias

import msgspec
import pytest
import trio

from syncer.core.model import Kind, Position, RelPath, meta_of
from syncer.core.planner.safety import check_age
from syncer.errors import CorruptionError, FormatTooNewError, HeadsMissingError, RolledBackError, SyncerError
from syncer.ports.orders import Delete, write_one
from syncer.remote.repository.client import RepositoryClient, Writer
from syncer.remote.repository.format.history import DeviceId
from syncer.remote.repository.format.keys import MasterKey, derive
from syncer.remote.repository.maintenance.checking import Checker
from syncer.remote.repository.maintenance.collecting import Collector
from syncer.remote.repository.maintenance.marking import GRACE_NS
from syncer.remote.repository.objects import Objects
from syncer.remote.stores.memory import MemoryStore
from tests import effort
from tests.contract.writing import store_order
from tests.unit.syncer.remote.repository.nodes import KEYS
from tests.unit.syncer.remote.repository.share import CONFIG, GRID, fetched, listed, path, put, random_bytes

Stored: TypeAlias = dict[str, tuple[bytes, int]]
HOUR_NS = 3600 * 10**9
OTHERS = derive(MasterKey(b"\1" * 32), bytes(16))
# A head's version is in the clear: a bit of it makes a newer one.
WRONG = (CorruptionError, FormatTooNewError, HeadsMissingError)
FOLDERS = ("packs/", "indexes/", "commits/", "heads/", "condemned/")


class Clock:
    """The store's."""

    def __init__(self) -> None:
        self.now_ns = 1_700_000_000 * 10**9


def client_on(objects: Stored, number: int, clock: Clock, keys: object = KEYS) -> RepositoryClient:
    writer = Writer(device=DeviceId(bytes([number]) * 16), name=f"host{number}", tool="test")
    store = MemoryStore(objects, clock=lambda: clock.now_ns)
    clocks: dict[str, Callable[[], int]] = {"clock_ns": lambda: clock.now_ns}
    return RepositoryClient(
        Objects(store, keys),  # type: ignore[arg-type]
        CONFIG,
        writer,
        clock_s=lambda: clock.now_ns / 10**9,
        **clocks,
    )


class Past(msgspec.Struct, frozen=True):
    """What happened.

    Attributes:
        states: The store after each commit.
        truth: What the last one holds.
        written: All contents that ever were.
        seen: What a device saw last.
        foreign: Objects of another repository.
        now_ns: When.
    """

    states: list[Stored]
    truth: dict[bytes, bytes | None]
    written: frozenset[bytes]
    seen: Position
    foreign: Stored
    now_ns: int


async def contents(client: RepositoryClient) -> dict[bytes, bytes | None]:
    found: dict[bytes, bytes | None] = {}
    for where, stat in (await listed(client)).items():
        found[where] = await fetched(client, stat) if stat.kind is Kind.FILE else stat.target
    return found


async def history() -> Past:
    """Three devices and a dozen commits; some at the same time, some collected."""
    objects: Stored = {}
    clock, states, written = Clock(), list[Stored](), set[bytes]()
    clients = [client_on(objects, number, clock) for number in (1, 2, 3)]
    random = Random(16)

    async def commit(client: RepositoryClient) -> None:
        await client.commit()
        states.append(dict(objects))
        clock.now_ns += HOUR_NS

    async def write(client: RepositoryClient, name: str, size: int) -> None:
        data = random.randbytes(size)
        written.add(data)
        await put(client, name, data, (await listed(client)).get(path(name)))

    await write_one(clients[0], store_order(path("d"), Kind.DIRECTORY, b"", meta_of(0o755)))
    for number in range(8):
        await write(clients[0], f"d/{number}", 2500)
    await write(clients[0], "large", 300_000)
    await commit(clients[0])
    await write(clients[1], "large", 250_000)
    await write_one(clients[1], store_order(path("link"), Kind.SYMLINK, b"to", meta_of(None)))
    await commit(clients[1])
    await write(clients[2], "d/1", 70_000)
    stat = (await listed(clients[2]))[path("d/2")]
    await write_one(clients[2], Delete(path=stat.path, expect=stat.tag))
    await commit(clients[2])
    clock.now_ns += GRACE_NS
    await Collector(Objects(MemoryStore(objects, clock=lambda: clock.now_ns), KEYS), DeviceId(b"g" * 16)).run()
    for client in clients[:2]:  # at the same time: of a view without each other's
        await listed(client)
    for number, client in enumerate(clients[:2]):
        await write(client, "d/3", 4000 + number)
        await write(client, f"new{number}", 9000)
    for client in clients[:2]:
        await commit(client)
    clock.now_ns += GRACE_NS + HOUR_NS
    await Collector(
        Objects(MemoryStore(objects, clock=lambda: clock.now_ns), KEYS), DeviceId(b"g" * 16), keep_ns=0
    ).run()
    states.append(dict(objects))
    watcher = client_on(objects, 4, clock)
    foreign: Stored = {}
    other = client_on(foreign, 1, clock, OTHERS)
    await put(other, "theirs", random_bytes(9, 5000))
    await other.commit()
    return Past(
        states=states,
        truth=await contents(watcher),
        written=frozenset(written),
        seen=(await watcher.list_objects()).position,
        foreign=foreign,
        now_ns=clock.now_ns,
    )


@pytest.fixture(scope="module")
def past() -> Past:
    return trio.run(history)


# --- what a store does


def flipped(raw: bytes, random: Random) -> bytes:
    at = random.randrange(len(raw))
    return raw[:at] + bytes([raw[at] ^ 1 << random.randrange(8)]) + raw[at + 1 :]


def harmed(objects: Stored, past: Past, random: Random) -> set[str]:
    """Do one thing to a store; the names of what is no longer as it was."""
    names = sorted(objects)
    folder = random.choice([folder for folder in FOLDERS if any(name.startswith(folder) for name in names)])
    inside = [name for name in names if name.startswith(folder)]
    name, other = random.choice(inside), random.choice(inside)
    raw, when = objects[name]
    match random.randrange(10):
        case 0:
            objects[name] = flipped(raw, random), when
        case 1:
            objects[name] = raw[: random.randrange(len(raw))], when
        case 2:
            objects[name] = raw + random.randbytes(random.randrange(1, 300)), when
        case 3:
            objects[name], objects[other] = objects[other], objects[name]
            return {name, other}
        case 4:
            objects[name] = objects[random.choice(names)]
        case 5:
            del objects[name]
        case 6:
            for each in inside:
                del objects[each]
            return set(inside)
        case 7:  # a head of some time ago
            name = random.choice([each for each in past.states[-1] if each.startswith("heads/")])
            objects[name] = random.choice([state[name] for state in past.states if name in state])
        case 8:  # all of some time ago
            state = random.choice(past.states)
            objects.clear()
            objects.update(state)
            return set(names)
        case _:  # another repository's, under a name of this one
            of_folder = [each for each in sorted(past.foreign) if each.startswith(folder)] or sorted(past.foreign)
            objects[name] = past.foreign[random.choice(of_folder)]
    return {name}


# --- what becomes of it


def expect_named(error: SyncerError, names: set[str]) -> None:
    """Damage by its name, or a store that went back; a missing index is known by what it does not tell."""
    if isinstance(error, RolledBackError | HeadsMissingError):
        assert error.exit_code == 16
        assert any(name.startswith("heads/") for name in names)
    else:
        assert error.exit_code in {14, 15}
        assert any(name in str(error) for name in names) or "no index names it" in str(error), (error, names)


async def a_device_that_knows(objects: Stored, past: Past, clock: Clock, names: set[str]) -> None:
    """It gets all that is true, or says what is wrong."""
    client = client_on(objects, 4, clock)
    try:
        told = await client.changes(past.seen)
        if told is None:
            listing = await client.list_objects()
            check_age(past.seen, [], listing.objects, listing.position, client.ages)
        else:
            check_age(past.seen, [], told.objects, told.position, client.ages)
            assert not told.objects
            assert not told.deleted
        assert await contents(client) == past.truth
    except (RolledBackError, *WRONG) as error:
        expect_named(error, names)


async def a_new_device(objects: Stored, past: Past, clock: Clock, names: set[str]) -> None:
    """It can't know of what is withheld, unless that is all heads, but all that it gets somebody wrote."""
    client = client_on(objects, 5, clock)
    try:
        stats = await listed(client)
    except WRONG as error:
        expect_named(error, names)
        return
    for stat in stats.values():
        if stat.kind is Kind.FILE:
            try:
                assert await fetched(client, stat) in past.written
            except WRONG as error:
                expect_named(error, names)


async def a_check(objects: Stored, past: Past, names: set[str]) -> None:
    """It says what is wrong, where a device can't get all of it."""
    found = await Checker(Objects(MemoryStore(objects), KEYS), GRID, share=1.0).run()
    try:
        whole = await contents(client_on(objects, 6, Clock())) == past.truth
    except WRONG:
        whole = False
    assert whole or found.problems or any(name.startswith("heads/") for name in names)


async def a_writer(objects: Stored, past: Past, clock: Clock) -> dict[bytes, bytes]:
    """What it commits, with parts of what is there."""
    client = client_on(objects, 7, clock)
    data = min(past.written, key=len) + max(past.written, key=len)
    try:
        await put(client, "written", data)
        await client.commit()
    except SyncerError:
        return {}
    return {b"written": data}


async def a_collection(objects: Stored, clock: Clock) -> None:
    clock.now_ns += GRACE_NS + HOUR_NS
    store = MemoryStore(objects, clock=lambda: clock.now_ns)
    try:
        await Collector(Objects(store, KEYS), DeviceId(b"c" * 16), keep_ns=0).run()
    except SyncerError:
        return


@pytest.mark.parametrize("seed", range(effort.count("malicious stores")))
def test_what_a_malicious_store_shows_is_right_or_named_and_does_no_harm_for_good(seed: int, past: Past) -> None:
    """Breaks when bytes are taken that nobody wrote, a state of before is taken for now, or a lie is built upon."""
    random = Random(seed)

    async def main() -> None:
        clock = Clock()
        clock.now_ns = past.now_ns
        before = dict(past.states[-1])
        objects = dict(before)
        names: set[str] = set()
        for _ in range(random.choice([1, 1, 1, 2, 4])):
            names |= harmed(objects, past, random)
        names = {name for name in names if objects.get(name) != before.get(name)}
        await a_device_that_knows(dict(objects), past, clock, names)
        await a_new_device(dict(objects), past, clock, names)
        await a_check(dict(objects), past, names)
        lied = dict(objects)
        more = await a_writer(objects, past, clock)
        await a_collection(objects, clock)
        # Again it shows what it was given; what was written and deleted meanwhile stays so.
        given = {name: each for state in past.states for name, each in state.items()}
        for name in names:
            if objects.get(name) == lied.get(name) and (name in objects or name in before):
                objects[name] = before.get(name, given[name])
        healed = client_on(objects, 8, clock)
        found = await contents(healed)
        # Who commits on a part of the heads may decide anew which of two versions keeps the name.
        assert set(found.values()) == {*past.truth.values(), *more.values()}
        assert more or found == past.truth
        # The past that a collection was to delete may be shown again without the packs that it did delete; the next
        # ones end that.
        for _ in range(2):
            await a_collection(objects, clock)
        assert await contents(client_on(objects, 9, clock)) == found
        assert (await Checker(Objects(MemoryStore(objects), KEYS), GRID, share=1.0).run()).problems == []

    trio.run(main)


def test_a_commit_under_the_number_of_another_one_is_no_continuation() -> None:
    """A store was put back, and who agreed to that committed anew: who saw what was undone is told."""

    async def main() -> None:
        objects: Stored = {}
        clock = Clock()
        one, other = client_on(objects, 1, clock), client_on(objects, 2, clock)
        await put(one, "first", b"first")
        await one.commit()
        backup = dict(objects)
        await put(one, "second", b"second")
        await one.commit()
        seen = (await other.list_objects()).position
        objects.clear()
        objects.update(backup)
        agreed = client_on(objects, 1, clock)
        await put(agreed, "third", b"third")
        await agreed.commit()
        fresh = client_on(objects, 2, clock)
        assert await fresh.changes(seen) is None
        listing = await fresh.list_objects()
        with pytest.raises(RolledBackError):
            check_age(seen, [], listing.objects, listing.position, fresh.ages)

    trio.run(main)


def test_one_bad_pack_keeps_no_other_small_file_back() -> None:
    async def main() -> None:
        objects: Stored = {}
        clock = Clock()
        one = client_on(objects, 1, clock)
        for number in range(3):
            await put(one, f"file{number}", b"%d" % number * 100)
            await one.commit()
        found = 0
        for bad in [name for name in objects if name.startswith("packs/")]:
            there = {name: each for name, each in objects.items() if name != bad}
            client = client_on(there, 2, clock)
            try:
                stats = await listed(client)
            except WRONG:
                continue  # nodes of trees
            read = await client.read_small([(RelPath(where), stat.tag) for where, stat in stats.items()])
            if None not in read:
                continue  # nodes of trees of before
            assert read == [None] * 3  # each is asked for alone
            outcomes = []
            for stat in stats.values():
                try:
                    outcomes.append(await fetched(client, stat))
                except WRONG as error:
                    expect_named(error, {bad})
            assert len(outcomes) == 2
            found += 1
        assert found == 3

    trio.run(main)
