"""Ring R2 on a repository: the same engine, users and faults; the remote is a client of an object store in memory.

What happens to calls of a remote in R2 happens here to calls of the store: they don't arrive, their replies are lost,
what was given up is written later, there is no room, listings are of some time ago, the process dies. Users of other
devices have a client of their own, which commits whatever the engine is doing: so heads are merged all the time.
At rest the repository is checked to the last byte, besides all that R2 asks for.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec
import trio
from trio.testing import MockClock

from syncer.core.model import Meta, RelPath, RemoteTag, Side, meta_of
from syncer.engine.partial import echoes
from syncer.errors import OverQuotaError, RemoteUnavailableError
from syncer.ports.orders import Delete, Move, Order, SetMeta, Store, write_one
from syncer.ports.remote import Listing
from syncer.remote.http.transport import ReplyLostError
from syncer.remote.repository.client import RepositoryClient, Writer
from syncer.remote.repository.format.config import Config
from syncer.remote.repository.format.history import DeviceId, commit_of
from syncer.remote.repository.format.keys import MasterKey, derive
from syncer.remote.repository.format.prolly import Root
from syncer.remote.repository.format.sealed import Kind
from syncer.remote.repository.maintenance.checking import Checker
from syncer.remote.repository.maintenance.collecting import Collector
from syncer.remote.repository.maintenance.marking import GRACE_NS
from syncer.remote.repository.maintenance.repacking import Repacker
from syncer.remote.repository.memory import Own
from syncer.remote.repository.objects import Objects, ThreadNodes
from syncer.remote.repository.tree import Tree
from syncer.remote.stores.memory import MemoryStore
from syncer.remote.stores.port import MAX_BLOB_BYTES, Blob
from tests.contract.writing import Shelf
from tests.simulation import invariants
from tests.simulation.crowd import ROUGH, Crowd, Member
from tests.simulation.disk import BLOCK, content, data_of, payload_of
from tests.simulation.engine_scenario import EngineScenario, Trouble, _meaning, deterministic, violation
from tests.simulation.turns import aside, by_turns
from tests.simulation.world import DIRECTORY, FILE, SYMLINK, ActionRefusedError, Entry, Replica, Users

T = TypeVar("T")
KEYS = derive(MasterKey(bytes(range(32))), bytes(range(16)))
CONFIG = Config(grid=BLOCK, chunks=(1024, 4096, 16384), made_s=0)
_TICK_NS = 1_234_567  # of the store's clock, at each look at it
_DAY_NS = 86_400 * 10**9
_UPKEEP = 0.15  # of what happens elsewhere
_LATE = 0.2  # of the puts that fail, so many happen later


class Place:
    """A repository in memory, and its clock.

    Attributes:
        objects: On the store.
        late: Writes that were told as lost, and happen before the next call.
    """

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, int]] = {}
        self.late: list[Callable[[], Awaitable[object]]] = []
        self._now_ns = 1_700_000_000 * 10**9

    def now_ns(self) -> int:
        self._now_ns += _TICK_NS
        return self._now_ns

    def sleep(self, time_ns: int) -> None:
        self._now_ns += time_ns

    def clock_s(self) -> float:
        return self._now_ns / 10**9

    def objects_on(self, store: MemoryStore) -> Objects:
        return Objects(store, KEYS, self.clock_s)

    def client(self, store: MemoryStore, number: int, *, skew_ns: int = 0, memory: Any = None) -> RepositoryClient:
        """A device's."""
        return RepositoryClient(
            self.objects_on(store),
            CONFIG,
            Writer(device=DeviceId(bytes([number]) * 16), name=f"host{number}", tool="test"),
            clock_ns=lambda: self.now_ns() + skew_ns,
            clock_s=self.clock_s,
            memory=memory,
        )


