"""The implementations of Remote that the contract suite runs against, behind one shape."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec
import trio
from msgspec.structs import replace

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.extents import block_length
from blockfs.blocks.ids import ZERO_BLOCK, BlockId, ObjectHash
from syncer.blocks.board import Blocks
from syncer.blocks.wanting import fetch_files
from syncer.core.model import Content, Kind, RelPath, RemoteStat, RemoteTag, meta_of
from syncer.engine.fetch import serving
from syncer.errors import SyncerError
from syncer.ports.blocks import VersionRef
from syncer.ports.localvalues import content_of
from syncer.ports.orders import Done, Order, Reader, Stored, write_one
from syncer.ports.remote import Counters, KnownList, Remote
from syncer.protocol.pithos import headers
from syncer.remote.container.info import stat_of
from syncer.remote.container.requests import object_name
from syncer.remote.http.retry import Retry, RetryPolicy
from syncer.remote.http.transport import HttpSettings, HttpTransport, Reply, ReplyLostError, Request, Transport
from syncer.remote.pithos.client import PithosClient, open_pithos
from syncer.remote.prefix import PrefixClient
from syncer.remote.repository.client import RepositoryClient, Writer
from syncer.remote.repository.format.config import Config
from syncer.remote.repository.format.history import DeviceId
from syncer.remote.repository.format.keys import MasterKey, derive
from syncer.remote.repository.objects import Objects
from syncer.remote.source import Reads
from syncer.remote.stores.memory import MemoryStore
from syncer.remote.stores.port import BlobStore
from syncer.remote.stores.retrying import RetryingStore
from syncer.remote.url import parse_url
from tests import effort
from tests.contract.blobplaces import PATIENT, Place
from tests.contract.writing import Made, New, Shelf, made_of, make_all, store_order
from tests.fakes.memory import MemoryClient, MemoryContainer
from tests.fakes.pithos import FakePithos, Fault, FaultKind
from tests.fakes.pithos_store import Container

BLOCK = 4096
META = meta_of(0o640, mtime_ns=1_700_000_000_123_456_789, xattrs=((b"colour", b"\0r\xff" * 200), (b"empty", b"")))
QUICK = RetryPolicy(attempts=4, first_delay_s=0.001, max_delay_s=0.002, deadline_s=300)

Scenario = Callable[[Remote], Coroutine[Any, Any, None]]
Between = TypeVar("Between", bound=Transport)

STORES = ("directory", "swift", "s3", "sftp")
REPOSITORIES = (
    "repository",
    "repository-folder",
    *(f"repository on {kind}" for kind in effort.first("stores of the contract suites", STORES)),
)

SALT = [0]
"""Other bytes in every test: servers keep the blocks of earlier ones."""


class Subject(Protocol):
    """One implementation. Every call of `new_container` starts an empty container that does not exist yet."""

    name: str

    def new_container(self) -> None: ...

    def client(self) -> Remote:
        """Another device of the container. Called inside trio."""
        ...


class MemoryRemote:
    name = "memory"

    def new_container(self) -> None:
        self.container = MemoryContainer(block_size=BLOCK, exists=False)

    def client(self) -> MemoryClient:
        return MemoryClient(self.container)


class CommittingRemote:
    """One that holds back what is written until that is committed."""

    name = "committing"

    def new_container(self) -> None:
        self.container = MemoryContainer(block_size=BLOCK, exists=False, holds_back=True)

    def client(self) -> Remote:
        return MemoryClient(self.container)


class CommittedWrites(RepositoryClient):
    """A client that commits each list of orders: what the suites of all remotes expect."""

    async def write(self, orders: Sequence[Order], reader: Reader, done: Done) -> None:
        told: list[tuple[int, Stored | Exception]] = []

        async def keep(at: int, outcome: Stored | Exception) -> None:
            told.append((at, outcome))

        await super().write(orders, reader, keep)
        await self.commit()
        for at, outcome in told:
            await done(at, outcome)


class Together(MemoryStore):
    """Stores on one dict, each of which is told what is written through the others."""

    def __init__(self, objects: dict[str, tuple[bytes, int]], beside: list[MemoryStore]) -> None:
        super().__init__(objects)
        self._beside = beside
        beside.append(self)

    def _tell(self) -> None:
        for each in self._beside:
            MemoryStore._tell(each)


class RepositoryRemote:
    """A repository: in memory, or at a place of a kind of store."""

    name = "repository"

    def __init__(
        self, new_place: Callable[[], Place] | None = None, kind: type[RepositoryClient] | None = None
    ) -> None:
        self._new_place = new_place
        self._kind = CommittedWrites if kind is None else kind

    @property
    def is_in_memory(self) -> bool:
        return self._new_place is None

    def new_container(self) -> None:
        self.objects: dict[str, tuple[bytes, int]] = {}
        self._stores: list[MemoryStore] = []
        self._devices = itertools.count(1)
        self._place = None if self._new_place is None else self._new_place()
        if self._place is not None:
            trio.run(self._place.make)

    def store(self) -> BlobStore:
        """Another way to it."""
        if self._place is None:
            return Together(self.objects, self._stores)
        return RetryingStore(self._place.client(), Retry(policy=PATIENT, draw=lambda: 0.5, host="the store"))

    def client(self, store: BlobStore | None = None, number: int | None = None) -> RepositoryClient:
        """Another device, or one that was there before: by its number."""
        device = DeviceId(bytes([next(self._devices) if number is None else number]) * 16)
        config = Config(grid=BLOCK, chunks=(1024, 4096, 16384), made_s=0)
        objects = Objects(store or self.store(), derive(MasterKey(bytes(32)), bytes(16)))
        return self._kind(objects, config, Writer(device=device, name=f"host{device[0]}", tool="test"))


class FolderRemote:
    """A folder of another one's container, with something beside it."""

    def __init__(self, inner: MemoryRemote | FakeRemote | ServeRemote | RepositoryRemote) -> None:
        self.inner = inner
        self.name = inner.name

    def new_container(self) -> None:
        self.inner.new_container()

    def client(self) -> PrefixClient:
        return PrefixClient(self.inner.client(), path("some/földer"))


