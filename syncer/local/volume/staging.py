"""Files on their way into a mounted volume: their blocks go into its block directory, then the mount is told of them.

A hold keeps the collector off from before the first block is stored, or found, until the file is installed or dropped.
Order: blocks are stored → the directory is synced → the mount gets the block list → the file is installed → later the
volume commits.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, ParamSpec, TypeVar

import msgspec

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.epochs import EpochHold
from blockfs.blocks.ids import ZERO_BLOCK, BlockId
from blockfs.control import protocol
from blockfs.errors import BlockfsError
from blockfs.errors import NoSpaceError as BlocksFullError
from syncer.blocks.wanting import fetch_files
from syncer.core.model import LocalTag, Meta, RelPath
from syncer.core.parts import Parts
from syncer.core.rows import Origin
from syncer.errors import LocalChangedError, NoSpaceError
from syncer.local.safe_open import parent_directory
from syncer.local.volume.changes import REASONS, VANISHED, NewFile, VolumeChanges, changed_runs
from syncer.local.volume.observer import Connection
from syncer.local.volume.reblock import Regrid, Run
from syncer.ports.blocks import Fetcher
from syncer.ports.localvalues import OWN, Applied, LocalCounters, StageOrder, outcomes

P = ParamSpec("P")
T = TypeVar("T")

_SYNC_BYTES: Final = 64 << 20  # received blocks are made durable so often: what a killed pull at most fetches again
_DEFAULT_MODE: Final = 0o644


class _Start(msgspec.Struct, frozen=True, kw_only=True):
    """What a new file starts with.

    Attributes:
        version: Inode and content version of another one; None: nothing.
        blocks: The block list of that.
        origin: Which one that is.
    """

    version: tuple[int, int] | None
    blocks: BlockList
    origin: Origin | None = None


class _Hold:
    """Keeps the collector off until the last of some files is installed or given up."""

    def __init__(self, hold: EpochHold) -> None:
        self._hold = hold
        self._files = 0

    def take(self) -> None:
        """For one more file."""
        self._files += 1

    def release(self) -> None:
        """For one file."""
        self._files -= 1
        if not self._files:
            self._hold.release()


class PreparedFile:
    """`Staged` of a blockfs root: a nameless file on the mount, or a new one whose blocks are there, and no more yet.

    Attributes:
        handle: The nameless file; None: it is made and gets its name in one go.
        blocks: Its block list, as the volume cuts it.
        meta: What it gets.
        owner: User and group.
    """

    def __init__(
        self,
        handle: int | None,
        blocks: BlockList,
        meta: Meta,
        owner: tuple[int, int],
        mtime_ns: int,
        hold: _Hold,
        staging: VolumeStaging,
    ) -> None:
        self.handle = handle
        self.blocks = blocks
        self.meta = meta
        self.owner = owner
        self.mtime_ns = mtime_ns
        self.installed = False
        self._hold: _Hold | None = hold
        self._staging = staging
        hold.take()

    @property
    def mode(self) -> int:
        """Permission bits."""
        mode = self.meta.full_mode
        return _DEFAULT_MODE if mode is None else mode

    async def drop(self) -> None:
        """Abandon it if it wasn't installed; let the collector go on."""
        if self._hold is not None:
            if not self.installed and self.handle is not None:
                await self._staging.abandon(self.handle)
            self._hold.release()
            self._hold = None


class Stored:
    """`NearBlocks` of a volume whose blocks are the server's: its block directory, with what came in just now.

    Attributes:
        counters: Of the root.
    """

    def __init__(self, blocks: BlockDirectory, counters: LocalCounters) -> None:
        self.counters = counters
        self._blocks = blocks

    def which(self, ids: Sequence[BlockId]) -> Collection[BlockId]:
        """See NearBlocks."""
        with suppress(BlockfsError, OSError):
            return set(ids).difference(self._blocks.missing(ids))
        return ()

    def read(self, ids: Sequence[BlockId], *, checked: bool) -> Mapping[BlockId, bytes]:
        """See NearBlocks."""
        found: dict[BlockId, bytes] = {}
        for block in ids:
            with suppress(BlockfsError, OSError):
                found[block] = self._blocks.get(block, verify=checked)
                self.counters.bytes_read += len(found[block])
        return found


