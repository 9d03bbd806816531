"""A repository in memory, its devices, and what tests do with them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from random import Random

import trio

from blockfs.blocks.hashing import block_id, canonical
from blockfs.blocks.ids import BlockId
from syncer.blocks.board import Blocks
from syncer.blocks.near import OwnBlocks
from syncer.blocks.wanting import fetch_files
from syncer.core.model import Kind, RelPath, RemoteStat, meta_of
from syncer.engine.fetch import serving
from syncer.errors import SyncerError
from syncer.ports.blocks import VersionRef
from syncer.ports.orders import write_one
from syncer.remote.repository.client import RepositoryClient, Writer
from syncer.remote.repository.format.config import Config
from syncer.remote.repository.format.history import DeviceId
from syncer.remote.repository.objects import Objects
from syncer.remote.stores.memory import MemoryStore
from tests.contract.writing import Shelf, made_of, store_order
from tests.unit.syncer.remote.repository.nodes import KEYS

GRID = 4096
CONFIG = Config(grid=GRID, chunks=(1024, 4096, 16384), made_s=0)
META = meta_of(0o640, mtime_ns=7, xattrs=((b"colour", b"red"),))


class Share:
    """A repository in memory."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, int]] = {}

    def client(self, number: int) -> RepositoryClient:
        """Another device."""
        writer = Writer(device=DeviceId(bytes([number]) * 16), name=f"host{number}", tool="test")
        return RepositoryClient(Objects(MemoryStore(self.objects), KEYS), CONFIG, writer)


def path(text: str) -> RelPath:
    return RelPath(text.encode())


def run(scenario: Callable[[Share], Awaitable[None]]) -> None:
    async def main() -> None:
        with trio.fail_after(250):
            await scenario(Share())

    trio.run(main)


async def listed(client: RepositoryClient) -> dict[RelPath, RemoteStat]:
    return {stat.path: stat for stat in (await client.list_objects()).objects}


async def put(client: RepositoryClient, where: str, data: bytes, replaces: RemoteStat | None = None) -> None:
    tag = None if replaces is None else replaces.tag
    made_of(await write_one(client, store_order(path(where), Kind.FILE, data, META, tag, GRID), Shelf([data], GRID)))


class Owned:
    """`NearBlocks` of some contents; which blocks were read is noted, and bytes can be wrong."""

    def __init__(self, *contents: bytes, wrong: bool = False) -> None:
        blocks = [data[at : at + GRID] for data in contents for at in range(0, len(data), GRID)]
        self._blocks = {block_id(block): b"wrong" if wrong else canonical(block) for block in blocks}
        self.asked: set[BlockId] = set()

    def which(self, ids: Sequence[BlockId]) -> set[BlockId]:
        return {block for block in ids if block in self._blocks}

    def read(self, ids: Sequence[BlockId], *, checked: bool) -> dict[BlockId, bytes]:
        self.asked.update(ids)
        return {block: self._blocks[block] for block in ids} if not checked else {}


async def fetched(client: RepositoryClient, stat: RemoteStat, own: Owned | None = None) -> bytes:
    """A version's bytes, by the client's source, as the engine gets them."""
    assert stat.content is not None
    version = VersionRef(path=stat.path, tag=stat.tag, content=stat.content)
    (blocks,) = await client.block_lists([(version, None)])
    if isinstance(blocks, SyncerError):
        raise blocks
    data = bytearray(blocks.size_bytes)

    async def receive(got: object) -> None:
        for block, found in got:  # type: ignore[attr-defined]
            for at in (at for at, each in enumerate(blocks) if each == block):
                data[at * GRID : at * GRID + len(found)] = found

    board = Blocks([client.source] if own is None else [OwnBlocks(own), client.source])
    async with serving(board):
        lacking = [at for at, block in enumerate(blocks) if block in blocks.unique_ids()]
        for error in (await fetch_files(board, [(version, blocks)], {0: lacking}, receive)).values():
            raise error
    return bytes(data)


def random_bytes(seed: int, size: int) -> bytes:
    return Random(seed).randbytes(size)