class Repository:
    """A repository as its users see it: see `Server`. They have a device of their own."""

    USERS = 255

    def __init__(self) -> None:
        self.place = Place()
        self.identities: dict[str, int] = {}
        self._client = self.place.client(MemoryStore(self.place.objects, clock=self.place.now_ns), self.USERS)

    @property
    def writes(self) -> int:
        """How many commits there were."""
        return sum(name.startswith(Kind.COMMIT.folder) for name in self.place.objects)

    async def listing(self) -> Listing:
        """What a client is told now. In a loop of its own, as all that the users' client does: its locks are that's."""
        return aside(self._client.list_objects)

    def unmarked(self) -> set[bytes]:
        """Directories that tell no mode: those that are implied are not told."""
        return set()

    def view(self) -> Replica:
        """As it is now."""
        return self._replica(aside(self._client.list_objects).objects)

    def _replica(self, stats: Sequence[Any]) -> Replica:
        replica = Replica(Side.REMOTE)
        for stat in stats:
            identity = self.identities.setdefault(stat.tag.uuid, (2 << 20) + len(self.identities))
            payload = 0 if stat.kind is DIRECTORY else int(stat.target or 0)
            if stat.content is not None:
                payload = payload_of(stat.content)
            mode = 0o644 if stat.meta.mode is None else stat.meta.mode
            mtime = stat.meta.mtime_ns or 0
            replica.entries[stat.path] = Entry(identity, stat.kind, payload, mode, mtime, 0, stat.meta.xattrs)
        return replica

    def act(self, users: Users, deed: Callable[[Replica], None] | None = None) -> None:
        """A user of another device acts, and it commits."""
        aside(partial(self._act, deed or users.act))

    async def _act(self, deed: Callable[[Replica], None]) -> None:
        stats = (await self._client.list_objects()).objects
        replica = self._replica(stats)
        before = {path: entry.copy() for path, entry in replica.entries.items()}
        try:
            deed(replica)
        except ActionRefusedError:
            return
        tags = {before[stat.path].identity: stat.tag for stat in stats}
        for number, order, data in _orders(before, replica.entries, tags):
            stored = await write_one(self._client, order, Shelf([data], BLOCK))
            if stored.tag is not None:
                tags[number] = stored.tag
                self.identities[stored.tag.uuid] = number
        await self._client.commit()

    def look_after(self, verb: type[Collector | Repacker]) -> None:
        """Somebody collects or repacks, so long after whatever it was that all is old."""
        self.place.sleep(GRACE_NS + 3600 * 10**9)
        objects = self.place.objects_on(MemoryStore(self.place.objects, clock=self.place.now_ns))
        aside(verb(objects, DeviceId(b"g" * 16), keep_ns=0).run)

    def versions(self) -> set[int]:
        """Payloads of all files' versions that any commit has."""
        return aside(self._versions)

    async def _versions(self) -> set[int]:
        objects = Objects(MemoryStore(self.place.objects), KEYS)
        await objects.look()
        names = [name for each in self.place.objects if (name := commit_of(each)) is not None]
        roots = [commit.root for commit in (await objects.commits(names)).values() if commit.root]
        return await trio.to_thread.run_sync(_payloads, ThreadNodes(objects), roots)

    async def problems(self) -> list[str]:
        """What a check finds, that reads all."""
        return (await Checker(Objects(MemoryStore(self.place.objects), KEYS), BLOCK, share=1.0).run()).problems


def _payloads(nodes: ThreadNodes, roots: Sequence[bytes]) -> set[int]:
    trees = (Tree(nodes, msgspec.msgpack.decode(root, type=Root)) for root in roots)
    files = (found.entry.file for tree in trees for found in tree.entries())
    return {payload_of(file.content) for file in files if file is not None}


def _meta(entry: Entry) -> Meta:
    if entry.kind is SYMLINK:
        return meta_of(None)
    return meta_of(entry.mode, mtime_ns=entry.mtime if entry.kind is FILE else None, xattrs=entry.marks)


def _orders(
    before: dict[bytes, Entry], after: dict[bytes, Entry], tags: dict[int, RemoteTag]
) -> Iterator[tuple[int, Order, bytes]]:
    """What makes one tree of another, step by step: each with whom it is about, and its bytes. `tags` go along."""
    was = {entry.identity: path for path, entry in before.items()}
    now = {entry.identity: path for path, entry in after.items()}
    for path in sorted(before, reverse=True):
        number = before[path].identity
        if number not in now:
            yield number, Delete(path=RelPath(path), expect=tags[number]), b""
    for path in sorted(before, reverse=True):
        number = before[path].identity
        target = now.get(number, path)
        if target != path:
            yield number, Move(source=RelPath(path), target=RelPath(target), expect=tags[number]), b""
    for path, entry in sorted(after.items()):
        number = entry.identity
        old = before[was[number]] if number in was else None
        if old is None or old.payload != entry.payload or (entry.marks is None and old.marks is not None):
            data = data_of(entry.payload) if entry.kind is FILE else b"%d" % entry.payload
            yield number, _store(path, entry, None if old is None else tags[number]), data
        elif (old.mode, old.mtime, old.marks) != (entry.mode, entry.mtime, entry.marks) and entry.kind is not SYMLINK:
            yield number, SetMeta(path=RelPath(path), meta=_meta(entry), expect=tags[number]), b""