class VolumeStaging:
    """One root's."""

    def __init__(
        self,
        root: int,
        blocks: BlockDirectory,
        connection: Connection,
        parts: Parts,
        changes: VolumeChanges,
        own: Stored | Regrid,
        run: Run,
    ) -> None:
        """Take what belongs to the root; nothing is closed here.

        Args:
            root: Descriptor of the mount point.
            blocks: The volume's block directory.
            connection: To the mount.
            parts: What the root takes part in.
            changes: Installs files.
            own: What the volume has; puts the server's blocks together, if they are others than the volume's.
            run: For blocking work.
        """
        self._root = root
        self._blocks = blocks
        self._connection = connection
        self._control = connection.client
        self._parts = parts
        self._changes = changes
        self._regrid = own if isinstance(own, Regrid) else None
        self._run = run
        self._counters = own.counters
        self._nothing = _Start(version=None, blocks=BlockList(block_size=blocks.block_size, size_bytes=0, ids=b""))
        self._unsynced_bytes = 0

    async def stage(self, orders: Sequence[StageOrder], blocks: Fetcher) -> list[PreparedFile | Exception]:
        """Put what the volume lacks into its block directory, with one sync; then describe the files to the mount."""
        held = await self._run(self._blocks.hold)
        prepared: list[PreparedFile | Exception] = []
        try:
            starts = await self._run(lambda: [self._start_for(order) for order in orders])
            near: dict[int, BlockList] = {}  # as the volume cuts them, of files whose blocks are there
            if self._regrid is None:
                failed: Mapping[int, Exception] = await self._complete(orders, starts, blocks, held)
                near = {at: order.blocks for at, order in enumerate(orders)}
            else:
                failed = await self._join(self._regrid, orders, blocks, held, near)
            hold = _Hold(held)

            def prepare(at: int) -> PreparedFile:
                if at in failed:
                    raise failed[at]
                return self._prepare(orders[at], near[at], starts[at], hold)

            prepared = await self._run(outcomes, range(len(orders)), prepare)
            return [NoSpaceError(str(each)) if isinstance(each, BlocksFullError) else each for each in prepared]
        finally:
            if not any(isinstance(each, PreparedFile) for each in prepared):
                held.release()

    async def _complete(
        self, orders: Sequence[StageOrder], starts: Sequence[_Start], blocks: Fetcher, hold: EpochHold
    ) -> Mapping[int, Exception]:
        """Store what the volume lacks of some files. What came is durable also if a fetch fails: it comes no more."""
        lacking = await self._run(self._lacking, orders, starts, hold)

        async def receive(got: Sequence[tuple[BlockId, bytes]]) -> None:
            await self._run(self._store, dict(got), hold)

        try:
            files = [(order.version, order.blocks) for order in orders]
            return await fetch_files(blocks, files, lacking, receive) if lacking else {}
        finally:
            await self._run(self._blocks.sync)  # durable before a tree refers to it

    def _lacking(self, orders: Sequence[StageOrder], starts: Sequence[_Start], hold: EpochHold) -> dict[int, list[int]]:
        """Where the blocks first stand in each file that the volume lacks. What a file starts with needs no claim."""
        first: list[dict[BlockId, int]] = []
        for order, start in zip(orders, starts, strict=True):
            places: dict[BlockId, int] = {}
            for index, block in order.blocks.changed_from(start.blocks).items():
                places.setdefault(block, index)
            if start.origin is not None:
                self._counters.own_blocks += order.own_blocks(start.origin, start.blocks)
            first.append(places)
        absent = set(self._blocks.missing([block for places in first for block in places], hold))
        self._counters.own_blocks += sum(len(places.keys() - absent - {ZERO_BLOCK}) for places in first)
        found = {at: [index for block, index in places.items() if block in absent] for at, places in enumerate(first)}
        return {at: indexes for at, indexes in found.items() if indexes}

    async def _join(
        self,
        regrid: Regrid,
        orders: Sequence[StageOrder],
        blocks: Fetcher,
        hold: EpochHold,
        near: dict[int, BlockList],
    ) -> Mapping[int, Exception]:
        """Get the volume's blocks of some files, into `near`; returns why that can't be done for the others."""
        single = [at for at, order in enumerate(orders) if len(order.blocks) <= 1]
        near.update(await self._run(lambda: _known(regrid, {at: orders[at] for at in single}, hold)))
        lacking = {at: (0,) for at in single if at not in near}
        failed: dict[int, Exception] = {}

        async def receive(got: Sequence[tuple[BlockId, bytes]]) -> None:
            came = dict(got)

            def cut() -> None:
                for at in lacking:
                    data = came.get(orders[at].blocks[0])
                    if data is not None:
                        near[at] = regrid.cut(orders[at], data, hold)

            await self._run(cut)

        if lacking:
            files = [(order.version, order.blocks) for order in orders]
            failed.update(await fetch_files(blocks, files, lacking, receive))
        await self._run(self._blocks.sync)  # durable before a tree refers to it
        for at, order in enumerate(orders):
            if len(order.blocks) > 1:
                try:
                    near[at] = await regrid.assemble(order, blocks, hold, self._run)
                except OWN as error:
                    failed[at] = error
        return failed

    def _store(self, got: Mapping[BlockId, bytes], hold: EpochHold) -> None:
        """Put what nobody else has put since it was looked for; a block that several files want comes to each."""
        for block in self._blocks.missing(got, hold):
            data = got[block]
            self._blocks.put(data, hold, block_id=block)
            self._unsynced_bytes += len(data)
            if self._unsynced_bytes > _SYNC_BYTES:
                self._unsynced_bytes = 0
                self._blocks.sync()

    def _start_for(self, order: StageOrder) -> _Start:
        """A file whose block list the new one starts with, so that a small change costs a small message."""
        for origin in order.origins if len(order.blocks) > 1 else ():
            if origin.tag.version is None:
                continue
            size = self._blocks.block_size
            blocks = self._ask(self._control.block_list, origin.tag.ino, origin.tag.version, size)
            if blocks is not None:
                return _Start(version=(origin.tag.ino, origin.tag.version), blocks=blocks, origin=origin)
        return self._nothing

    def _prepare(self, order: StageOrder, blocks: BlockList, start: _Start, hold: _Hold) -> PreparedFile:
        meta = self._parts.own(order.meta)
        mtime_ns = time.time_ns() if meta.mtime_ns is None else meta.mtime_ns
        owner = (os.geteuid(), os.getegid()) if order.new else self._owner_of(order.path)
        one_step = order.new and start.version is None and self._control.makes_files
        staged = PreparedFile(None, blocks, meta, owner, mtime_ns, hold, self)
        if not one_step or len(blocks) > protocol.MOST_MADE_IDS:
            staged.handle = self._describe(order.path, staged, start)
        return staged

    def _describe(self, path: RelPath, staged: PreparedFile, start: _Start) -> int:
        """Make the nameless file."""
        handle = self._ask(
            self._control.prepare_file,
            size_bytes=staged.blocks.size_bytes,
            mode=staged.mode,
            uid=staged.owner[0],
            gid=staged.owner[1],
            mtime_ns=staged.mtime_ns,
            base=start.version,
        )
        if handle is None:
            raise LocalChangedError(path, REASONS["changed"])
        for first, ids in changed_runs(staged.blocks, start.blocks):
            if self._ask(self._control.set_blocks, handle, first, ids):
                raise LocalChangedError(path, VANISHED)
        return handle

    def _owner_of(self, path: RelPath) -> tuple[int, int]:
        """Owner and group of what is replaced; ours for a new file."""
        try:
            with parent_directory(self._root, path) as (directory, name):
                found = os.stat(name, dir_fd=directory, follow_symlinks=False)
        except (OSError, LocalChangedError):
            return os.geteuid(), os.getegid()
        return found.st_uid, found.st_gid

    def install(self, path: RelPath, staged: PreparedFile, expect: LocalTag | None) -> Applied:
        """Give it its name. Blocking."""
        if staged.handle is None:  # new, and yet something is to be replaced
            staged.handle = self._describe(path, staged, self._nothing)
        applied = self._changes.install(path, staged.handle, staged.blocks.size_bytes, staged.mtime_ns, expect)
        staged.installed = True
        return self._changes.add_xattrs(path, applied, staged.meta.xattrs)

    def make(self, new: Sequence[tuple[RelPath, PreparedFile]]) -> list[Applied | Exception]:
        """Give names that are free to files that have no handle. Blocking."""
        files = [
            NewFile(path=path, blocks=staged.blocks, mode=staged.mode, owner=staged.owner, mtime_ns=staged.mtime_ns)
            for path, staged in new
        ]
        found: list[Applied | Exception] = []
        for (path, staged), made in zip(new, self._changes.make_files(files), strict=True):
            if isinstance(made, Applied):
                staged.installed = True
                found += outcomes([made], partial(self._changes.add_xattrs, path, xattrs=staged.meta.xattrs))
            else:
                found.append(made)
        return found

    async def abandon(self, handle: int) -> None:
        """Drop a prepared file."""
        await self._run(self._ask, self._control.abandon_file, handle)

    def _ask(self, method: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._connection.ask(method, *args, **kwargs)


def _known(regrid: Regrid, orders: Mapping[int, StageOrder], hold: EpochHold) -> dict[int, BlockList]:
    """Those that need nothing; their blocks are claimed."""
    found = ((at, regrid.known(order, hold)) for at, order in orders.items())
    return {at: near for at, near in found if near is not None}
