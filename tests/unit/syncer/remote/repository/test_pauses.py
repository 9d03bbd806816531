"""Machines that sleep in the middle of anything, for minutes or a month, while others write, collect and repack.

At any call of a device, of a collection or of a repacking to the store, time passes and others act, before it or behind
it. Excluded is what docs/design/repository.md excludes: to fall asleep between a look at the clock and the head, the
commit or the index that is put then, or the deletion. Of some machines the own clock stands still meanwhile, as that of
a guest does that is paused from outside: for these the last reply of the store is the look at the clock.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import TypeVar

import pytest
import trio

from syncer.errors import RemoteUnavailableError, SyncerError
from syncer.ports.orders import Delete, Stored, write_one
from syncer.remote.repository.client import RepositoryClient, Writer
from syncer.remote.repository.format.history import DeviceId
from syncer.remote.repository.format.settings import Settings
from syncer.remote.repository.maintenance.checking import Checker
from syncer.remote.repository.maintenance.collecting import Collector
from syncer.remote.repository.maintenance.marking import GRACE_NS
from syncer.remote.repository.maintenance.repacking import Repacker
from syncer.remote.repository.objects import Objects
from syncer.remote.stores.memory import MemoryStore
from syncer.remote.stores.port import MAX_BLOB_BYTES, Blob
from tests import effort
from tests.contract.writing import Shelf, store_order, write_list
from tests.unit.syncer.remote.repository.aging import Place
from tests.unit.syncer.remote.repository.nodes import KEYS
from tests.unit.syncer.remote.repository.share import (
    CONFIG,
    GRID,
    META,
    Kind,
    fetched,
    listed,
    path,
    put,
    random_bytes,
)

T = TypeVar("T")
MINUTE_NS = 60 * 10**9
HOUR_NS = 60 * MINUTE_NS
PAUSES = (MINUTE_NS, HOUR_NS, 11 * HOUR_NS, GRACE_NS // 2, GRACE_NS + HOUR_NS, 35 * 24 * HOUR_NS)
DEEP = 1
KEEP_NS = Settings().keep_ns
LAST = ("heads/", "indexes/", "commits/")  # right before these a device looks at the clock
FROZEN = {2: True, 3: False}  # devices whose own clock stands still in pauses; whether replies tell them the time


def expect(is_excused: object, error: Exception) -> None:
    """An error of whom nobody disturbed."""
    assert is_excused, error


def frozen_s() -> float:
    """The own clock of a machine that is paused from outside."""
    return 1000.0


class World:
    """Devices and collectors of one repository, and what they were told."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.objects: dict[str, tuple[bytes, int]] = {}
        self.now_ns = 1_700_000_000 * 10**9
        self.clients = {number: self.client(number) for number in (1, 2, 3)}
        self.busy: set[int] = set()
        self.depth = self.pauses = 0
        self.allowed: dict[str, set[bytes | None]] = {}
        self.quiet = False

    def client(self, number: int) -> RepositoryClient:
        writer = Writer(device=DeviceId(bytes([number]) * 16), name=f"host{number}", tool="test")
        wrong_ns = self.random.choice([0, 400, -4000]) * 24 * HOUR_NS
        store, clock_s = Paused(self), self.clock_s
        if number in FROZEN:
            store, clock_s = Paused(self, is_frozen=True, tells=FROZEN[number]), frozen_s
        return RepositoryClient(
            Objects(store, KEYS, clock_s),
            CONFIG,
            writer,
            clock_ns=lambda: self.now_ns + wrong_ns,
            clock_s=clock_s,
        )

    def clock_s(self) -> float:
        return self.now_ns / 10**9

    async def pause(self) -> None:
        """Now and then something else happens here."""
        if self.quiet or self.depth > DEEP or self.random.random() > 0.02:
            return
        self.depth += 1
        self.pauses += 1
        try:
            self.now_ns += self.random.choice(PAUSES)
            for _ in range(self.random.randrange(3)):
                await self.something()
                self.now_ns += self.random.choice(PAUSES)
        finally:
            self.depth -= 1

    async def something(self) -> None:
        free = sorted(self.clients.keys() - self.busy)
        if self.random.random() < 0.35 or not free:
            is_frozen, pauses = self.random.random() < 0.3, self.pauses
            store, clock_s = Paused(self, is_frozen=is_frozen), frozen_s if is_frozen else self.clock_s
            keep_ns = self.random.choice([0, KEEP_NS])
            verb = Repacker if self.random.random() < 0.3 else Collector
            try:
                await verb(Objects(store, KEYS, clock_s), DeviceId(b"g" * 16), keep_ns=keep_ns).run()
            except SyncerError as error:
                # It slept, and what it had read of is gone: it does nothing then.
                expect(self.depth or self.pauses > pauses, error)
            return
        number = self.random.choice(free)
        self.busy.add(number)
        try:
            await self.cycle(number)
        finally:
            self.busy.discard(number)

    async def cycle(self, number: int) -> None:
        """A look, a few changes of files of its own, a commit."""
        random = self.random
        if random.random() < 0.1:
            self.clients[number] = self.client(number)
        client = self.clients[number]
        told: dict[str, bytes | None] = {}
        pauses = self.pauses
        try:
            there = await listed(client)
            for _ in range(random.randrange(1, 4)):
                name = f"{number}-{random.randrange(3)}"
                stat = there.pop(path(name), None)
                if name in told:
                    continue
                if stat is not None and random.random() < 0.4:
                    self.allowed.setdefault(name, {None}).add(None)
                    await write_one(client, Delete(path=stat.path, expect=stat.tag))
                    told[name] = None
                    continue
                data = random_bytes(random.randrange(8), random.choice([300, 30_000]))
                self.allowed.setdefault(name, {None}).add(data)
                order = store_order(path(name), Kind.FILE, data, META, None if stat is None else stat.tag, GRID)
                (outcome,) = await write_list(client, [order], Shelf([data], GRID))
                if isinstance(outcome, Stored):
                    told[name] = data
                else:  # it slept, and the view that it builds on is so old that nobody keeps it
                    expect(self.depth or self.pauses > pauses, outcome)
            await client.commit()
        except SyncerError as error:
            expect(self.depth or self.pauses > pauses or "too long" in str(error), error)
            return
        self.allowed.update({name: {data} for name, data in told.items()})

    async def begin(self) -> None:
        """There is a head: what a first push leaves that is given up before it has one, test_headless.py tells."""
        self.quiet = True
        first = self.client(8)
        await put(first, "first", b"data")
        await first.commit()
        self.quiet = False

    async def check(self) -> None:
        """All that was committed is there."""
        self.quiet = True
        reader = self.client(9)
        there = await listed(reader)
        for name, allowed in self.allowed.items():
            stat = there.get(path(name))
            assert (None if stat is None else await fetched(reader, stat)) in allowed, name
        assert (await Checker(Objects(MemoryStore(self.objects), KEYS), GRID, share=1.0).run()).problems == []
        self.quiet = False


