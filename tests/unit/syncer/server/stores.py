"""Stores for tests: a small block size, a clock that stands still until it is told otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.hashing import block_id
from blockfs.blocks.ids import BlockId
from syncer.protocol.extensions.hashmap_delta import delta_of
from syncer.protocol.pithos.headers import ObjectState
from syncer.server.catalogue.conditions import UNCONDITIONAL, Conditions
from syncer.server.catalogue.orders import Place, ReadOrder, Selection, WriteOrder
from syncer.server.folder import ServerFolder
from syncer.server.store.store import Store

BLOCK = 4096
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
HOUR_US = 3600 * 1_000_000


@dataclass
class Clock:
    now_us: int = 1_800_000_000_000_000

    def __call__(self) -> int:
        return self.now_us


def open_store(path: Path, clock: Clock) -> Store:
    return Store(ServerFolder.open(str(path), block_size=BLOCK), clock_us=clock)


def at(name: str, container: str = "c", account: str = "alice") -> Place:
    return Place(account=account, container=container, name=name)


def put(store: Store, place: Place, data: bytes, conditions: Conditions = UNCONDITIONAL, **meta: str) -> ObjectState:
    with closing(store.receive()) as incoming:
        incoming.feed([data])
        return store.put_content(
            WriteOrder(place=place, content_type="t/t", meta=meta, conditions=conditions), incoming
        )


def put_ids(
    store: Store,
    place: Place,
    ids: Sequence[BlockId],
    size_bytes: int | None = None,
    conditions: Conditions = UNCONDITIONAL,
) -> ObjectState:
    size = len(ids) * BLOCK if size_bytes is None else size_bytes
    blocks = BlockList(block_size=BLOCK, size_bytes=size, ids=b"".join(ids))
    return store.put_block_list(
        WriteOrder(place=place, content_type="t/t", meta={}, conditions=conditions), delta_of(blocks), None
    )


def upload(store: Store, account: str, *blocks: bytes) -> list[BlockId]:
    with closing(store.receive()) as incoming:
        for number, block in enumerate(blocks):
            incoming.feed([block if number == len(blocks) - 1 else block.ljust(BLOCK, b"\0")])
        return store.upload(account, incoming)


def read(store: Store, place: Place, version: int | None = None) -> bytes:
    opened = store.open_object(ReadOrder(place=place, version=version))
    return b"".join(store.content(opened, 0, opened.state.size_bytes))


def names(store: Store, container: str = "c", account: str = "alice") -> list[str]:
    _, rows = store.listing(account, container, Selection(limit=10_000))
    return [row.name for row in rows]


def stored(store: Store) -> set[BlockId]:
    return set(store._blocks.ids())


def letter(character: str) -> bytes:
    return character.encode() * BLOCK


def letter_id(character: str) -> BlockId:
    return block_id(letter(character))
