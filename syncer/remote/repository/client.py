"""A repository as the engine's remote: one merged view of all devices' heads, and commits of our own.

A look lists the heads, and merges them in memory; nothing is written by it. What is written goes into packs and into a
draft of the next commit, and is seen by others when that is made: packs, then the index, the commit, and the head that
names it. A crash before the head leaves objects that nobody names.

Source: docs/design/repository.md.
"""

from __future__ import annotations

import time
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec
import trio

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.ids import BlockId
from syncer.core.model import Ages, Position, RelPath, RemoteStat, RemoteTag
from syncer.core.partial.listing_diff import Known
from syncer.core.paths import LAN_KEY, is_hidden
from syncer.core.planner.overwrites import ForeignVersion, Overwrite
from syncer.errors import (
    ConflictOnRemoteError,
    CorruptionError,
    NotFoundError,
    RemoteUnavailableError,
    RolledBackError,
    SyncerError,
)
from syncer.ports.blocks import BlockSource, VersionRef
from syncer.ports.orders import Done, Order, Reader
from syncer.ports.remote import (
    Capabilities,
    Changes,
    Counters,
    Grid,
    KnownList,
    Listing,
    RemoteInfo,
    Secret,
)
from syncer.remote.parallel import for_each, one_error
from syncer.remote.repository.contents.packing import Packer, packed
from syncer.remote.repository.contents.reading import ChunkReads, ChunkSource
from syncer.remote.repository.differences import difference, listed
from syncer.remote.repository.elapsed import When, awake_or_asleep_s
from syncer.remote.repository.format.chunks import Chunker
from syncer.remote.repository.format.config import Config
from syncer.remote.repository.format.entries import ID_BYTES, Bytes, decode_entry
from syncer.remote.repository.format.history import Commit, CommitId, DeviceId, Head
from syncer.remote.repository.format.keys import ChunkId, Content
from syncer.remote.repository.format.lists import blocks_of, blocks_shape, listed_blocks
from syncer.remote.repository.format.packs import Pack
from syncer.remote.repository.format.prolly import Root, Shape, reachable
from syncer.remote.repository.memory import Memory
from syncer.remote.repository.merge import View, view_of
from syncer.remote.repository.moments import Moment, Views
from syncer.remote.repository.objects import Objects, ThreadNodes
from syncer.remote.repository.ownhead import OwnHead
from syncer.remote.repository.tree import ENTRIES_OF_A_NODE, Tree
from syncer.remote.repository.writing.draft import Draft
from syncer.remote.repository.writing.orders import Work, apply, called
from syncer.remote.repository.writing.sending import MOST_AT_ONCE, Sender
from syncer.remote.stores.port import StoreInfo

_MODIFIED: Final = "another version"
_VIEWS: Final = 4  # earlier ones in which versions are found that were replaced while they are read
_PACKS_AT_ONCE: Final = 4  # that are sent; in memory are all nodes of a commit that are new


DRAFT_S: Final = 12 * 3600.0
"""What is not committed so long after the look that it builds on is given up: `collecting` may have deleted of it."""


class Writer(msgspec.Struct, frozen=True, kw_only=True):
    """Who writes.

    Attributes:
        device: Its id.
        name: What people call it.
        tool: The program's version.
    """

    device: DeviceId
    name: str
    tool: str


