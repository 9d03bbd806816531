"""No two devices write one head, whatever was cloned, copied or put back."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path

import pytest
import trio
import trio.testing
from msgspec import structs

from syncer.errors import CorruptionError, RemoteUnavailableError, RolledBackError
from syncer.remote.repository.format.history import (
    Commit,
    CommitId,
    DeviceId,
    Head,
    Vector,
    commit_name,
    head_name,
)
from syncer.remote.repository.format.keys import MasterKey, derive
from syncer.remote.repository.memory import MemoryFile, Own, Standing, judge
from syncer.remote.repository.objects import Objects
from syncer.remote.repository.ownhead import OwnHead
from syncer.remote.stores.memory import MemoryStore
from syncer.remote.stores.port import MAX_BLOB_BYTES

DEVICE = DeviceId(b"d" * 16)
KEYS = derive(MasterKey(bytes(32)), bytes(16))
A, B, C = (CommitId(letter * 32) for letter in (b"a", b"b", b"c"))


def head(sequence: int, commit: bytes) -> Head:
    return Head(device=DEVICE, sequence=sequence, commit=CommitId(commit))


def delayed(store: MemoryStore) -> tuple[Callable[[str, bytes], Awaitable[bool]], list[tuple[str, bytes]]]:
    """Have the next head that is put be on its way still, without a reply; returns what puts, and that head."""
    put, late = store.put, list[tuple[str, bytes]]()

    async def slow(name: str, data: bytes, *, absent: bool = False) -> bool:
        if name.startswith("heads/") and not late:
            late.append((name, data))
            raise RemoteUnavailableError("no reply")
        return await put(name, data, absent=absent)

    store.put = slow  # type: ignore[method-assign]
    return put, late


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


def commit_of(number: int, root: bytes) -> Commit:
    return Commit(
        parents=(), vector=Vector({DEVICE: number}), root=root, number=number, device=DEVICE, time_ns=0, tool="test",
        name="host",
    )  # fmt: skip


class Machine:
    """A process with its objects and its file."""

    def __init__(self, store: MemoryStore, file: Path, boot_id: Path | None = None) -> None:
        """Started anew as `boot_id` says, a file; None: as this machine was."""
        self.now_s = 0.0
        self.objects = Objects(store, KEYS, lambda: self.now_s)
        memory = (
            MemoryFile(str(file), DEVICE) if boot_id is None else MemoryFile(str(file), DEVICE, boot_id=str(boot_id))
        )
        self.own = OwnHead(self.objects, DEVICE, memory)

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


class Asked(MemoryStore):
    """Counts how often a head is asked for: listings are not counted."""

    def __init__(self, clock: Callable[[], int] = time.time_ns) -> None:
        super().__init__(clock=clock)
        self.heads = 0

    async def get(self, name: str, span: tuple[int, int] | None = None, *, most_bytes: int = MAX_BLOB_BYTES) -> bytes:
        self.heads += name.startswith("heads/")
        return await super().get(name, span, most_bytes=most_bytes)

    async def during(self, act: Callable[[], Awaitable[object]]) -> int:
        before = self.heads
        await act()
        return self.heads - before


def test_a_young_listing_stands_in_for_a_look_at_our_head(tmp_path: Path) -> None:
    """Only where the last head was written from here, since this start: breaks when small pushes ask once more."""
    boot = tmp_path / "boot"
    boot.write_text("first\n")

    async def scenario() -> None:
        store = Asked()
        machine = Machine(store, tmp_path / "head", boot)
        await machine.commits()
        numbers = count(2)

        async def puts(wait_s: float) -> int:
            await machine.own.heads()
            await machine.own.begin()
            commit = await machine.objects.put_commit(commit_of(next(numbers), b""))
            machine.now_s += wait_s
            return await store.during(lambda: machine.own.put(commit, lambda: None))

        assert [await puts(5.0), await puts(5.1), await puts(0)] == [0, 1, 0]
        # A listing of before the last write says nothing of what came after it.
        assert await store.during(lambda: machine.own.put(B, lambda: None)) == 1

    trio.run(scenario)


def test_a_listing_of_before_a_pause_from_outside_stands_in_for_nothing(tmp_path: Path) -> None:
    """Our own clock stood still, the store's did not: breaks when a clone of the machine has gone on meanwhile."""
    boot = tmp_path / "boot"
    boot.write_text("first\n")

    async def scenario() -> None:
        now_ns = 10**18
        store = Asked(lambda: now_ns)
        machine = Machine(store, tmp_path / "head", boot)
        await machine.commits()
        await machine.own.heads()
        now_ns += 86400 * 10**9
        commit = await machine.objects.put_commit(commit_of(2, b""))
        assert await store.during(lambda: machine.own.put(commit, lambda: None)) == 1

    trio.run(scenario)