class Paused(MemoryStore):
    """A store, as a machine sees it that may sleep at any call."""

    def __init__(self, world: World, *, is_frozen: bool = False, tells: bool = True) -> None:
        super().__init__(world.objects, clock=lambda: world.now_ns)
        self._world = world
        self._is_frozen = is_frozen
        self._tells = tells

    async def _asked(self) -> None:
        await super()._asked()
        self.heard_ns = self.heard_ns if self._tells else None

    async def now_ns(self) -> int:
        return await self._paused(super().now_ns)

    async def get(self, name: str, span: tuple[int, int] | None = None, *, most_bytes: int = MAX_BLOB_BYTES) -> bytes:
        return await self._paused(lambda: super(Paused, self).get(name, span, most_bytes=most_bytes))

    async def put(self, name: str, data: bytes | Sequence[bytes], *, absent: bool = False) -> bool:
        return await self._paused(lambda: super(Paused, self).put(name, data, absent=absent), name.startswith(LAST))

    async def head(self, name: str) -> Blob | None:
        return await self._paused(lambda: super(Paused, self).head(name))

    async def listing(self, *prefixes: str) -> list[Blob]:
        return await self._paused(lambda: super(Paused, self).listing(*prefixes))

    async def delete(self, name: str) -> None:
        await self._paused(lambda: super(Paused, self).delete(name), is_last=True)

    async def _paused(self, call: Callable[[], Awaitable[T]], is_last: bool = False) -> T:
        if not is_last:
            await self._world.pause()
        found = await call()
        if not self._is_frozen:
            await self._world.pause()
        return found


class Silent(MemoryStore):
    """Its replies tell no time, as those of a directory."""

    async def _asked(self) -> None:
        await super()._asked()
        self.heard_ns = None


