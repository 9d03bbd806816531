"""Ordinary roots for tests: a folder with a marker, opened as `LocalDirectory`."""

from __future__ import annotations

import os
import random
from collections.abc import Awaitable, Callable, Container, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trio

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.hashing import block_id
from blockfs.blocks.ids import BlockId
from syncer.core.base import BaseIndex
from syncer.core.conflict import conflict_name
from syncer.core.model import Content, FileStat, Kind, LocalTag, Meta, Nid, Node, RelPath
from syncer.core.rows import Origin
from syncer.errors import SyncerError
from syncer.local.folder.changes import no_step
from syncer.local.folder.identity import Folder, look_at_folder, write_marker
from syncer.local.folder.private import PrivateFolder
from syncer.local.folder.root import LocalDirectory
from syncer.local.options import RootOptions
from syncer.ports.blocks import Priority, Receive, Want
from syncer.ports.local import LocalRoot
from syncer.ports.localvalues import OWN, Applied, Change, Install, Observation, Staged, StageOrder, content_of
from syncer.ports.state import State
from tests.kit.state import MemoryState

BLOCK = 4096
UUID = "11111111-2222-4333-8444-555555555555"
NO_BASE = BaseIndex()
P = RelPath


def copy_name(name: bytes, content: Content | None, taken: Container[bytes]) -> bytes:
    kind = Kind.DIRECTORY if content is None else Kind.FILE
    node = Node(parent=Nid(0), name=name, kind=kind, content=content)
    return conflict_name(node, host="here", utc="20260101T000000Z", taken=taken)


def adopt(path: Path) -> Folder:
    """Make a folder a root."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        private = PrivateFolder(descriptor)
        write_marker(private.top, UUID)
        private.close()
        return look_at_folder(descriptor, UUID)
    finally:
        os.close(descriptor)


@dataclass
class Place:
    """A root, its recorded identity and its state folder."""

    path: Path
    folder: Folder
    state: Path

    def open(self, state: State | None = None, step: Callable[[str], None] = no_step, **others: Any) -> LocalDirectory:
        """Open it; `others` are of its options."""
        lists = str(self.state / "lists")
        options = RootOptions(block_size=BLOCK, lists=lists, state=state or MemoryState(), **others)
        return LocalDirectory(os.fsencode(self.path), self.folder, options, copy_name, step=step)

    def visible(self) -> dict[str, bytes]:
        """Regular files outside the private folder."""
        found = {}
        for path in self.path.rglob("*"):
            if path.is_file() and not path.is_symlink() and ".blocksync" not in path.parts:
                found[str(path.relative_to(self.path))] = path.read_bytes()
        return found

    def trashed(self) -> list[bytes]:
        return [path.read_bytes() for path in sorted((self.path / ".blocksync/trash").glob("*/item"))]


def new_place(tmp_path: Path, name: str = "root") -> Place:
    path = tmp_path / name
    path.mkdir()
    return Place(path, adopt(path), tmp_path / f"{name}.state")


def blocks_of(data: bytes) -> BlockList:
    ids = b"".join(block_id(data[at : at + BLOCK]) for at in range(0, len(data), BLOCK))
    return BlockList(block_size=BLOCK, size_bytes=len(data), ids=ids)


@dataclass
class Elsewhere:
    """The other side of a fetch: serves `data`, counts what it gave."""

    data: bytes
    served: int = 0

    async def fetch(self, indexes: Sequence[int], receive: Receive) -> None:
        for index in indexes:
            piece = self.data[index * BLOCK : (index + 1) * BLOCK]
            self.served += 1
            await receive([(BlockId(block_id(piece)), piece.rstrip(b"\0"))])


Fetch = Callable[[Sequence[int], Receive], Awaitable[None]]
"""Has the blocks with these indexes received; raises why it can't."""


@dataclass
class Ordered:
    """An order, and what has the blocks that it lacks."""

    order: StageOrder
    fetch: Fetch

    def __getattr__(self, name: str) -> Any:
        return getattr(self.order, name)

    def index(self, block: bytes) -> int:
        return [*self.order.blocks].index(BlockId(block))


@dataclass
class Scripted:
    """A `Fetcher`: what an order lacks comes by its own `fetch`, all at once. Of two with one block, the first's."""

    orders: Sequence[Ordered]

    async def fetch(self, wants: Sequence[Want], receive: Receive, *, priority: Priority) -> dict[BlockId, SyncerError]:
        if len(self.orders) == 1:
            (order,) = self.orders
            await order.fetch([order.index(want.id) for want in wants], receive)
            return {}
        failed: dict[BlockId, Any] = {}
        for want in wants:
            for order in self.orders:
                if want.id in [*order.order.blocks] and failed.get(want.id, True):
                    try:
                        await order.fetch([order.index(want.id)], receive)
                        failed[want.id] = None
                    except OWN as error:
                        failed[want.id] = error
        return {block: error for block, error in failed.items() if error is not None}


async def staged_by(root: LocalRoot, order: Ordered) -> Staged:
    """Stage one file; raises why it can't be."""
    (outcome,) = await root.stage([order.order], Scripted([order]))
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


async def done(root: LocalRoot, change: Change) -> Applied:
    """Make one change; raises why it can't be made."""
    (outcome,) = await root.apply([change])
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


async def made_all(root: LocalRoot, orders: Sequence[Ordered]) -> list[Applied | Exception]:
    """Stage and name new files, all at once."""
    staged = await root.stage([each.order for each in orders], Scripted(orders))
    changes = {
        at: Install(path=orders[at].path, staged=each)
        for at, each in enumerate(staged)
        if not isinstance(each, Exception)
    }
    applied = dict(zip(changes, await root.apply(list(changes.values())), strict=True))
    for change in changes.values():
        await change.staged.drop()
    found = [applied.get(at, each) for at, each in enumerate(staged)]
    return [each for each in found if isinstance(each, Applied | Exception)]


def wanted(
    path: bytes,
    data: bytes,
    fetch: Fetch,
    *,
    meta: Meta = Meta(mode=0o640, mtime_ns=1_000_000_001),  # noqa: B008 - frozen
    origins: tuple[Origin, ...] = (),
) -> Ordered:
    blocks = blocks_of(data)
    order = StageOrder(path=RelPath(path), content=content_of(blocks), blocks=blocks, meta=meta, origins=origins)
    return Ordered(order, fetch)


def by_path(observation: Observation) -> dict[bytes, FileStat]:
    return {stat.path: stat for stat in observation.stats}


def noise(seed: int, size: int) -> bytes:
    return random.Random(seed).randbytes(size)


def with_root(place: Place, work: Callable[[LocalDirectory], Coroutine[Any, Any, None]], **options: Any) -> None:
    """Open the root, do some work on it, close it."""

    async def main() -> None:
        root = place.open(**options)
        try:
            await work(root)
        finally:
            await root.close()

    trio.run(main)


async def look(root: LocalDirectory) -> dict[bytes, Any]:
    return by_path(await root.observe(NO_BASE, None))


async def tag(root: LocalDirectory, path: bytes) -> LocalTag:
    found: LocalTag = (await look(root))[path].tag
    return found
