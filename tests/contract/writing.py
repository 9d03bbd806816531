"""Orders for tests: one at a time as a call with a result, many as a list with outcomes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from blockfs.blocks.blocklist import BlockList
from syncer.core.model import Kind, Meta, RelPath, RemoteTag
from syncer.core.planner.overwrites import ForeignVersion
from syncer.core.subtrees import Guard, SubtreeMove
from syncer.ports.orders import Delete, InMemory, Move, MoveTree, Order, Reader, SetMeta, Store, Stored, write_one
from syncer.ports.remote import Remote

BLOCK = 4096


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """A write that made a version."""

    tag: RemoteTag
    foreign: tuple[ForeignVersion, ...] = ()


class New(msgspec.Struct, frozen=True, kw_only=True):
    """A small object to be made."""

    path: RelPath
    kind: Kind
    data: bytes
    meta: Meta


class Shelf:
    """A `Reader` of several contents; `known`: the list of what they replace."""

    def __init__(self, contents: Iterable[bytes], block_size: int = BLOCK, known: BlockList | None = None) -> None:
        held = [InMemory.of(data, block_size) for data in contents]
        self.held = {one.content: one for one in held}
        self.known = known

    def _of(self, store: Store) -> InMemory:
        assert store.content is not None
        return self.held[store.content]

    async def contents(self, stores: Sequence[Store]) -> list[bytes | Exception]:
        return [data for one in stores for data in await self._of(one).contents([one])]

    async def block_list(self, store: Store) -> BlockList:
        return await self._of(store).block_list(store)

    async def older_list(self, store: Store) -> BlockList | None:
        return self.known

    async def blocks(self, store: Store, blocks: BlockList, indexes: Sequence[int]) -> list[bytes]:
        return await self._of(store).blocks(store, blocks, indexes)


def made_of(stored: Stored) -> Made:
    assert stored.tag is not None
    return Made(tag=stored.tag, foreign=stored.foreign)


def store_order(
    where: RelPath, kind: Kind, data: bytes, meta: Meta, replaces: RemoteTag | None = None, block_size: int = BLOCK
) -> Store:
    content = InMemory.of(data, block_size).content if kind is Kind.FILE else None
    target = data if kind is Kind.SYMLINK else None
    return Store(path=where, kind=kind, meta=meta, replaces=replaces, content=content, target=target)


async def put_small(
    client: Remote, where: RelPath, kind: Kind, data: bytes, meta: Meta, expect: RemoteTag | None
) -> Made:
    """Make an object of at most one block, or a new version of it."""
    order = store_order(where, kind, data, meta, expect)
    return made_of(await write_one(client, order, Shelf([data])))


async def move(client: Remote, source: RelPath, target: RelPath, expect: RemoteTag) -> Made:
    return made_of(await write_one(client, Move(source=source, target=target, expect=expect)))


async def move_tree(client: Remote, source: RelPath, target: RelPath, guard: Guard) -> SubtreeMove:
    stored = await write_one(client, MoveTree(source=source, target=target, guard=guard))
    assert stored.moved is not None
    return stored.moved


async def delete(client: Remote, where: RelPath, expect: RemoteTag) -> None:
    await write_one(client, Delete(path=where, expect=expect))


async def set_meta(client: Remote, where: RelPath, meta: Meta, expect: RemoteTag) -> Made:
    return made_of(await write_one(client, SetMeta(path=where, meta=meta, expect=expect)))


async def write_list(client: Remote, orders: Sequence[Order], reader: Reader) -> list[Stored | Exception]:
    """Carry out a list; each outcome must be told once."""
    told: dict[int, Stored | Exception] = {}

    async def done(at: int, outcome: Stored | Exception) -> None:
        assert at not in told
        told[at] = outcome

    await client.write(orders, reader, done)
    return [told[at] for at in range(len(orders))]


async def make_all(client: Remote, news: Sequence[New]) -> list[Made | Exception]:
    """Make many objects of at most one block each."""
    orders = [store_order(new.path, new.kind, new.data, new.meta) for new in news]
    found = await write_list(client, orders, Shelf(new.data for new in news))
    return [made_of(one) if isinstance(one, Stored) else one for one in found]
