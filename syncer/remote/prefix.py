"""One folder of a container as if it were the container: `Remote` with its names mapped, and nothing else.

What lies beside the folder is never named in a request that changes something, and never told. What belongs to the
container as a whole stays so: its identity, its versions, its cursor. So a restored backup is noticed as ever, and
every extension works. The reserved names are the folder's own: `PREFIX/.blocksync/park/…`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from msgspec.structs import replace

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.ids import BlockId
from syncer.core.model import Ages, Position, RelPath, RemoteStat, RemoteTag
from syncer.core.partial.listing_diff import Known
from syncer.core.paths import LAN_KEY, is_hidden, is_reserved, rel_path
from syncer.core.planner.overwrites import ForeignVersion, Overwrite
from syncer.core.subtrees import SubtreeMove
from syncer.errors import SyncerError, UnsafeNameError
from syncer.ports.blocks import BlockSource, VersionRef
from syncer.ports.orders import Done, Move, MoveTree, Order, Reader, Store, Stored
from syncer.ports.remote import (
    Changes,
    Counters,
    KnownList,
    Listing,
    RefusedName,
    Remote,
    RemoteInfo,
    Secret,
)
from syncer.remote.http.retry import RetryPolicy
from syncer.remote.http.transport import HttpSettings
from syncer.remote.pithos.client import open_pithos
from syncer.remote.source import Reads, RemoteSource
from syncer.remote.url import parse_url


class _Names:
    """Names in the folder, and in the container."""

    def __init__(self, prefix: RelPath) -> None:
        self.below = rel_path(prefix) + b"/"

    def out(self, path: RelPath) -> RelPath:
        """The path in the container."""
        if is_reserved(path):
            raise UnsafeNameError(path, "it is reserved for blocksync")
        return RelPath(self.below + rel_path(path))

    def into(self, path: bytes) -> RelPath | None:
        """The path in the folder; None for what is elsewhere, or is not to be told."""
        if not path.startswith(self.below):
            return None
        inside = RelPath(path[len(self.below) :])
        return None if not inside or is_hidden(inside) else inside

    def touch(self, path: bytes) -> bool:
        """Whether what happens to a path of the container may be seen in the folder."""
        return path.startswith(self.below) or self.below.startswith(path + b"/")

    def stats(self, stats: Iterable[RemoteStat]) -> list[RemoteStat]:
        """What is in the folder, by its paths there."""
        return [replace(stat, path=inside) for stat in stats if (inside := self.into(stat.path)) is not None]

    def lan_key(self, stats: Iterable[RemoteStat]) -> RemoteStat | None:
        """The folder's key among objects of the container."""
        name = self.below + LAN_KEY
        return next((replace(stat, path=RelPath(LAN_KEY)) for stat in stats if stat.path == name), None)

    def refused(self, refused: Iterable[RefusedName]) -> list[RefusedName]:
        """What of refused names is in the folder."""
        below = self.below.decode()
        return [replace(one, name=self.without(one.name)) for one in refused if one.name.startswith(below)]

    def without(self, name: str) -> str:
        """A name of the container without the folder's, if it has that."""
        return name.removeprefix(self.below.decode())


class Readable(Remote, Reads, Protocol):
    """A client of a container."""


