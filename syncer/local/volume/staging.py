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
from typing import Final, ParamSpec, TypeVar

import msgspec

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.epochs import EpochHold
from blockfs.blocks.ids import BlockId
from blockfs.errors import BlockfsError
from blockfs.errors import NoSpaceError as BlocksFullError
from blockfs.xattrs import Carried
from syncer.core.model import LocalTag, RelPath
from syncer.core.parts import Parts
from syncer.errors import LocalChangedError, NoSpaceError
from syncer.local.safe_open import parent_directory
from syncer.local.volume.changes import REASONS, VolumeChanges, changed_runs
from syncer.local.volume.observer import Connection
from syncer.local.volume.reblock import Regrid, Run
from syncer.ports.localvalues import OWN, Applied, FetchAll, LocalCounters, Wanted

P = ParamSpec("P")
T = TypeVar("T")

_SYNC_BYTES: Final = 64 << 20  # received blocks are made durable so often: what a killed pull at most fetches again
_DEFAULT_MODE: Final = 0o644


class _Start(msgspec.Struct, frozen=True, kw_only=True):
    """What a new file starts with: inode and content version of another one, None for nothing; its block list."""

    version: tuple[int, int] | None
    blocks: BlockList


class PreparedFile:
    """A nameless file on the mount: `Staged` of a blockfs root."""

    def __init__(
        self, handle: int, tag: LocalTag, hold: EpochHold, owner: VolumeStaging, xattrs: Carried | None
    ) -> None:
        self.xattrs = xattrs
        self.handle = handle
        self.tag = tag
        self.installed = False
        self._hold = hold
        self._owner = owner

    async def drop(self) -> None:
        """Abandon it if it wasn't installed; let the collector go on."""
        if not self.installed:
            await self._owner.abandon(self.handle)
        self._hold.release()


