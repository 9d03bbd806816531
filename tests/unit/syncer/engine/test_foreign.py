"""On a Pithos, whose conditions are not atomic, nothing that our writes replaced unseen is lost (12.24 to 12.26).

A device is killed at every fault point and before and after every message of the cycle that races.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from syncer.core.planner.outcome import BaseChange, Booking
from syncer.core.planner.overwrites import Overwrite
from syncer.ports.remote import Counters
from syncer.remote.http.retry import Retry, RetryPolicy
from syncer.remote.http.transport import HttpSettings, HttpTransport, Reply, Request
from syncer.remote.pithos.client import PithosClient
from syncer.remote.url import parse_url
from tests.fakes.memory import MemoryContainer
from tests.fakes.pithos import FakePithos
from tests.fakes.pithos_store import Container
from tests.unit.syncer.engine.devices import STRIDE, Crash, Device, MemoryState
from tests.unit.syncer.local.folders import BLOCK, new_place, noise

QUICK = RetryPolicy(attempts=3, first_delay_s=0.001, max_delay_s=0.002, deadline_s=300)
FILE = "application/octet-stream"
MODE = {"x-object-meta-mode": "640", "x-object-meta-mtime-ns": "1234567890123456789"}


class Killer:
    """Counts fault points and messages from the first that may change the server; at the n-th the process ends."""

    def __init__(self, at: int = 1 << 30) -> None:
        self.left = at
        self.dead = False
        self.begun = False

    def __call__(self, step: str) -> None:
        self.begun = self.begun or step == "booked" or step.startswith(("PUT", "MOVE", "POST"))
        self.left -= self.begun
        self.dead = self.dead or self.left < 0
        if self.dead:  # it sends and records no more
            raise Crash


class Wire:
    """A transport whose process may end before a request leaves, or before its reply is heard."""

    def __init__(self, inner: HttpTransport, killer: Killer) -> None:
        self._inner = inner
        self._killer = killer

    async def send(self, request: Request) -> Reply:
        self._killer(f"{request.method} leaves")
        reply = await self._inner.send(request)
        self._killer(f"{request.method} answered")
        return reply

    def close(self) -> None:
        self._inner.close()


class Killable(MemoryState):
    """A state that a dead process does not write."""

    killer = Killer()

    def record(self, changes: Sequence[BaseChange], settled: Collection[int] = ()) -> None:
        if self.killer.dead:
            raise Crash
        super().record(changes, settled)

    def book_orders(self, booked: Mapping[int, Sequence[Booking]]) -> None:
        if self.killer.dead:
            raise Crash
        super().book_orders(booked)

    def book_overwrites(self, new: Sequence[Overwrite], settled: Sequence[int]) -> None:
        if self.killer.dead:
            raise Crash
        super().book_overwrites(new, settled)


@dataclass
class World:
    """A server, and folders linked with one container of it."""

    pithos: FakePithos
    folder: Path
    name: str
    devices: dict[str, Device] = field(default_factory=dict)

    @property
    def box(self) -> Container:
        return self.pithos.container(name=self.name)

    def device(self, name: str) -> Device:
        if name not in self.devices:
            place = new_place(self.folder, f"{self.name}-{name}")
            self.devices[name] = Device(name, place, MemoryContainer(block_size=BLOCK), state=Killable())
        return self.devices[name]

    def cycle(self, name: str, killer: Killer | None = None) -> int | None:
        """One cycle; its exit code, or None if it was killed."""
        killer, device = killer or Killer(), self.device(name)
        url, counters = parse_url(self.pithos.url(container=self.name)), Counters()
        wire = Wire(HttpTransport(url, self.pithos.token, HttpSettings(), counters), killer)
        client = PithosClient(url, wire, Retry(policy=QUICK, draw=lambda: 0.5, host="x"), counters, 4)
        assert isinstance(device.state, Killable)
        device.state.killer = killer
        try:
            return device.reconcile(step=killer, client=client).exit_code
        except BaseException as error:
            if not killer.dead or not any(isinstance(leaf, Crash) for leaf in leaves(error)):
                raise
            return None
        finally:
            wire.close()

    def rest(self, *names: str) -> list[int | None]:
        """Cycles until nothing happens any more; what they ended with."""
        codes: list[int | None] = []
        for _ in range(6):
            before = len(codes)
            for name in names:
                codes.append(self.cycle(name))
                quiet = not self.device(name).ears.actions and codes[-1] == 0
                before += quiet
            if before == len(codes):
                return codes
        raise AssertionError(f"no rest: {codes}, {[self.device(name).ears for name in names]}")

    def write(self, name: str, data: bytes, kind: str = FILE) -> None:
        """Somebody else's write, whose condition was looked at before ours."""
        self.pithos.store.put_body(self.box, name, data, kind, dict(MODE))

    def intrude(self, victim: str, act: Callable[[], object]) -> None:
        """Do something once, between the check of a condition and the write to that name that it guards."""

        def between(name: str) -> None:
            if name == victim:
                act()
            else:
                self.pithos.store.between = between

        self.pithos.store.between = between


def leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in leaves(inner)]
    return [error]


def copies(world: World) -> list[str]:
    return [name for name in world.box.live() if "(conflict " in name]


def contents(device: Device) -> set[bytes]:
    """Everything in a tree: contents of files, texts of links, names of folders."""
    found: set[bytes] = set()
    for path in device.path.rglob("*"):
        if ".blocksync" in path.parts:
            continue
        if path.is_symlink():
            found.add(b"-> " + os.fsencode(path.readlink()))
        else:
            found.add(b"folder" if path.is_dir() else path.read_bytes())
    return found


@pytest.fixture(scope="module")
def pithos() -> Iterator[FakePithos]:
    with FakePithos(block_size=BLOCK) as fake:
        yield fake


def base(world: World) -> None:
    world.pithos.store.make_container("alice", world.name)
    a = world.device("a")
    a.write("file", b"base")
    a.write("large", noise(1, 3 * BLOCK))
    a.write("folder/in", b"in")
    (a.path / "link").symlink_to("base")
    world.cycle("a")


def intruded(world: World, at: str, path: str) -> bytes:
    """When something is done at `at`, somebody writes a file; its content, which must not be lost."""
    world.intrude(at, lambda: world.write(path, b"theirs"))
    return b"theirs"


def update_small(world: World) -> bytes:
    base(world)
    world.device("a").write("file", b"mine!")
    return intruded(world, "file", "file")


def update_large(world: World) -> bytes:
    base(world)
    world.device("a").write("large", noise(2, 3 * BLOCK))
    theirs = noise(3, 2 * BLOCK + 7)
    world.intrude("large", lambda: world.write("large", theirs))
    return theirs


def create(world: World) -> bytes:
    base(world)
    world.device("a").write("new", b"mine")
    return intruded(world, "new", "new")


def create_many(world: World) -> bytes:
    base(world)
    for number in range(12):
        world.device("a").write(f"many/{number}", b"%d" % number)
    return intruded(world, "many/7", "many/7")


def create_large(world: World) -> bytes:
    base(world)
    world.device("a").write("new", noise(4, 2 * BLOCK))
    return intruded(world, "new", "new")


def folder_over_file(world: World) -> bytes:
    base(world)
    (world.device("a").path / "new").mkdir()
    return intruded(world, "new", "new")


def file_over_link(world: World) -> bytes:
    base(world)
    world.device("a").write("new", b"mine")
    world.intrude("new", lambda: world.write("new", b"theirs", "application/x-symlink"))
    return b"-> theirs"


def link_over_link(world: World) -> bytes:
    base(world)
    link = world.device("a").path / "link"
    link.unlink()
    link.symlink_to("mine")
    world.intrude("link", lambda: world.write("link", b"theirs", "application/x-symlink"))
    return b"-> theirs"


def rename(world: World) -> bytes:
    base(world)
    path = world.device("a").path
    (path / "file").rename(path / "renamed")
    return intruded(world, "file", "renamed")


def rename_folder(world: World) -> bytes:
    base(world)
    path = world.device("a").path
    (path / "folder").rename(path / "renamed")
    return intruded(world, "folder/in", "renamed/in")


def delete(world: World) -> bytes:
    base(world)
    (world.device("a").path / "file").unlink()
    return intruded(world, "file", "file")


def change_mode(world: World) -> bytes:
    base(world)
    (world.device("a").path / "file").chmod(0o600)
    return intruded(world, "file", "file")


RACES = [
    update_small,
    update_large,
    create,
    create_many,
    create_large,
    folder_over_file,
    file_over_link,
    link_over_link,
    rename,
    rename_folder,
    delete,
    change_mode,
]


