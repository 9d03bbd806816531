"""Forgetting a device: its head goes, what it has committed stays, and it may come back."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio
import trio.testing

from syncer.errors import DamagedObjectError, NotFoundError, RemoteUnavailableError, UsageError
from syncer.remote.repository.format.history import DeviceId
from syncer.remote.repository.maintenance.devices import devices_of, forget
from syncer.remote.repository.objects import Objects
from syncer.remote.stores.memory import MemoryStore
from syncer.remote.stores.port import MAX_BLOB_BYTES
from tests.unit.syncer.remote.repository.aging import HOUR_NS, Place
from tests.unit.syncer.remote.repository.nodes import KEYS
from tests.unit.syncer.remote.repository.share import fetched, listed, path, put, random_bytes

LOST, OTHER = "01" * 16, "02" * 16


def objects(place: Place) -> Objects:
    return Objects(place.store(), KEYS)


async def taken_over(place: Place) -> None:
    """Device 1 has committed, and device 2 after it."""
    one, other = place.client(1), place.client(2)
    await put(one, "ones", random_bytes(1, 50_000))
    await one.commit()
    place.now_ns += HOUR_NS
    await listed(other)
    await put(other, "others", b"data")
    await other.commit()


def test_devices_are_told_with_who_has_built_on_them() -> None:
    async def scenario() -> None:
        place = Place()
        await taken_over(place)
        found = await devices_of(objects(place))
        assert [(each.device.hex(), each.name, each.has_followers) for each in found] == [
            (OTHER, "host2", False),
            (LOST, "host1", True),
        ]

    trio.run(scenario)


def test_a_device_is_forgotten_only_if_another_one_has_what_it_committed() -> None:
    async def scenario() -> None:
        place = Place()
        await taken_over(place)
        with pytest.raises(UsageError, match="would lose what it committed last"):
            await forget(objects(place), OTHER)
        with pytest.raises(NotFoundError, match="ff"):
            await forget(objects(place), "ff")
        with pytest.raises(UsageError, match="2 devices begin with 0"):
            await forget(objects(place), "0")
        assert place.count("heads/") == 2
        assert (await forget(objects(place), LOST[:8])).name == "host1"
        assert place.count("heads/") == 1
        assert await place.problems() == []
        assert set(await listed(place.client(9))) == {b"ones", b"others"}

    trio.run(scenario)


def test_a_device_that_comes_back_has_lost_nothing_and_does_no_harm() -> None:
    async def scenario() -> None:
        place = Place()
        await taken_over(place)
        running = place.client(1)
        await listed(running)
        await put(running, "begun", b"before it was forgotten")
        await forget(objects(place), LOST)
        with pytest.raises(RemoteUnavailableError, match="next cycle"):
            await running.commit()  # its head is not what it saw: it looks again
        for back in (running, place.client(1)):
            there = await listed(back)
            assert {b"ones", b"others"} <= set(there)
            name = f"new{len(there)}"
            await put(back, name, b"data")
            await back.commit()
            assert path(name) in await listed(place.client(9))
        assert {each.device.hex() for each in await devices_of(objects(place))} == {LOST, OTHER}
        assert await place.problems() == []
        reader = place.client(9)
        assert await fetched(reader, (await listed(reader))[path("ones")]) == random_bytes(1, 50_000)

    trio.run(scenario)


def test_what_a_lost_device_needed_is_collected_once_it_is_forgotten() -> None:
    async def scenario() -> None:
        place = Place()
        one, other = place.client(1), place.client(2)
        await put(one, "file", random_bytes(1, 300_000))
        await one.commit()
        await put(other, "file", random_bytes(2, 1000), (await listed(other))[path("file")])
        await other.commit()
        for forgets in (False, True):
            if forgets:
                await forget(objects(place), LOST)
            for _ in range(4):
                place.now_ns += 50 * HOUR_NS
                await place.collect()
            assert (place.size("packs/") < 100_000) == forgets
        assert await place.problems() == []

    trio.run(scenario)


def test_a_device_that_commits_while_it_is_forgotten_loses_nothing() -> None:
    """Its head is deleted right after it has written it."""

    async def scenario() -> None:
        place = Place()
        await taken_over(place)
        one = place.client(1)

        class Between(MemoryStore):
            async def delete(self, name: str) -> None:
                if name.startswith("heads/"):
                    await put(one, "late", b"data")
                    await one.commit()
                await super().delete(name)

        await listed(one)
        with pytest.raises(UsageError, match="committing at this moment"):
            await forget(Objects(Between(place.objects, clock=lambda: place.now_ns), KEYS), LOST)
        assert set(await listed(place.client(9))) == {b"ones", b"others", b"late"}
        await put(one, "later", b"data")
        await one.commit()
        assert set(await listed(place.client(9))) == {b"ones", b"others", b"late", b"later"}

    trio.run(scenario)


def test_a_device_whose_commit_is_there_and_whose_head_is_on_its_way_is_not_forgotten() -> None:
    """The head comes right before the old one would be deleted; the commit was there before anybody looked."""

    async def scenario() -> None:
        place = Place()
        await taken_over(place)
        sent, going_on = trio.Event(), trio.Event()

        class Slow(MemoryStore):
            async def put(self, name: str, data: bytes | Sequence[bytes], *, absent: bool = False) -> bool:
                if name.startswith("heads/"):
                    sent.set()
                    await going_on.wait()
                return await super().put(name, data, absent=absent)

        class Between(MemoryStore):
            async def delete(self, name: str) -> None:
                going_on.set()
                await trio.testing.wait_all_tasks_blocked()
                await super().delete(name)

        def now_ns() -> int:
            return place.now_ns

        one = place.client(1, Slow(place.objects, clock=now_ns))
        await listed(one)
        await put(one, "late", b"data")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.commit)
            await sent.wait()
            with pytest.raises(UsageError, match="committing at this moment"):
                await forget(Objects(Between(place.objects, clock=now_ns), KEYS), LOST)
            going_on.set()
        assert set(await listed(place.client(9))) == {b"ones", b"others", b"late"}

    trio.run(scenario)


def test_a_device_that_died_before_it_wrote_its_head_can_be_forgotten_an_hour_later() -> None:
    async def scenario() -> None:
        place = Place()
        await taken_over(place)

        class Dying(MemoryStore):
            async def put(self, name: str, data: bytes | Sequence[bytes], *, absent: bool = False) -> bool:
                if name.startswith("heads/"):
                    raise NotFoundError(name)
                return await super().put(name, data, absent=absent)

        one = place.client(1, Dying(place.objects, clock=lambda: place.now_ns))
        await listed(one)
        await put(one, "late", b"data")
        with pytest.raises(NotFoundError):
            await one.commit()
        with pytest.raises(UsageError, match="committing at this moment"):
            await forget(objects(place), LOST)
        place.now_ns += HOUR_NS + 1
        await forget(objects(place), LOST)
        assert set(await listed(place.client(9))) == {b"ones", b"others"}

    trio.run(scenario)


def test_a_device_that_is_forgotten_while_somebody_looks_is_no_damage() -> None:
    class Meanwhile(MemoryStore):
        """Somebody forgets the device before its head is got, and after it was listed."""

        async def get(
            self, name: str, span: tuple[int, int] | None = None, *, most_bytes: int = MAX_BLOB_BYTES
        ) -> bytes:
            if name == f"heads/{LOST}" and name in self.objects:
                await taken_over_again(place)
                await forget(objects(place), LOST)
            return await super().get(name, span, most_bytes=most_bytes)

    async def taken_over_again(place: Place) -> None:
        other = place.client(2)
        await listed(other)
        await put(other, "more", b"more")
        await other.commit()

    async def scenario() -> None:
        one = place.client(1)
        await put(one, "ones", b"data")
        await one.commit()
        looks = place.client(3, Meanwhile(place.objects, clock=lambda: place.now_ns))
        assert set(await listed(looks)) == {b"ones", b"more"}
        assert list(await objects(place).heads()) == [DeviceId(bytes.fromhex(OTHER))]

    place = Place()
    trio.run(scenario)


def test_a_head_that_stays_listed_and_is_missing_is_damage() -> None:
    class Lost(MemoryStore):
        async def get(
            self, name: str, span: tuple[int, int] | None = None, *, most_bytes: int = MAX_BLOB_BYTES
        ) -> bytes:
            if name == f"heads/{LOST}":
                raise NotFoundError(name)
            return await super().get(name, span, most_bytes=most_bytes)

    async def scenario() -> None:
        place = Place()
        await taken_over(place)
        with pytest.raises(DamagedObjectError, match=f"{LOST} .*is missing: it is listed"):
            await Objects(Lost(place.objects, clock=lambda: place.now_ns), KEYS).heads()

    trio.run(scenario)