def _store(path: bytes, entry: Entry, replaces: RemoteTag | None) -> Store:
    return Store(
        path=RelPath(path),
        kind=entry.kind,
        meta=_meta(entry),
        replaces=replaces,
        content=content(entry.payload) if entry.kind is FILE else None,
        target=b"%d" % entry.payload if entry.kind is SYMLINK else None,
    )


class Remembered:
    """`Memory` that survives the process."""

    def __init__(self, number: int, place: str) -> None:
        self.own = Own(device=DeviceId(bytes([number]) * 16))
        self._place = place

    def read(self) -> Own:
        return self.own

    def write(self, own: Own) -> None:
        self.own = own

    def place(self) -> str:
        return self._place


class TroubledStore(MemoryStore):
    """The store as one process sees it.

    Attributes:
        past: What listings tell instead of what is there, by prefix.
    """

    def __init__(self, scenario: OnRepository, place: Place) -> None:
        super().__init__(place.objects, clock=place.now_ns)
        self._scenario = scenario
        self._place = place
        self.past: dict[str, list[Blob]] = {}

    async def get(self, name: str, span: tuple[int, int] | None = None, *, most_bytes: int = MAX_BLOB_BYTES) -> bytes:
        return await self._call("get", lambda: super(TroubledStore, self).get(name, span, most_bytes=most_bytes))

    async def put(self, name: str, data: bytes | Sequence[bytes], *, absent: bool = False) -> bool:
        return await self._call("put", lambda: super(TroubledStore, self).put(name, data, absent=absent))

    async def head(self, name: str) -> Blob | None:
        return await self._call("head", lambda: super(TroubledStore, self).head(name))

    async def listing(self, *prefixes: str) -> list[Blob]:
        found = await self._call("list", lambda: super(TroubledStore, self).listing(*prefixes))
        if not self.past:
            return found
        return [blob for prefix in prefixes for blob in self.past.get(prefix, _below(found, prefix))]

    async def now_ns(self) -> int:
        return await self._call("clock", super().now_ns)

    async def _call(self, operation: str, call: Callable[[], Awaitable[T]]) -> T:
        late, self._place.late = self._place.late, []
        for each in late:
            await each()
        self._scenario.before_call(operation, call)
        found = await call()
        self._scenario.after_call(operation)
        return found


def _below(blobs: Sequence[Blob], prefix: str) -> list[Blob]:
    return [blob for blob in blobs if blob.name.startswith(prefix)]


class OnRepository(EngineScenario):
    """A device whose remote is a repository.

    Its commit says who decided what a merge did, so other versions than it wrote may have other tags by it: they are
    booked by the next cycle, which does nothing else.
    """

    books_later = True
    _store: TroubledStore | None = None
    _open: RepositoryClient | None = None
    _memory: Remembered | None = None
    _skew_ns = 0
    is_writing = False  # right before that a device has looked at the clock

    def _make_server(self) -> Any:
        self._skew_ns = self.rng.choice((0, 0, 400, -4000)) * _DAY_NS
        return Repository()

    @property
    def number(self) -> int:
        """Of the device."""
        return 1 + int(self.host[1:] or 0)

    def _client(self) -> Any:
        """A daemon keeps its client, unless it died."""
        place = self.server.place
        if self._memory is None:
            # Who knows its place asks less for its head; what seeds did before there was one, others still do.
            self._memory = Remembered(self.number, "here" if self.seed % 4 == 3 else "")
        if self._open is None or self.dead or not self.watched:
            self._store = TroubledStore(self, place)
            self._open = place.client(self._store, self.number, skew_ns=self._skew_ns, memory=self._memory)
        assert self._store is not None
        self._store.past = {}
        return self._open

    def _serve_stale(self, client: Any) -> None:
        """Listings tell what was there at the end of another cycle."""
        del client
        assert self._store is not None
        self._store.past = dict(self._listed)

    async def _cycle(self, number: int) -> bool:
        found = await super()._cycle(number)
        blobs = [Blob(name, len(raw), when) for name, (raw, when) in sorted(self.server.place.objects.items())]
        self._listed = {kind.folder: _below(blobs, kind.folder) for kind in (Kind.HEAD, Kind.INDEX, Kind.COMMIT)}
        return found

    def before_call(self, operation: str, call: Callable[[], Awaitable[object]]) -> None:
        """See `_before_remote`: of a call to the store."""
        self.is_writing = operation == "put"
        self._between()
        self.is_writing = False
        if self._chance(self.trouble.remote):
            self.actions.append(f"{operation} is not done")
            if operation == "put" and self.rng.random() < _LATE:
                self.actions.append("it will be done later")
                self.server.place.late.append(call)
                raise ReplyLostError("a time-out: it may happen yet")
            if operation == "put" and self.rng.random() < _LATE:
                raise OverQuotaError("over quota")
            raise RemoteUnavailableError(f"{operation}: dropped, or 5xx")

    def after_call(self, operation: str) -> None:
        """See `_after_remote`."""
        if self._chance(self.trouble.remote):
            self.actions.append(f"the reply to {operation} is lost")
            raise ReplyLostError(f"{operation}: 503, and it happened")
        self._between()

    def _check_server(self) -> None:
        problems = aside(self.server.problems)
        invariants.require(not problems, f"I4 no loss: the repository has {problems}")


