"""No two devices write one head, whatever was cloned, copied or put back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio
import trio.testing

from syncer.errors import CorruptionError, RemoteUnavailableError, RolledBackError
from syncer.remote.repository.format.history import Commit, CommitId, DeviceId, Head, Vector
from syncer.remote.repository.format.keys import MasterKey, derive
from syncer.remote.repository.memory import MemoryFile, Own, Standing, judge
from syncer.remote.repository.objects import Objects
from syncer.remote.repository.ownhead import OwnHead
from syncer.remote.stores.memory import MemoryStore

DEVICE = DeviceId(b"d" * 16)
KEYS = derive(MasterKey(bytes(32)), bytes(16))
A, B, C = (CommitId(letter * 32) for letter in (b"a", b"b", b"c"))


def head(sequence: int, commit: bytes) -> Head:
    return Head(device=DEVICE, sequence=sequence, commit=CommitId(commit))


@pytest.mark.parametrize(
    ("own", "there", "standing"),
    [
        (Own(device=DEVICE), None, Standing.OURS),
        (Own(device=DEVICE), head(1, A), Standing.LATER),
        (Own(device=DEVICE, next=A), head(1, A), Standing.OURS),
        (Own(device=DEVICE, sequence=3, commit=A), None, Standing.OURS),
        (Own(device=DEVICE, sequence=3, commit=A), head(3, A), Standing.OURS),
        (Own(device=DEVICE, sequence=3, commit=A, next=B), head(3, A), Standing.OURS),
        (Own(device=DEVICE, sequence=3, commit=A, next=B), head(4, B), Standing.OURS),
        (Own(device=DEVICE, sequence=3, commit=A, next=B), head(4, C), Standing.LATER),
        (Own(device=DEVICE, sequence=3, commit=A), head(4, B), Standing.LATER),
        (Own(device=DEVICE, sequence=3, commit=A), head(3, B), Standing.UNDONE),
        (Own(device=DEVICE, sequence=3, commit=A), head(2, B), Standing.UNDONE),
    ],
)
def test_a_head_is_held_against_what_is_remembered(own: Own, there: Head | None, standing: Standing) -> None:
    assert judge(own, there) is standing


class Machine:
    """A process with its objects and its file."""

    def __init__(self, store: MemoryStore, file: Path) -> None:
        self.objects = Objects(store, KEYS)
        self.own = OwnHead(self.objects, DEVICE, MemoryFile(str(file), DEVICE))
        self.number = 0

    async def commits(self) -> DeviceId:
        """Look, and commit on top of all that is there."""
        heads = await self.own.heads()
        device = await self.own.begin()
        found = await self.objects.commits([head.commit for head in heads.values()])
        vector = Vector({}).joined(*(commit.vector for commit in found.values()))
        number = vector.next_number()
        commit = Commit(
            parents=tuple(sorted(found)), vector=vector.joined(Vector({device: number})), root=b"", number=number,
            device=device, time_ns=0, tool="test", name="host",
        )  # fmt: skip
        await self.own.put(await self.objects.put_commit(commit), lambda: None)
        return device


def play(scenario: Callable[[MemoryStore], Awaitable[None]]) -> None:
    trio.run(scenario, MemoryStore())


def test_a_device_goes_on_as_itself_in_any_number_of_processes(tmp_path: Path) -> None:
    async def scenario(store: MemoryStore) -> None:
        daemon = Machine(store, tmp_path / "head")
        for _ in range(3):
            assert await daemon.commits() == DEVICE
            assert await Machine(store, tmp_path / "head").commits() == DEVICE
        assert [each.sequence for each in (await daemon.own.heads()).values()] == [6]

    play(scenario)


def test_of_two_clones_the_second_one_that_writes_becomes_another_device(tmp_path: Path) -> None:
    async def scenario(store: MemoryStore) -> None:
        first = Machine(store, tmp_path / "first")
        await first.commits()
        (tmp_path / "second").write_bytes((tmp_path / "first").read_bytes())
        second = Machine(store, tmp_path / "second")
        await second.own.heads()
        assert await first.commits() == DEVICE
        other = await second.commits()
        assert other != DEVICE
        assert await first.commits() == DEVICE
        assert await Machine(store, tmp_path / "second").commits() == other
        heads = await first.own.heads()
        assert {device: head.sequence for device, head in heads.items()} == {DEVICE: 3, other: 2}

    play(scenario)


def test_two_clones_that_write_at_once_do_not_replace_each_others_head(tmp_path: Path) -> None:
    async def scenario(store: MemoryStore) -> None:
        first = Machine(store, tmp_path / "first")
        await first.commits()
        (tmp_path / "second").write_bytes((tmp_path / "first").read_bytes())
        second = Machine(store, tmp_path / "second")
        for each in (first, second):
            await each.own.heads()
            await each.own.begin()
        await first.own.put(A, lambda: None)
        with pytest.raises(RemoteUnavailableError, match="as another device"):
            await second.own.put(B, lambda: None)
        assert (await first.objects.head(DEVICE)).commit == A

    play(scenario)


def test_a_state_without_its_memory_becomes_another_device(tmp_path: Path) -> None:
    async def scenario(store: MemoryStore) -> None:
        await Machine(store, tmp_path / "head").commits()
        (tmp_path / "head").unlink()
        assert await Machine(store, tmp_path / "head").commits() != DEVICE

    play(scenario)


def test_a_lost_reply_is_no_other_device(tmp_path: Path) -> None:
    async def scenario(store: MemoryStore) -> None:
        machine = Machine(store, tmp_path / "head")
        await machine.commits()
        put = store.put

        async def deaf(name: str, data: bytes, *, absent: bool = False) -> bool:
            done = await put(name, data, absent=absent)
            if name.startswith("heads/"):
                raise RemoteUnavailableError("no reply")
            return done

        store.put = deaf  # type: ignore[method-assign]
        with pytest.raises(RemoteUnavailableError):
            await machine.commits()
        del store.put
        assert await Machine(store, tmp_path / "head").commits() == DEVICE
        assert await machine.commits() == DEVICE

    play(scenario)


def test_a_store_that_was_put_back_stops_whoever_wrote_since(tmp_path: Path) -> None:
    async def scenario(store: MemoryStore) -> None:
        machine = Machine(store, tmp_path / "head")
        await machine.commits()
        (name,) = [blob.name for blob in await store.listing("heads/")]
        before = await store.get(name)
        await machine.commits()
        await store.put(name, before)
        with pytest.raises(RolledBackError, match="expected head 2 of this device, found head 1"):
            await Machine(store, tmp_path / "head").own.heads()

    play(scenario)


def test_a_head_that_arrives_after_a_later_one_is_told_as_a_store_that_was_put_back(tmp_path: Path) -> None:
    """Writes of heads in another order than they were made: the later commit is not gone unnoticed."""

    async def scenario(store: MemoryStore) -> None:
        machine = Machine(store, tmp_path / "head")
        await machine.commits()
        put, late = store.put, []

        async def slow(name: str, data: bytes, *, absent: bool = False) -> bool:
            if name.startswith("heads/") and not late:
                late.append((name, data))
                raise RemoteUnavailableError("no reply")
            return await put(name, data, absent=absent)

        store.put = slow  # type: ignore[method-assign]
        with pytest.raises(RemoteUnavailableError):
            await machine.commits()
        assert await machine.commits() == DEVICE
        await put(*late[0])
        for each in (machine, Machine(store, tmp_path / "head")):
            with pytest.raises(RolledBackError, match="head 2, which does not follow"):
                await each.own.heads()

    play(scenario)


def test_a_device_that_was_forgotten_writes_a_head_again(tmp_path: Path) -> None:
    async def scenario(store: MemoryStore) -> None:
        machine = Machine(store, tmp_path / "head")
        await machine.commits()
        (name,) = [blob.name for blob in await store.listing("heads/")]
        await store.delete(name)
        for each in (machine, Machine(store, tmp_path / "head")):
            assert await each.commits() == DEVICE

    play(scenario)


def test_another_link_begins_anew_and_damage_is_told(tmp_path: Path) -> None:
    file, other = tmp_path / "head", DeviceId(b"e" * 16)
    MemoryFile(str(file), DEVICE).write(Own(device=DEVICE, sequence=3, commit=A))
    assert MemoryFile(str(file), DEVICE).read() == Own(device=DEVICE, sequence=3, commit=A)
    assert MemoryFile(str(file), other).read() == Own(device=other)
    for raw in (b"", b"{}", file.read_bytes()[:-9], b"\xff"):
        file.write_bytes(raw)
        with pytest.raises(CorruptionError, match="--relink"):
            MemoryFile(str(file), DEVICE).read()


def test_who_writes_looks_often_again() -> None:
    """Breaks when a device hears of the answer to its change a minute later: looks had become rare before it."""

    async def scenario(store: MemoryStore) -> None:
        waits: list[trio.Event] = []

        async def wait(prefix: str, seen: object) -> object:
            assert prefix == "heads/"
            waits.append(trio.Event())
            await waits[-1].wait()
            return "a moment"

        store.wait = wait  # type: ignore[method-assign]
        own = OwnHead(Objects(store, KEYS), DEVICE, None)
        found: list[object] = []

        async def notice() -> None:
            found.append(await own.noticed(None))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(notice)
            await trio.testing.wait_all_tasks_blocked()
            await own.put(A, lambda: None)
            await trio.testing.wait_all_tasks_blocked()
            assert len(waits) == 2
            assert not found
            waits[-1].set()
        assert found == ["a moment"]

    play(scenario)
