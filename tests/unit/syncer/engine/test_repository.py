"""Folders that are devices of a repository: the engine's cycles, whatever is done meanwhile, deaths at any step."""

from __future__ import annotations

import itertools
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

import pytest
import trio

from syncer.engine.report import Report
from syncer.errors import RolledBackError
from syncer.remote.repository.client import RepositoryClient, Writer
from syncer.remote.repository.format.config import Config
from syncer.remote.repository.format.history import DeviceId
from syncer.remote.repository.format.keys import MasterKey, derive
from syncer.remote.repository.memory import Memory, Own
from syncer.remote.repository.objects import Objects
from syncer.remote.stores.memory import MemoryStore
from tests import effort
from tests.fakes.memory import MemoryContainer
from tests.kit.state import MemoryState
from tests.unit.syncer.engine.devices import STRIDE, Crash, Device
from tests.unit.syncer.local.folders import BLOCK, new_place, noise

KEYS = derive(MasterKey(bytes(32)), bytes(16))
CONFIG = Config(grid=BLOCK, chunks=(1024, 4096, 16384), made_s=0)


@dataclass
class Share:
    """A repository in memory, and folders that are linked to it."""

    tmp_path: Path
    objects: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    clock: itertools.count[int] = field(default_factory=lambda: itertools.count(1_700_000_000))
    devices: list[Device] = field(default_factory=list)

    def join(self) -> Device:
        name = f"host{len(self.devices)}"
        self.devices.append(Device(name, new_place(self.tmp_path, name), MemoryContainer()))
        return self.devices[-1]

    def client(
        self, device: Device, *, store: MemoryStore | None = None, memory: Memory | None = None
    ) -> RepositoryClient:
        number = self.devices.index(device) + 1
        writer = Writer(device=DeviceId(bytes([number]) * 16), name=device.name, tool="test")
        objects = Objects(store or MemoryStore(self.objects), KEYS)
        return RepositoryClient(objects, CONFIG, writer, clock_ns=lambda: next(self.clock) * 10**9, memory=memory)

    def reconcile(self, device: Device) -> Report:
        return device.reconcile(client=self.client(device))

    def settle(self) -> None:
        """Cycles until a round of them does nothing."""
        for _ in range(8):
            actions = 0
            for device in self.devices:
                report = self.reconcile(device)
                assert not report.failures
                actions += len(device.ears.actions)
            if not actions:
                return
        raise AssertionError("the devices did not come to rest")


@pytest.fixture
def share(tmp_path: Path) -> Share:
    return Share(tmp_path)


def edit(device: Device, number: int) -> None:
    device.write(f"folder-{number}/small", b"%d" % number)
    device.write("large", noise(number, 6 * BLOCK))
    if number:
        (device.path / f"folder-{number - 1}").rename(device.path / f"moved-{number}")


def test_devices_that_take_turns_come_to_rest(share: Share) -> None:
    pair = share.join(), share.join()
    for number in range(3):
        edit(pair[number % 2], number)
        share.settle()
    assert pair[0].everything() == pair[1].everything()
    writes = len(share.objects)
    share.settle()
    assert len(share.objects) == writes


def test_a_death_at_any_step_loses_and_doubles_nothing(tmp_path: Path) -> None:
    for at in itertools.count(0, STRIDE):
        share = Share(tmp_path / str(at))
        share.tmp_path.mkdir()
        first, second = share.join(), share.join()
        for number in range(2):
            edit(first, number)
        steps = itertools.count()

        def step(_: str, steps: itertools.count[int] = steps, at: int = at) -> None:
            if next(steps) == at:
                raise Crash

        try:
            first.reconcile(client=share.client(first), step=step)
        except Crash:
            share.settle()
            assert first.everything() == second.everything()
            assert (second.path / "large").read_bytes() == noise(1, 6 * BLOCK)
            assert len(second.contents()) == 3
            continue
        break
    assert at > 0