@pytest.mark.parametrize("race", RACES, ids=lambda race: race.__name__)
def test_a_version_that_slipped_in_is_in_every_tree_wherever_the_device_was_killed(
    pithos: FakePithos, tmp_path: Path, race: Callable[[World], bytes]
) -> None:
    for at in itertools.count(0, STRIDE * (3 if race is create_many else 1)):
        world = World(pithos, tmp_path, f"{race.__name__}{at}")
        theirs = race(world)
        code = world.cycle("a", Killer(at))
        codes = world.rest("a", "b")
        for name in ("a", "b"):
            assert theirs in contents(world.device(name)), (at, name, codes)
            assert len(copies(world)) <= 1
        assert contents(world.device("a")) == contents(world.device("b"))
        assert world.device("a").state.booked == {}
        if code is not None:
            return


def test_also_if_each_of_the_next_cycles_is_killed_once_more(pithos: FakePithos, tmp_path: Path) -> None:
    for at in range(2, 14, 2 * STRIDE):
        for further in range(0, 12, 2):
            world = World(pithos, tmp_path, f"twice{at}-{further}")
            theirs = update_small(world)
            world.cycle("a", Killer(at))
            world.cycle("a", Killer(further))
            world.rest("a", "b")
            assert theirs in contents(world.device("b")), (at, further)
            assert len(copies(world)) == 1


def test_who_is_never_killed_keeps_it_once_with_its_mode_and_time_and_says_so(
    pithos: FakePithos, tmp_path: Path
) -> None:
    world = World(pithos, tmp_path, "kept")
    update_small(world)
    assert world.cycle("a") == 4
    world.rest("a", "b")
    for name in ("a", "b"):
        (copy,) = world.device(name).path.rglob("* (conflict *")
        assert copy.read_bytes() == b"theirs"
        assert (copy.stat().st_mode & 0o777, copy.stat().st_mtime_ns) == (0o640, 1234567890123456789)


def test_a_kill_after_the_write_does_not_make_the_next_cycle_end_with_0(pithos: FakePithos, tmp_path: Path) -> None:
    for at in itertools.count(0, STRIDE):
        world = World(pithos, tmp_path, f"code{at}")
        update_small(world)
        code = world.cycle("a", Killer(at))
        raced, pithos.store.between = pithos.store.between is None, None
        if code is not None:
            return
        booked = bool(world.device("a").state.booked)
        assert booked or at == 0 or any("conflict" in name for name in world.box.live())
        if raced and booked:
            assert world.cycle("a") == 4


def test_equal_contents_made_at_once_make_no_copy(pithos: FakePithos, tmp_path: Path) -> None:
    world = World(pithos, tmp_path, "equal")
    base(world)
    world.device("a").write("file", b"mine!")
    world.device("a").write("new", b"new")
    world.intrude("file", lambda: world.write("file", b"mine!"))
    assert world.cycle("a") == 0
    world.device("a").write("other", b"same")
    world.intrude("other", lambda: world.write("other", b"same"))
    assert world.cycle("a") == 0
    assert copies(world) == []


def test_two_who_find_the_same_version_make_one_copy(pithos: FakePithos, tmp_path: Path) -> None:
    world = World(pithos, tmp_path, "two")
    base(world)
    world.rest("a", "b")
    for name in ("a", "b"):
        world.device(name).write("file", name.encode())

    # b's write comes between a's check and a's write, and somebody's before that: both find somebody's.
    def act() -> None:
        world.intrude("file", lambda: world.write("file", b"theirs"))
        world.cycle("b")

    pithos.store.between_requests = True
    world.intrude("file", act)
    world.cycle("a")
    pithos.store.between_requests = False
    world.rest("a", "b")
    assert contents(world.device("a")) == contents(world.device("b"))
    assert {b"theirs", b"a", b"b"} <= contents(world.device("a"))
    assert len(copies(world)) == 2


def test_what_replaced_a_version_while_it_was_put_back_is_kept(pithos: FakePithos, tmp_path: Path) -> None:
    """A deleter's MOVE catches somebody's newer version; a third one's PUT comes while it is put back (12.25)."""
    for at in itertools.count(0, STRIDE):
        world = World(pithos, tmp_path, f"third{at}")
        base(world)
        (world.device("a").path / "file").unlink()

        def act(world: World = world) -> None:
            world.write("file", b"theirs")
            world.intrude("file", lambda: world.write("file", b"third"))

        world.intrude("file", act)
        code = world.cycle("a", Killer(at))
        world.rest("b", "a")
        for name in ("a", "b"):
            assert {b"theirs", b"third"} <= contents(world.device(name)), (at, name)
        assert not [name for name in world.box.live() if name.startswith(".blocksync")]
        if code is not None:
            return
