"""Carry out actions on the local side: stage what is needed, then change names and contents conditionally."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import msgspec
import trio

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.hashing import block_id
from blockfs.blocks.ids import ID_SIZE, BlockId, ObjectHash
from blockfs.runtime.output import shown
from syncer.blocks.board import Blocks
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
from syncer.core.planner.outcome import BaseChange, Ledger
from syncer.core.rows import Origin
from syncer.engine.content_index import MIN_KNOWN_BLOCKS, LocalFiles, local_tag
from syncer.engine.fetch import fetch_small, fetch_version
from syncer.engine.foreign import Unseen
from syncer.engine.isolation import Isolation
from syncer.engine.schedule import Together
from syncer.errors import (
    ConflictOnRemoteError,
    CorruptionError,
    CutObjectError,
    ForbiddenError,
    LocalChangedError,
    NotFoundError,
    SyncerError,
)
from syncer.ports.blocks import Receive, VersionRef
from syncer.ports.local import LocalRoot
from syncer.ports.localvalues import OWN, Applied, Wanted, content_of
from syncer.ports.remote import InMemory, KnownList, Store, write_one
from syncer.remote.client import CloudClient
from syncer.remote.parallel import for_each

ALONE_AT_ONCE: Final = 16  # small files wait for round trips and fsyncs most of the time
_SMALL_AT_ONCE: Final = 128  # an open temp file each
_TOGETHER_BYTES: Final = 8 << 20  # contents of one portion, in memory
_PORTION: Final = 128  # new files made at once, an open temp file each
_PORTION_BYTES: Final = 256 << 10  # of a file that gains by that: it takes longer to write than to name


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


def _tell_nobody(blocks: Iterable[object]) -> None:
    """Nobody else wants to know what came."""


class LocalWorker:
    """Performs one local action at a time per task and books it.

    Attributes:
        came: Is told the ids of blocks that were fetched and are in place.
        came_small: Is given contents of one block that were fetched: they are in place only later, many at once.
        copies: Conflict copies that became necessary while applying.
        lacking: Nodes whose metadata could not be set in full, and why.
        workers: How many actions at once are of use: where small contents share requests, more. Only a few of them may
            be large files.
    """

    def __init__(
        self,
        remote: CloudClient,
        local: LocalRoot,
        ledger: Ledger,
        files: LocalFiles,
        step: Callable[[str], None],
        unseen: Unseen,
        blocks: Blocks,
    ) -> None:
        self._remote = remote
        self._blocks = blocks
        self.came: Callable[[Iterable[BlockId]], None] = _tell_nobody
        self.came_small: Callable[[Sequence[tuple[BlockId, bytes]]], None] = _tell_nobody
        self._local = local
        self._ledger = ledger
        self._files = files
        self._step = step
        self._unseen = unseen
        self._going: dict[Content, trio.Event] = {}
        self._large = trio.CapacityLimiter(ALONE_AT_ONCE)
        self.workers = ALONE_AT_ONCE
        self.copies: list[RelPath] = []
        self.lacking: list[tuple[RelPath, str]] = []

    async def prepare(self) -> None:
        """Find out how many actions at once are of use."""
        if (await self._remote.container_info()).can.reads > 1:
            self.workers = _SMALL_AT_ONCE

    def together(self, run: Isolation) -> Together:
        """How small things are made by many."""

        def bytes_of(action: Action) -> int:
            return action.content.size_bytes if isinstance(action, Create) and action.content is not None else 0

        return Together(
            takes=self.takes,
            perform=partial(run.some, perform=self.create_all),
            size=_PORTION,
            bytes_of=bytes_of,
            most_bytes=_TOGETHER_BYTES,
        )

    def takes(self, action: Action) -> bool:
        """Whether `create_all` does such an action: a directory, or a file of at most one block that the server has."""
        if isinstance(action, Mkdir):
            return True
        if not isinstance(action, Create) or action.content is None or action.copy_of is not None:
            return False
        there = self._ledger.node(Side.REMOTE, action.nid)
        small = action.content.size_bytes <= min(self._local.block_size, _PORTION_BYTES)
        return small and there is not None and there.content == action.content

    async def create_all(self, actions: Sequence[Action]) -> list[list[BaseChange] | Exception]:
        """Make several small things that do not need each other, and book them.

        Returns:
            What `perform` would have returned or raised, one for each.
        """
        done: dict[int, list[BaseChange] | Exception] = {}
        made = {at: action for at, action in enumerate(actions) if isinstance(action, Create)}
        sources: dict[int, _Source] = {}

        async def prepare(at: int) -> None:
            action = actions[at]
            try:
                if isinstance(action, Create):
                    sources[at] = await self._source(action)
                else:
                    done[at] = await self.perform(action)
            except OWN as error:
                done[at] = error

        await for_each(iter(range(len(actions))), prepare, min(self.workers, len(actions)))
        files = list(sources)

        async def fetch(positions: Sequence[int], receive: Receive) -> Mapping[int, Exception]:
            return await self._fetch_small({at: sources[files[at]] for at in positions}, receive)

        wanted = [
            self._wanted(made[at], self._ledger.path_after(made[at]), source, ()) for at, source in sources.items()
        ]
        outcomes = await self._local.create_all(wanted, fetch) if wanted else []
        for at, outcome in zip(files, outcomes, strict=True):
            done[at] = outcome if isinstance(outcome, Exception) else self._booked(actions[at], outcome)
        return [done[at] for at in range(len(actions))]

    async def perform(self, action: Action) -> list[BaseChange]:
        """Do it and book it.

        Raises:
            LocalChangedError: The node is not what the plan was made for.
            ConflictOnRemoteError: The content that was to be fetched is gone.
        """
        if isinstance(action, Trash):
            path = self._ledger.path(Side.LOCAL, action.nid)
            await self._local.trash(path, action.kind, local_tag(self._ledger, action.nid))
            self._step("trashed")
            return self._ledger.applied(action, None)
        return self._booked(action, await self._change(action))

    def _booked(self, action: Action, applied: Applied) -> list[BaseChange]:
        if applied.copied_to is not None:
            self.copies.append(applied.copied_to)
        if applied.lacking is not None:
            self.lacking.append((self._ledger.path_after(action), applied.lacking))
        self._step("applied")
        changes = self._ledger.applied(action, applied.tag, applied.meta)
        if isinstance(action, Create | Update) and action.content is not None:
            self._files.installed(action.nid, action.content)
        return changes

    async def _change(self, action: Action) -> Applied:
        match action:
            case Mkdir():
                return await self._local.make_directory(self._ledger.path_after(action), action.meta)
            case Create():
                return await self._create(action)
            case Update():
                return await self._update(action)
            case SetMeta():
                expect, node = local_tag(self._ledger, action.nid), self._ledger.node(Side.LOCAL, action.nid)
                seen = None if node is None else node.meta
                return await self._local.set_meta(self._path(action), action.meta, expect, seen)
            case Move() | Park():
                expect = local_tag(self._ledger, action.nid)
                return await self._local.move(self._path(action), self._ledger.path_after(action), expect)
        raise AssertionError(action)

    def _path(self, action: Action) -> RelPath:
        return self._ledger.path(Side.LOCAL, action.nid)

    async def _create(self, action: Create) -> Applied:
        path = self._ledger.path_after(action)
        if action.kind is Kind.SYMLINK:
            assert action.target is not None
            return await self._local.make_symlink(path, action.target, None)
        assert action.content is not None
        source = await self._source(action)
        async with self._turn(action.content), self._room(action.content):
            staged = await self._local.stage(self._wanted(action, path, source, ()))
            try:
                applied = await self._local.create(path, staged)
            finally:
                await staged.drop()
            await self._local.remember_list(action.content, source.blocks)
        # Nothing is awaited from here until it is booked: whoever has the next turn finds this file.
        return applied

    async def _update(self, action: Update) -> Applied:
        path, expect = self._path(action), local_tag(self._ledger, action.nid)
        if action.kind is Kind.SYMLINK:
            assert action.target is not None
            return await self._local.make_symlink(path, action.target, expect)
        assert action.content is not None
        node = self._ledger.node(Side.LOCAL, action.nid)
        old = () if node is None or node.content is None else (Origin(path=path, tag=expect, content=node.content),)
        source = await self._source(action)
        async with self._turn(action.content), self._room(action.content):
            staged = await self._local.stage(self._wanted(action, path, source, old))
            try:
                applied = await self._local.replace(path, staged, expect)
            finally:
                await staged.drop()
            await self._local.remember_list(action.content, source.blocks)
        # Nothing is awaited from here until it is booked: whoever has the next turn finds this file.
        return applied

    @asynccontextmanager
    async def _turn(self, content: Content) -> AsyncIterator[None]:
        """Files of equal content go one after the other: the next one may share the space of the first."""
        while content in self._going:
            await self._going[content].wait()
        self._going[content] = done = trio.Event()  # no await since the look: the pair is atomic
        try:
            yield
        finally:
            del self._going[content]
            done.set()

    @asynccontextmanager
    async def _room(self, content: Content) -> AsyncIterator[None]:
        """Only a few large files at once."""
        if content.size_bytes <= self._local.block_size:
            yield
            return
        async with self._large:
            yield

    def _wanted(self, action: Create | Update, path: RelPath, source: _Source, old: tuple[Origin, ...]) -> Wanted:
        assert action.content is not None
        equal = self._files.holders(action.content)
        self._step("before staging")
        # A file of equal content saves everything; the old version is only likely to have most of it.
        origins = (*equal[:4], *old)
        return Wanted(
            path=path,
            content=action.content,
            blocks=source.blocks,
            meta=action.meta,
            origins=origins,
            fetch=partial(self._fetch, source),
        )

    async def _source(self, action: Create | Update) -> _Source:
        content = action.content
        assert content is not None
        there = self._ledger.node(Side.REMOTE, action.nid)
        tag = self._ledger.tag(Side.REMOTE, action.nid)
        if there is not None and there.content == content and isinstance(tag, RemoteTag):
            return await self._remote_source(action.nid, tag, content)
        if isinstance(action, Create) and action.copy_of is not None:
            stat = self._files.stat(action.copy_of)
            if stat is not None and stat.content == content:
                return _Source(nid=action.copy_of, path=stat.path, blocks=await self._local.block_list(stat))
        raise ConflictOnRemoteError(action.path, f"content {content.object_hash.hex()[:12]}", "another one")

    async def _older(self, nid: Nid, tag: RemoteTag) -> KnownList | None:
        """The block list that we have of the version before."""
        row = self._ledger.base_row(nid)
        if row is None or row.remote is None or row.node.content is None:
            return None
        if not self._remote.ages.is_later(tag, row.remote):  # only of an earlier version: it is where the other began
            return None
        if tag.size_bytes < MIN_KNOWN_BLOCKS * self._local.block_size:
            return None
        blocks = await self._local.known_list(row.node.content, self._files.stat(nid))
        return None if blocks is None else KnownList(tag=row.remote, blocks=blocks)

    async def _remote_source(self, nid: Nid, tag: RemoteTag, content: Content) -> _Source:
        path = self._ledger.path(Side.REMOTE, nid)
        version = VersionRef(path=path, tag=tag, content=content)
        (blocks,) = await self._remote.block_lists([(version, await self._older(nid, tag))])
        if isinstance(blocks, SyncerError):
            raise blocks
        if content_of(blocks) != content:  # it is that of the tag
            raise ConflictOnRemoteError(path, f"content {content.object_hash.hex()[:12]}", "another one")
        return _Source(nid=nid, path=path, blocks=blocks, version=version)

    async def _fetch(self, source: _Source, indexes: Sequence[int], receive: Receive) -> None:
        """See `Fetch`."""
        self._step("before fetch")
        take = receive if source.version is None else self._telling(receive)
        try:
            await fetch_version(self._blocks, source.version, source.blocks, indexes, take)
        except (CutObjectError, NotFoundError) as error:
            raise await self._explained(source, error) from error

    async def _fetch_small(self, sources: Mapping[int, _Source], receive: Receive) -> Mapping[int, Exception]:
        """The only blocks of some files by their numbers; see `FetchAll`."""
        self._step("before fetch")
        numbers = list(sources)
        files = [(source.version, source.blocks) for source in sources.values() if source.version is not None]
        failed: dict[int, Exception] = {}

        async def take(got: Sequence[tuple[BlockId, bytes]]) -> None:
            await receive(got)
            self.came_small(got)

        for at, error in (await fetch_small(self._blocks, files, take)).items():
            try:
                failed[numbers[at]] = await self._explained(sources[numbers[at]], error)
            except OWN as worse:
                failed[numbers[at]] = worse
        return failed

    def _telling(self, receive: Receive) -> Receive:
        async def take(got: Sequence[tuple[BlockId, bytes]]) -> None:
            await receive(got)
            self.came(block for block, _ in got)

        return take

    async def _explained(self, source: _Source, error: SyncerError) -> SyncerError:
        """Why a content can't be had. An object that was cut is written anew.

        Raises:
            SyncerError: That can't be done.
        """
        version = source.version
        if version is None and isinstance(error, NotFoundError):
            # A copy of a local file: the server does not have it, so what that file has no more is hardly anywhere.
            return LocalChangedError(source.path, "it was written to while it was copied")
        if version is None or not isinstance(error, CutObjectError) or error.path != version.path:
            return error
        await self._hash_anew(source.nid, version.path, version.tag, source.blocks, error.data)
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
        node = self._ledger.node(Side.REMOTE, nid)
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
