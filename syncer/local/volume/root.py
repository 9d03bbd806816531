"""`BlockfsRoot`: a mounted volume as one side of a sync. Scans nothing and hashes nothing.

The mount tells what changed (journal), names contents (object hashes), and makes each change conditionally and durably.
Blocks are read from and written to the volume's block directory beside it; a hold keeps the collector off until the
file that refers to them is installed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack, suppress
from typing import Final, ParamSpec, TypeVar

import trio

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.ids import BlockId
from blockfs.control import protocol
from blockfs.control.client import ControlClient, NotMountedError
from blockfs.errors import BlockfsError, MissingBlockError
from blockfs.errors import NoSpaceError as BlocksFullError
from syncer.blocks.near import OwnBlocks
from syncer.core.base import BaseIndex
from syncer.core.ignore import IgnoreRules
from syncer.core.model import Content, FileStat, LocalTag, RelPath
from syncer.core.partial.affected import UnboundedError
from syncer.core.rows import BaseRows
from syncer.errors import LocalChangedError, NoSpaceError, RootIdentityError
from syncer.local.blocklists import BlockLists
from syncer.local.options import RootOptions
from syncer.local.safe_open import DIRECTORY_FLAGS
from syncer.local.verbs.retention import Retention
from syncer.local.verbs.trash import why_removed
from syncer.local.verbs.trashcan import TrashCan
from syncer.local.volume.changes import REASONS, VolumeChanges
from syncer.local.volume.mount import find_mount, verified
from syncer.local.volume.observer import Connection, VolumeObserver
from syncer.local.volume.part import Journal, VolumePart, knows
from syncer.local.volume.reader import VolumeReader
from syncer.local.volume.reblock import Pair, Regrid
from syncer.local.volume.staging import PreparedFile, Stored, VolumeStaging
from syncer.local.volume.tree import volume_tag
from syncer.ports.blocks import BlockSource, Fetcher
from syncer.ports.local import PartLook
from syncer.ports.localvalues import (
    Applied,
    Change,
    ChangeMeta,
    Hints,
    Holders,
    Install,
    LocalCounters,
    MakeDirectory,
    MakeLink,
    Observation,
    Piece,
    Remove,
    Rename,
    Spill,
    Staged,
    StageOrder,
    content_of,
    outcomes,
)

P = ParamSpec("P")
T = TypeVar("T")

SNAPSHOT: Final = b".blocksync-reconcile"
"""Name of the snapshot that a cycle pushes from. It lasts as long as the cycle; the next one removes what was left."""

_KEPT_BLOCKS: Final = 256
"""Block lists of shorter files (16 MiB in blocks of 64 KiB) are not kept: their hashmap has 18 KB at most."""

_REMEMBERED_BYTES: Final = 16 << 20  # naming this for a server with other blocks takes long enough to remember it
_WORKERS: Final = 8  # concurrent requests and reads


class BlockfsRoot:
    """See `LocalRoot`."""

    kind: Final = "volume"

    def __init__(self, path: bytes, volume_uuid: str, options: RootOptions, *, from_snapshot: bool = False) -> None:
        """Connect to the mount and make sure that it serves the volume that was linked.

        Args:
            path: The mount point.
            volume_uuid: The volume's.
            options: See there.
            from_snapshot: Observe and push everything as of one instant, also files that are open for writing.

        Raises:
            RootIdentityError: Not mounted, or another volume.
        """
        self.block_size = options.block_size
        self._path = path
        self._options = options
        self._state = options.state
        self.counters = LocalCounters()
        what = f"the mount point {os.fsdecode(path)}"
        mount = find_mount(path)
        if mount is None:
            raise RootIdentityError(what, f"volume {volume_uuid}", "no mounted volume")
        try:
            self._control = ControlClient(mount.source)
        except NotMountedError as error:
            raise RootIdentityError(what, f"volume {volume_uuid}", str(error)) from error
        with ExitStack() as opened:
            opened.callback(self._control.close)
            self._block_size = verified(self._control, what, volume_uuid).block_size
            if not (from_snapshot or options.only_looking):
                self._drop_stale_snapshot()
            self._blocks = BlockDirectory.open(os.fsdecode(os.path.join(mount.source, b"blocks")))
            opened.callback(self._blocks.close)
            self._root = os.open(path, DIRECTORY_FLAGS)
            opened.pop_all()
        self._connection = Connection(self._control)
        self._journal: Journal | None = None
        self._regrid: Regrid | None = None
        self._own: Stored | Regrid = Stored(self._blocks, self.counters)
        self.lists = BlockLists(
            options.lists, options.block_size, least_bytes=(_KEPT_BLOCKS - 1) * options.block_size + 1
        )
        if options.block_size != self._block_size:
            self._regrid = Regrid(self._blocks, options.lists, self._block_size, options.block_size, self.counters)
            self._own, self.lists = self._regrid, self._regrid.lists
        self._observer = VolumeObserver(
            path,
            self._root,
            self._connection,
            self._block_size,
            options,
            SNAPSHOT if from_snapshot else None,
            None if self._regrid is None else self._name,
        )
        self._changes = VolumeChanges(self._root, self._connection)
        self._workers = trio.CapacityLimiter(_WORKERS)
        parts = self._root, self._blocks, self._connection, options.parts, self._changes
        self._staging = VolumeStaging(*parts, self._own, self._run)
        self._closed = False

    def _drop_stale_snapshot(self) -> None:
        """Remove the one that a killed cycle has left: who may change something has the state's lock."""
        if any(found.name == SNAPSHOT for found in self._control.snapshots()):
            self._control.delete_snapshot(SNAPSHOT)

    # --- observing

    async def observe(self, base: BaseIndex, spill: Spill | None = None) -> Observation:  # noqa: ARG002 - it reads no content
        """Journal since the checkpoint over the base, or everything."""
        checkpoint = await self._run(self._state.memory, "checkpoint")
        agreed = [content for row in base.rows.values() if (content := row.node.content) is not None]
        if self._regrid is None:
            await self._run(self.lists.keep_only, agreed)
            return await self._run(self._observer.observe, base, checkpoint)
        seen = await self._run(self._observer.observe, base, checkpoint)
        contents = {stat.content for stat in seen.stats if stat.content is not None}
        await self._run(self._regrid.keep_only, contents.union(agreed))
        files = [stat.tag for stat in seen.stats if stat.tag.size_bytes >= _REMEMBERED_BYTES]
        await self._run(self._state.contents_only, files)
        return seen

    # --- observing a part (engine/partial/partial_look.py)

    async def attend(self, hints: Hints) -> bool:  # noqa: ARG002 - the journal tells
        """Read the journal since the last checkpoint; False if only a full listing tells."""

        def ask() -> Journal | None:
            with self._state.rows() as rows:
                return self._observer.journal(self._state.memory("checkpoint"), lambda row: knows(rows, row))

        self._journal = await self._run(ask)
        return self._journal is not None

    def part(self, rows: BaseRows, rules: IgnoreRules) -> VolumePart:
        """Answers from journal and base."""
        if rules.own != tuple(self._options.patterns()):
            raise UnboundedError
        assert self._journal is not None
        return VolumePart(rows, self._journal, rules, self._options.parts)

    async def complete(self, look: PartLook, stats: list[FileStat], base: BaseIndex) -> Observation:
        """Name the contents that the journal tells of."""
        assert isinstance(look, VolumePart)
        return await self._run(self._observer.observe_part, look, stats, base)

    async def concluded(self, looked: Collection[RelPath] | None, gone: Collection[Content], *, undone: bool) -> None:  # noqa: ARG002 - the journal names what changed
        """Keep the checkpoint: a later observation from there relies on it that all seen so far is in the rows."""
        if not undone and self._observer.checkpoint is not None:
            await self._run(self._state.keep, "checkpoint", self._observer.checkpoint)
        await self._run((self._regrid or self.lists).drop, gone)

    def _name(self, row: protocol.NodeRow, before: Content | None) -> Content | None:
        """What the server calls a file's content."""
        assert self._regrid is not None
        tag = volume_tag(row)
        known = self._state.content(tag)
        if known is not None:
            return known
        near = self._ask(
            self._control.block_list, row.ino, row.content_version, self._block_size, self._observer.snapshot
        )
        if near is None:
            return None
        try:
            content = self._regrid.name(near, before)
        except MissingBlockError:
            return None
        if row.size_bytes >= _REMEMBERED_BYTES:
            self._state.contents_found([(tag, content)], 0)
        return content

    # --- reading for a push

    def _pair(self, stat: FileStat) -> Pair:
        """Both block lists of an observed file."""
        assert self._regrid is not None
        assert stat.content is not None
        found = self._regrid.pair(stat.content)
        if found is None:
            # The cache was lost: name it once more. If that gives another name, the file is not what was observed.
            self._regrid.name(self._block_list(stat.path, stat.tag), None)
            found = self._regrid.pair(stat.content)
        if found is None:
            raise LocalChangedError(stat.path, REASONS["changed"])
        return found

    def _block_list(self, path: RelPath, tag: LocalTag) -> BlockList:
        assert tag.version is not None
        blocks = self._ask(self._control.block_list, tag.ino, tag.version, self._block_size, self._observer.snapshot)
        if blocks is None:
            raise LocalChangedError(path, REASONS["changed"])
        return blocks

    def list_of(self, content: Content, tag: LocalTag | None) -> BlockList | None:
        """See `SharedLists`: from the cache, else from the mount."""
        if self._regrid is not None:
            pair = self._regrid.pair(content)
            return None if pair is None else pair.far
        found = self.lists.load(content)
        if found is None and tag is not None and tag.version is not None:
            found = self._ask(self._control.block_list, tag.ino, tag.version, self._block_size)
            return found if found is not None and content_of(found) == content else None
        return found

    def _read_far(self, stat: FileStat, index: int) -> bytes:
        assert self._regrid is not None
        try:
            return self._regrid.far_block(self._pair(stat), index)
        except MissingBlockError:
            raise LocalChangedError(stat.path, REASONS["changed"]) from None

    def _read_block(self, path: RelPath, wanted: BlockId) -> bytes:
        try:
            data = self._blocks.get(wanted)
        except MissingBlockError:
            # Contents that changed since the observation lose their blocks to a collection.
            raise LocalChangedError(path, REASONS["changed"]) from None
        self.counters.bytes_read += len(data)
        return data

    def reader(self) -> VolumeReader:
        """Reads from the volume's block directory."""
        return VolumeReader(self._read_piece, self._workers)

    def _read_piece(self, piece: Piece) -> bytes:
        if self._regrid is not None:
            return self._read_far(piece.stat, piece.index)
        return self._read_block(piece.stat.path, piece.id)

    async def block_lists(self, stats: Sequence[FileStat]) -> list[BlockList | Exception]:
        """From the mount, at the observed content versions."""
        return await self._run(outcomes, stats, self._list_in_share)

    def _list_in_share(self, stat: FileStat) -> BlockList:
        return self._pair(stat).far if self._regrid is not None else self._block_list(stat.path, stat.tag)

    # --- staging

    def own_blocks(self, holders: Holders) -> BlockSource:  # noqa: ARG002 - blocks are known by their ids
        """From the block directory, put together if the server's blocks are others."""
        return OwnBlocks(self._own)

    async def stage(self, orders: Sequence[StageOrder], blocks: Fetcher) -> list[Staged | Exception]:
        """Put what the volume lacks into its block directory, then describe the files to the mount."""
        found = await self._staging.stage(orders, blocks)
        long = [
            order
            for order, each in zip(orders, found, strict=True)
            if isinstance(each, PreparedFile) and not order.is_small
        ]
        if long:
            await self._run(self._keep_lists, long)
        return [*found]

    def _keep_lists(self, orders: Sequence[StageOrder]) -> None:
        for order in orders:
            self.lists.save(order.content, order.blocks)

    def keep_received(self) -> Callable[[BlockId], bytes | None]:
        """Reads from the block directory."""
        if self._regrid is not None:
            return self._regrid.find

        def read(block: BlockId) -> bytes | None:
            with suppress(BlockfsError, OSError):
                return self._blocks.get(block)
            return None

        return read

    # --- changing

    async def apply(self, changes: Sequence[Change]) -> list[Applied | Exception]:
        """All in one thread, small new files by one request, else one each; the next commit is for all of them."""
        return await self._run(self._apply_all, changes)

    def _apply_all(self, changes: Sequence[Change]) -> list[Applied | Exception]:
        new = {at: found for at, change in enumerate(changes) if (found := _made_in_one_go(change)) is not None}
        made = dict(zip(new, self._staging.make(list(new.values())), strict=True)) if new else {}
        others = outcomes([change for at, change in enumerate(changes) if at not in new], self._apply)
        rest = iter(others)
        return [made[at] if at in new else next(rest) for at in range(len(changes))]

    def _apply(self, change: Change) -> Applied:
        own, changes = self._options.parts.own, self._changes
        match change:
            case Install():
                assert isinstance(change.staged, PreparedFile)
                return self._staging.install(change.path, change.staged, change.expect)
            case MakeDirectory():
                return changes.make_directory(change.path, own(change.meta))
            case MakeLink():
                # Of an old one: a crash in between looks like a deletion, which loses against the other side's
                # change, so that the link is made again.
                return changes.make_symlink(change.path, change.target, change.expect)
            case Rename():
                return changes.move(change.source, change.target, change.expect)
            case Remove():
                return changes.remove(change.path, change.kind, change.expect, why_removed(change), change.origin)
            case ChangeMeta():
                return changes.set_meta(change.path, own(change.meta), change.expect, change.seen)

    # --- durability

    async def barrier(self) -> None:
        """One commit for all changes since the last one: a commit of its own would cost each small file a sync."""
        await self._run(self._changes.commit)

    async def settle(self) -> list[RelPath]:
        """Empty the trash of what is past its retention; no displaced file has a writer, so none is looked at again."""
        await self._run(self._empty_trash)
        return []

    def _empty_trash(self) -> None:
        with TrashCan(self._path) as can:
            can.expire(Retention(self._options.keep_trash_s, self._state))

    async def close(self) -> None:
        """Drop the snapshot and the connection, and with it files that were not installed."""
        if not self._closed:
            self._closed = True
            if self._observer.snapshot is not None:
                # Without a thread: nothing else runs any more, and it must also be done when the cycle was cancelled.
                with suppress(BlockfsError):  # what stays behind is removed by the next cycle that uses one
                    self._observer.drop_snapshot()
            self._control.close()
            self._blocks.close()
            os.close(self._root)

    # --- parts

    def _ask(self, method: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._connection.ask(method, *args, **kwargs)

    async def _run(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        def work() -> T:
            try:
                return function(*args, **kwargs)
            except BlocksFullError as error:
                raise NoSpaceError(str(error)) from error

        return await trio.to_thread.run_sync(work, limiter=self._workers)


def _made_in_one_go(change: Change) -> tuple[RelPath, PreparedFile] | None:
    """A new file that only has blocks so far, and its name."""
    if isinstance(change, Install) and change.expect is None and isinstance(change.staged, PreparedFile):
        return None if change.staged.handle is not None else (change.path, change.staged)
    return None
