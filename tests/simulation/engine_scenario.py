"""Ring R2: the real engine on a root and a remote in memory, one seed per scenario, until all is quiet.

Between any two calls of the engine a user may act on either side, and any call may fail: dropped, done but the reply
lost, refused, no space, an I/O error; the process may die, or the power go. Threads run inline and trio's scheduler is
seeded, so a seed replays exactly.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import trio
from msgspec.structs import replace
from trio.testing import MockClock

from syncer.core.base import BaseIndex
from syncer.core.model import Action, Meta, Plan, RelPath, Side
from syncer.core.planner.merge import Policy
from syncer.engine import cycle as cycle_module
from syncer.engine.report import Failure
from syncer.errors import (
    ConflictOnRemoteError,
    NoSpaceError,
    RemoteUnavailableError,
    SafetyStopError,
    SyncerError,
)
from syncer.ports.remote import Listing
from syncer.protocol.pithos.headers import EXTENSION_BULK, EXTENSION_CHANGES, EXTENSION_SUBTREES
from syncer.watch.dirt import CLEAN, EVERYTHING, Dirt
from tests.fakes.memory import MemoryClient, MemoryContainer, MemoryVersion
from tests.kit.state import MemoryState
from tests.simulation import invariants
from tests.simulation.disk import blocks_of, parts_of, payload_of, payloads
from tests.simulation.neighbours import Neighbours, Stranger
from tests.simulation.scenario import check_marks
from tests.simulation.watched import WatchedRoot, Watcher, hints_of
from tests.simulation.world import DIRECTORY, FILE, SYMLINK, ActionRefusedError, Entry, Replica, Users

_EXTENSIONS = {EXTENSION_BULK, EXTENSION_CHANGES, EXTENSION_SUBTREES}

MAX_CYCLES = 40
MARKING = 7  # of so many scenarios one syncs extended attributes
COMMITTING = 5  # of so many one has a remote that holds back what is written until it is committed
CROWDED = 8  # of so many one has users and clients that get in each other's way
QUIET = 7  # from this cycle on nobody acts and nothing fails: now it must come to rest


class Crash(BaseException):
    """The process ends here."""


class Trouble(msgspec.Struct):
    """How rough a scenario is: chance per call of each kind. Zeroed one by one to shrink a failure."""

    users: float = 0.03
    remote: float = 0.03
    local: float = 0.02
    state: float = 0.02
    crash: float = 0.008
    blind: float = 0.1
    stale: float = 0.05
    watcher: float = 0.08
    steps: int = 4
    watched: bool = True
    marking: bool = True
    crowded: bool = True
    committing: bool = True


KINDS = (
    "committing",
    "crowded",
    "marking",
    "watched",
    "watcher",
    "blind",
    "stale",
    "state",
    "local",
    "remote",
    "crash",
    "users",
)


class Ears:
    """A listener that keeps the log."""

    def __init__(self, log: list[str]) -> None:
        self.log = log
        self.plan: Plan | None = None

    def planned(self, plan: Plan) -> None:
        self.plan = plan
        invariants.check_travelling(plan)

    def done(self, action: Action, path: RelPath) -> None:
        self.log.append(f"{action.side.value} {type(action).__name__} {path!r}")

    def failed(self, failure: Failure) -> None:
        self.log.append(f"failed {failure.path!r}: {failure.reason}")

    def noted(self, path: bytes, text: str) -> None:
        """Notes are no part of the log."""


class Server:
    """The container as users see it: a `Replica` made from it, whose changes are put back."""

    def __init__(self, *, tells_changes: bool = False, holds_back: bool = False) -> None:
        extensions = frozenset(_EXTENSIONS if tells_changes else ())
        self.container = MemoryContainer(extensions=extensions, holds_back=holds_back)
        self.identities: dict[str, int] = {}

    @property
    def writes(self) -> int:
        """How many there were."""
        return self.container.last_version

    async def listing(self) -> Listing:
        """What a client is told now."""
        return await MemoryClient(self.container).list_objects()

    def unmarked(self) -> set[bytes]:
        """Directories whose markers tell no mode."""
        found = self.container.objects.items()
        return {path for path, version in found if version.kind is DIRECTORY and version.meta.mode is None}

    def view(self) -> Replica:
        """As it is now."""
        replica = Replica(Side.REMOTE)
        replica.clock = self.container.last_version
        for path, version in self.container.objects.items():
            identity = self.identities.setdefault(version.uuid, (2 << 20) + len(self.identities))
            payload = self._payload(version)
            mode = version.meta.mode if version.meta.mode is not None else 0o644
            mtime, marks = version.meta.mtime_ns or 0, version.meta.xattrs
            replica.entries[path] = Entry(identity, version.kind, payload, mode, mtime, version.version, marks)
        return replica

    def _payload(self, version: MemoryVersion) -> int:
        if version.kind is FILE:
            return payload_of(self.container.stat(RelPath(b""), version).content)  # type: ignore[arg-type] # a file's
        return int(self.container.content(version)) if version.kind is SYMLINK else 0

    def act(self, users: Users, deed: Callable[[Replica], None] | None = None) -> None:
        """A user of another device acts."""
        replica = self.view()
        uuids = {number: uuid for uuid, number in self.identities.items()}
        before = {path: (entry.identity, entry.state(), entry.marks) for path, entry in replica.entries.items()}
        try:
            (deed or users.act)(replica)
        except ActionRefusedError:
            return  # an object store may hold what no tree can: nothing can be made there
        after = {path: (entry.identity, entry.state(), entry.marks) for path, entry in replica.entries.items()}
        for path in sorted(before.keys() - after.keys(), reverse=True):
            self.container.remove(RelPath(path))
        for path in sorted(after):
            if before.get(path) != after[path]:
                self._put(path, replica.entries[path], uuids)

    def _put(self, path: bytes, entry: Entry, uuids: dict[int, str]) -> None:
        meta = Meta(mode=entry.mode, mtime_ns=entry.mtime if entry.kind is FILE else None, xattrs=entry.marks)
        if entry.kind is FILE:
            blocks = blocks_of(entry.payload)
            for part in parts_of(entry.payload):
                self.container.store(part)
        else:
            blocks = self.container.store_all(b"%d" % entry.payload if entry.kind is SYMLINK else b"")
            meta = Meta() if entry.kind is SYMLINK else meta
        made = self.container.put(
            RelPath(path),
            kind=entry.kind,
            blocks=blocks,
            meta=meta,
            uuid=uuids.get(entry.identity) or f"{entry.identity:x}",
        )
        self.identities[made.uuid] = entry.identity

    def versions(self) -> set[int]:
        """Payloads of all files' versions that ever were."""
        return {self._payload(version) for version in self.container.versions.values() if version.kind is FILE}