class RepositoryClient:
    """`Remote` of one repository. Safe for many tasks.

    Attributes:
        ages: See Remote.
        counters: See Remote.
        source: See Remote.
    """

    def __init__(
        self,
        objects: Objects,
        config: Config,
        writer: Writer,
        *,
        clock_ns: Callable[[], int] = time.time_ns,
        clock_s: Callable[[], float] = awake_or_asleep_s,
        check: Callable[[], Awaitable[None]] | None = None,
        memory: Memory | None = None,
    ) -> None:
        """Of a repository that is open.

        Args:
            objects: Its objects.
            config: What holds for it.
            writer: This device.
            clock_ns: The time that people are told, nanoseconds since the epoch.
            clock_s: How long something takes, sleep included.
            check: Sees, before anything else, that it is the repository that the keys are of; None: somebody did.
            memory: Remembers this device's head; None: nobody else can be this device.
        """
        self._check = check
        self._is_ours = False  # it is the repository that the keys are of
        self._info: RemoteInfo | None = None
        self._clock_s = clock_s
        self.ages: Ages = Views()
        self.counters: Counters = objects.store.counters
        self._reads = ChunkReads(objects, self._files, self._check_version, config.grid)
        self.read_small = self._reads.read_small
        self.read_blocks = self._reads.read_blocks
        self.source: BlockSource = ChunkSource(
            objects, self._files, self._check_version, self._replaced_by, config.grid
        )
        self._replaced: Mapping[tuple[RelPath, RemoteTag], Bytes] = {}
        self._objects = objects
        self._config = config
        self._writer = writer
        self._clock_ns = clock_ns
        self._chunker = Chunker(objects.keys.cut_seed, config.chunks)
        self._shape = Shape(split=objects.keys.split, entries=ENTRIES_OF_A_NODE)
        self._blocks_shape = blocks_shape(objects.keys.split)
        self._nodes = ThreadNodes(objects)
        self._sender = Sender(self._nodes, config.grid)
        self._view: View | None = None
        self._earlier: deque[View] = deque(maxlen=_VIEWS)
        self._heads: Mapping[DeviceId, Head] = {}
        self._merged: frozenset[CommitId] = frozenset()
        self._merging = trio.Lock()
        self._looked = When(0.0, None)  # when the look began that the view is of
        self._own = OwnHead(objects, writer.device, memory)
        self._work: Work | None = None
        self._is_undone = False  # some of what was told since the last commit
        self._spare: Work | None = None  # its commit failed; its packs were sent
        self._lock = trio.Lock()

    async def open(self, *, create: bool = False) -> RemoteInfo:
        """See Remote. Whoever makes a repository is `repo init`, not a client."""
        if self._info is None:
            self._info = self._info_of(await self._objects.store.open(create=create))
        if not self._is_ours:
            if self._check is not None:
                await self._check()  # an empty mountpoint is a store without a repository, not an empty share
            self._is_ours = True
        return self._info

    def _info_of(self, store: StoreInfo) -> RemoteInfo:
        return RemoteInfo(
            identity=str(uuid.UUID(bytes=self._objects.keys.repository)),
            grid=Grid(block_size=self._config.grid, block_hash="sha256"),
            can=Capabilities(
                atomic=True,
                moves_trees=0,
                holds_back=True,
                waits=store.waits,
                reads=MOST_AT_ONCE,
            ),
            text=f"repository on {store.text}",
        )

    # --- looking

    async def list_objects(self) -> Listing:
        """See Remote."""
        view, info = await self._look(), await self.open()
        stats = await trio.to_thread.run_sync(listed, Tree(self._nodes, view.root))
        return Listing(
            info=info,
            objects=[stat for stat in stats if not is_hidden(stat.path)],
            position=self._position(view),
            lan_key=_lan_key(stats),
        )

    async def changes(
        self,
        since: Position,
        known: Known | None = None,  # noqa: ARG002 - trees tell what differs
        *,
        moves: bool = False,  # noqa: ARG002 - told one by one
        brief: bool = False,  # noqa: ARG002 - it is always so
        own: Sequence[RemoteTag] = (),
    ) -> Changes | None:
        """See Remote."""
        moment = Moment.read(since)
        if moment is None or moment.repository != self._objects.keys.repository.hex():
            return None
        view, info = await self._look(), await self.open()
        if moment.was_undone(Moment.of(self._objects.keys.repository, view)):
            return None  # what was seen is gone: a list tells what there is
        try:
            # A view of several heads is stored nowhere, and is made again.
            heads = await self._objects.commits(moment.commits)
            old = await trio.to_thread.run_sync(view_of, self._nodes, self._shape, heads.items(), _root_of)
            ours = [_root_of(commit.root) for commit in await self._ours_since(moment, view)]
            found = await trio.to_thread.run_sync(difference, self._nodes, old.root, ours, view.root)
        except (NotFoundError, CorruptionError):
            return None  # so long ago that its commits or its tree are gone
        known_tags, self._replaced = set(own), found.replaced
        return Changes(
            info=info,
            position=self._position(view),
            objects=[stat for stat in found.stats if stat.tag not in known_tags and not is_hidden(stat.path)],
            deleted=[path for path in found.deleted if not is_hidden(RelPath(path))],
            refused=[],
            lan_key=_lan_key(found.stats),
            lan_key_gone=LAN_KEY in found.deleted,
        )

    async def wait(self, seen: Position | None) -> Position:
        """See Remote."""
        await self.open()
        moment: object = None
        while True:
            moment = await self._own.noticed(moment)
            position = self._position(await self._look())
            if position != seen:
                return position

    async def resolve(self, stats: Sequence[RemoteStat]) -> list[RemoteStat | SyncerError]:
        """See Remote: nothing is missing in what was listed."""
        return list(stats)

    async def writers(self, versions: Sequence[VersionRef]) -> list[str]:
        """See Remote: by the last look. A device is called as the commit of its head says."""
        view = self._view if self._view is not None else await self._look()
        found = await trio.to_thread.run_sync(_devices_of, Tree(self._nodes, view.root), versions)
        heads = {device: head.commit for device, head in self._heads.items() if device in found}
        commits = await self._objects.commits(heads.values())
        names: dict[DeviceId | None, str] = {device: commits[commit].name for device, commit in heads.items()}
        names[self._writer.device] = self._writer.name  # it may have no head yet
        return [names.get(device, "") for device in found]

    async def secret(self, path: RelPath, most_bytes: int) -> Secret | None:
        """See Remote."""
        view = await self._look()
        found = await trio.to_thread.run_sync(Tree(self._nodes, view.root).lookup, path)
        if found is None:
            return None
        tag, raw = found.entry.tag(), None
        if found.entry.file is not None and found.entry.size_bytes <= min(most_bytes, self._config.grid):
            (raw,) = await self._reads.read_small([(path, tag)])
        return Secret(tag=tag, raw=raw)

    async def block_lists(self, asks: Sequence[tuple[VersionRef, KnownList | None]]) -> list[BlockList | SyncerError]:
        """See Remote."""
        files = await self._files([(ref.path, ref.tag) for ref, _ in asks])
        return await trio.to_thread.run_sync(self._block_lists, files)

    async def replaced_unseen(self, write: Overwrite) -> list[ForeignVersion]:  # noqa: ARG002 - there are none
        """See Remote."""
        return []

    # --- writing

    async def send(self, blocks: Mapping[BlockId, bytes]) -> None:
        """See Remote. What orders need goes into packs with them."""

    async def write(self, orders: Sequence[Order], reader: Reader, done: Done) -> None:
        """See Remote."""
        async with self._lock:
            work = await self._begun()
            files = await self._sender.send(work, orders, reader)
            outcomes = await trio.to_thread.run_sync(apply, work, orders, files, self._clock_ns() // 1000)
        for at, outcome in enumerate(outcomes):
            await done(at, outcome)

    async def commit(self) -> None:
        """See Remote."""
        async with self._lock:
            # If it fails, what was ordered is given up, as who ordered it does: a look tells what became of it.
            work, self._work = self._work, None
            if self._is_undone:
                self._is_undone = False
                raise RemoteUnavailableError("another process of this device has committed; the next cycle looks again")
            if work is None or work.draft.is_empty:
                return
            self._spare = work
            await work.packer.close()
            root, nodes, trees = await self._send_packs(work)
            if trees or work.packer.packs:
                await self._objects.put_index(trees, work.packer.packs, work.packer.check)
            commit = Commit(
                parents=work.view.heads,
                vector=work.draft.vector,
                root=b"" if root is None else msgspec.msgpack.encode(root),
                number=work.draft.dot.number,
                device=work.draft.dot.device,
                time_ns=self._clock_ns(),
                tool=self._writer.tool,
                name=self._writer.name,
            )
            await self._objects.hear()
            self._check_age(work)  # what a commit names must be there, also if no head will name the commit
            name = await self._objects.put_commit(commit)
            await self._put_head(work, name)
            self._spare = None
            await self._merge({name: commit})
            async with self._merging:
                for node, data in nodes:
                    self._objects.keep_node(node, data)
                if self._view is not None and self._view.heads == (name,):
                    # What is of this view is stored now. Nodes of merged views, in which versions are looked for that
                    # were listed before, are nowhere else.
                    for node, data in self._nodes.written.items():
                        self._objects.keep_node(node, data)
                    self._nodes.written.clear()

    async def _send_packs(self, work: Work) -> tuple[Root | None, list[tuple[ChunkId, bytes]], list[Pack]]:
        """Send what a commit needs before its index: no pack waits for another one, and the tree is made meanwhile.

        Returns:
            The tree to commit, its nodes that are new, and their packs.
        """
        trees: list[Pack] = []

        async def put(one: tuple[Pack, bytes]) -> None:
            await self._objects.put_pack(Content.TREES, *one)
            trees.append(one[0])

        with one_error():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(work.packer.flush)
                root, nodes = await trio.to_thread.run_sync(self._finished, work)
                self._check_age(work)
                packs = await trio.to_thread.run_sync(list, packed(self._objects, nodes))
                await for_each(iter(packs), put, _PACKS_AT_ONCE)
        return root, nodes, trees

    async def _put_head(self, work: Work, commit: CommitId) -> None:
        """From here on others see it."""
        now = work.began

        def check() -> None:  # no request is between this and the head: a machine may sleep in any of them
            nonlocal now
            self._check_age(work)
            now = self._now()

        await self._own.put(commit, check)
        self._looked = now

    def _now(self) -> When:
        return When(self._clock_s(), self._objects.now().store_ns)

    def _check_age(self, work: Work) -> None:
        if work.began.is_over(DRAFT_S, self._now()):
            self._spare = None
            raise RemoteUnavailableError("what was sent lay uncommitted for too long; the next cycle sends it anew")

    async def close(self) -> None:
        """See Remote."""
        await self._objects.store.close()

    # --- views

    def _position(self, view: View) -> Position:
        return Moment.of(self._objects.keys.repository, view).position

    async def _look(self, asked_ns: int | None = None) -> View:
        """Look; `asked_ns` is the store's time right before, where replies don't tell it."""
        began_s, listed = self._clock_s(), list[When]()
        try:
            # Before all else: a listing tells whether there is a store.
            self._heads = heads = await self._own.heads(listed.append)
        except (CorruptionError, NotFoundError, RolledBackError):
            await self.open()  # those of another repository, perhaps, or no store: then this says more
            raise
        self._is_ours = self._is_ours or bool(heads)  # our key has opened them
        await self.open()
        view = await self._merge(await self._objects.commits([head.commit for head in heads.values()], must=True))
        self._looked = When(began_s, asked_ns or listed[-1].store_ns)
        return view

    async def _merge(self, commits: Mapping[CommitId, Commit]) -> View:
        async with self._merging:
            if self._view is None or self._merged != commits.keys():
                view = await trio.to_thread.run_sync(view_of, self._nodes, self._shape, commits.items(), _root_of)
                if self._view is not None:
                    self._earlier.appendleft(self._view)
                self._view, self._merged = view, frozenset(commits)
            return self._view

    async def _begun(self) -> Work:
        if self._work is not None and self._work.after != self._own.mark:
            # Another process of this device has committed since. What was told of it can't be, so no commit may seem
            # to have it.
            self._is_undone, self._work = not self._work.draft.is_empty, None
        if self._work is None:
            spare, self._spare = self._spare, None
            if spare is not None and spare.began.is_over(DRAFT_S / 2, self._now()):
                spare = None  # there would be little time left
            if spare is not None:
                spare.packer.forget_unsent()
            seen = self._view
            if seen is None or self._looked.is_over(DRAFT_S / 2, self._now()):
                seen = await self._look()
            if self._looked.store_ns is None:
                # What is sent is held against the store's clock, so that must be known of all that it builds on.
                seen = await self._look(await self._objects.store.now_ns())
            began = self._looked if spare is None else spare.began.or_earlier(self._looked)
            await self._objects.look(to_write=True)
            # Merged again: what it was made of at the last look may lie in packs that are condemned since.
            heads = await self._objects.commits(seen.heads)
            async with self._merging:
                view = await trio.to_thread.run_sync(view_of, self._nodes, self._shape, heads.items(), _root_of)
            device = await self._own.begin()
            work = Work(
                began=began,
                after=self._own.mark,
                view=view,
                draft=Draft(self._nodes, view, device),
                packer=Packer(self._objects, self._chunker) if spare is None else spare.packer,
            )
            # Of packs that nobody named for so long no index may tell: they may be gone.
            work.packer.check = partial(self._check_age, work)
            self._check_age(work)
            self._work = work
        return self._work

    async def _ours_since(self, moment: Moment, view: View) -> list[Commit]:
        """Our commits that a moment had not seen, in order. Mostly that is the last one, and nothing is asked for."""
        devices, seen = self._own.devices, moment.seen
        found: list[Commit] = []
        known = set(moment.commits)
        asks = [head.commit for device, head in self._heads.items() if device in devices] or list(view.heads)
        while asks := [commit for commit in dict.fromkeys(asks) if commit not in known]:
            known.update(asks)
            commits = await self._objects.commits(asks)
            asks = []
            for commit in commits.values():
                if any(commit.vector.numbers.get(each, 0) > seen.numbers.get(each, 0) for each in devices):
                    asks += commit.parents
                    if commit.device in devices:
                        found.append(commit)
        return sorted(found, key=lambda commit: commit.number)

    def _replaced_by(self, path: RelPath, tag: RemoteTag) -> Bytes | None:
        return self._replaced.get((path, tag))

    async def _files(self, versions: Sequence[tuple[RelPath, RemoteTag]]) -> list[Bytes | ConflictOnRemoteError]:
        view = self._view if self._view is not None else await self._look()
        return await trio.to_thread.run_sync(self._found_files, view, versions)

    async def _check_version(self, path: RelPath, tag: RemoteTag) -> None:
        view = await self._look()
        found = await trio.to_thread.run_sync(_file_in, [Tree(self._nodes, view.root)], path, tag)
        if isinstance(found, SyncerError):
            raise found

    def _found_files(
        self, view: View, versions: Sequence[tuple[RelPath, RemoteTag]]
    ) -> list[Bytes | ConflictOnRemoteError]:
        trees = [Tree(self._nodes, each.root) for each in (view, *self._earlier)]
        return [_file_in(trees, path, tag) for path, tag in versions]

    def _block_lists(self, files: Sequence[Bytes | ConflictOnRemoteError]) -> list[BlockList | SyncerError]:
        lists: list[BlockList | SyncerError] = []
        for file in files:
            if isinstance(file, SyncerError):
                lists.append(file)
                continue
            try:
                lists.append(blocks_of(self._nodes, file, self._config.grid))
            except SyncerError as error:
                lists.append(error)
        return lists

    # --- the end of a commit

    def _finished(self, work: Work) -> tuple[Root | None, list[tuple[ChunkId, bytes]]]:
        """The tree to commit, and its nodes that are new."""
        for found in work.draft.changed():
            content = work.contents.pop(found.entry.object, None)  # this is its end: memory for the tree
            if content is not None and found.entry.file is not None:
                older = None if content.older is None else (content.older[0].blocks, content.older[1])
                blocks = listed_blocks(self._nodes, self._blocks_shape, content.blocks, older)
                chunks = content.cuts.listed(self._nodes, work.packer)
                work.draft.located(found, msgspec.structs.replace(found.entry.file, blocks=blocks, chunks=chunks))
        root = work.draft.finish(self._shape)
        return root, self._new_nodes(root)

    def _new_nodes(self, root: Root | None) -> list[tuple[ChunkId, bytes]]:
        written = self._nodes.written
        stored = _Stored(written)
        found: list[tuple[ChunkId, bytes]] = []
        roots = [root]
        for top in roots:  # grows while it is walked: lists of files come after the tree
            if top is None or top.node in stored:
                continue
            for node, entries in reachable(self._nodes, top, stored):
                found.append((node, written[node]))
                if top is not root:
                    continue
                for key, value in entries:
                    file = decode_entry(key, value).file if len(key) > ID_BYTES else None
                    if file is not None:
                        roots.extend(each for each in (file.blocks, file.chunks) if isinstance(each, Root))
        return found


class _Stored(set[ChunkId]):
    """Nodes that need not be packed: all but the new ones, and what was added."""

    def __init__(self, written: Mapping[ChunkId, bytes]) -> None:
        super().__init__()
        self._written = written

    def __contains__(self, node: object) -> bool:
        return node not in self._written or super().__contains__(node)


def _root_of(raw: bytes) -> Root | None:
    return msgspec.msgpack.decode(raw, type=Root) if raw else None


def _file_in(trees: Sequence[Tree], path: RelPath, tag: RemoteTag) -> Bytes | ConflictOnRemoteError:
    for number, tree in enumerate(trees):
        try:
            found = tree.lookup(path)
        except CorruptionError:
            if number == 0:
                raise
            continue  # an earlier view, of which nothing is kept any more
        if found is not None and found.entry.file is not None and found.entry.tag() == tag:
            return found.entry.file
    return ConflictOnRemoteError(path, called(tag), _MODIFIED)


def _devices_of(tree: Tree, versions: Sequence[VersionRef]) -> list[DeviceId | None]:
    """Who gave each version what it holds; None: there is another one now."""
    found = [(tree.lookup(each.path), each.tag) for each in versions]
    return [None if one is None or one.entry.tag() != tag else one.entry.filled.device for one, tag in found]


def _lan_key(stats: Iterable[RemoteStat]) -> RemoteStat | None:
    return next((stat for stat in stats if stat.path == LAN_KEY), None)
