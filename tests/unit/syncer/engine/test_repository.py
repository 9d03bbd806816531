"""Folders that are devices of a repository: the engine's cycles, whatever is done meanwhile, deaths at any step."""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from syncer.engine.report import Report
from syncer.remote.repository.client import RepositoryClient, Writer
from syncer.remote.repository.format.config import Config
from syncer.remote.repository.format.history import DeviceId
from syncer.remote.repository.format.keys import MasterKey, derive
from syncer.remote.repository.objects import Objects
from syncer.remote.stores.memory import MemoryStore
from tests import effort
from tests.fakes.memory import MemoryContainer
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

    def client(self, device: Device) -> RepositoryClient:
        number = self.devices.index(device) + 1
        writer = Writer(device=DeviceId(bytes([number]) * 16), name=device.name, tool="test")
        objects = Objects(MemoryStore(self.objects), KEYS)
        return RepositoryClient(objects, CONFIG, writer, clock_ns=lambda: next(self.clock) * 10**9)

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
