"""The near source `own`, on every kind of root: what the root has need not travel, also while it is on its way."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import trio
import trio.testing
from msgspec.structs import replace

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.hashing import block_id
from blockfs.blocks.ids import BlockId
from blockfs.control.client import ControlClient
from syncer.blocks.board import Blocks
from syncer.core.model import Content, Meta, RelPath
from syncer.core.rows import Origin
from syncer.local.options import RootOptions
from syncer.local.volume.mount import find_mount
from syncer.local.volume.root import BlockfsRoot
from syncer.ports.blocks import Board, Given
from syncer.ports.local import LocalRoot
from syncer.ports.localvalues import Applied, Install, StageOrder, content_of
from tests.kit.state import MemoryState
from tests.unit.syncer.local.folders import NO_BASE, new_place

_BLOCKSYNC: Final = Path(sys.executable).with_name("blocksync")
_META: Final = Meta(mode=0o640, mtime_ns=1_000_000_001)


class Subject(msgspec.Struct, kw_only=True):
    """A root that is tested.

    Attributes:
        open: It, in the test's event loop.
        size: Bytes of a block of its share.
        path: Where it is.
        name: Of the test: makes its contents and names others than those of other tests.
    """

    open: Callable[[], LocalRoot]
    size: int
    path: Path
    name: str = ""

    def noise(self, number: int, size_bytes: int) -> bytes:
        return random.Random(f"{self.name} {number}").randbytes(size_bytes)

    def file(self, name: str) -> Path:
        return self.path / f"{self.name} {name}"


def folder(home: Path) -> Iterator[Subject]:
    place = new_place(home)
    yield Subject(open=place.open, size=4096, path=place.path)


def volume(home: Path, share_size: int | None = None) -> Iterator[Subject]:
    point = home / "mount"
    point.mkdir()
    _command("init", home / "volume")
    _command("mount", home / "volume", point)
    try:
        mount = find_mount(bytes(point))
        assert mount is not None
        with ControlClient(mount.source) as control:
            uuid, size = control.status().uuid, control.status().block_size
        far = share_size or size
        options = RootOptions(block_size=far, lists=str(home / "lists"), state=MemoryState())
        yield Subject(open=lambda: BlockfsRoot(bytes(point), uuid, options), size=far, path=point)
    finally:
        _command("umount", point)


def longer(home: Path) -> Iterator[Subject]:
    """A volume whose share has longer blocks."""
    yield from volume(home, 256 << 10)


def shorter(home: Path) -> Iterator[Subject]:
    """A volume whose share has shorter blocks."""
    yield from volume(home, 16 << 10)


def _command(*arguments: str | Path) -> None:
    subprocess.run([_BLOCKSYNC, *arguments], capture_output=True, check=True)


@pytest.fixture(scope="module", params=[folder, volume, longer, shorter], ids=lambda make: make.__name__)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    yield from request.param(tmp_path_factory.mktemp("root"))


@pytest.fixture
def subject(made: Subject, request: pytest.FixtureRequest) -> Subject:
    """One root for all tests; each has its own contents and names."""
    return replace(made, name=request.node.name.split("[")[0])


@dataclass
class Far:
    """Gives blocks one at a time, as many as it may, and then waits to be allowed more."""

    blocks: dict[BlockId, bytes]
    allowed: int = 1 << 30
    gave: list[BlockId] = field(default_factory=list)
    more: trio.Event = field(default_factory=trio.Event)

    name = "remote"
    near = False

    async def run(self, board: Board) -> None:
        while True:
            if len(self.gave) >= self.allowed:
                await self.more.wait()
            taken = board.take(1)
            if not taken:
                if not await board.more():
                    return
                continue
            (want,) = taken
            self.gave.append(want.id)
            assert await board.give([(want, self.blocks[want.id])]) == [Given.RIGHT]


class Pull:
    """Files of one cycle: contents in blocks, staged and named by a root."""

    def __init__(self, root: LocalRoot, subject: Subject, contents: Sequence[bytes]) -> None:
        self.root = root
        self.subject = subject
        self.size = size = subject.size
        pieces = {content[at : at + size] for content in contents for at in range(0, len(content), size)}
        self.far = Far({BlockId(block_id(piece)): piece.rstrip(b"\0") for piece in pieces})
        self.booked: dict[Content, list[Origin]] = {}
        self.board = Blocks([root.own_blocks(lambda content: self.booked.get(content, [])), self.far])

    def wanted(self, path: str, data: bytes) -> StageOrder:
        ids = b"".join(block_id(data[at : at + self.size]) for at in range(0, len(data), self.size))
        blocks = BlockList(block_size=self.size, size_bytes=len(data), ids=ids)
        return StageOrder(
            path=RelPath(self.subject.file(path).name.encode()),
            content=content_of(blocks),
            blocks=blocks,
            meta=_META,
        )

    async def create(self, path: str, data: bytes) -> Applied:
        """A file, not booked."""
        wanted = self.wanted(path, data)
        (staged,) = await self.root.stage([wanted], self.board)
        assert not isinstance(staged, Exception), staged
        try:
            (made,) = await self.root.apply([Install(path=wanted.path, staged=staged)])
            assert not isinstance(made, Exception), made
            return made
        finally:
            await staged.drop()


def with_root(subject: Subject, contents: Sequence[bytes], work: Callable[[Pull], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        root = subject.open()
        try:
            await root.observe(NO_BASE)
            pull = Pull(root, subject, contents)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(pull.board.run)
                with trio.fail_after(60):
                    await work(pull)
                nursery.cancel_scope.cancel()
            await root.barrier()
        finally:
            await root.close()

    trio.run(main)


def pieces(subject: Subject, count: int) -> list[bytes]:
    return [subject.noise(number, subject.size) for number in range(count)]


def test_blocks_of_an_installed_file_do_not_travel_again_whatever_their_places(subject: Subject) -> None:
    own, new = pieces(subject, 6), subject.noise(99, 100)
    first, second = b"".join(own), b"".join(reversed(own)) + bytes(subject.size) + new

    async def work(pull: Pull) -> None:
        await pull.create("first", first)  # and is in no books
        await pull.create("second", second)
        assert len(pull.far.gave) == len(set(pull.far.gave)) == 7

    with_root(subject, [first, second], work)
    assert subject.file("second").read_bytes() == second


def test_what_is_placed_is_found_before_its_file_is_complete(subject: Subject) -> None:
    """Breaks when a block that came for a file that still waits for others is fetched once more."""
    own = pieces(subject, 8)
    first, second = b"".join(own), b"".join(own[:4])

    async def work(pull: Pull) -> None:
        # More than a batch of the largest blocks: what it waits for is not what was delivered.
        pull.far.allowed = 6
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pull.create, "first", first)
            while len(pull.far.gave) < 6:
                await trio.testing.wait_all_tasks_blocked(0.01)
            had = set(pull.far.gave)
            there = b"".join(piece for piece in own if block_id(piece) in had)
            await pull.create("second", there)
            assert len(pull.far.gave) == 6
            pull.far.allowed = 1 << 30
            pull.far.more.set()
        assert len(pull.far.gave) == 8

    with_root(subject, [first, second], work)
    assert subject.file("first").read_bytes() == first


def test_two_files_that_want_a_block_at_the_same_time_get_it_once(subject: Subject) -> None:
    shared, other = pieces(subject, 8), subject.noise(99, subject.size)
    contents = [b"".join(shared) + other, other + b"".join(shared[2:]), b"".join(shared[:5])]

    async def work(pull: Pull) -> None:
        async with trio.open_nursery() as nursery:
            for number, content in enumerate(contents):
                nursery.start_soon(pull.create, f"file{number}", content)
        assert sorted(pull.far.gave) == sorted(pull.far.blocks)

    with_root(subject, contents, work)
    assert [subject.file(f"file{number}").read_bytes() for number in range(3)] == contents


def test_small_files_and_large_ones_share_blocks(subject: Subject) -> None:
    own = pieces(subject, 3)
    small = [own[0], own[1][:100], own[0], b"", bytes(50), own[1]]

    async def work(pull: Pull) -> None:
        await pull.create("large", own[0] + own[2])
        orders = [pull.wanted(f"small{number}", data) for number, data in enumerate(small)]
        staged = await pull.root.stage(orders, pull.board)
        changes = [Install(path=each.path, staged=file) for each, file in zip(orders, staged, strict=True)]  # type: ignore[arg-type]
        outcomes = await pull.root.apply(changes)
        assert all(isinstance(outcome, Applied) for outcome in outcomes), outcomes
        for change in changes:
            await change.staged.drop()
        await pull.create("another", own[1][:100])
        await pull.create("more", own[1] + own[0])
        assert len(pull.far.gave) == 4

    with_root(subject, [*own, own[1][:100]], work)
    assert [subject.file(f"small{number}").read_bytes() for number in range(6)] == small


def test_what_came_is_readable_for_others_at_once(subject: Subject) -> None:
    own = pieces(subject, 3)

    async def work(pull: Pull) -> None:
        read = pull.root.keep_received()
        (staged,) = await pull.root.stage([pull.wanted("file", b"".join(own))], pull.board)
        asked = [*own, b"never"]
        found = [await trio.to_thread.run_sync(read, BlockId(block_id(piece))) for piece in asked]
        assert found == [*own, None]
        await staged.drop()

    with_root(subject, [b"".join(own)], work)