@pytest.mark.parametrize("copied", ["started anew", "another folder", "no longer known"])
def test_what_was_copied_asks_for_the_head_before_it_writes(tmp_path: Path, copied: str) -> None:
    """However young its listing is: a clone may be just writing."""
    boot = tmp_path / "boot"
    boot.write_text("first")

    async def scenario() -> None:
        store = Asked()
        file, other = tmp_path / "head", boot
        await Machine(store, file, boot).commits()
        if copied == "another folder":
            (tmp_path / "copy").mkdir()
            file = tmp_path / "copy" / "head"
            file.write_bytes((tmp_path / "head").read_bytes())
        else:
            other = tmp_path / "other"  # not there: no longer known
        if copied == "started anew":
            other.write_text("second")
        second = Machine(store, file, other)
        await second.own.heads()
        await second.own.begin()
        assert await store.during(lambda: second.own.put(A, lambda: None)) == 1

    trio.run(scenario)


def test_a_head_that_may_be_on_its_way_still_is_asked_for(tmp_path: Path) -> None:
    """Its reply was lost, and it may come after the listing."""

    async def scenario() -> None:
        store = Asked()
        machine = Machine(store, tmp_path / "head")
        await machine.commits()
        put, late = delayed(store)
        with pytest.raises(RemoteUnavailableError):
            await machine.commits()
        await machine.own.heads()
        await machine.own.begin()
        await put(*late[0])
        with pytest.raises(RemoteUnavailableError, match="as another device"):
            await machine.own.put(A, lambda: None)
        assert await machine.commits() == DEVICE  # the next look finds the late one, which is ours

    trio.run(scenario)


def test_another_process_of_the_device_that_wrote_meanwhile_is_noticed(tmp_path: Path) -> None:
    async def scenario(store: MemoryStore) -> None:
        daemon = Machine(store, tmp_path / "head")
        await daemon.commits()
        await daemon.own.heads()
        await daemon.own.begin()
        await Machine(store, tmp_path / "head").commits()
        with pytest.raises(RemoteUnavailableError, match="as another device"):
            await daemon.own.put(A, lambda: None)

    play(scenario)


def test_of_machines_copied_while_they_ran_the_one_whose_head_was_replaced_stops(tmp_path: Path) -> None:
    """They are at one place by all that they can know. What was replaced is still stored, and its device stops."""
    boot = tmp_path / "boot"
    boot.write_text("first")

    async def scenario(store: MemoryStore) -> None:
        file = tmp_path / "head"
        first = Machine(store, file, boot)
        await first.commits()
        remembered = file.read_bytes()
        second = Machine(store, file, boot)
        for each in (first, second):
            await each.own.heads()
            await each.own.begin()
        first_commit = await first.objects.put_commit(commit_of(2, b"first"))
        await first.own.put(first_commit, lambda: None)
        firsts, _ = file.read_bytes(), file.write_bytes(remembered)
        await second.own.put(await second.objects.put_commit(commit_of(2, b"second")), lambda: None)
        assert await Machine(store, file, boot).commits() == DEVICE  # one goes on
        file.write_bytes(firsts)
        for each in (first, Machine(store, file, boot)):  # and the other one does not, now and later
            with pytest.raises(RolledBackError, match="which does not follow"):
                await each.own.heads()
        assert (await Objects(store, KEYS).commits([first_commit], must=True))[first_commit].root == b"first"

    play(scenario)


