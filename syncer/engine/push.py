"""Carry out actions on the remote side: blocks first, then conditional writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Final

import trio

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.hashing import block_id
from blockfs.blocks.ids import BlockId
from syncer.core.model import (
    NO_META,
    Action,
    Content,
    Create,
    FileStat,
    Kind,
    Meta,
    Mkdir,
    Move,
    Nid,
    Park,
    RelPath,
    RemoteTag,
    SetMeta,
    Side,
    Trash,
    Update,
)
from syncer.core.planner.outcome import BaseChange, Ledger
from syncer.core.planner.overwrites import Overwrite
from syncer.core.subtrees import Retagged, Subtree
from syncer.core.xattrs import XattrError
from syncer.engine.content_index import MIN_KNOWN_BLOCKS, LocalFiles, remote_tag
from syncer.engine.foreign import Unseen
from syncer.engine.isolation import Isolation
from syncer.engine.lanes import Lanes
from syncer.engine.schedule import Together
from syncer.errors import ConflictOnRemoteError, LocalChangedError, UnholdableError, UnsafeNameError
from syncer.ports.local import LocalRoot
from syncer.protocol.extensions.bulk import MAX_CONTENT_BYTES, MAX_OPERATIONS
from syncer.remote.client import CloudClient, KnownBase, MissingBlocks, MoveOrder, PutOrder, PutResult
from syncer.remote.pithos.upload import upload_file

LARGE_AT_ONCE: Final = 8
_ALONE_AT_ONCE: Final = 16  # small changes, each a request of its own
_SMALL_BYTES: Final = 64 << 20  # in memory, of small files on their way


class RemoteWorker:
    """Performs one remote action at a time per task; books nothing itself but what may be replaced unseen.

    Attributes:
        doubtful: A folder was not moved because the server has another one than the base says, or it is not known
            whether it was.
        lacking: Nodes that lost something that is not ours to sync, and what.
        sent: Files of one block whose contents are on the server already.
        workers: How many actions at once are of use. Where small changes share requests, the more are asked for at
            once the fewer requests there are; only a few of them may be large files.
    """

    def __init__(
        self,
        remote: CloudClient,
        local: LocalRoot,
        ledger: Ledger,
        files: LocalFiles,
        step: Callable[[str], None],
        unseen: Unseen,
        subtrees: Mapping[Nid, Subtree] | None = None,
    ) -> None:
        """Take the books of a cycle.

        Args:
            remote: The server.
            local: The root.
            ledger: What is where.
            files: What is where locally.
            step: Fault points.
            unseen: Where writes are booked, if the server needs that.
            subtrees: Directories of which the ledger has nothing below: they move as a whole.
        """
        self._remote = remote
        self._subtrees = dict(subtrees or {})
        self.lacking: list[tuple[RelPath, str]] = []
        self.sent: AbstractSet[BlockId] = frozenset()
        self.doubtful = False
        self._local = local
        self._ledger = ledger
        self._files = files
        self.workers = _ALONE_AT_ONCE
        self._many = False
        self._many_bytes = local.block_size
        self._step = step
        self._lanes = Lanes()
        self._large = trio.CapacityLimiter(LARGE_AT_ONCE)
        self._unseen = unseen
        self._atomic = True

    async def prepare(self) -> None:
        """Find out how many actions at once are of use."""
        info = await self._remote.container_info()
        # A server whose conditions are not atomic must be asked what became of a write: of many by one listing.
        self._many = info.can.orders > _ALONE_AT_ONCE or not info.can.atomic
        self._atomic = info.can.atomic
        self._many_bytes = min(self._many_bytes, info.can.small_bytes)
        self.workers = max(_ALONE_AT_ONCE, min(info.can.orders, _SMALL_BYTES // info.grid.block_size))

    async def perform(self, action: Action) -> list[BaseChange]:
        """Do it and book it.

        Raises:
            ConflictOnRemoteError: The object is not what the plan was made for.
            LocalChangedError: The file that was to be sent is not either.
        """
        if isinstance(action, Move | Park):
            return await (self._move_whole(action) if action.nid in self._subtrees else self._move(action))
        if isinstance(action, Trash):
            return await self._delete(action)
        path = self._ledger.path_after(action)
        booked = None
        if not self._atomic and isinstance(action, Mkdir | Create | Update):
            expect = remote_tag(self._ledger, action.nid) if isinstance(action, Update) else None
            (booked,) = await self._unseen.about_to([self._unseen.change(action, path, expect)])
        try:
            result = await self._change(action, path)
        except XattrError as error:  # those of both sides, united
            raise UnholdableError(path, str(error)) from error
        self._step("remote changed")
        if booked is not None:
            self._unseen.done(booked, result.foreign)
        return self._ledger.applied(action, result.tag)

    def together(self, run: Isolation) -> Together | None:
        """How small things are made by many; None if that is of no use."""
        if not self._many:
            return None

        def bytes_of(action: Action) -> int:
            return action.content.size_bytes if isinstance(action, Create) and action.content is not None else 0

        return Together(
            takes=self.takes,
            perform=partial(run.some, perform=self.create_all),
            size=MAX_OPERATIONS,
            bytes_of=bytes_of,
            most_bytes=MAX_CONTENT_BYTES,
        )

    def takes(self, action: Action) -> bool:
        """Whether `create_all` does such an action: a directory, or a file of at most one block, of its own content."""
        if isinstance(action, Mkdir):
            return not action.meta.xattrs
        if not isinstance(action, Create) or action.content is None or action.copy_of is not None:
            return False
        small = action.content.size_bytes <= self._many_bytes and not action.meta.xattrs
        return small and not self._is_sent(action.content) and self._files.has(action.nid, action.content)

    async def create_all(self, actions: Sequence[Action]) -> list[list[BaseChange] | Exception]:
        """Make several small things that do not need each other, and book them.

        Returns:
            What `perform` would have returned or raised, one for each.
        """
        done: dict[int, list[BaseChange] | Exception] = {}
        orders: dict[int, PutOrder] = {}
        files: dict[int, FileStat] = {}
        for at, action in enumerate(actions):
            if isinstance(action, Mkdir):
                path = self._ledger.path_after(action)
                orders[at] = PutOrder(path=path, kind=Kind.DIRECTORY, data=b"", meta=action.meta)
                continue
            assert isinstance(action, Create)
            self._step("before upload")
            try:
                files[at] = self._source(action)
            except LocalChangedError as error:
                done[at] = error
        for at, found in zip(files, await self._local.read_small(list(files.values())), strict=True):
            order = self._order(actions[at], files[at], found)
            if isinstance(order, PutOrder):
                orders[at] = order
            else:
                done[at] = order
        booked = await self._book_all(actions, orders)
        results = await self._remote.put_all(list(orders.values())) if orders else []
        for at, result in zip(orders, results, strict=True):
            if isinstance(result, PutResult):
                self._step("remote changed")
                if at in booked:
                    self._unseen.done(booked[at], result.foreign)
                done[at] = self._ledger.applied(actions[at], result.tag)
            else:
                done[at] = result
        return [done[at] for at in range(len(actions))]

    async def _book_all(self, actions: Sequence[Action], orders: Mapping[int, PutOrder]) -> dict[int, Overwrite]:
        """Book what `create_all` is about to send."""
        if self._atomic or not orders:
            return {}
        writes: list[Overwrite] = []
        for at, order in orders.items():
            action = actions[at]
            assert isinstance(action, Mkdir | Create)
            writes.append(self._unseen.change(action, order.path, None))
        return dict(zip(orders, await self._unseen.about_to(writes), strict=True))

    def _order(self, action: Action, stat: FileStat, found: bytes | Exception) -> PutOrder | Exception:
        """A small file as it is sent, or why it can't be."""
        assert isinstance(action, Create)
        assert stat.content is not None
        path, size_bytes = self._ledger.path_after(action), stat.content.size_bytes
        if not isinstance(found, bytes):
            return found
        if bytes(block_id(found)) != bytes(stat.content.object_hash):  # of one block they are the same
            return LocalChangedError(path, "its content is not what it was when it was hashed")
        return PutOrder(path=path, kind=Kind.FILE, data=found[:size_bytes].ljust(size_bytes, b"\0"), meta=action.meta)

    async def _change(self, action: Action, path: RelPath) -> PutResult:
        match action:
            case Mkdir():
                return await self._remote.put_small(path, Kind.DIRECTORY, b"", action.meta, None)
            case Create():
                return await self._write(action, path, action.meta, None)
            case Update():
                expect = remote_tag(self._ledger, action.nid)
                return await self._write(action, path, self._whole_meta(action), expect)
            case SetMeta():
                expect = remote_tag(self._ledger, action.nid)
                return await self._remote.set_meta(path, self._whole_meta(action), expect)
        raise AssertionError(action)

    async def _write(self, action: Create | Update, path: RelPath, meta: Meta, expect: RemoteTag | None) -> PutResult:
        if action.kind is Kind.SYMLINK:
            assert action.target is not None
            return await self._remote.put_small(path, Kind.SYMLINK, action.target, NO_META, expect)
        stat = self._source(action)
        if stat.tag.size_bytes <= self._local.block_size:
            return await self._write_small(stat, path, meta, expect)
        async with self._large:
            return await self._write_large(action, stat, path, meta, expect)

    async def _write_small(self, stat: FileStat, path: RelPath, meta: Meta, expect: RemoteTag | None) -> PutResult:
        """A file of one block: its content names it, so one look at the file says whether it is still the same."""
        assert stat.content is not None
        size_bytes = stat.content.size_bytes
        ids = bytes(stat.content.object_hash) if size_bytes else b""
        blocks = BlockList(block_size=self._local.block_size, size_bytes=size_bytes, ids=ids)

        async def read(index: int, wanted: BlockId) -> bytes:  # noqa: ARG001 - the index says it
            return await self._local.read_block(stat, blocks, index)

        self._step("before upload")
        if self._is_sent(stat.content):
            await self._local.verify_unchanged(stat)
            made = await self._remote.put_object(path, blocks, meta, expect)
            if not isinstance(made, MissingBlocks):  # else it was collected, and is sent as any other
                return made
        return await upload_file(self._remote, path, blocks, read, meta, expect)

    def _is_sent(self, content: Content) -> bool:
        """Whether a file of one block is to be made of what is on the server already."""
        return BlockId(bytes(content.object_hash)) in self.sent

    async def _write_large(
        self, action: Create | Update, stat: FileStat, path: RelPath, meta: Meta, expect: RemoteTag | None
    ) -> PutResult:
        blocks = await self._local.block_list(stat)

        async def read(index: int, wanted: BlockId) -> bytes:  # noqa: ARG001 - the index says it
            return await self._local.read_block(stat, blocks, index)

        self._step("before upload")
        # Every block is compared with its id as it is sent, so no mixture of two versions can be put together. That the
        # file is still this version is looked at once more before anything is sent: a stale push costs traffic only.
        base = await self._base(action, expect, blocks)
        async with self._lanes.lane(blocks, None if base is None else base.blocks):
            await self._local.verify_unchanged(stat)
            result = await upload_file(self._remote, path, blocks, read, meta, expect, base)
        assert action.content is not None
        await self._local.remember_list(action.content, blocks)
        return result

    async def _base(self, action: Create | Update, expect: RemoteTag | None, blocks: BlockList) -> KnownBase | None:
        """What is known of the version that is replaced, if the file is long enough for that to matter."""
        there = self._ledger.node(Side.REMOTE, action.nid)
        if expect is None or action.content is None or len(blocks) < MIN_KNOWN_BLOCKS:
            return None
        old = None if there is None or there.content is None else await self._local.known_list(there.content)
        return None if old is None else KnownBase(blocks=old, object_hash=action.content.object_hash)

    def _source(self, action: Create | Update) -> FileStat:
        """The local file that has the content to be sent: the node's own, or the one that it is to be a copy of."""
        nids = [action.nid]
        if isinstance(action, Create) and action.copy_of is not None:
            nids.append(action.copy_of)
        for nid in nids:
            stat = self._files.stat(nid)
            if stat is not None and stat.content == action.content:
                return stat
        assert action.content is not None
        for holder in self._files.holders(action.content):
            return FileStat(path=holder.path, kind=Kind.FILE, meta=NO_META, content=action.content, tag=holder.tag)
        raise LocalChangedError(action.path, "its content is not here any more")

    def _whole_meta(self, action: SetMeta | Update) -> Meta:
        """A write replaces all metadata of an object: what the action leaves alone is sent again."""
        node = self._ledger.node(Side.REMOTE, action.nid)
        assert node is not None
        return node.meta.overlaid(action.meta)

    async def _move(self, action: Move | Park) -> list[BaseChange]:
        source, target = self._ledger.path(Side.REMOTE, action.nid), self._ledger.path_after(action)
        tag = self._ledger.tag(Side.REMOTE, action.nid)
        along = await self._move_below(action.nid, source, target)
        if isinstance(tag, RemoteTag):  # a directory without a marker has moved with what is below it
            (result,) = await self._rename([action.nid], [MoveOrder(source=source, target=target, expect=tag)])
            tag = result.tag
        self._step("remote moved")
        changes = self._ledger.applied(action, tag)
        for nid, moved in along:
            changes += self._ledger.retagged(Side.REMOTE, nid, moved)
        return changes

    async def _move_whole(self, action: Move | Park) -> list[BaseChange]:
        """Move a directory with everything below it, if that is what the server has."""
        source, target = self._ledger.path(Side.REMOTE, action.nid), self._ledger.path_after(action)
        subtree = self._subtrees[action.nid]
        try:
            move = await self._remote.move_subtree(source, target, await trio.to_thread.run_sync(lambda: subtree.guard))
        except (ConflictOnRemoteError, UnsafeNameError):
            self.doubtful = True
            raise
        self._subtrees[action.nid] = subtree.after(move)
        self._step("remote moved")
        tag = move.root_tag(remote_tag(self._ledger, action.nid))
        below = Retagged(nid=action.nid, first=move.first, count=move.guard.count)
        return [*self._ledger.applied(action, tag), below]

    async def _move_below(self, nid: Nid, source: RelPath, target: RelPath) -> list[tuple[Nid, RemoteTag]]:
        """Move what lies below a directory, deepest first, so that a crash in between leaves no orphans."""
        done: list[tuple[Nid, RemoteTag]] = []
        levels: dict[int, list[tuple[Nid, MoveOrder]]] = {}
        for below in self._ledger.below(Side.REMOTE, nid):
            path, tag = self._ledger.path(Side.REMOTE, below), self._ledger.tag(Side.REMOTE, below)
            if isinstance(tag, RemoteTag):
                moved = RelPath(target + path[len(source) :])
                order = MoveOrder(source=path, target=moved, expect=tag)
                levels.setdefault(path.count(b"/"), []).append((below, order))
        for level in sorted(levels, reverse=True):
            nids, orders = [below for below, _ in levels[level]], [order for _, order in levels[level]]
            for below, result in zip(nids, await self._rename(nids, orders), strict=True):
                done.append((below, result.tag))
        return done

    async def _rename(self, nids: Sequence[Nid], orders: Sequence[MoveOrder]) -> list[PutResult]:
        """Rename objects."""
        booked: list[Overwrite] = []
        if not self._atomic:
            nodes = [self._ledger.node(Side.REMOTE, nid) for nid in nids]
            kinds = [node.kind for node in nodes if node is not None]
            writes = [self._unseen.rename(kind, order) for kind, order in zip(kinds, orders, strict=True)]
            booked = await self._unseen.about_to(writes)
        results = await self._remote.move_all(orders)
        for order, result in zip(orders, results, strict=True):
            if result.lacking is not None:
                self.lacking.append((order.target, result.lacking))
        for write, result in zip(booked, results, strict=False):
            self._unseen.done(write, result.foreign)
        return results

    async def _delete(self, action: Trash) -> list[BaseChange]:
        tag = self._ledger.tag(Side.REMOTE, action.nid)
        if isinstance(tag, RemoteTag):
            await self._remote.delete(self._ledger.path(Side.REMOTE, action.nid), tag)
        self._step("deleted")
        return self._ledger.applied(action, None)