class PrefixClient:
    """`Remote` of the folder `prefix` of another one's container."""

    def __init__(self, inner: Readable, prefix: RelPath) -> None:
        self._inner = inner
        self._names = _Names(prefix)
        self.ages: Ages = inner.ages
        self.counters: Counters = inner.counters
        self.source: BlockSource = RemoteSource(inner, self._names.out)

    # --- the container

    async def open(self, *, create: bool = False) -> RemoteInfo:
        """See Remote."""
        return await self._inner.open(create=create)

    async def list_objects(self) -> Listing:
        """See Remote."""
        found = await self._inner.list_objects()
        return replace(
            found,
            objects=self._names.stats(found.objects),
            refused=self._names.refused(found.refused),
            lan_key=self._names.lan_key(found.objects),
        )

    async def changes(
        self,
        since: Position,
        known: Known | None = None,
        *,
        moves: bool = False,
        brief: bool = False,
        own: Sequence[RemoteTag] = (),
    ) -> Changes | None:
        """See Remote."""
        inside = None if known is None else replace(known, below=self._names.below)
        found = await self._inner.changes(since, inside, moves=moves, brief=brief, own=own)
        if found is not None and any(self._crosses(move) for move in found.moves):
            # What came in or went out is told one by one.
            found = await self._inner.changes(since, inside, brief=brief, own=own)
        return None if found is None else self._changes(found)

    async def wait(self, seen: Position | None) -> Position:
        """See Remote. The wait of the container ends with any change of it: of which none may be here."""
        while True:
            now = await self._inner.wait(seen)
            found = None if seen is None else await self.changes(seen)
            if found is None or found.objects or found.deleted or found.refused:
                return now
            seen = now

    def _crosses(self, move: SubtreeMove) -> bool:
        """Whether a move is neither within the folder nor beside it."""
        names = (move.source.encode(), move.target.encode())
        inside = [self._names.into(name) is not None for name in names]
        near = [self._names.touch(name) for name in names]
        return any(near) and not all(inside)

    def _changes(self, found: Changes) -> Changes:
        lan_key, key_name = self._names.lan_key(found.objects), self._names.out(RelPath(LAN_KEY))
        deleted = [inside for name in found.deleted if (inside := self._names.into(name)) is not None]
        return replace(
            found,
            objects=self._names.stats(found.objects),
            deleted=list(deleted),
            refused=self._names.refused(found.refused),
            moves=[self._move(move) for move in found.moves if self._names.into(move.source.encode()) is not None],
            lan_key=lan_key,
            lan_key_gone=key_name in found.deleted if found.complete else lan_key is None,
        )

    def _move(self, move: SubtreeMove) -> SubtreeMove:
        """A move within the folder, by the names there. What it moved is named from its root on: the guard stays."""
        names = self._names
        return replace(move, source=names.without(move.source), target=names.without(move.target))

    async def close(self) -> None:
        """See Remote."""
        await self._inner.close()

    # --- reading

    async def resolve(self, stats: Sequence[RemoteStat]) -> list[RemoteStat | SyncerError]:
        """See Remote."""
        found = await self._inner.resolve([replace(stat, path=self._names.out(stat.path)) for stat in stats])
        return [
            replace(full, path=stat.path) if isinstance(full, RemoteStat) else full
            for stat, full in zip(stats, found, strict=True)
        ]

    async def writers(self, versions: Sequence[VersionRef]) -> list[str]:
        """See Remote."""
        return await self._inner.writers([replace(one, path=self._names.out(one.path)) for one in versions])

    async def secret(self, path: RelPath, most_bytes: int) -> Secret | None:
        """See Remote."""
        return await self._inner.secret(self._names.out(path), most_bytes)

    async def block_lists(self, asks: Sequence[tuple[VersionRef, KnownList | None]]) -> list[BlockList | SyncerError]:
        """See Remote."""
        outside = [(replace(version, path=self._names.out(version.path)), known) for version, known in asks]
        return await self._inner.block_lists(outside)

    # --- writing

    async def write(self, orders: Sequence[Order], reader: Reader, done: Done) -> None:
        """See Writes."""
        outside: list[Order] = []
        places: list[int] = []
        for at, order in enumerate(orders):
            try:
                outside.append(self._outside(order))
            except UnsafeNameError as error:
                await done(at, error)
            else:
                places.append(at)

        async def inside(at: int, outcome: Stored | Exception) -> None:
            await done(places[at], self._stored(outcome) if isinstance(outcome, Stored) else outcome)

        if outside:
            await self._inner.write(outside, reader, inside)

    def _outside(self, order: Order) -> Order:
        """An order of the container."""
        if isinstance(order, Move | MoveTree):
            return replace(order, source=self._names.out(order.source), target=self._names.out(order.target))
        if isinstance(order, Store) and isinstance(order.source, ForeignVersion):
            order = replace(order, source=replace(order.source, path=self._names.out(order.source.path)))
        return replace(order, path=self._names.out(order.path))

    def _stored(self, stored: Stored) -> Stored:
        """Versions of others that were at the same name, and what moved, by the names in the folder."""
        foreign = [(one, self._names.into(one.path)) for one in stored.foreign]
        return replace(
            stored,
            foreign=tuple(replace(one, path=path) for one, path in foreign if path is not None),
            moved=None if stored.moved is None else self._move(stored.moved),
        )

    async def send(self, blocks: Mapping[BlockId, bytes]) -> None:
        """See Writes."""
        await self._inner.send(blocks)

    async def commit(self) -> None:
        """See Writes."""
        await self._inner.commit()

    async def replaced_unseen(self, write: Overwrite) -> list[ForeignVersion]:
        """See Remote."""
        found = await self._inner.replaced_unseen(replace(write, path=self._names.out(write.path)))
        return [replace(one, path=write.path) for one in found]


def open_container(
    url: str,
    token: str,
    *,
    settings: HttpSettings | None = None,
    policy: RetryPolicy | None = None,
    draw: Callable[[], float] = random.random,
) -> Remote:
    """A client of the container at `url`, or of the folder of it that the URL names; see `open_pithos`."""
    client = open_pithos(url, token, settings=settings, policy=policy, draw=draw)
    prefix = parse_url(url).prefix
    return PrefixClient(client, RelPath(prefix.encode())) if prefix else client