def with_folders(**remotes: MemoryRemote | FakeRemote | ServeRemote | RepositoryRemote) -> dict[str, Subject]:
    """The remotes, and a folder of each."""
    return {**remotes, **{f"{name}-folder": FolderRemote(remote) for name, remote in remotes.items()}}


class FakeRemote:
    """A fake Synnefo: not atomic, listings without metadata."""

    name = "fake"

    def __init__(self, server: FakePithos) -> None:
        self.server = server
        self.token = server.token
        self._numbers = itertools.count(1)

    def new_container(self) -> None:
        self.box_name = f"box{next(self._numbers)}"

    @property
    def url(self) -> str:
        return self.server.url(container=self.box_name)

    def client(self, policy: RetryPolicy = QUICK, settings: HttpSettings | None = None) -> PithosClient:
        return open_pithos(self.url, self.token, policy=policy, settings=settings)


class ServeRemote:
    """A real `blocksync serve` process."""

    name = "serve"

    def __init__(self, address: str, token: str, account: str) -> None:
        self.address = address
        self._base = f"pithos+http://{address}/v1/{account}"
        self.token = token
        self._numbers = itertools.count(1)

    def new_container(self) -> None:
        self.box_name = f"box{next(self._numbers)}"

    @property
    def url(self) -> str:
        return f"{self._base}/{self.box_name}"

    def client(self) -> PithosClient:
        return open_pithos(self.url, self.token, policy=QUICK)


class OlderServeRemote(ServeRemote):
    """The same process, as a release before it was: without some of its extensions."""

    name = "older serve"

    def __init__(self, today: ServeRemote, *lacks: str) -> None:
        self.today, self.lacks = today, frozenset(lacks)
        self.token = today.token

    def new_container(self) -> None:
        self.today.new_container()

    @property
    def url(self) -> str:
        return self.today.url

    def client(self) -> PithosClient:
        return through(self, lambda inner: WithoutExtensions(inner, self.lacks))[0]


class WithoutExtensions:
    """Hides extensions of a server."""

    def __init__(self, inner: Transport, lacks: frozenset[str]) -> None:
        self._inner, self._lacks = inner, lacks

    async def send(self, request: Request) -> Reply:
        reply = await self._inner.send(request)
        name = headers.EXTENSIONS.lower()
        if name not in reply.headers:
            return reply
        left = [token for token in reply.headers[name].split(", ") if token not in self._lacks]
        return msgspec.structs.replace(reply, headers={**reply.headers, name: ", ".join(left)})

    def close(self) -> None:
        self._inner.close()