class RepositoryScenario(OnRepository):
    """Ring R2 on a repository: one device, and users of another one."""

    host = "h0"

    def __init__(self, seed: int, trouble: Trouble | None = None, choices: random.Random | None = None) -> None:
        calm = msgspec.structs.replace(
            trouble or Trouble(), crowded=False
        )  # no foreign client makes what no tree holds
        super().__init__(seed, calm, choices)

    def _elsewhere(self) -> None:
        """Users of other devices act, and now and then somebody collects or repacks.

        Not where the watcher was wrong: then what a half of a rename took away may be in no commit but older ones. Nor
        between a look at the clock and what is put then, for days go by: docs/design/repository.md, section 15.
        """
        if self.watcher.unreliable or self.is_writing or self.rng.random() > _UPKEEP:
            super()._elsewhere()
            return
        verb = self.rng.choice((Collector, Collector, Repacker))
        self.actions.append(f"somebody runs a {verb.__name__}")
        self.server.look_after(verb)


class RepositoryMember(OnRepository, Member):
    """One of four devices."""


class RepositoryCrowd(Crowd):
    """Four devices of one repository: their cycles run, and commit, at once."""

    member = RepositoryMember

    def _make_server(self) -> Any:
        return Repository()

    def somebody_acts(self) -> None:
        self._at(self.rng.choice(self.members))


def run_seed(
    seed: int, trouble: Trouble | None = None, scenario: RepositoryScenario | None = None
) -> RepositoryScenario:
    """Run one scenario; raises what it violates.

    In half of them a cycle asks what others have written since its own writes, as after a large push.
    """
    least, echoes.LEAST = echoes.LEAST, 1 if seed % 2 else echoes.LEAST  # type: ignore[misc]
    try:
        with by_turns(seed):
            return _run(seed, scenario or RepositoryScenario(seed, trouble))
    finally:
        echoes.LEAST = least  # type: ignore[misc]


def run_crowd(seed: int, trouble: Trouble = ROUGH, crowd: RepositoryCrowd | None = None) -> RepositoryCrowd:
    """Run one history of four devices; raises what it violates."""
    with by_turns(seed):
        return _run(seed, crowd or RepositoryCrowd(seed, trouble))


_Run = TypeVar("_Run", RepositoryScenario, RepositoryCrowd)


def _run(seed: int, scenario: _Run) -> _Run:
    with deterministic(seed, inline=False):
        try:
            trio.run(scenario.run, clock=MockClock(autojump_threshold=0))
        except BaseExceptionGroup as group:
            raise _meaning(group) from None
    return scenario


def failures(seeds: range) -> Iterator[tuple[int, str | None]]:
    """What each seed violates, or None."""
    return ((seed, violation(partial(run_seed, seed))) for seed in seeds)


def crowd_failures(seeds: range) -> Iterator[tuple[int, str | None]]:
    """What each seed of four devices violates, or None."""
    return ((seed, violation(partial(run_crowd, seed))) for seed in seeds)
