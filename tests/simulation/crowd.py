"""Four devices on one container, all in memory: the real engine on each, as in ring R2, and their cycles run at once.

Their users do to each other what two sides alone rarely do: one replaces a folder by a file while another makes
something in it, names fill their 255 bytes with wide characters, and somebody with another client removes the marker
of a folder, or makes one that tells no mode. Any process may be killed at any call, and devices join late. At rest all
must be equal, with the modes of folders, and every version must be in a file.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import trio
from trio.testing import MockClock

from tests.simulation import invariants
from tests.simulation.disk import payloads
from tests.simulation.engine_scenario import (
    MAX_CYCLES,
    QUIET,
    EngineScenario,
    Server,
    Trouble,
    _meaning,
    deterministic,
    violation,
)
from tests.simulation.neighbours import Neighbours, Stranger
from tests.simulation.watched import Watcher
from tests.simulation.world import ActionRefusedError

DEVICES = 4
CALM = Trouble(users=0.0, remote=0.0, local=0.0, state=0.0, crash=0.0, blind=0.0, stale=0.0, watcher=0.0)
ROUGH = Trouble(users=0.02, remote=0.01, local=0.005, state=0.005, crash=0.006, blind=0.03, stale=0.0, watcher=0.0)


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

    member: type[Member] = Member

    def __init__(self, seed: int, trouble: Trouble = ROUGH) -> None:
        self.seed, self.trouble = seed, trouble
        self.rng = random.Random(seed)
        self.log: list[str] = []
        self.users = Neighbours(self.rng, self.log)
        self.server = self._make_server()
        self.members = [self.member(self, number) for number in range(DEVICES)]

    def _make_server(self) -> Any:
        """Where they meet."""
        server = Server(tells_changes=True)
        self.stranger = Stranger(server.container, self.users)
        return server

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
        self.users.twist(one.local, two.local)
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
    return violation(lambda: run_seed(seed, trouble, crowd))


def failures(seeds: range) -> Iterator[tuple[int, str | None]]:
    """What each seed violates, or None."""
    return ((seed, failure_of(seed)) for seed in seeds)