def test_a_state_of_before_all_that_is_kept_stops_with_what_to_do(tmp_path: Path) -> None:
    """Put back from a backup: what lies between its commit and the head was collected."""

    async def scenario(store: MemoryStore) -> None:
        file = tmp_path / "head"
        device = Machine(store, file)
        await device.commits()
        backup = file.read_bytes()
        for _ in range(3):
            await device.commits()
        head = (await device.own.heads())[DEVICE]
        for name in [each for each in store.objects if each.startswith("commits/")]:
            if name != commit_name(head.commit):
                del store.objects[name]
        file.write_bytes(backup)
        with pytest.raises(RolledBackError, match="which does not follow"):
            await Machine(store, file).own.heads()

    play(scenario)


@pytest.mark.parametrize("between", [0, 1, 4])
def test_who_wrote_without_a_look_stops_when_others_built_on_what_it_replaced(tmp_path: Path, between: int) -> None:
    """Also in a process that goes on, and after a death right behind the write; but not when they built on its own."""
    boot = tmp_path / "boot"
    boot.write_text("first")
    other = DeviceId(b"o" * 16)

    async def scenario(store: MemoryStore) -> None:
        file = tmp_path / "head"
        machine = Machine(store, file, boot)
        await machine.commits()
        await machine.own.heads()
        await machine.own.begin()
        replaced, ours = [await machine.objects.put_commit(commit_of(2, root)) for root in (b"replaced", b"ours")]
        announced: list[bytes] = []
        put = store.put

        async def watched(name: str, data: bytes, *, absent: bool = False) -> bool:
            announced.append(file.read_bytes())
            return await put(name, data, absent=absent)

        store.put = watched  # type: ignore[method-assign]
        await machine.own.put(ours, lambda: None)
        del store.put
        written = file.read_bytes()
        for parent, stops in ((ours, False), (replaced, True)):
            last = parent
            for number in range(3, 4 + between):
                vector = Vector({DEVICE: 2, other: number})
                following = structs.replace(
                    commit_of(number, b""), parents=(last,), vector=vector, device=other, number=number
                )
                last = await machine.objects.put_commit(following)
            await machine.objects.put_head(Head(device=other, sequence=1, commit=last))
            for kept in (written, *announced):
                file.write_bytes(kept)
                process = Machine(store, file, boot)
                for _ in range(2):
                    if not stops:
                        assert len(await process.own.heads()) == 2
                        continue
                    with pytest.raises(RolledBackError, match="build on another 2 of it"):
                        await process.own.heads()

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
        put, late = delayed(store)
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
        other = Machine(store, tmp_path / "other")
        other.own = OwnHead(other.objects, DeviceId(b"e" * 16), None)
        await other.commits()
        await store.delete(head_name(DEVICE))
        for each in (machine, Machine(store, tmp_path / "head")):
            assert await each.commits() == DEVICE

    play(scenario)


def test_a_device_that_is_forgotten_while_it_commits_is_told_so_and_goes_on_as_itself(tmp_path: Path) -> None:
    async def scenario(store: MemoryStore) -> None:
        machine = Machine(store, tmp_path / "head")
        await machine.commits()
        other = Machine(store, tmp_path / "other")
        other.own = OwnHead(other.objects, DeviceId(b"e" * 16), None)
        await other.commits()
        machine.now_s += 3600.0  # no listing stands in for a look
        await machine.own.heads()
        machine.now_s += 60.0
        await machine.own.begin()
        await store.delete(head_name(DEVICE))
        with pytest.raises(RemoteUnavailableError, match="has forgotten the device, perhaps"):
            await machine.own.put(A, lambda: None)
        assert await machine.commits() == DEVICE

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
