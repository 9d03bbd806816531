"""What `LocalRoot` promises, on every kind of root: reading for a push, staging and changing for a pull."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest
import trio

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.hashing import block_id, canonical
from blockfs.blocks.ids import ZERO_BLOCK, BlockId
from syncer.core.model import FileStat, Kind, Meta, RelPath
from syncer.core.rows import Origin
from syncer.errors import ConflictOnRemoteError, LocalChangedError, SyncerError
from syncer.ports.blocks import Priority, Receive, Want
from syncer.ports.local import LocalRoot
from syncer.ports.localvalues import (
    Applied,
    Change,
    ChangeMeta,
    Install,
    MakeDirectory,
    MakeLink,
    Piece,
    Remove,
    Rename,
    Staged,
    StageOrder,
    content_of,
)
from tests.contract.roots import DISKS, KINDS, Subject
from tests.simulation.disk import content, data_of
from tests.unit.syncer.local.folders import NO_BASE, by_path

_META: Final = Meta(mode=0o640, mtime_ns=1_000_000_001)
_TESTS = count(1)


@dataclass
class Scene:
    """A test's own part of a root that it shares with others: a directory, and contents that nobody else has.

    Attributes:
        one: A content of one block, see `data_of`.
        two: Another one.
        three: One more.
        long: A content of two blocks where these have 4 KiB.
        other: Another one with the same first block.
    """

    subject: Subject
    name: str
    one: int
    two: int = field(init=False)
    three: int = field(init=False)
    long: int = field(init=False)
    other: int = field(init=False)

    def __post_init__(self) -> None:
        self.two, self.three, self.long, self.other = (self.one + add for add in (1, 2, 3, 7))
        for payload in (self.one, self.two, self.three, self.long, self.other):
            content(payload)  # the simulation's contents are known once they were asked for

    def path(self, name: str) -> RelPath:
        return RelPath(f"{self.name}/{name}".encode())

    def put(self, name: str, payload: int) -> None:
        self.subject.put(f"{self.name}/{name}", payload)

    def files(self) -> dict[str, bytes]:
        before = f"{self.name}/"
        return {path.removeprefix(before): data for path, data in self.subject.files().items() if before in path}

    def run(self, work: Callable[[LocalRoot], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            root = self.subject.open()
            try:
                await root.observe(NO_BASE)
                await work(root)
                await root.barrier()
            finally:
                await root.close()

        trio.run(main)


def scene_of(subject: Subject) -> Scene:
    number = next(_TESTS)
    scene = Scene(subject, f"d{number}", 40 * number + 1)
    subject.make(scene.name)
    return scene


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: kind.__name__)
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    with request.param(tmp_path_factory.mktemp("root")) as made:
        yield made


@pytest.fixture
def scene(shared: Subject) -> Scene:
    return scene_of(shared)


@dataclass
class Server:
    """A `Fetcher` that has everything that was ordered of it, but for what is `gone`."""

    blocks: dict[BlockId, bytes] = field(default_factory=dict)
    gone: set[BlockId] = field(default_factory=set)
    served: list[BlockId] = field(default_factory=list)

    def order(self, root: LocalRoot, path: RelPath, data: bytes, origins: tuple[Origin, ...] = ()) -> StageOrder:
        size = root.block_size
        pieces = [data[at : at + size] for at in range(0, len(data), size)]
        self.blocks.update((BlockId(block_id(piece)), canonical(piece)) for piece in pieces)
        blocks = BlockList(block_size=size, size_bytes=len(data), ids=b"".join(map(block_id, pieces)))
        return StageOrder(path=path, content=content_of(blocks), blocks=blocks, meta=_META, origins=origins, new=True)

    async def fetch(self, wants: Sequence[Want], receive: Receive, *, priority: Priority) -> dict[BlockId, SyncerError]:
        for want in wants:
            if want.id not in self.gone:
                self.served.append(want.id)
                await receive([(want.id, self.blocks[want.id])])
        lost = ConflictOnRemoteError(RelPath(b"lost"), "a version", "nothing")
        return {want.id: lost for want in wants if want.id in self.gone}


async def seen(root: LocalRoot) -> dict[bytes, FileStat]:
    return by_path(await root.observe(NO_BASE))


async def pieces_of(root: LocalRoot, *stats: FileStat) -> list[Piece]:
    found = []
    for stat, blocks in zip(stats, await root.block_lists(stats), strict=True):
        assert not isinstance(blocks, Exception), blocks
        found += [Piece(stat=stat, blocks=blocks, index=index) for index in range(len(blocks))]
    return found


async def created(root: LocalRoot, server: Server, orders: Sequence[StageOrder]) -> list[Applied | Exception]:
    """Stage and name new files, all at once."""
    staged = await root.stage(orders, server)
    changes = [
        Install(path=order.path, staged=each)
        for order, each in zip(orders, staged, strict=True)
        if not isinstance(each, Exception)
    ]
    applied = iter(await root.apply(changes))
    for change in changes:
        await change.staged.drop()
    return [each if isinstance(each, Exception) else next(applied) for each in staged]


def made(outcome: Applied | Staged | Exception) -> Any:
    assert not isinstance(outcome, Exception), outcome
    return outcome


# --- reading for a push


def test_a_reader_gives_each_block_of_several_files(scene: Scene) -> None:
    scene.put("long", scene.long)
    scene.put("one", scene.one)

    async def work(root: LocalRoot) -> None:
        found = await seen(root)
        pieces = await pieces_of(root, found[scene.path("long")], found[scene.path("one")])
        blocks = await root.reader().read(pieces)
        assert [block_id(made(each)) for each in blocks] == [piece.id for piece in pieces]
        assert b"".join(map(made, blocks)) == data_of(scene.long) + data_of(scene.one)

    scene.run(work)


def test_a_file_that_was_written_to_gives_no_bytes_and_takes_no_other_with_it(scene: Scene) -> None:
    """L1, L9. Breaks when a mixture of two versions can be sent: of the long one the first block is still the same."""
    for name, payload in (("long", scene.long), ("one", scene.one), ("two", scene.two)):
        scene.put(name, payload)

    async def work(root: LocalRoot) -> None:
        found = await seen(root)
        *others, two = pieces = await pieces_of(root, *(found[scene.path(name)] for name in ("long", "one", "two")))
        scene.put("long", scene.other)
        scene.put("one", scene.three)
        *blocks, last = await root.reader().read(pieces)
        # A volume's blocks are what they were as long as they are there.
        whole = all(
            not isinstance(each, Exception) and block_id(each) == piece.id
            for each, piece in zip(blocks, others, strict=True)
        )
        assert whole or all(isinstance(each, LocalChangedError) for each in blocks)
        assert whole == (root.kind == "volume")
        assert last == data_of(scene.two)
        assert block_id(made(last)) == two.id

    scene.run(work)


# --- staging and changing for a pull


def test_all_arrive_and_no_content_is_fetched_twice(scene: Scene) -> None:
    server = Server()

    async def work(root: LocalRoot) -> None:
        files = (("a", scene.one), ("b", scene.two), ("c", scene.one), ("e", scene.three), ("long", scene.long))
        orders = [server.order(root, scene.path(name), data_of(of)) for name, of in files]
        applied = [made(each) for each in await created(root, server, orders)]
        assert len(server.served) == len(set(server.served)) == len({each for order in orders for each in order.blocks})
        found = await seen(root)
        for order, got in zip(orders, applied, strict=True):
            there = found[order.path]
            assert (there.content, there.meta.mode, there.tag.mtime_ns) == (order.content, 0o640, 1_000_000_001)
            # What is recorded as our own write: another tag would be taken for a user's.
            assert (got.tag, got.lacking, got.copied_to) == (there.tag, None, None)

    scene.run(work)
    first, second, third, long = map(data_of, (scene.one, scene.two, scene.three, scene.long))
    assert scene.files() == {"a": first, "b": second, "c": first, "e": third, "long": long}


def test_a_name_that_is_taken_keeps_what_it_has_and_stops_no_other(scene: Scene) -> None:
    """L1, L2."""
    scene.put("taken", scene.three)
    server = Server()

    async def work(root: LocalRoot) -> None:
        names = ("a", "taken", "nowhere/b", "c")
        orders = [server.order(root, scene.path(name), data_of(scene.one)) for name in names]
        first, taken, nowhere, last = await created(root, server, orders)
        made(first)
        made(last)
        assert isinstance(taken, LocalChangedError)
        assert isinstance(nowhere, LocalChangedError)

    scene.run(work)
    assert scene.files() == {"a": data_of(scene.one), "taken": data_of(scene.three), "c": data_of(scene.one)}


def test_a_content_that_does_not_come_stops_no_other(scene: Scene) -> None:
    """L1."""
    server = Server()

    async def work(root: LocalRoot) -> None:
        files = (("a", scene.one), ("b", scene.one), ("lost", scene.two), ("long", scene.long))
        orders = [server.order(root, scene.path(name), data_of(of)) for name, of in files]
        server.gone = {orders[2].blocks[0]}
        *others, lost, long = await created(root, server, orders)
        assert isinstance(lost, ConflictOnRemoteError)
        for each in (*others, long):
            made(each)

    scene.run(work)
    assert scene.files() == {"a": data_of(scene.one), "b": data_of(scene.one), "long": data_of(scene.long)}


def test_what_is_here_is_not_fetched(scene: Scene) -> None:
    server = Server()

    async def work(root: LocalRoot) -> None:
        order = server.order(root, scene.path("a"), data_of(scene.one))
        (first,) = await created(root, server, [order])
        assert len(server.served) == 1
        origin = Origin(path=order.path, tag=made(first).tag, content=order.content)
        (second,) = await created(root, server, [server.order(root, scene.path("b"), data_of(scene.one), (origin,))])
        made(second)
        assert len(server.served) == 1
        assert root.counters.own_blocks == 1

    scene.run(work)
    assert scene.files() == {"a": data_of(scene.one), "b": data_of(scene.one)}


def test_what_comes_from_another_file_counts_and_what_stays_in_its_place_does_not(scene: Scene) -> None:
    server = Server()

    async def work(root: LocalRoot) -> None:
        data = data_of(scene.long)
        if len(data) <= root.block_size:  # what has one block only has nothing in common with its version before
            data = random.Random(scene.one).randbytes(3 * root.block_size)
        order = server.order(root, scene.path("a"), data)
        (first,) = await created(root, server, [order])
        assert root.counters.own_blocks == 0
        await root.barrier()
        origin = Origin(path=order.path, tag=made(first).tag, content=order.content)
        for name, own in (("a", 0), ("b", len(order.blocks) - order.blocks.ids.count(ZERO_BLOCK))):
            before = root.counters.own_blocks
            (staged,) = await root.stage([server.order(root, scene.path(name), data, (origin,))], server)
            await made(staged).drop()
            assert root.counters.own_blocks - before == own
        assert len(server.served) == len(order.blocks.unique_ids())

    scene.run(work)


def test_what_was_staged_and_is_given_up_leaves_nothing(scene: Scene) -> None:
    """L10."""
    server = Server()

    async def work(root: LocalRoot) -> None:
        orders = [
            server.order(root, scene.path(name), data_of(of)) for name, of in (("a", scene.one), ("b", scene.long))
        ]
        for each in await root.stage(orders, server):
            await made(each).drop()
        assert not [path for path in await seen(root) if path.startswith(scene.name.encode() + b"/")]

    scene.run(work)
    assert scene.subject.left_over() == []


def test_a_collection_takes_nothing_that_a_staged_file_will_name(scene: Scene) -> None:
    """L10."""
    server = Server()

    async def work(root: LocalRoot) -> None:
        names = (("a", scene.one), ("b", scene.long), ("given up", scene.two))
        orders = [server.order(root, scene.path(name), data_of(of)) for name, of in names]
        *staged, last = map(made, await root.stage(orders, server))
        await last.drop()
        changes = [Install(path=order.path, staged=each) for order, each in zip(orders, staged, strict=False)]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, scene.subject.collect)  # it may wait for the last one
            for outcome in await root.apply(changes):
                made(outcome)
            for each in staged:
                await each.drop()

    scene.run(work)
    scene.subject.collect()
    assert scene.files() == {"a": data_of(scene.one), "b": data_of(scene.long)}


def test_changes_of_all_kinds_in_one_list_each_with_its_own_outcome(scene: Scene) -> None:
    """L1, L2, L3: what is not as expected stays, or is kept; of what is, the version before is in the trash."""
    for name, payload in (("old", scene.one), ("moved", scene.two), ("gone", scene.three), ("edited", scene.one)):
        scene.put(name, payload)
    server = Server()

    async def work(root: LocalRoot) -> None:
        found = {path: stat.tag for path, stat in (await seen(root)).items()}
        tags = {name: found[scene.path(name)] for name in ("old", "moved", "gone", "edited")}
        new, lost = await root.stage(
            [server.order(root, scene.path(name), data_of(scene.long)) for name in ("old", "edited")], server
        )
        scene.put("edited", scene.two)
        changes: list[Change] = [
            MakeDirectory(path=scene.path("dir"), meta=Meta(mode=0o750)),
            Install(path=scene.path("edited"), staged=made(lost), expect=tags["edited"]),
            Rename(source=scene.path("moved"), target=scene.path("target"), expect=tags["moved"]),
            Remove(path=scene.path("gone"), kind=Kind.FILE, expect=tags["gone"]),
            Install(path=scene.path("old"), staged=made(new), expect=tags["old"]),
            MakeLink(path=scene.path("link"), target=b"1"),
            MakeDirectory(path=scene.path("edited"), meta=Meta()),
            ChangeMeta(path=scene.path("edited"), meta=Meta(mode=0o600), expect=tags["edited"]),
        ]
        outcomes = await root.apply(changes)
        for staged in (new, lost):
            await made(staged).drop()
        wrong = [at for at, each in enumerate(outcomes) if isinstance(each, Exception)]
        assert wrong == [1, 6, 7]
        assert all(isinstance(outcomes[at], LocalChangedError) for at in wrong)
        assert made(outcomes[3]).tag is None
        there = await seen(root)
        assert there[scene.path("dir")].kind is Kind.DIRECTORY
        assert there[scene.path("link")].target == b"1"
        assert made(outcomes[4]).tag == there[scene.path("old")].tag

    scene.run(work)
    long, two = data_of(scene.long), data_of(scene.two)
    assert scene.files() == {"old": long, "edited": two, "target": two}
    assert {data_of(scene.one), data_of(scene.three)} <= set(scene.subject.trashed())


@pytest.mark.parametrize("kind", DISKS, ids=lambda kind: kind.__name__)
def test_what_a_failed_stage_received_is_not_fetched_again(kind: Callable[[Path], Any], tmp_path: Path) -> None:
    """L7. (Where blocks are put together, what came of a batch of 32 MiB counts when all of it came.)"""
    server = Server()
    with kind(tmp_path) as subject:
        scene = scene_of(subject)

        async def work(root: LocalRoot) -> None:
            data = random.Random(7).randbytes(3 * root.block_size)
            order = server.order(root, scene.path("file"), data)
            *came, last = map(BlockId, order.blocks)
            server.gone = {last}
            (failed,) = await root.stage([order], server)
            assert isinstance(failed, ConflictOnRemoteError)
            assert server.served == came
            server.gone.clear()
            made((await created(root, server, [order]))[0])
            assert server.served == [*came, last]

        scene.run(work)
        assert [*scene.files()] == ["file"]
