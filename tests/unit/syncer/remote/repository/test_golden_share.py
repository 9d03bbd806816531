"""A share with a past, as it was written once: opened, read, checked, and gone on with by today's code."""

from __future__ import annotations

import tarfile
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import msgspec
import pytest
import trio

from blockfs.blocks.blocklist import BlockList
from syncer.core.model import Kind, RelPath, RemoteStat
from syncer.errors import DamagedObjectError
from syncer.ports.blocks import VersionRef
from syncer.ports.orders import Delete, write_one
from syncer.remote.repository.client import RepositoryClient, Writer
from syncer.remote.repository.format import packs
from syncer.remote.repository.format.history import DeviceId, commit_of
from syncer.remote.repository.format.indexes import Found
from syncer.remote.repository.format.keys import Content, Keys, MasterKey, derive
from syncer.remote.repository.format.lists import chunks_of
from syncer.remote.repository.format.prolly import Root
from syncer.remote.repository.maintenance.checking import Checker
from syncer.remote.repository.maintenance.collecting import Collector
from syncer.remote.repository.maintenance.devices import devices_of
from syncer.remote.repository.maintenance.marking import GRACE_NS
from syncer.remote.repository.objects import Objects, ThreadNodes
from syncer.remote.repository.opening import unlock
from syncer.remote.repository.tree import Tree
from syncer.remote.stores.memory import MemoryStore
from tests.golden import make_share
from tests.golden.make_share import ANOTHER, CONFLICT, DELETED, GRID, PASSPHRASE, THINGS, Thing, listed
from tests.unit.syncer.remote.repository.share import put

GOLDEN = Path(__file__).parents[4] / "golden" / "repository-1-share.tar.xz"
NOW_NS = 1_795_000_000 * 10**9
Stored = dict[str, tuple[bytes, int]]


def kept() -> Mapping[str, bytes]:
    with tarfile.open(GOLDEN) as archive:
        return {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]


@pytest.fixture(scope="module", params=["as it was", "as it is"])
def raw(request: pytest.FixtureRequest) -> Mapping[str, bytes]:
    return kept() if request.param == "as it was" else make_share.make()


@pytest.fixture
def objects(raw: Mapping[str, bytes]) -> Stored:
    return {name: (data, NOW_NS) for name, data in raw.items()}


class Opened:
    """The repository, by a passphrase."""

    def __init__(self, objects: Stored, keys: Keys, config: object) -> None:
        self.stored, self.keys, self._config = objects, keys, config
        self.now_ns = NOW_NS

    def objects(self) -> Objects:
        return Objects(MemoryStore(self.stored, clock=lambda: self.now_ns), self.keys, lambda: self.now_ns / 1e9)

    def client(self, number: int) -> RepositoryClient:
        writer = Writer(device=DeviceId(bytes([number]) * 16), name="today's", tool="test")
        clocks = {"clock_ns": lambda: self.now_ns, "clock_s": lambda: self.now_ns / 1e9}
        return RepositoryClient(self.objects(), self._config, writer, **clocks)  # type: ignore[arg-type]

    async def problems(self) -> list[str]:
        return (await Checker(self.objects(), GRID, share=1.0).run()).problems


def run(objects: Stored, scenario: Callable[[Opened], Awaitable[None]], secret: str = PASSPHRASE) -> None:
    async def main() -> None:
        found = await unlock(MemoryStore(objects), secret)
        await scenario(Opened(objects, derive(MasterKey(found.master), found.repository), found.config))

    trio.run(main)


async def holds(client: RepositoryClient) -> None:
    """All that was written is there as it was written."""
    there = await listed(client)
    copies = [path for path in there if path.startswith("both (conflict ")]
    assert len(copies) == 1
    assert {path for path in there if path not in copies} == {*THINGS, "both"}
    assert [await bytes_of(client, there[path]) for path in ("both", *copies)] == list(CONFLICT)
    for path, thing in THINGS.items():
        stat = there[path]
        assert Thing(kind=stat.kind, meta=stat.meta, data=await bytes_of(client, stat)) == thing, path