@pytest.mark.parametrize("seed", range(effort.count("repository devices")))
def test_nobodys_version_is_lost_whatever_is_done_at_the_same_time(seed: int, share: Share) -> None:
    random = Random(seed)
    crowd = [share.join() for _ in range(3)]
    kept: set[bytes] = set()
    replaced: set[bytes] = set()
    crowd[0].write("anchor", b"so that no side is ever empty")
    share.settle()
    for number in range(30):
        device = random.choice(crowd)
        if random.random() < 0.4:
            report = share.reconcile(device)
            assert all("changed" in str(failure) for failure in report.failures), report.failures
        else:
            act(random, device, number, kept, replaced)
    share.settle()
    assert crowd[0].everything() == crowd[1].everything() == crowd[2].everything()
    there = set(crowd[0].contents())
    assert kept - replaced <= there


class AtOnce(MemoryStore):
    """Two stores whose heads are written in the same moment: each waits for the other's."""

    def __init__(self, objects: dict[str, tuple[bytes, int]], arrived: list[trio.Event]) -> None:
        super().__init__(objects)
        self._arrived = arrived

    async def put(self, name: str, data: bytes | Sequence[bytes], *, absent: bool = False) -> bool:
        if name.startswith("heads/"):
            self._arrived.pop().set()
            for event in self._arrived:
                await event.wait()
        return await super().put(name, data, absent=absent)


class Remembered:
    """What a root's state remembers of its head, in memory."""

    def __init__(self, own: Own, where: str = "") -> None:
        self.own = own
        self.where = where

    def read(self) -> Own:
        return self.own

    def write(self, own: Own) -> None:
        self.own = own

    def place(self) -> str:
        return self.where


@pytest.mark.parametrize("where", ["", "a machine that was copied while it ran"])
def test_of_two_clones_that_commit_in_the_same_moment_one_stops_and_nothing_of_either_is_lost(
    share: Share, where: str
) -> None:
    """Their commits have one number, so no merge could tell what either has seen: to stop is right, exit code 16.

    Linked anew it is another device, and brings what it has. Where both are at one place they don't ask for the head
    before they write it: it is as if they had asked in the same moment.
    """
    first, second = share.join(), share.join()
    memory = Remembered(Own(device=DeviceId(b"\1" * 16)), where)
    first.write("common", b"both have it")
    first.reconcile(client=share.client(first, memory=memory))
    # The clone: the same folder and state, the same memory.
    second.write("common", b"both have it")
    os.utime(second.path / "common", ns=(0, (first.path / "common").stat().st_mtime_ns))
    second.state.rows_now.update(first.state.rows_now)
    second.state.last, second.state.identity = first.state.last, first.state.identity
    for device, word in ((first, b"one's"), (second, b"the clone's")):
        device.write("common", word)
        device.write(word.decode().replace("'", ""), word)
    memories = [memory, Remembered(memory.own, where)]

    async def both() -> None:
        arrived = [trio.Event(), trio.Event()]
        waits = [[arrived[1], arrived[0]], [arrived[0], arrived[1]]]
        async with trio.open_nursery() as nursery:
            for device, kept, events in zip((first, second), memories, waits, strict=True):
                client = share.client(first, store=AtOnce(share.objects, events), memory=kept)
                nursery.start_soon(partial(device.cycle, client=client))

    trio.run(both)
    stopped = []
    for device, kept in zip((first, second), memories, strict=True):
        try:
            device.reconcile(client=share.client(first, memory=kept))
        except RolledBackError:
            stopped.append(device)
    (one,) = stopped
    other = first if one is second else second
    share.devices = [other, share.join(), one]  # `link --relink`: the third number is new
    one.state = MemoryState()
    share.settle()
    assert one.everything() == other.everything()
    assert {b"one's", b"the clone's"} <= set(one.contents())
    assert {"ones", "the clones"} <= one.everything().keys()
    assert sum(name.startswith("common") for name in one.everything()) == 2  # and a conflict copy