class Loss(Enum):
    """What happens to one message."""

    BEFORE = "request lost"
    AFTER = "reply lost"
    STATUS = "answered 500"


class LossyTransport:
    """Loses one message of a client, chosen by its number."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self._loss: Loss | None = None
        self._place: int | None = None
        self.sent = 0

    def lose(self, loss: Loss, place: int | None) -> None:
        """Count from here on, and lose message number `place` (None: none)."""
        self._loss, self._place, self.sent = loss, place, 0

    async def send(self, request: Request) -> Reply:
        hit = self.sent == self._place
        self.sent += 1
        if hit and self._loss is Loss.BEFORE:
            raise ReplyLostError("lost by the test")
        reply = await self._inner.send(request)
        if hit and self._loss is Loss.AFTER:
            raise ReplyLostError("lost by the test")
        return Reply(status=500, headers={}, body=b"") if hit else reply

    def close(self) -> None:
        self._inner.close()


def through(remote: FakeRemote | ServeRemote, wrap: Callable[[Transport], Between]) -> tuple[PithosClient, Between]:
    """A client, and what is between it and the server."""
    url, counters = parse_url(remote.url), Counters()
    between = wrap(HttpTransport(url, remote.token, HttpSettings(), counters))
    return PithosClient(url, between, Retry(policy=QUICK, draw=lambda: 0.5, host="test"), counters, 4), between


@contextlib.contextmanager
def serve_process(
    folder: Path, block_size: str = "4KiB", others: Mapping[str, str] | None = None
) -> Iterator[ServeRemote]:
    """Run the real server as long as the context lasts; `others`: tokens of further accounts."""
    tokens = folder / "tokens"
    accounts = {"contract-token": "alice", **(others or {})}
    tokens.write_text("".join(f"{token} {account}\n" for token, account in accounts.items()))
    tokens.chmod(0o600)
    command = [
        *(str(Path(sys.executable).parent / "blocksync"), "serve", str(folder / "store")),
        *("--listen", "127.0.0.1:0", "--token-file", str(tokens), "--block-size", block_size),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            ready = next((line for line in process.stdout if "listening on http://" in line), None)
            assert ready, "the server ended before it was ready"
            yield ServeRemote(ready.split("http://")[1].strip(), "contract-token", "alice")
        finally:
            process.terminate()


def anew(remote: Subject) -> Subject:
    """For another test: with a new container, and other bytes in `content`."""
    remote.new_container()
    SALT[0] += 1
    return remote


def content(seed: int, size: int) -> bytes:
    """Bytes that no other test has."""
    return hashlib.shake_128(b"%d %d" % (SALT[0], seed)).digest(size)


def run(remote: Subject, scenario: Scenario) -> None:
    """Run a scenario with a client of the current container, which is created first."""

    async def main() -> None:
        client = remote.client()
        await _made_and_closed(client, scenario(client))

    trio.run(main)


def run_through(
    remote: FakeRemote | ServeRemote,
    wrap: Callable[[Transport], Between],
    scenario: Callable[[PithosClient, Between], Coroutine[Any, Any, object]],
) -> None:
    """As `run`, with something between the client and the server."""

    async def main() -> None:
        client, between = through(remote, wrap)
        await _made_and_closed(client, scenario(client, between))

    trio.run(main)


async def _made_and_closed(client: Remote, scenario: Coroutine[Any, Any, object]) -> None:
    with trio.fail_after(250):  # one that hangs
        await client.open(create=True)
        await scenario
        await client.close()


async def put_many(client: Remote, count: int) -> None:
    """Small files at once: `d/7` holds `7`."""
    news = [New(path=path(f"d/{number}"), kind=Kind.FILE, data=b"%d" % number, meta=META) for number in range(count)]
    for outcome in await make_all(client, news):
        assert isinstance(outcome, Made)


def path(text: str) -> RelPath:
    return RelPath(text.encode())


async def store(client: Remote, where: str, data: bytes, replace: RemoteStat | None = None) -> Made:
    """Upload `data` the way the engine does."""
    block_size = (await client.open()).grid.block_size
    tag = None if replace is None else replace.tag
    order = store_order(path(where), Kind.FILE, data, META, tag, block_size)
    return made_of(await write_one(client, order, Shelf([data], block_size)))


async def fetch(client: Remote, stat: RemoteStat) -> bytes:
    """Download one version the way the engine does."""
    blocks = await list_of(client, stat)
    found = await fetch_blocks(client, stat, blocks, range(len(blocks)))
    size = blocks.size_bytes
    return b"".join(data.ljust(block_length(at, size, blocks.block_size), b"\0") for at, data in found.items())


async def fetch_blocks(client: Remote, stat: RemoteStat, blocks: BlockList, indexes: Sequence[int]) -> dict[int, bytes]:
    """Some blocks of one version, canonical."""
    found: dict[BlockId, bytes] = {ZERO_BLOCK: b""}

    async def receive(got: Sequence[tuple[BlockId, bytes]]) -> None:
        found.update(got)

    board = Blocks([client.source])
    version = VersionRef(path=stat.path, tag=stat.tag, content=content_of(blocks))
    async with serving(board):
        lacking = [at for at in indexes if blocks[at] != ZERO_BLOCK]
        for error in (await fetch_files(board, [(version, blocks)], {0: lacking}, receive)).values():
            raise error
    return {at: found[blocks[at]] for at in indexes}


async def read_block(client: Reads, stat: RemoteStat, blocks: BlockList, index: int) -> bytes:
    """One block, by what a client does for its source."""
    found: list[bytes] = []

    async def keep(_index: int, _id: BlockId, data: bytes) -> None:
        found.append(data)

    await client.read_blocks(stat.path, stat.tag, blocks, [index], keep)
    return found[0]


async def blocks_of(client: Remote, where: RelPath, tag: RemoteTag, known: KnownList | None = None) -> BlockList:
    """The block list of one version."""
    content = Content(size_bytes=tag.size_bytes, object_hash=ObjectHash(bytes.fromhex(tag.etag)))
    (found,) = await client.block_lists([(VersionRef(path=where, tag=tag, content=content), known)])
    if isinstance(found, SyncerError):
        raise found
    return found


async def list_of(client: Remote, stat: RemoteStat) -> BlockList:
    """The block list of what was seen."""
    return await blocks_of(client, stat.path, stat.tag)


async def resolved(client: Remote, stat: RemoteStat) -> RemoteStat:
    """What was seen, with all that a listing may lack."""
    (found,) = await client.resolve([stat])
    if isinstance(found, SyncerError):
        raise found
    return found


async def head(client: Remote, where: RelPath) -> RemoteStat | None:
    """An object as it is now, asked for alone: a listing of a plain Pithos may write."""
    if isinstance(client, PrefixClient):
        inside = await head(client._inner, client._names.out(where))
        return None if inside is None else replace(inside, path=where)
    if isinstance(client, MemoryClient):
        version = client.container.objects.get(where)
        return None if version is None else client.container.stat(where, version)
    if isinstance(client, RepositoryClient):
        return next((stat for stat in (await client.list_objects()).objects if stat.path == where), None)
    assert isinstance(client, PithosClient)
    found = await client._session.current(object_name(where))
    return None if found is None else await resolved(client, stat_of(where, found.state))


async def must_head(client: Remote, where: str) -> RemoteStat:
    found = await head(client, path(where))
    assert found is not None
    return found


# --- the fake Synnefo, from inside


def play(remote: FakeRemote, scenario: Callable[[PithosClient], Coroutine[Any, Any, None]]) -> None:
    """As `run`."""

    async def main() -> None:
        client = remote.client()
        await _made_and_closed(client, scenario(client))

    trio.run(main)


def box(remote: FakeRemote) -> Container:
    return remote.server.container(name=remote.box_name)


def write(remote: FakeRemote, name: str, data: bytes, kind: str = "application/octet-stream") -> None:
    """Somebody else's write, straight into the server."""
    remote.server.store.put_body(box(remote), name, data, kind, {})


def intrude_and_drop(remote: FakeRemote, method: str, intrude: Callable[[], object]) -> None:
    """The next such request is lost, and somebody else writes at that moment."""

    def on_request(seen: str, _target: str) -> None:
        if seen == method:
            remote.server.on_request = None
            intrude()

    remote.server.on_request = on_request
    remote.server.inject(Fault(FaultKind.DROP_BEFORE, method=method))
