"""A remote held in memory: the engine's fake. Keeps every rule of `Remote`; the contract suite says so.

One `MemoryContainer` is shared by any number of `MemoryClient`s, as a server is by its devices.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
import trio
from msgspec.structs import replace

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.extents import block_length
from blockfs.blocks.hashing import block_id, canonical
from blockfs.blocks.ids import ZERO_BLOCK, BlockId, ObjectHash
from syncer.core.model import Ages, Content, Kind, Meta, RelPath, RemoteStat, RemoteTag, meta_of
from syncer.core.partial.listing_diff import Known, ListingDiff
from syncer.core.paths import LAN_KEY, is_hidden
from syncer.core.planner.overwrites import ForeignVersion, Overwrite
from syncer.core.subtrees import SubtreeMove, guard_of, version_of
from syncer.core.xattrs import settled
from syncer.errors import ONE_NODE, ConflictOnRemoteError, NotFoundError, RemoteUnavailableError, SyncerError
from syncer.ports import orders as port
from syncer.ports.blocks import BlockSource, VersionRef
from syncer.ports.remote import (
    Changes,
    Counters,
    KnownList,
    Listing,
    RefusedName,
    RemoteInfo,
    Secret,
)
from syncer.protocol.pithos.headers import EXTENSION_CHANGES, EXTENSION_SUBTREES, EXTENSION_WITHOUT
from syncer.protocol.pithos.names import name_from_path
from syncer.remote.container.conditions import describe, require
from syncer.remote.container.info import ContainerInfo
from syncer.remote.parallel import for_each, outcomes
from syncer.remote.polling import ServerChanges
from syncer.remote.serials import SERIALS, Cursor
from syncer.remote.source import Deliver, RemoteSource

Hook = Callable[[str, RelPath], Awaitable[None]]
"""Called with what is done, a method's or an order's name, and its path (b"" for the container's). May wait, change the
container, or raise."""

_NOTHING: Final = RelPath(b"")
_AT_ONCE: Final = 16

_HELD_BACK: Final = frozenset({"store", "move", "move_tree", "delete", "set_meta"})
_MUTATING: Final = _HELD_BACK | {"create", "send", "commit"}


async def no_hook(operation: str, path: RelPath) -> None:
    """Does nothing."""


class MemoryVersion(msgspec.Struct, frozen=True, kw_only=True):
    """One version of one object."""

    kind: Kind
    uuid: str
    version: int
    blocks: BlockList
    meta: Meta
    device: str = ""

    @property
    def tag(self) -> RemoteTag:
        """How the engine names this version."""
        return RemoteTag(
            uuid=self.uuid,
            version=self.version,
            etag=self.blocks.object_hash.hex(),
            size_bytes=self.blocks.size_bytes,
        )


@dataclass(slots=True, kw_only=True)
class MemoryContainer:
    """What the server would hold.

    Attributes:
        exists: Whether it was created.
        identity: A new life has a new one.
        block_size: Bytes.
        lists_meta: False: listings carry neither metadata nor targets, as on a plain Pithos.
        objects: Current versions.
        versions: All versions ever, by number, still readable.
        data: Blocks by id, canonical.
        refused: Names that the listing reports as refused.
        last_version: The server's serial.
        deleted: Serials of deletions, by name, of what does not exist now.
        extensions: What it can beyond Pithos.
        moves: Subtrees that were moved as one, in order.
        changed: Where those wait that want to hear of a change.
        holds_back: What a client writes is seen by others when it has committed it: all of it, or nothing.
    """

    exists: bool = True
    identity: str | None = "00000000-0000-4000-8000-000000000001"
    block_size: int = 4096
    lists_meta: bool = True
    objects: dict[RelPath, MemoryVersion] = field(default_factory=dict)
    versions: dict[int, MemoryVersion] = field(default_factory=dict)
    data: dict[BlockId, bytes] = field(default_factory=dict)
    refused: list[RefusedName] = field(default_factory=list)
    last_version: int = 0
    deleted: dict[RelPath, int] = field(default_factory=dict)
    extensions: frozenset[str] = frozenset({EXTENSION_CHANGES, EXTENSION_SUBTREES, EXTENSION_WITHOUT})
    moves: list[SubtreeMove] = field(default_factory=list)
    changed: trio.lowlevel.ParkingLot = field(default_factory=trio.lowlevel.ParkingLot, compare=False)
    holds_back: bool = False

    def draft(self) -> MemoryContainer:
        """The same, to be changed by one client. The blocks are common: nobody finds them without a list."""
        return dataclasses.replace(
            self,
            objects=dict(self.objects),
            versions=dict(self.versions),
            deleted=dict(self.deleted),
            moves=list(self.moves),
            changed=trio.lowlevel.ParkingLot(),
        )

    def take(self, draft: MemoryContainer) -> None:
        """Become what a client made of a draft."""
        self.objects, self.versions, self.deleted = draft.objects, draft.versions, draft.deleted
        self.moves, self.last_version = draft.moves, draft.last_version
        self.changed.unpark_all()

    def remove(self, path: RelPath) -> MemoryVersion:
        """Delete an object; its versions stay."""
        self.last_version += 1
        self.deleted[path] = self.last_version
        self.changed.unpark_all()
        return self.objects.pop(path)

    @property
    def lan_key(self) -> RemoteStat | None:
        """The object with the share's key."""
        found = self.objects.get(RelPath(LAN_KEY))
        return None if found is None else self.stat(RelPath(LAN_KEY), found)

    @property
    def cursor(self) -> Cursor:
        """Now."""
        if EXTENSION_CHANGES in self.extensions and self.identity is not None:
            return Cursor(identity=self.identity, version=self.last_version, modified_us=self.last_version)
        version = self.last_version if self.identity is not None else 0
        return Cursor(identity="", version=version, modified_us=0, evidence=(str(self.last_version),))

    def put(
        self,
        path: RelPath,
        *,
        kind: Kind,
        blocks: BlockList,
        meta: Meta,
        uuid: str | None = None,
        device: str = "",
    ) -> MemoryVersion:
        """Make the next version of `path`, without any condition. The uuid stays, or is new, or is the given one."""
        self.last_version += 1
        before = self.objects.get(path)
        fresh = hashlib.sha256(b"uuid %d" % self.last_version).hexdigest()[:32]  # deterministic: simulations replay
        made = MemoryVersion(
            kind=kind,
            uuid=uuid or (before.uuid if before is not None and before.kind is kind else fresh),
            version=self.last_version,
            blocks=blocks,
            meta=meta_of(meta.full_mode, mtime_ns=meta.mtime_ns, xattrs=settled(meta.xattrs)),
            device=device,
        )
        self.objects[path] = made
        self.versions[made.version] = made
        self.deleted.pop(path, None)
        self.changed.unpark_all()
        return made

    def store(self, data: bytes) -> BlockId:
        """Keep one block."""
        name = block_id(data)
        self.data[name] = canonical(data)
        return name

    def store_all(self, data: bytes) -> BlockList:
        """Keep a whole content."""
        step = self.block_size
        ids = b"".join(self.store(data[at : at + step]) for at in range(0, len(data), step))
        return BlockList(block_size=step, size_bytes=len(data), ids=ids)

    def content(self, version: MemoryVersion) -> bytes:
        """The bytes of a version."""
        size, step = version.blocks.size_bytes, self.block_size
        parts = [
            self.data.get(name, b"").ljust(block_length(index, size, step), b"\0")
            for index, name in enumerate(version.blocks)
        ]
        return b"".join(parts)

    def stat(self, path: RelPath, version: MemoryVersion, *, listed: bool = False) -> RemoteStat:
        """What a client sees of a version."""
        bare = listed and not self.lists_meta
        content = None
        if version.kind is Kind.FILE:
            content = Content(size_bytes=version.blocks.size_bytes, object_hash=ObjectHash(version.blocks.object_hash))
        return RemoteStat(
            path=path,
            kind=version.kind,
            meta=None if bare else version.meta,
            content=content,
            target=self.content(version) if version.kind is Kind.SYMLINK and not bare else None,
            tag=version.tag,
            device=None if bare else version.device,
        )


class MemoryClient(ServerChanges):
    """`Remote` on a `MemoryContainer`.

    Attributes:
        container: What it sees: the container, or its own draft of one that holds back.
        before: Called before the effect of each method; raising means that nothing happened.
        after: Called after it; raising means that it happened and the reply was lost.
    """

    def __init__(self, container: MemoryContainer, *, before: Hook = no_hook, after: Hook = no_hook) -> None:
        self.container = container
        self._shared = container
        self._begun = 0  # the serial that the draft was made of
        self.counters = Counters()
        self.ages: Ages = SERIALS
        self.source: BlockSource = RemoteSource(self)
        self.before = before
        self.after = after
        self._sending = trio.Lock()

    async def open(self, *, create: bool = False) -> RemoteInfo:
        """See Remote."""
        operation = "create" if create else "open"
        await self._enter(operation)
        self.container.exists |= create
        info = self._info()
        await self.after(operation, _NOTHING)
        return info

    async def list_objects(self) -> Listing:
        """See Remote."""
        await self._enter("list_objects")
        box = self.container
        listing = Listing(
            info=self._info(),
            objects=[
                box.stat(path, version, listed=True)
                for path, version in sorted(box.objects.items())
                if not is_hidden(path)
            ],
            refused=list(box.refused),
            position=box.cursor.position,
            lan_key=box.lan_key,
        )
        await self.after("list_objects", _NOTHING)
        return listing

    async def _now(self) -> Cursor:
        await self._enter("moment")
        self._info()
        return self.container.cursor

    async def _compared(self, known: Known, since: Cursor) -> Changes:
        """What differs from what is known."""
        if since == self.container.cursor:
            await self._enter("moment")
            return Changes(info=self._info(), position=since.position, objects=[], deleted=[], refused=[])
        listing, diff = await self.list_objects(), ListingDiff(known)
        objects = diff.differing(listing.objects)
        return Changes(
            info=listing.info,
            position=listing.position,
            complete=False,
            objects=objects,
            deleted=list(diff.missing()),
            refused=listing.refused,
            lan_key=listing.lan_key,
            lan_key_gone=listing.lan_key is None,
        )

    async def _told(
        self, since: Cursor, *, moves: bool = False, own: Sequence[RemoteTag] = (), waits: bool = False
    ) -> Changes | None:
        """What changed."""
        await self._enter("changes")
        self._info()
        box = self.container
        if own and EXTENSION_WITHOUT not in box.extensions:
            return None
        if not box.cursor.identity or since.identity != box.identity or since.version > box.last_version:
            return None
        while waits and since.version == box.last_version:
            await box.changed.park()
        whole = [move for move in box.moves if moves and move.first > since.version]
        ours = {tag.version for tag in own}

        def told(version: int) -> bool:
            moved = any(version in range(move.first, move.last + 1) for move in whole)
            return version > since.version and not moved and version not in ours

        found = Changes(
            info=self._info(),
            position=box.cursor.position,
            moves=whole,
            objects=[
                box.stat(path, version, listed=True)
                for path, version in sorted(box.objects.items())
                if told(version.version) and not is_hidden(path)
            ],
            deleted=[path for path, version in box.deleted.items() if told(version)],
            refused=[],
            lan_key=box.lan_key if box.lan_key is not None and told(box.lan_key.tag.version) else None,
            lan_key_gone=LAN_KEY in box.deleted and told(box.deleted[RelPath(LAN_KEY)]),
        )
        await self.after("changes", _NOTHING)
        return found

    async def resolve(self, stats: Sequence[RemoteStat]) -> list[RemoteStat | SyncerError]:
        """See Remote."""

        async def work(stat: RemoteStat) -> RemoteStat:
            await self._enter("resolve", stat.path)
            full = self.container.stat(stat.path, self._pinned(stat.path, stat.tag))
            await self.after("resolve", stat.path)
            return full

        return await outcomes(stats, work, 8)

    async def writers(self, versions: Sequence[VersionRef]) -> list[str]:
        """See Remote."""

        async def work(version: VersionRef) -> str:
            await self._enter("writers", version.path)
            return self._pinned(version.path, version.tag).device

        return [found if isinstance(found, str) else "" for found in await outcomes(versions, work, 8)]

    async def secret(self, path: RelPath, most_bytes: int) -> Secret | None:
        """See Remote."""
        await self._enter("secret", path)
        self._info()
        found = self.container.objects.get(path)
        await self.after("secret", path)
        if found is None:
            return None
        fits = found.kind is Kind.FILE and 0 < found.blocks.size_bytes <= most_bytes
        return Secret(tag=found.tag, raw=self.container.content(found) if fits else None)

    async def block_lists(self, asks: Sequence[tuple[VersionRef, KnownList | None]]) -> list[BlockList | SyncerError]:
        """See Remote."""

        async def work(ask: tuple[VersionRef, KnownList | None]) -> BlockList:
            version, _ = ask
            await self._enter("block_list", version.path)
            blocks = self._pinned(version.path, version.tag).blocks
            await self.after("block_list", version.path)
            return blocks

        return await outcomes(asks, work, 1)

    async def _read_block(self, path: RelPath, tag: RemoteTag, blocks: BlockList, index: int) -> bytes:
        await self._enter("read_block", path)
        found = self._pinned(path, tag)
        assert found.blocks == blocks
        data = self.container.data.get(blocks[index], b"")
        self.counters.blocks_received += 1
        self.counters.bytes_received += len(data)
        await self.after("read_block", path)
        return data

    async def read_small(self, versions: Sequence[tuple[RelPath, RemoteTag]]) -> list[bytes | None]:
        """See Reads."""
        return [None] * len(versions)

    async def read_blocks(
        self,
        path: RelPath,
        tag: RemoteTag,
        blocks: BlockList,
        indexes: Sequence[int],
        deliver: Deliver,
        *,
        verify: bool = True,
    ) -> None:
        """See Reads."""
        for index in indexes:
            if blocks[index] == ZERO_BLOCK:
                await deliver(index, ZERO_BLOCK, b"")
                continue
            data = await self._read_block(path, tag, blocks, index)
            await deliver(index, blocks[index], data)

    async def write(self, orders: Sequence[port.Order], reader: port.Reader, done: port.Done) -> None:
        """See Writes."""

        async def one(at: int) -> None:
            outcome: port.Stored | Exception
            try:
                outcome = await self._carry_out(orders[at], reader)
            except ONE_NODE as error:
                outcome = error
            await done(at, outcome)

        await for_each(iter(range(len(orders))), one, max(1, min(_AT_ONCE, len(orders))))

    async def _carry_out(self, order: port.Order, reader: port.Reader) -> port.Stored:
        if isinstance(order, port.Store):
            return await self._store(order, reader)
        if isinstance(order, port.SetMeta):
            return await self._set_meta(order)
        if isinstance(order, port.Delete):
            return await self._delete(order)
        return await (self._move(order) if isinstance(order, port.Move) else self._move_tree(order))

    async def _store(self, order: port.Store, reader: port.Reader) -> port.Stored:
        if isinstance(order.source, ForeignVersion):
            raise ConflictOnRemoteError(order.source.path, order.path.decode(errors="replace"), "no versions of others")
        if order.kind is Kind.FILE and (order.size_bytes > self.container.block_size or order.sent):
            return await self._store_large(order, reader)
        data: bytes | Exception = order.target or b""
        if order.kind is Kind.FILE:
            (data,) = await reader.contents([order])
        if isinstance(data, Exception):
            raise data
        await self._enter("store", order.path)
        self._require(order.path, order.replaces)
        self.counters.bytes_sent += len(data)
        if order.kind is Kind.FILE and data:
            self.counters.blocks_sent += 1
        blocks = self.container.store_all(data)
        return await self._put("store", order.path, order.kind, blocks, order.meta, order.device)

    async def _store_large(self, order: port.Store, reader: port.Reader) -> port.Stored:
        blocks = await reader.block_list(order)
        while True:
            await self._enter("store", order.path)
            self._require(order.path, order.replaces)
            if not self._missing(blocks):
                return await self._put("store", order.path, Kind.FILE, blocks, order.meta, order.device)
            async with self._sending:  # what two files share is sent by one of them
                missing = self._missing(blocks)
                places = {name: index for index, name in reversed(list(enumerate(blocks))) if name in missing}
                if places:
                    await self._send(await reader.blocks(order, blocks, sorted(places.values())))

    def _missing(self, blocks: Iterable[BlockId]) -> set[BlockId]:
        return {name for name in blocks if name != ZERO_BLOCK and name not in self.container.data}

    async def send(self, blocks: Mapping[BlockId, bytes]) -> None:
        """See Writes."""
        missing = self._missing(blocks)
        if missing:
            await self._send([data for name, data in blocks.items() if name in missing])

    async def _send(self, blocks: Sequence[bytes]) -> None:
        await self._enter("send")
        self._info()
        self.counters.blocks_sent += len(blocks)
        self.counters.bytes_sent += sum(len(block) for block in blocks)
        for block in blocks:
            self.container.store(block)
        await self.after("send", _NOTHING)

    async def commit(self) -> None:
        """See Writes. Where somebody else has committed in between, all is dropped, and the next look tells."""
        if self.container is self._shared:
            return
        try:
            await self._enter("commit")
            if self._shared.last_version != self._begun:
                raise RemoteUnavailableError("somebody else committed in between; the next cycle looks again")
            self._shared.take(self.container)
        finally:
            self.container = self._shared
        await self.after("commit", _NOTHING)

    async def _move(self, order: port.Move) -> port.Stored:
        await self._enter("move", order.source, target=order.target)
        self._require(order.source, order.expect)
        self._require(order.target, None)
        old = self.container.remove(order.source)
        made = self.container.put(
            order.target, kind=old.kind, blocks=old.blocks, meta=old.meta, uuid=old.uuid, device=old.device
        )
        await self.after("move", order.source)
        return port.Stored(tag=made.tag)

    async def _move_tree(self, order: port.MoveTree) -> port.Stored:
        source, target = order.source, order.target
        await self._enter("move_tree", source, target=target)
        self._info()
        box = self.container
        below = [path for path in sorted(box.objects) if path == source or path.startswith(source + b"/")]
        taken = [path for path in box.objects if path == target or path.startswith(target + b"/")]
        found = guard_of((path[len(source) :], box.objects[path].version) for path in below)
        if found != order.guard or taken or source not in box.objects:
            raise ConflictOnRemoteError(source, "the folder as it was seen", "another one, or a taken name")
        move = SubtreeMove(source=source.decode(), target=target.decode(), first=box.last_version + 1, guard=found)
        for rank, path in enumerate(below):
            old = box.remove(path)
            new = RelPath(target + path[len(source) :])
            made = box.put(new, kind=old.kind, blocks=old.blocks, meta=old.meta, uuid=old.uuid, device=old.device)
            assert made.version == version_of(move.first, rank)
        box.moves.append(move)
        await self.after("move_tree", source)
        return port.Stored(moved=move)

    async def _delete(self, order: port.Delete) -> port.Stored:
        await self._enter("delete", order.path)
        self._info()
        if order.path in self.container.objects:
            self._require(order.path, order.expect)
            self.container.remove(order.path)
        await self.after("delete", order.path)
        return port.Stored()

    async def _set_meta(self, order: port.SetMeta) -> port.Stored:
        await self._enter("set_meta", order.path)
        self._require(order.path, order.expect)
        found = self.container.objects[order.path]
        meta = found.meta.overlaid(order.meta)
        return await self._put("set_meta", order.path, found.kind, found.blocks, meta, found.device)

    async def replaced_unseen(self, write: Overwrite) -> list[ForeignVersion]:
        """See Remote: conditions are atomic here."""
        return []

    async def close(self) -> None:
        """See Remote."""

    async def _enter(self, operation: str, path: RelPath = _NOTHING, *, target: RelPath = _NOTHING) -> None:
        """Count, let others run, and let the hook intervene. Nothing may be awaited between this and the effect.

        Raises:
            UnsafeNameError: A name that is to be made is none that a server takes.
        """
        if path and operation in _MUTATING:
            name_from_path(target or path)
        self.counters.requests += 1
        self.counters.mutating_requests += operation in _MUTATING
        await trio.lowlevel.checkpoint()
        await self.before(operation, path)
        if self._shared.holds_back and operation in _HELD_BACK and self.container is self._shared:
            self.container, self._begun = self._shared.draft(), self._shared.last_version

    async def _put(
        self, operation: str, path: RelPath, kind: Kind, blocks: BlockList, meta: Meta, device: str
    ) -> port.Stored:
        """The effect of a write, then its hook."""
        made = self.container.put(path, kind=kind, blocks=blocks, meta=meta, device=device)
        await self.after(operation, path)
        return port.Stored(tag=made.tag)

    def _info(self) -> RemoteInfo:
        if not self.container.exists:
            raise NotFoundError("the container does not exist in memory; create it first")
        told = ContainerInfo(
            identity=self.container.identity,
            block_size=self.container.block_size,
            block_hash="sha256",
            atomic=True,
            extensions=self.container.extensions,
        ).told
        return replace(told, can=replace(told.can, holds_back=self.container.holds_back))

    def _require(self, path: RelPath, expect: RemoteTag | None) -> None:
        self._info()
        found = self.container.objects.get(path)
        require(path, expect, None if found is None else found.tag)

    def _pinned(self, path: RelPath, tag: RemoteTag) -> MemoryVersion:
        self._info()
        found = self.container.versions.get(tag.version)
        if found is None:
            raise ConflictOnRemoteError(path, describe(tag), "nothing readable")
        return found
