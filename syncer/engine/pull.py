"""Carry out actions on the local side: stage what has a content, then change names and contents conditionally."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from itertools import chain
from typing import Final

import msgspec
import trio

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.hashing import block_id
from blockfs.blocks.ids import ID_SIZE, ObjectHash
from blockfs.runtime.output import shown
from syncer.core.model import (
    NO_META,
    Action,
    Content,
    Create,
    Kind,
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
from syncer.core.paths import is_parked, parse_park_name
from syncer.core.planner.outcome import BaseChange, Outcome
from syncer.core.rows import Origin
from syncer.engine.content_index import MIN_KNOWN_BLOCKS, LocalFiles, local_tag
from syncer.engine.foreign import Unseen
from syncer.engine.isolation import Told
from syncer.errors import (
    ONE_NODE,
    ConflictOnRemoteError,
    CorruptionError,
    CutObjectError,
    ForbiddenError,
    LocalChangedError,
    NotFoundError,
)
from syncer.ports.blocks import Fetcher, VersionRef
from syncer.ports.local import LocalRoot
from syncer.ports.localvalues import (
    OWN,
    SMALL_BYTES,
    Applied,
    Change,
    ChangeMeta,
    Install,
    MakeDirectory,
    MakeLink,
    Remove,
    Rename,
    Staged,
    StageOrder,
    content_of,
)
from syncer.ports.orders import InMemory, Store, write_one
from syncer.ports.remote import KnownList, Remote
from syncer.remote.parallel import LISTS_AT_ONCE, cut_into_lists, for_each

ALONE_AT_ONCE: Final = 16  # small files wait for round trips and fsyncs most of the time
_SMALL_AT_ONCE: Final = 128  # an open temp file each
_TOGETHER_BYTES: Final = 8 << 20  # contents of one list, in memory
_MOST_FILES: Final = 128  # new files made at once, an open temp file each
_RUN: Final = (
    32  # of them beside each other in their folders, where devices that pull the same do it in different orders
)


class _Source(msgspec.Struct, frozen=True, kw_only=True):
    """Where a content comes from.

    Attributes:
        nid: The node that has it.
        path: Where.
        blocks: Its block list.
        version: The object that has the blocks that are not here; None: a file of here, which the server does not have.
    """

    nid: Nid
    path: RelPath
    blocks: BlockList
    version: VersionRef | None = None


class LocalWorker:
    """Performs local actions and tells the outcome of them.

    Attributes:
        copies: Conflict copies that became necessary while applying.
        lacking: Nodes whose metadata could not be set in full, and why.
        workers: How many actions at once are of use: where small contents share requests, more. Only a few of them may
            be large files.
        shuffle: Mixes lists, where other devices may pull the same at the same time; None: all in their order.
    """

    def __init__(
        self,
        remote: Remote,
        local: LocalRoot,
        outcome: Outcome,
        files: LocalFiles,
        step: Callable[[str], None],
        unseen: Unseen,
        blocks: Fetcher,
    ) -> None:
        self._remote = remote
        self._blocks = blocks
        self._local = local
        self._outcome = outcome
        self._files = files
        self._step = step
        self._unseen = unseen
        self._going: dict[Content, trio.Event] = {}
        self._large = trio.CapacityLimiter(ALONE_AT_ONCE)
        self._many = trio.CapacityLimiter(LISTS_AT_ONCE)
        self.workers = ALONE_AT_ONCE
        self.shuffle: Callable[[list[Sequence[Action]]], None] | None = None
        self.copies: list[RelPath] = []
        self.lacking: list[tuple[RelPath, str]] = []

    async def prepare(self) -> None:
        """Find out how many actions at once are of use."""
        if (await self._remote.open()).can.reads > 1:
            self.workers = _SMALL_AT_ONCE

    async def perform(self, actions: Sequence[Action], done: Told) -> None:
        """Do a wave: small things by many, all else alone; several at once.

        Raises:
            SyncerError: What ends the cycle, once the others of its list are booked.
        """
        small = self._mixed([action for action in actions if self._is_small(action)])
        lists = cut_into_lists(small, _MOST_FILES, _TOGETHER_BYTES, _size_bytes)
        lists += [[action] for action in actions if not self._is_small(action)]

        async def work(some: Sequence[Action]) -> None:
            fatal: Exception | None = None
            async with self._many if len(some) > 1 else nullcontext():
                for action, result in zip(some, await self.perform_all(some), strict=True):
                    if isinstance(result, Exception) and not isinstance(result, ONE_NODE):
                        fatal = result
                    else:
                        await done(action, result)
            if fatal is not None:
                raise fatal

        await for_each(iter(lists), work, max(1, min(self.workers, len(lists))))

    def _mixed(self, small: Sequence[Action]) -> Sequence[Action]:
        """Small things in another order than other devices do them, neighbours still beside each other."""
        if self.shuffle is None:
            return small
        runs = [small[at : at + _RUN] for at in range(0, len(small), _RUN)]
        self.shuffle(runs)
        return list(chain.from_iterable(runs))

    def _is_small(self, action: Action) -> bool:
        """Whether an action is done with others: a directory, or a small file that the server has."""
        if isinstance(action, Mkdir):
            return True
        if not isinstance(action, Create) or action.content is None or action.copy_of is not None:
            return False
        there = self._outcome.node(Side.REMOTE, action.nid)
        small = action.content.size_bytes <= min(self._local.block_size, SMALL_BYTES)
        return small and there is not None and there.content == action.content

    async def perform_all(self, actions: Sequence[Action]) -> list[list[BaseChange] | Exception]:
        """Do some that do not need each other: stage what has a content, then change names.

        Returns:
            Of each what it changes in the base, or why it was not done: LocalChangedError (the node is not what the
            plan was made for), ConflictOnRemoteError (the content that was to be fetched is gone) and others.
        """
        done: dict[int, list[BaseChange] | Exception] = {}
        sources = await self._find(actions, done)
        async with self._turn(actions):
            await self._stage_and_apply(actions, sources, done)
        return [done[at] for at in range(len(actions))]

    async def _stage_and_apply(
        self, actions: Sequence[Action], sources: Mapping[int, _Source], done: dict[int, list[BaseChange] | Exception]
    ) -> None:
        orders: dict[int, StageOrder] = {}
        staged: dict[int, Staged] = {}
        for at, source in sources.items():
            try:
                orders[at] = self._order(actions[at], source)
            except LocalChangedError as error:
                done[at] = error
        found = await self._local.stage(list(orders.values()), self._blocks) if orders else []
        for at, result in zip(orders, found, strict=True):
            if isinstance(result, Exception):
                done[at] = await self._explained(sources[at], result)
            else:
                staged[at] = result
        try:
            changes: dict[int, Change] = {}
            for at, action in enumerate(actions):
                if at not in done:
                    try:
                        changes[at] = self._change(action, staged.get(at))
                    except LocalChangedError as error:
                        done[at] = error
            applied = await self._local.apply(list(changes.values())) if changes else []
            # Nothing is awaited until all are booked: whoever has the next turn finds these files.
            for at, made in zip(changes, applied, strict=True):
                done[at] = made if isinstance(made, Exception) else self._booked(actions[at], made)
        finally:
            for each in staged.values():
                await each.drop()

    def _booked(self, action: Action, applied: Applied) -> list[BaseChange]:
        if applied.copied_to is not None:
            self.copies.append(applied.copied_to)
        if applied.lacking is not None:
            self.lacking.append((self._outcome.path_after(action), applied.lacking))
        self._step("applied")
        changes = self._outcome.applied(action, applied.tag, applied.meta)
        if applied.lacking is not None:
            changes += self._outcome.partly(action.nid)
        if isinstance(action, Create | Update) and action.content is not None:
            self._files.installed(action.nid, action.content)
        return changes

    def _change(self, action: Action, staged: Staged | None) -> Change:
        match action:
            case Mkdir():
                return MakeDirectory(path=self._outcome.path_after(action), meta=action.meta)
            case Create() | Update():
                path, expect = self._outcome.path_after(action), None
                if isinstance(action, Update):
                    path, expect = self._path(action), local_tag(self._outcome, action.nid)
                if staged is not None:
                    return Install(path=path, staged=staged, expect=expect)
                assert action.target is not None
                return MakeLink(path=path, target=action.target, expect=expect)
            case SetMeta():
                expect, node = local_tag(self._outcome, action.nid), self._outcome.node(Side.LOCAL, action.nid)
                seen = None if node is None else node.meta
                return ChangeMeta(path=self._path(action), meta=action.meta, expect=expect, seen=seen)
            case Move() | Park():
                expect, target = local_tag(self._outcome, action.nid), self._outcome.path_after(action)
                return Rename(source=self._path(action), target=target, expect=expect)
            case Trash():
                expect = local_tag(self._outcome, action.nid)
                is_double = (action.absorbed_by, action.after) != (None, None)
                path = self._path(action)
                origin = _before_the_park(action.path) if is_parked(path) else None
                return Remove(path=path, kind=action.kind, expect=expect, is_double=is_double, origin=origin)
        raise AssertionError(action)

    def _path(self, action: Action) -> RelPath:
        return self._outcome.path(Side.LOCAL, action.nid)

    @asynccontextmanager
    async def _turn(self, actions: Sequence[Action]) -> AsyncIterator[None]:
        """A file that is staged alone waits until no other of its content is: it may share the space of that one.

        Only a few large ones are under way at once.
        """
        action = actions[0] if len(actions) == 1 else None
        content = action.content if isinstance(action, Create | Update) else None
        if content is None:
            yield
            return
        while content in self._going:
            await self._going[content].wait()
        self._going[content] = done = trio.Event()  # no await since the look: the pair is atomic
        try:
            async with self._large if content.size_bytes > self._local.block_size else nullcontext():
                yield
        finally:
            del self._going[content]
            done.set()

    def _order(self, action: Action, source: _Source) -> StageOrder:
        assert isinstance(action, Create | Update)
        assert action.content is not None
        # A file of equal content saves everything; the old version is only likely to have most of it.
        origins = self._files.holders(action.content)[:4]
        path = self._outcome.path_after(action)
        if isinstance(action, Update):
            path, expect = self._path(action), local_tag(self._outcome, action.nid)
            node = self._outcome.node(Side.LOCAL, action.nid)
            if node is not None and node.content is not None:
                origins = [*origins, Origin(path=path, tag=expect, content=node.content)]
        self._step("before staging")
        return StageOrder(
            path=path,
            content=action.content,
            blocks=source.blocks,
            meta=action.meta,
            origins=tuple(origins),
            version=source.version,
            new=isinstance(action, Create),
        )

    async def _find(
        self, actions: Sequence[Action], done: dict[int, list[BaseChange] | Exception]
    ) -> dict[int, _Source]:
        """Where the contents come from, by the actions' places; all objects are asked about at once."""
        sources: dict[int, _Source] = {}
        asks: dict[int, tuple[VersionRef, KnownList | None]] = {}
        for at, action in enumerate(actions):
            if isinstance(action, Create | Update) and action.content is not None:
                try:
                    version = self._object_with(action.nid, action.content)
                    if version is not None:
                        asks[at] = version, await self._older(action.nid, version.tag)
                    else:
                        sources[at] = await self._copied(action)
                except OWN as error:
                    done[at] = error
        found: Sequence[BlockList | Exception] = []
        try:
            found = await self._remote.block_lists(list(asks.values())) if asks else []
        except OWN as error:
            found = [error] * len(asks)
        for (at, (version, _)), blocks in zip(asks.items(), found, strict=True):
            if isinstance(blocks, Exception):
                done[at] = blocks
            elif content_of(blocks) != version.content:  # it is that of the tag
                content = f"content {version.content.object_hash.hex()[:12]}"
                done[at] = ConflictOnRemoteError(version.path, content, "another one")
            else:
                sources[at] = _Source(nid=actions[at].nid, path=version.path, blocks=blocks, version=version)
        return sources

    def _object_with(self, nid: Nid, content: Content) -> VersionRef | None:
        """The node's object, if that is what it has."""
        there, tag = self._outcome.node(Side.REMOTE, nid), self._outcome.tag(Side.REMOTE, nid)
        if there is None or there.content != content or not isinstance(tag, RemoteTag):
            return None
        return VersionRef(path=self._outcome.path(Side.REMOTE, nid), tag=tag, content=content)

    async def _copied(self, action: Create | Update) -> _Source:
        """The file of here that it is a copy of."""
        content = action.content
        assert content is not None
        if isinstance(action, Create) and action.copy_of is not None:
            stat = self._files.stat(action.copy_of)
            if stat is not None and stat.content == content:
                (blocks,) = await self._local.block_lists([stat])
                if isinstance(blocks, Exception):
                    raise blocks
                return _Source(nid=action.copy_of, path=stat.path, blocks=blocks)
        raise ConflictOnRemoteError(action.path, f"content {content.object_hash.hex()[:12]}", "another one")

    async def _older(self, nid: Nid, tag: RemoteTag) -> KnownList | None:
        """The block list that we have of the version before."""
        row = self._outcome.base_row(nid)
        if row is None or row.remote is None or row.node.content is None:
            return None
        if not self._remote.ages.is_later(tag, row.remote):  # only of an earlier version: it is where the other began
            return None
        if tag.size_bytes < MIN_KNOWN_BLOCKS * self._local.block_size:
            return None
        stat = self._files.stat(nid)
        tag_of_it = None if stat is None or stat.content != row.node.content else stat.tag
        blocks = await trio.to_thread.run_sync(self._local.list_of, row.node.content, tag_of_it)
        return None if blocks is None else KnownList(tag=row.remote, blocks=blocks)

    async def _explained(self, source: _Source, error: Exception) -> Exception:
        """Why a content can't be had. An object that was cut is written anew."""
        version = source.version
        if version is None and isinstance(error, NotFoundError):
            # A copy of a local file: the server does not have it, so what that file has no more is hardly anywhere.
            return LocalChangedError(source.path, "it was written to while it was copied")
        if version is None or not isinstance(error, CutObjectError) or error.path != version.path:
            return error
        try:
            await self._hash_anew(source.nid, version.path, version.tag, source.blocks, error.data)
        except OWN as worse:
            return worse
        found = "one that was cut and had the hash of what it was; it has got its own"
        return ConflictOnRemoteError(version.path, "a whole object", found)

    async def _hash_anew(self, nid: Nid, path: RelPath, tag: RemoteTag, blocks: BlockList, last: bytes) -> None:
        """Write an object that was cut once more, as what it contains: then all devices can verify it.

        Raises:
            ForbiddenError: This token may not do that.
            CorruptionError: Of its other blocks, too, the server lacks some.
        """
        ids = blocks.ids[:-ID_SIZE] + bytes(block_id(last))
        whole = BlockList(block_size=blocks.block_size, size_bytes=blocks.size_bytes, ids=ids)
        node = self._outcome.node(Side.REMOTE, nid)
        meta = NO_META if node is None else node.meta
        content = Content(size_bytes=whole.size_bytes, object_hash=ObjectHash(whole.object_hash))
        order = Store(path=path, kind=Kind.FILE, meta=meta, replaces=tag, content=content)
        (booked,) = await self._unseen.about_to([self._unseen.store(order)])
        try:  # who is no owner may not send blocks, but perhaps write an object of one
            stored = await write_one(self._remote, order, InMemory(whole, {len(whole) - 1: last}))
        except ForbiddenError as refused:
            raise ForbiddenError(
                f"{shown(path)} was cut on the server, and has the hash of what it was before. This token may not give "
                f"it its own (403): sync it once with a token of its owner, or have the file uploaded again"
            ) from refused
        except LocalChangedError:
            raise CorruptionError(
                f"{shown(path)} was cut on the server, which no longer has all of its other blocks"
            ) from None
        self._unseen.done(booked, stored.foreign)


def _size_bytes(action: Action) -> int:
    return action.content.size_bytes if isinstance(action, Create) and action.content is not None else 0


def _before_the_park(path: RelPath) -> RelPath:
    """Where people had a node that the cycle found here: an earlier one, which was killed, may have parked it."""
    return RelPath(parse_park_name(path.rpartition(b"/")[2])[1]) if is_parked(path) else path