class Guest:
    """A pack that nobody needs any more, and a guest that is paused from outside while it is collected."""

    def __init__(self, kind: type[MemoryStore]) -> None:
        self.place = Place()
        self.data = random_bytes(1, 300_000)
        writer = Writer(device=DeviceId(b"g" * 16), name="guest", tool="test")
        self.store = kind(self.place.objects, clock=lambda: self.place.now_ns)
        objects = Objects(self.store, KEYS, frozen_s)
        self.client = RepositoryClient(objects, CONFIG, writer, clock_ns=lambda: self.place.now_ns, clock_s=frozen_s)

    async def prepare(self) -> None:
        """A file that was pushed, and deleted."""
        one = self.place.client(1)
        await put(one, "file", self.data)
        await one.commit()
        await write_one(one, Delete(path=path("file"), expect=(await listed(one))[path("file")].tag))
        await one.commit()
        self.place.now_ns += GRACE_NS + HOUR_NS

    async def pause(self) -> None:
        """Long enough for all that nobody needs to be condemned, and to go."""
        for _ in range(4):
            await self.place.collect()
            self.place.now_ns += GRACE_NS + HOUR_NS
        assert self.place.count("condemned/") == 0

    async def check(self, client: RepositoryClient, name: str) -> None:
        """The file can be pushed, and is there whole."""
        await listed(client)
        await put(client, name, self.data)
        await client.commit()
        assert await self.place.problems() == []
        reader = self.place.client(9)
        assert await fetched(reader, (await listed(reader))[path(name)]) == self.data


@pytest.mark.parametrize("kind", [MemoryStore, Silent])
def test_what_a_guest_builds_on_that_was_paused_from_outside_is_not_committed(kind: type[MemoryStore]) -> None:
    """Breaks when its own clock alone says how old its draft is: the file would have no bytes."""

    async def main() -> None:
        guest = Guest(kind)
        await guest.prepare()
        await put(guest.client, "again", guest.data)
        await guest.pause()
        with pytest.raises(RemoteUnavailableError, match="too long"):
            await guest.client.commit()
        assert await guest.place.problems() == []
        await guest.check(guest.client, "again")

    trio.run(main)


@pytest.mark.parametrize("kind", [MemoryStore, Silent])
def test_a_guest_that_was_paused_from_outside_brings_no_rows_of_deleted_packs_back(kind: type[MemoryStore]) -> None:
    """Breaks when it writes an index anew that it read before: somebody else builds on the packs that it names."""

    async def main() -> None:
        guest = Guest(kind)
        await guest.prepare()
        await put(guest.client, "unrelated", b"one line")
        await guest.pause()
        with pytest.raises(RemoteUnavailableError, match="too long"):
            await guest.client.commit()
        await guest.check(guest.place.client(3), "precious")

    trio.run(main)


@pytest.mark.parametrize("kind", [MemoryStore, Silent])
def test_a_guest_that_was_paused_between_its_look_and_its_first_write_builds_on_nothing_old(
    kind: type[MemoryStore],
) -> None:
    """Breaks when the time that a draft is held against is not that of the look that it builds on."""

    async def main() -> None:
        guest = Guest(kind)
        await guest.prepare()
        await listed(guest.client)
        await guest.pause()
        if kind is Silent:  # it is asked for the time before it is looked at anew
            await put(guest.client, "again", guest.data)
            await guest.client.commit()
        else:
            with pytest.raises(RemoteUnavailableError, match="too long"):
                await put(guest.client, "again", guest.data)
        assert await guest.place.problems() == []
        await guest.check(guest.client, "another")

    trio.run(main)


def test_only_a_store_whose_replies_tell_no_time_is_asked_for_it() -> None:
    """Breaks when a push to a Swift makes more requests than it must."""

    async def asked(kind: type[MemoryStore]) -> int:
        times = 0

        class Counting(kind):  # type: ignore[valid-type,misc]
            async def now_ns(self) -> int:
                nonlocal times
                times += 1
                return await super().now_ns()

        guest = Guest(Counting)
        for number in range(2):
            await put(guest.client, f"file{number}", b"one line")
            await guest.client.commit()
        return times

    async def main() -> None:
        assert await asked(MemoryStore) == 0
        assert await asked(Silent) == 1 + 3 + 3  # a look; before each index, commit and head

    trio.run(main)


@pytest.mark.parametrize("seed", range(effort.count("pauses beside collections")))
def test_nothing_that_was_committed_is_lost_whoever_sleeps_while_others_collect(seed: int) -> None:
    """Breaks when what somebody builds on, or has just named, is deleted beside them."""

    async def main() -> None:
        world = World(seed)
        await world.begin()
        for step in range(25):
            world.now_ns += world.random.choice(PAUSES)
            await world.something()
            if step % 8 == 7:
                await world.check()
        await world.check()

    trio.run(main)