class Stored:
    """`NearBlocks` of a volume whose blocks are the server's: its block directory, with what came in just now."""

    def __init__(self, blocks: BlockDirectory, counters: LocalCounters) -> None:
        self._counters = counters
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
                self._counters.bytes_read += len(found[block])
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
        regrid: Regrid | None,
        run: Run,
    ) -> None:
        """Take what belongs to the root; nothing is closed here.

        Args:
            root: Descriptor of the mount point.
            blocks: The volume's block directory.
            connection: To the mount.
            parts: What the root takes part in.
            changes: Installs files.
            regrid: Puts the server's blocks together, if they are others than the volume's.
            run: For blocking work.
        """
        self._root = root
        self._blocks = blocks
        self._connection = connection
        self._control = connection.client
        self._parts = parts
        self._changes = changes
        self._regrid = regrid
        self._run = run
        self._nothing = _Start(version=None, blocks=BlockList(block_size=blocks.block_size, size_bytes=0, ids=b""))
        self._unsynced_bytes = 0

    # --- one file

    async def stage(self, wanted: Wanted) -> PreparedFile:
        """Put what the volume lacks into its block directory, then describe the file to the mount."""
        hold = await self._run(self._blocks.hold)
        try:
            start = await self._run(self._start_for, wanted)
            if self._regrid is not None:
                near = await self._regrid.assemble(wanted, hold, self._run)
                return await self._run(self._prepare, wanted, near, start, hold)
            await self._fetch_missing(wanted, start, hold)
            return await self._run(self._sync_and_prepare, wanted, start, hold)
        except BaseException:
            hold.release()
            raise

    async def _fetch_missing(self, wanted: Wanted, start: _Start, hold: EpochHold) -> None:
        missing = await self._run(self._missing, wanted.blocks, start, hold)
        received = False

        async def receive(got: Sequence[tuple[BlockId, bytes]]) -> None:
            nonlocal received
            received = True
            await self._run(self._store, dict(got), hold)

        try:
            if missing:
                await wanted.fetch(missing, receive)
        except BaseException:
            if received:  # what was received must not be fetched again
                await self._run(self._blocks.sync)
            raise

    def _sync_and_prepare(self, wanted: Wanted, start: _Start, hold: EpochHold) -> PreparedFile:
        self._blocks.sync()  # durable before a tree refers to it
        return self._prepare(wanted, wanted.blocks, start, hold)

    def _missing(self, blocks: BlockList, start: _Start, hold: EpochHold) -> list[int]:
        """Where the blocks first stand that the volume lacks. Those of the file that we start from are there."""
        first: dict[BlockId, int] = {}
        for index, block in blocks.changed_from(start.blocks).items():
            first.setdefault(block, index)
        lacking = set(self._blocks.missing(first, hold))
        return [index for block, index in first.items() if block in lacking]

    def _store(self, got: Mapping[BlockId, bytes], hold: EpochHold) -> None:
        """Put what nobody else has put since it was looked for; a block that several files want comes to each."""
        for block in self._blocks.missing(got, hold):
            data = got[block]
            self._blocks.put(data, hold, block_id=block)
            self._unsynced_bytes += len(data)
            if self._unsynced_bytes > _SYNC_BYTES:
                self._unsynced_bytes = 0
                self._blocks.sync()

    def _start_for(self, wanted: Wanted) -> _Start:
        """A file whose block list the new one starts with, so that a small change costs a small message."""
        for origin in wanted.origins:
            if origin.tag.version is None:
                continue
            size = self._blocks.block_size
            blocks = self._ask(self._control.block_list, origin.tag.ino, origin.tag.version, size)
            if blocks is not None:
                return _Start(version=(origin.tag.ino, origin.tag.version), blocks=blocks)
        return self._nothing

    def _prepare(
        self, wanted: Wanted, blocks: BlockList, start: _Start, hold: EpochHold, owner: tuple[int, int] | None = None
    ) -> PreparedFile:
        meta = self._parts.own(wanted.meta)
        mtime_ns = time.time_ns() if meta.mtime_ns is None else meta.mtime_ns
        owner, mode = owner or self._owner_of(wanted.path), meta.full_mode
        handle = self._ask(
            self._control.prepare_file,
            size_bytes=blocks.size_bytes,
            mode=_DEFAULT_MODE if mode is None else mode,
            uid=owner[0],
            gid=owner[1],
            mtime_ns=mtime_ns,
            base=start.version,
        )
        if handle is None:
            raise LocalChangedError(wanted.path, REASONS["changed"])
        for first, ids in changed_runs(blocks, start.blocks):
            if self._ask(self._control.set_blocks, handle, first, ids):
                raise LocalChangedError(wanted.path, "blocks vanished from the volume while the file was assembled")
        tag = LocalTag(device=0, ino=0, btime_ns=0, size_bytes=blocks.size_bytes, mtime_ns=mtime_ns, ctime_ns=0)
        return PreparedFile(handle, tag, hold, self, meta.xattrs)

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
        applied = self._changes.install(path, staged.handle, staged.tag, expect)
        staged.installed = True
        return self._changes.add_xattrs(path, applied, staged.xattrs)

    async def abandon(self, handle: int) -> None:
        """Drop a prepared file."""
        await self._run(self._ask, self._control.abandon_file, handle)

    # --- many files of one block each

    async def create_all(self, wanted: Sequence[Wanted], fetch: FetchAll) -> list[Applied | Exception]:
        """Store all that the volume lacks with one sync, then prepare and install each file."""
        hold = await self._run(self._blocks.hold)
        try:
            near = await self._run(self._there, wanted, hold)
            lacking = [at for at in range(len(wanted)) if at not in near]

            async def receive(got: Sequence[tuple[BlockId, bytes]]) -> None:
                came = dict(got)
                files = [at for at in lacking if wanted[at].blocks[0] in came]
                near.update(await self._run(self._store_for, wanted, files, came, hold))

            failed = await fetch(lacking, receive) if lacking else {}
            return await self._run(self._create_stored, wanted, near, failed, hold)
        finally:
            hold.release()

    def _there(self, wanted: Sequence[Wanted], hold: EpochHold) -> dict[int, BlockList]:
        """The volume's block lists of those files that need nothing; their blocks are claimed."""
        if self._regrid is not None:
            found = ((at, self._regrid.known(each, hold)) for at, each in enumerate(wanted))
            return {at: near for at, near in found if near is not None}
        lacking = set(self._blocks.missing([block for each in wanted for block in each.blocks], hold))
        return {at: each.blocks for at, each in enumerate(wanted) if lacking.isdisjoint(each.blocks)}

    def _store_for(
        self, wanted: Sequence[Wanted], files: Sequence[int], came: Mapping[BlockId, bytes], hold: EpochHold
    ) -> dict[int, BlockList]:
        """Store what came for some of the files; returns their block lists as the volume cuts them."""
        if self._regrid is None:
            self._store(came, hold)
            return {at: wanted[at].blocks for at in files}
        return {at: self._regrid.cut(wanted[at], came[wanted[at].blocks[0]], hold) for at in files}

    def _create_stored(
        self, wanted: Sequence[Wanted], near: Mapping[int, BlockList], failed: Mapping[int, Exception], hold: EpochHold
    ) -> list[Applied | Exception]:
        self._blocks.sync()  # durable before a tree refers to it
        return [
            self._create_alone(each, near[at], hold) if at in near else failed[at] for at, each in enumerate(wanted)
        ]

    def _create_alone(self, wanted: Wanted, near: BlockList, hold: EpochHold) -> Applied | Exception:
        """A new file whose blocks are in the block directory."""
        try:
            staged = self._prepare(wanted, near, self._nothing, hold, (os.geteuid(), os.getegid()))
            try:
                return self.install(wanted.path, staged, None)
            finally:
                if not staged.installed:
                    self._ask(self._control.abandon_file, staged.handle)
        except BlocksFullError as error:
            return NoSpaceError(str(error))
        except OWN as error:
            return error

    def _ask(self, method: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._connection.ask(method, *args, **kwargs)