class EngineScenario:
    """State of one run.

    What the remote is, four methods say: `_make_server`, `_client`, `_serve_stale`, `_check_server`.
    """

    host = "h"
    books_later = False  # what a remote makes of a write may have to be booked by the next cycle
    acted = False  # the last cycle changed something on either side

    def __init__(self, seed: int, trouble: Trouble | None = None, choices: random.Random | None = None) -> None:
        self.seed = seed
        self.rng = choices or random.Random(seed)
        self.trouble = trouble or Trouble()
        self.actions: list[str] = []
        # By the seed, not by a drawn number: other scenarios stay what they are.
        self.crowded = self.trouble.crowded and seed % CROWDED == 4
        self.users = (Neighbours if self.crowded else Users)(self.rng, self.actions)
        self.local = Replica(Side.LOCAL)
        # Half of the roots are watched, as by the daemon: their cycles look at parts, and the server tells its changes.
        self.watched = self.trouble.watched and self.rng.random() < 0.5
        self.server = self._make_server()
        self.root = WatchedRoot(self.local, self._before_local, self._between)
        self.root.log = self.actions
        self.users.marking = self.root.marking = self.trouble.marking and seed % MARKING == 6
        self.state = MemoryState(self._state_fault)
        self.watcher = Watcher(self.root, self.rng, self.actions)
        self.root.watcher = self.watcher.see
        self.quiet = True
        self.settled = False  # the last cycle left nothing undone, and nobody acted since
        self.dead = False
        self.consent: str | None = None
        self.last_listing: Listing | None = None
        self.musts: list[set[int]] = []
        self.error: object = None  # of the last cycle

    # --- the remote

    def _make_server(self) -> Any:
        """What the users of other devices act on; see `Server`."""
        holds_back = self.trouble.committing and self.seed % COMMITTING == 3
        server = Server(tells_changes=self.watched, holds_back=holds_back)
        self.stranger = Stranger(server.container, self.users)
        return server

    def _client(self) -> Any:
        """The engine's remote in the next cycle."""
        return MemoryClient(self.server.container, before=self._before_remote, after=self._after_remote)

    def _serve_stale(self, client: Any) -> None:
        """Answer with a listing of the past: a replica of the server that lags, or a restored backup."""
        assert self.last_listing is not None
        listing = self.last_listing

        async def stale() -> Listing:
            return listing

        client.list_objects = stale  # this client only

    def _ears(self) -> Ears:
        """Who is told what is done."""
        return Ears(self.actions)

    def _check_server(self) -> None:
        """What the server alone must keep to at rest."""

    # --- faults

    def _chance(self, share: float) -> bool:
        return not self.quiet and share > 0 and self.rng.random() < share

    def _between(self) -> None:
        """What may happen between any two calls."""
        self._stay_dead()
        if self._chance(self.trouble.users):
            if self.rng.random() < 0.5:
                self.users.act(self.local)
                self.root.changed_by_somebody()
            else:
                self._elsewhere()
        if self._chance(self.trouble.crash):
            self._die()

    def _elsewhere(self) -> None:
        """A user of another device acts, or one with another client."""
        if self.crowded and self.rng.random() < 0.3:
            self.stranger.act()
        else:
            self.server.act(self.users)

    def _twist(self, number: int) -> None:
        """A folder is replaced on one side, and gets something new on the other."""
        if isinstance(self.users, Neighbours) and number < QUIET and self.rng.random() < 0.5:
            users, here = self.users, self.rng.random() < 0.5
            self.server.act(users, lambda there: users.twist(*((self.local, there) if here else (there, self.local))))
            self.root.changed_by_somebody()

    def _stay_dead(self) -> None:
        """A killed process runs no `finally`: whatever it would still call does nothing."""
        if self.dead:
            raise Crash

    def _die(self) -> None:
        self.dead = True
        if self.rng.random() < 0.5:
            kept = self.rng.randrange(len(self.root.moments))
            if kept < len(self.root.moments) - 1:
                # What users did since is undone as well: it never happened. What is left is what must not get lost.
                self.root.power_cut(kept)
                self.users.must &= self._seen()
                self.actions.append(f"power cut: {kept} changes kept")
        self.actions.append("killed")
        raise Crash

    def _seen(self) -> set[int]:
        """Versions of files that somebody has."""
        return payloads(self.local.entries.values()) | payloads(self.server.view().entries.values())

    async def _before_local(self, operation: str) -> None:
        await trio.lowlevel.checkpoint()
        self._between()
        if self._chance(self.trouble.local):
            kind = self.rng.choice((errno.EIO, errno.EACCES, errno.ENOSPC))
            self.actions.append(f"{errno.errorcode[kind]} in {operation}")
            if kind == errno.ENOSPC:
                raise NoSpaceError(f"{operation}: no space left")
            raise OSError(kind, "simulated")

    async def _before_remote(self, operation: str, path: RelPath) -> None:
        self._between()
        if self._chance(self.trouble.remote):
            self.actions.append(f"{operation} {path!r} is not done")
            roll = self.rng.random()
            if roll < 0.6 or not path:
                raise RemoteUnavailableError(f"{operation}: dropped, or 5xx")
            if roll < 0.8:
                raise ConflictOnRemoteError(path, "409 or 412", "simulated")
            raise NoSpaceError(f"{operation}: over quota")

    async def _after_remote(self, operation: str, path: RelPath) -> None:
        if self._chance(self.trouble.remote):
            self.actions.append(f"the reply to {operation} {path!r} is lost")
            raise RemoteUnavailableError(f"{operation}: reply lost")
        self._between()

    def _state_fault(self, operation: str) -> None:
        self._stay_dead()
        if self._chance(self.trouble.crash):
            self._die()
        if self._chance(self.trouble.state):
            self.actions.append(f"ENOSPC in {operation}")
            raise NoSpaceError(f"{operation}: no space left")

    def _step(self, name: str) -> None:
        self._stay_dead()
        if self._chance(self.trouble.crash / 2):
            self._die()

    # --- cycles

    def prepare(self) -> None:
        """Both sides begin with something, maybe in common."""
        self.quiet = True
        for _ in range(self.rng.randrange(self.trouble.steps + 2)):
            self.users.act(self.local)
        self.root.barrier_now()

    async def run(self) -> None:
        """Cycle until nothing is left to do, then check what must hold at rest."""
        self.prepare()
        for number in range(MAX_CYCLES):
            if number:
                for _ in range(self.rng.randrange(self.trouble.steps)) if number < QUIET else ():
                    if self.rng.random() < 0.5:
                        self.users.act(self.local)
                        self.root.changed_by_somebody()
                    else:
                        self._elsewhere()
                self._twist(number)
                self.root.barrier_now()
            self.quiet = number == 0 or number >= QUIET
            self.actions.append(f"cycle {number}")
            expected = self.settled
            at_rest = await self._cycle(number)
            if expected and self.quiet and not at_rest and (self.acted or not self.books_later):
                raise invariants.ViolationError(
                    "I6 idempotence, I7 echo: a cycle acts after one that left nothing undone"
                )
            if at_rest and number >= QUIET:
                break
        else:
            raise invariants.ViolationError(f"I2 termination: still busy after {MAX_CYCLES} cycles")
        self._check_rest()

    async def _cycle(self, number: int) -> bool:
        """One cycle of the real engine. True if it changed nothing."""
        self.settled = False
        blind = self._chance(self.trouble.blind) and bool(self.local.entries)
        self.root.unknown, self.root.unstable = set(), set()
        if blind:
            path = RelPath(self.rng.choice(sorted(self.local.entries)))
            (self.root.unknown if self.local.entries[path].kind is DIRECTORY else self.root.unstable).add(path)
            self.actions.append(f"unreadable: {path!r}")
        client = self._client()
        dirt = self._dirt(number) if self.watched else CLEAN
        if self._chance(self.trouble.stale) and self.last_listing is not None:
            self._serve_stale(client)
            self.actions.append("the listing is an older one")
        options = cycle_module.Options(
            policy=Policy(host=self.host, utc=f"t{number}"),
            consent=self.consent,
            step=self._step,
            hints=hints_of(dirt) if self.watched else None,
        )
        before = (self.root.made, self.state.records, len(self.root.moments), self.server.writes)
        log = len(self.actions)
        self.users.copies_count = self.dead = False
        cycle = cycle_module.Cycle(self.root, client, self.state, self._ears(), options)
        self.consent, error = None, None
        try:
            await cycle.run()
        except SafetyStopError as stop:
            self.consent, error = stop.digest, stop
        except (SyncerError, OSError) as broken:
            error = broken
        except BaseExceptionGroup as group:
            error = _meaning(group)
        except Crash as crash:
            error = crash
        self._check_paths()
        self.error = error or next(iter(cycle.report.failures), None)
        if error is not None:
            if self.quiet and not isinstance(error, SafetyStopError):
                raise invariants.ViolationError(f"I2 termination: a cycle without trouble ended with {error!r}")
            self.actions.append(f"ended by {type(error).__name__}")
            self.watcher.again(dirt)
            return False
        if blind or cycle.report.failures:
            self.watcher.again(dirt)
        if not blind:
            self.last_listing = await self.server.listing()
        if self.quiet and cycle.report.failures:
            raise invariants.ViolationError(f"I2 termination: {cycle.report.failures[0]} without trouble")
        # A directory that only names below it imply gets its marker in one cycle, and that one its mode in the next.
        self.settled = self.quiet and number >= QUIET and not self.server.unmarked()
        quiet = not any(line.startswith(("local", "remote")) for line in self.actions[log:])
        after = (self.root.made, self.state.records, before[2], self.server.writes)
        self.acted = not (quiet and self.quiet and after[0] == before[0] and after[3] == before[3])
        return not self.acted and after[1] == before[1]

    def _check_paths(self) -> None:
        """A look at a part may never find a row without a path: only a look at everything may be next."""
        pathless = self.state.rows_now.keys() - BaseIndex(self.state.rows_now.values()).paths.keys()
        found = not pathless or self.state.kept_cursor is None
        invariants.require(found, f"I3 convergence: base rows {sorted(pathless)} have no path")

    def _dirt(self, number: int) -> Dirt:
        """What the watcher tells; after a start, now and then, and once it gets quiet, everything is looked at."""
        if number in (0, QUIET) or self.dead or (not self.quiet and self.rng.random() < 0.1):
            self.actions.append("a look at everything")
            self.watcher.forget()
            return EVERYTHING
        return self.watcher.take(0.0 if self.quiet else self.trouble.watcher)

    # --- at rest

    def _check_rest(self) -> None:
        remote = self.server.view()
        for path in self.server.unmarked() & self.local.entries.keys():
            remote.entries[path].mode = self.local.entries[path].mode  # a marker without a mode has no opinion
        invariants.check_convergence(self.local.state(), remote.state())
        if self.users.marking:
            check_marks(self.local, remote, BaseIndex(self.state.rows_now.values()), self.users)
        # Half of a rename looks like a deletion: then what matters is that the version is in a trash, or on the server.
        kept = self.root.trashed | self.server.versions() if self.watcher.unreliable else set()
        invariants.check_no_loss(self.users.must, self.local.contents() | kept)
        base = {row.node.name: row.node for row in self.state.rows_now.values()}
        names = {path.rpartition(b"/")[2] for path in self.local.entries}
        invariants.require(set(base) == names, "I3 convergence: base and local differ")
        invariants.require(
            len(self.state.rows_now) == len(self.local.entries), "I3 convergence: base and local differ in number"
        )
        self._check_server()


