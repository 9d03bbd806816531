"""Four devices on one container, all in memory: the real engine on each, as in ring R2, and their cycles run at once.

Their users do to each other what two sides alone rarely do: one replaces a folder by a file while another makes
something in it, names fill their 255 bytes with wide characters, and somebody with another client removes the marker
of a folder, or makes one that tells no mode. Any process may be killed at any call, and devices join late. At rest all
must be equal, with the modes of folders, and every version must be in a file.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import trio
from trio.testing import MockClock

from syncer.core.model import Meta, RelPath
from tests.simulation import invariants
from tests.simulation.disk import blocks_of, payloads
from tests.simulation.engine_scenario import (
    MAX_CYCLES,
    QUIET,
    EngineScenario,
    Server,
    Trouble,
    _meaning,
    _parts,
    deterministic,
)
from tests.simulation.watched import Watcher
from tests.simulation.world import DIRECTORY, FILE, ActionRefusedError, Replica, Users

DEVICES = 4
WIDE = ("ä" * 127 + "x").encode()
WIDER = ("y" + "\N{GRINNING FACE}" * 63 + "yz").encode()
NAMES = (b"a", b"b", b"c.x", WIDE, WIDER)
CALM = Trouble(users=0.0, remote=0.0, local=0.0, state=0.0, crash=0.0, blind=0.0, stale=0.0, watcher=0.0)
ROUGH = Trouble(users=0.02, remote=0.01, local=0.005, state=0.005, crash=0.006, blind=0.03, stale=0.0, watcher=0.0)


class Neighbours(Users):
    """Users who replace what is not empty, and fill folders that others are about to replace."""

    def act(self, replica: Replica) -> None:
        roll = self.rng.random()
        if roll < 0.2:
            self.swap(replica, self._any(replica))
        elif roll < 0.4:
            self.fill(replica, self._folder(replica))
        elif roll < 0.48:
            self._close(replica, self._folder(replica))
        else:
            super().act(replica)

    def _any(self, replica: Replica) -> bytes | None:
        paths = sorted(path for path in replica.entries if not path.startswith(b".blocksync"))
        return self.rng.choice(paths) if paths else None

    def swap(self, replica: Replica, path: bytes | None) -> None:
        """Another kind of thing gets the name; what a folder held is deleted with it."""
        if path is None or path not in replica.entries:
            return
        kind = replica.entries[path].kind
        self._delete(replica, path)
        new = self._entry(replica)
        if new.kind is not kind and not replica.occupied(path) and replica.can_hold(path.rpartition(b"/")[0]):
            self._note(replica, f"replace {path!r} by {new.kind.value} payload {new.payload}")
            replica.put(path, new)
            self._account(new)

    def fill(self, replica: Replica, folder: bytes) -> None:
        """Something new in a folder."""
        path = folder + b"/" + self.rng.choice(self.names) if folder else self.rng.choice(self.names)
        if not replica.occupied(path) and replica.can_hold(folder):
            new = self._entry(replica)
            self._note(replica, f"create {new.kind.value} {path!r} payload {new.payload}")
            replica.put(path, new)
            self._account(new)

    def _close(self, replica: Replica, folder: bytes) -> None:
        if folder in replica.entries:
            entry = replica.entries[folder]
            entry.mode, entry.version = self.rng.choice((0o700, 0o711, 0o750)), replica.tick()
            self._note(replica, f"mode {entry.mode:o} of {folder!r}")


class Stranger:
    """Somebody with another client: an object store takes what no tree can hold, and markers that tell nothing."""

    def __init__(self, server: Server, users: Users, rng: random.Random, log: list[str]) -> None:
        self.server, self.users, self.rng, self.log = server, users, rng, log

    def act(self) -> None:
        """One request."""
        box = self.server.container
        markers = [path for path, version in sorted(box.objects.items()) if version.kind is DIRECTORY]
        above = {path.rpartition(b"/")[0] for path in box.objects if b"/" in path}
        mine = sorted({path for path in above if not path.startswith(b".blocksync")})
        roll = self.rng.random()
        if roll < 0.5 and (alone := [path for path in markers if path in above]):
            path = self.rng.choice(alone)
            self.log.append(f"stranger: removes the marker of {path!r}")
            box.remove(path)
        elif roll < 0.7 and mine:
            path = RelPath(self.rng.choice(mine))
            if path not in box.objects or box.objects[path].kind is DIRECTORY:
                self.log.append(f"stranger: makes a marker of {path!r}")
                box.put(path, kind=DIRECTORY, blocks=box.store_all(b""), meta=Meta())
        elif roll < 0.85 and mine:
            path = self.rng.choice(mine)
            if RelPath(path) not in box.objects:
                self._put(path)
        else:
            files = [path for path, version in sorted(box.objects.items()) if version.kind is not DIRECTORY]
            files = [path for path in files if not path.startswith(b".blocksync")]
            if files and len(path := self.rng.choice(files) + b"/" + self.rng.choice(NAMES[:3])) < 1000:
                self._put(path)

    def _put(self, path: bytes) -> None:
        box, payload = self.server.container, self.users.new_payload()
        if RelPath(path) in box.objects:
            return
        self.log.append(f"stranger: puts {path!r} payload {payload}")
        for part in _parts(payload):
            box.store(part)
        box.put(RelPath(path), kind=FILE, blocks=blocks_of(payload), meta=Meta(mode=0o644, mtime_ns=payload))
        if payload != 1 or self.users.copies_count:
            self.users.must.add(payload)


class Member(EngineScenario):
    """One of the devices."""

    def __init__(self, crowd: Crowd, number: int) -> None:
        super().__init__(crowd.seed, crowd.trouble)
        self.crowd = crowd
        self.host = f"h{number}"
        self.rng, self.actions, self.users, self.server = crowd.rng, crowd.log, crowd.users, crowd.server
        self.watched = self.trouble.watched and self.rng.random() < 0.5
        self.root.log = self.actions
        self.root.marking = False
        self.watcher = Watcher(self.root, self.rng, self.actions)
        self.root.watcher = self.watcher.see
        self.joins = 0 if number < 2 else self.rng.randrange(QUIET)

    def _between(self) -> None:
        """As in R2; but whoever acts may be at any device, and at the server only with another client."""
        self._stay_dead()
        if self._chance(self.trouble.users):
            self.crowd.somebody_acts()
        if self._chance(self.trouble.crash):
            self._die()

    def _seen(self) -> set[int]:
        return self.crowd.contents() | payloads(self.server.view().entries.values())

    async def cycle(self, number: int) -> bool:
        """One cycle; True if there was nothing to do."""
        self.actions.append(f"cycle {number} of {self.host}")
        at_rest = await self._cycle(number)
        self.actions.append(f"cycle {number} of {self.host} is over: {self.error or 'well'}")
        return at_rest


class Crowd:
    """State of one run."""

    def __init__(self, seed: int, trouble: Trouble = ROUGH) -> None:
        self.seed, self.trouble = seed, trouble
        self.rng = random.Random(seed)
        self.log: list[str] = []
        self.users = Neighbours(self.rng, self.log)
        self.users.names = NAMES
        self.server = Server(tells_changes=True)
        self.stranger = Stranger(self.server, self.users, self.rng, self.log)
        self.members = [Member(self, number) for number in range(DEVICES)]

    def contents(self) -> set[int]:
        """Versions that some device has in a file."""
        return set().union(*(payloads(member.local.entries.values()) for member in self.members))

    def somebody_acts(self) -> None:
        """Any user, or the stranger."""
        if self.rng.random() < 0.15:
            self.stranger.act()
        else:
            self._at(self.rng.choice(self.members))

    def _at(self, member: Member) -> None:
        self.log.append(f"at {member.host}")
        try:
            self.users.act(member.local)
        except ActionRefusedError:
            return
        member.root.changed_by_somebody()

    def twist(self) -> None:
        """One replaces a folder; another one, who does not know, makes something in it."""
        one, two = self.rng.sample(self.members, 2)
        folders = [path for path, entry in one.local.entries.items() if entry.kind is DIRECTORY]
        common = sorted(path for path in folders if two.local.is_directory(path) and not path.startswith(b".blocksync"))
        if not common:
            return
        path = self.rng.choice(common)
        self.log.append(f"twist of {path!r}: {one.host} and {two.host}")
        self.users.swap(one.local, path)
        self.users.fill(two.local, path)
        one.root.changed_by_somebody()
        two.root.changed_by_somebody()

    async def run(self) -> None:
        """Trouble, then rest, then what must hold at rest."""
        for member in self.members:
            member.quiet = True
        for _ in range(self.rng.randrange(2, 8)):
            self._at(self.members[0])
        await self._round(0, [member for member in self.members if member.joins == 0])
        for number in range(1, QUIET):
            for _ in range(self.rng.randrange(4)):
                self.somebody_acts()
            if self.rng.random() < 0.6:
                self.twist()
            here = [member for member in self.members if member.joins <= number]
            for member in here:
                member.quiet = False
                member.root.barrier_now()
            await self._round(number, [member for member in here if self.rng.random() < 0.8])
        for member in self.members:
            member.quiet = True
        for number in range(QUIET, MAX_CYCLES):
            self.log.append(f"round {number}")
            found = [await member.cycle(number) for member in self.members]
            if all(found):
                break
        else:
            raise invariants.ViolationError(f"I2 termination: still busy after {MAX_CYCLES} rounds")
        self.check_rest()

    async def _round(self, number: int, members: list[Member]) -> None:
        """Their cycles, at the same time."""
        async with trio.open_nursery() as nursery:
            for member in members:
                nursery.start_soon(member.cycle, number)

    def check_rest(self) -> None:
        """All equal, nothing lost, each base what is there."""
        first = self.members[0].local
        for member in self.members[1:]:
            invariants.check_convergence(first.state(), member.local.state())
        for member in self.members:
            member._check_rest()  # also the server


def run_seed(seed: int, trouble: Trouble = ROUGH, crowd: Crowd | None = None) -> Crowd:
    """Run one history; raises what it violates."""
    crowd = crowd or Crowd(seed, trouble)
    with deterministic(seed):
        try:
            trio.run(crowd.run, clock=MockClock(autojump_threshold=0))
        except BaseExceptionGroup as group:
            raise _meaning(group) from None
    return crowd


def failure_of(seed: int, trouble: Trouble = ROUGH, crowd: Crowd | None = None) -> str | None:
    """What a seed violates, or None."""
    try:
        run_seed(seed, trouble, crowd)
    except Exception as error:  # noqa: BLE001 - whatever it is, it names this seed
        return f"{type(error).__name__}: {error}"
    return None


def failures(seeds: range) -> Iterator[tuple[int, str | None]]:
    """What each seed violates, or None."""
    return ((seed, failure_of(seed)) for seed in seeds)
