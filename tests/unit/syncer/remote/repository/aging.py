"""A repository in memory on which time passes: devices that write, and who collects and repacks beside them."""

from __future__ import annotations

from collections.abc import Callable

from syncer.errors import RemoteUnavailableError
from syncer.remote.repository.client import RepositoryClient, Writer
from syncer.remote.repository.format.history import DeviceId
from syncer.remote.repository.maintenance.checking import Checker
from syncer.remote.repository.maintenance.collecting import Collected, Collector
from syncer.remote.repository.maintenance.marking import GRACE_NS
from syncer.remote.repository.maintenance.repacking import Repacked, Repacker
from syncer.remote.repository.objects import Objects
from syncer.remote.stores.memory import MemoryStore
from tests.unit.syncer.remote.repository.nodes import KEYS
from tests.unit.syncer.remote.repository.share import CONFIG, GRID

HOUR_NS = 3600 * 10**9


async def committed(client: RepositoryClient) -> None:
    """Commit; what lay too long is given up."""
    try:
        await client.commit()
    except RemoteUnavailableError as error:
        if "too long" not in str(error):
            raise


class Place:
    """A repository in memory, where time is told."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, int]] = {}
        self.now_ns = 1_700_000_000 * 10**9

    def store(self) -> MemoryStore:
        return MemoryStore(self.objects, clock=lambda: self.now_ns)

    def client(self, number: int, store: MemoryStore | None = None) -> RepositoryClient:
        writer = Writer(device=DeviceId(bytes([number]) * 16), name=f"host{number}", tool="test")

        def clock_s() -> float:
            return self.now_ns / 10**9

        objects = Objects(store or self.store(), KEYS, clock_s)
        return RepositoryClient(objects, CONFIG, writer, clock_ns=lambda: self.now_ns, clock_s=clock_s)

    async def collect(self, keep_ns: int = 0, *, dry: bool = False, store: MemoryStore | None = None) -> Collected:
        collector = Collector(Objects(store or self.store(), KEYS), DeviceId(b"g" * 16), keep_ns=keep_ns)
        return await collector.run(dry=dry)

    async def repack(self, keep_ns: int = 0, *, dry: bool = False, store: MemoryStore | None = None) -> Repacked:
        repacker = Repacker(Objects(store or self.store(), KEYS), DeviceId(b"r" * 16), keep_ns=keep_ns)
        return await repacker.run(dry=dry)

    async def problems(self) -> list[str]:
        return (await Checker(Objects(self.store(), KEYS), GRID, share=1.0).run()).problems

    def due_ns(self) -> int:
        """When what was condemned first may be deleted; now, if nothing is."""
        lists = [when for name, (_, when) in self.objects.items() if name.startswith("condemned/")]
        return max(self.now_ns, min(lists, default=0) + GRACE_NS)

    def count(self, kind: str) -> int:
        return sum(name.startswith(kind) for name in self.objects)

    def size(self, kind: str = "") -> int:
        return sum(len(raw) for name, (raw, _) in self.objects.items() if name.startswith(kind))


class DiedError(Exception):
    """The process is gone."""


class Mortal(MemoryStore):
    """Dies at one of its calls, before or after what that does to the store.

    Attributes:
        calls: How many there were.
    """

    def __init__(self, place: Place, at: int, *, after: bool) -> None:
        super().__init__(place.objects, clock=lambda: place.now_ns)
        self.calls = 0
        self._at = at
        self._after = after

    async def _counted(self, work: Callable[[], object]) -> object:
        self.calls += 1
        if self.calls < self._at:
            return await work()
        if self.calls == self._at and self._after:
            await work()
        raise DiedError

    async def get(self, *args: object, **kwargs: object) -> bytes:
        return await self._counted(lambda: super(Mortal, self).get(*args, **kwargs))

    async def put(self, *args: object, **kwargs: object) -> bool:
        return await self._counted(lambda: super(Mortal, self).put(*args, **kwargs))

    async def head(self, *args: object) -> object:
        return await self._counted(lambda: super(Mortal, self).head(*args))

    async def listing(self, *args: object) -> object:
        return await self._counted(lambda: super(Mortal, self).listing(*args))

    async def delete(self, *args: object) -> None:
        await self._counted(lambda: super(Mortal, self).delete(*args))

    async def now_ns(self) -> int:
        return await self._counted(lambda: super(Mortal, self).now_ns())