def _meaning(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The one that tells most: a violation, then a crash, then any."""
    found: list[BaseException] = []
    stack: list[BaseException] = [group]
    while stack:
        each = stack.pop()
        if isinstance(each, BaseExceptionGroup):
            stack += each.exceptions
        else:
            found.append(each)
    for kind in (AssertionError, KeyError, TypeError, AttributeError):
        for each in found:
            if isinstance(each, kind):
                raise each
    expected = (Crash, SyncerError, OSError, trio.Cancelled)
    for each in found:
        if not isinstance(each, expected):
            raise each
    return next((each for each in found if isinstance(each, Crash)), found[0])


@contextmanager
def deterministic(seed: int, *, inline: bool = True) -> Iterator[None]:
    """Trio's scheduler seeded, and threads inline unless somebody else sees to them: a seed is one history."""
    core: Any = trio._core._run
    old_thread, old_flag = trio.to_thread.run_sync, core._ALLOW_DETERMINISTIC_SCHEDULING

    async def here(function: Callable[..., Any], *args: Any, **more: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return function(*args)

    if inline:
        trio.to_thread.run_sync = here
    core._ALLOW_DETERMINISTIC_SCHEDULING = True
    core._r.seed(seed)
    try:
        yield
    finally:
        trio.to_thread.run_sync = old_thread
        core._ALLOW_DETERMINISTIC_SCHEDULING = old_flag


def run_seed(seed: int, trouble: Trouble | None = None, scenario: EngineScenario | None = None) -> EngineScenario:
    """Run one scenario; raises what it violates."""
    scenario = scenario or EngineScenario(seed, trouble)
    with deterministic(seed):
        try:
            trio.run(scenario.run, clock=MockClock(autojump_threshold=0))
        except BaseExceptionGroup as group:
            raise _meaning(group) from None
    return scenario


def shrink(seed: int, search: int = 300) -> tuple[int, Trouble, str]:
    """A smoother scenario that violates the same invariant: kinds of trouble are taken away, other seeds tried."""
    best = (seed, Trouble(), failure_of(seed) or "")
    wanted = best[2].partition(":")[2].split(" ")[1]
    for name in (*KINDS, "steps"):
        calm = replace(best[1], **{name: 1 if name == "steps" else 0.0})  # type: ignore[arg-type] # by its name
        for other in (best[0], *range(search)):
            found = failure_of(other, calm)
            if found is not None and wanted in found:
                best = (other, calm, found)
                break
    return best


def violation(run: Callable[[], object]) -> str | None:
    """What a run of one seed violates, or None."""
    try:
        run()
    except Exception as error:  # noqa: BLE001 - whatever it is, it names this seed
        return f"{type(error).__name__}: {error}"
    return None


def failure_of(seed: int, trouble: Trouble | None = None, scenario: EngineScenario | None = None) -> str | None:
    """What a seed violates, or None."""
    return violation(lambda: run_seed(seed, trouble, scenario))


def failures(seeds: range) -> Iterator[tuple[int, str | None]]:
    """What each seed violates, or None."""
    return ((seed, failure_of(seed)) for seed in seeds)