class Between(MemoryStore):
    """A store in which others act right before a head is written, once."""

    def __init__(self, objects: dict[str, tuple[bytes, int]], act: Callable[[], Awaitable[None]]) -> None:
        super().__init__(objects)
        self._acts = [act]

    async def put(self, name: str, data: bytes | Sequence[bytes], *, absent: bool = False) -> bool:
        if name.startswith("heads/") and self._acts:
            await self._acts.pop()()
        return await super().put(name, data, absent=absent)


@pytest.mark.parametrize("commits", [False, True])
def test_who_builds_on_a_commit_that_a_clone_replaces_makes_all_stop_and_nothing_is_deleted(
    share: Share, *, commits: bool
) -> None:
    """A third device sees the first one's head before the clone replaces it unseen, and may commit what it saw.

    Breaks when what the clone has sent is taken for deleted: the third one's commit says that it has seen its number.
    """
    first, clone, third = share.join(), share.join(), share.join()
    place = "a machine that was copied while it ran"
    first_memory = Remembered(Own(device=DeviceId(b"\1" * 16)), place)
    third_memory = Remembered(Own(device=DeviceId(b"\3" * 16)), "another one")
    first.write("common", b"both have it")
    first.reconcile(client=share.client(first, memory=first_memory))
    third.reconcile(client=share.client(third, memory=third_memory))
    clone.write("common", b"both have it")
    os.utime(clone.path / "common", ns=(0, (first.path / "common").stat().st_mtime_ns))
    clone.state.rows_now.update(first.state.rows_now)
    clone.state.last, clone.state.identity = first.state.last, first.state.identity
    clone_memory = Remembered(first_memory.own, place)
    first.write("ones", b"ones")
    clone.write("clones", b"clones")

    async def meanwhile() -> None:
        await first.cycle(client=share.client(first, memory=first_memory))
        if commits:
            third.write("thirds", b"thirds")
        await third.cycle(client=share.client(third, memory=third_memory))

    store = Between(share.objects, meanwhile)
    clone.reconcile(client=share.client(first, store=store, memory=clone_memory))
    for _ in range(2):
        for device, number, memory in (
            (clone, first, clone_memory),
            (third, third, third_memory),
            (first, first, first_memory),
        ):
            if device is clone and not commits:
                device.reconcile(client=share.client(number, memory=memory))  # its head is the one that is there
                continue
            with pytest.raises(RolledBackError):
                device.reconcile(client=share.client(number, memory=memory))
    assert {"clones", "common"} <= clone.everything().keys()
    share.devices = [share.join(), share.join(), share.join(), first, clone, third]  # `link --relink`, of each
    for device in (first, clone, third):
        device.state = MemoryState()
    share.settle()
    expected = {"common", "ones", "clones", *(["thirds"] if commits else [])}
    assert all(expected <= device.everything().keys() for device in share.devices)


def act(random: Random, device: Device, number: int, kept: set[bytes], replaced: set[bytes]) -> None:
    """What a user does; what of a content is gone by that."""
    files = [
        path
        for path in device.path.rglob("*")
        if path.is_file() and path.name != "anchor" and ".blocksync" not in path.parts
    ]
    where = device.path / random.choice(["a", "b", "d/a", "d/b", "e/a"])
    match random.randrange(5):
        case 0 if files:
            victim = random.choice(files)
            replaced.add(victim.read_bytes())
            victim.unlink()
        case 1 if files and not where.exists():
            where.parent.mkdir(exist_ok=True)
            random.choice(files).rename(where)
        case 2 if (device.path / "d").is_dir() and not (device.path / "f").exists():
            os.rename(device.path / "d", device.path / "f")
        case _:
            data = noise(number, random.choice([10, BLOCK, 5 * BLOCK + 7]))
            if where.is_dir():
                return
            if where.exists():
                replaced.add(where.read_bytes())
            where.parent.mkdir(exist_ok=True)
            where.write_bytes(data)
            kept.add(data)