async def bytes_of(client: RepositoryClient, stat: RemoteStat) -> bytes:
    if stat.kind is not Kind.FILE:
        return stat.target or b""
    (blocks,) = await client.block_lists([(VersionRef(path=stat.path, tag=stat.tag, content=stat.content), None)])
    assert isinstance(blocks, BlockList)
    got: dict[int, bytes] = {}

    async def keep(index: int, _id: bytes, data: bytes) -> None:
        got[index] = data

    await client.read_blocks(stat.path, stat.tag, blocks, range(len(blocks)), keep)
    size = blocks.size_bytes
    return b"".join(got[at].ljust(min(GRID, size - at * GRID), b"\0") for at in range(len(blocks)))


@pytest.mark.parametrize("secret", [PASSPHRASE, ANOTHER])
def test_all_of_it_is_read_and_a_check_finds_nothing(objects: Stored, secret: str) -> None:
    """If it fails on what was written before, a share of a released version can't be read any more."""

    async def scenario(opened: Opened) -> None:
        await holds(opened.client(9))
        assert await opened.problems() == []
        assert {each.name for each in await devices_of(opened.objects())} == {"device1", "device2"}

    run(objects, scenario, secret)


def test_it_has_what_it_is_for(objects: Stored) -> None:
    """Packs of both kinds, such as are written anew and such as are condemned; indexes that replace others."""

    async def scenario(opened: Opened) -> None:
        kinds = Counter(kind_of(opened.keys, name, data) for name, (data, _) in objects.items() if "packs/" in name)
        assert kinds[Content.FILES] >= 2
        assert kinds[Content.TREES] >= 3
        assert sum(name.startswith("condemned/") for name in objects) >= 1
        assert sum(name.startswith("indexes/") for name in objects) >= 2
        assert sum(name.startswith("commits/") for name in objects) >= 3
        assert sum(name.startswith("keys/") for name in objects) == 3

    run(objects, scenario)


def kind_of(keys: Keys, name: str, data: bytes) -> Content:
    for content in Content:
        try:
            packs.read_pack(keys, content, name, data)
        except DamagedObjectError:
            continue
        return content
    raise AssertionError(f"{name} is no pack")


def test_what_only_an_older_commit_has_is_read_of_that(objects: Stored) -> None:
    async def scenario(opened: Opened) -> None:
        repository = opened.objects()
        await repository.look(whole=True)
        names = [name for each in objects if (name := commit_of(each)) is not None]
        nodes, found = ThreadNodes(repository), []
        for commit in (await repository.commits(names)).values():
            tree = Tree(nodes, msgspec.msgpack.decode(commit.root, type=Root))
            old = await trio.to_thread.run_sync(tree.lookup, RelPath(DELETED[0].encode()))
            if old is None:
                continue
            chunks = await trio.to_thread.run_sync(list, chunks_of(nodes, old.entry.file))
            read = await repository.read(Content.FILES, [Found(each.pack, each.entry) for each in chunks])
            found.append(b"".join(read[each.id] for each in chunks))
        assert found
        assert set(found) == {DELETED[1]}

    run(objects, scenario)


def test_it_is_gone_on_with(objects: Stored) -> None:
    """A new device writes, and collections go on where those of then ended."""

    async def scenario(opened: Opened) -> None:
        client = opened.client(9)
        await holds(client)
        await put(client, "more", b"of today")
        await client.commit()
        for _ in range(4):
            opened.now_ns += GRACE_NS + 10**12
            await Collector(opened.objects(), DeviceId(b"c" * 16), keep_ns=0).run()
        reader = opened.client(8)
        there = await listed(reader)
        assert await bytes_of(reader, there["more"]) == b"of today"
        await write_one(reader, Delete(path=there["more"].path, expect=there["more"].tag))
        await reader.commit()
        await holds(opened.client(7))
        assert await opened.problems() == []

    run(objects, scenario)
