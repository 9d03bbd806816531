"""`BlockfsRoot`: a mounted volume as one side of a sync. Scans nothing and hashes nothing.

The mount tells what changed (journal), names contents (object hashes), and makes each change conditionally and durably.
Blocks are read from and written to the volume's block directory beside it; a hold keeps the collector off until the
file that refers to them is installed.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Final, ParamSpec, TypedDict, TypeVar

import msgspec
import trio

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.epochs import EpochHold
from blockfs.blocks.extents import block_count
from blockfs.blocks.ids import ID_SIZE, ZERO_BLOCK, BlockId, ObjectHash
from blockfs.control import protocol
from blockfs.control.client import ControlClient, NotMountedError
from blockfs.control.protocol import CursorMsg, Expect, NodeRow
from blockfs.errors import MissingBlockError
from blockfs.errors import NoSpaceError as BlocksFullError
from blockfs.runtime.linux import syncfs
from blockfs.runtime.mountinfo import Mount, blocksync_mount_of
from syncer.core.base import BaseIndex
from syncer.core.model import Content, FileStat, Kind, LocalTag, Meta, RelPath
from syncer.core.paths import PARK_FOLDER, PRIVATE, is_private
from syncer.errors import LocalChangedError, NoSpaceError, RootIdentityError
from syncer.local.places import DIRECTORY_FLAGS, parent_directory
from syncer.local.root import MAX_BLOCKS, Applied, BusyError, Observation, Problem, Staged, Wanted
from syncer.local.volume_tree import (
    ROOT_INO,
    UnresolvedError,
    VolumeNode,
    from_base,
    overlaid,
    paths_by_inode,
    stat_of,
)

P = ParamSpec("P")
T = TypeVar("T")

_FOLDERS: Final = (PRIVATE, PRIVATE + b"/trash", PARK_FOLDER)
_HASHES_AT_ONCE: Final = 1024  # per request: 32 KiB of reply
_SYNC_BYTES: Final = 64 << 20  # received blocks are made durable so often: what a killed pull at most fetches again
_DEFAULT_MODE: Final = 0o644
_DEFAULT_DIRECTORY_MODE: Final = 0o755
_OPEN: Final = "it is open for writing: synced once it is closed"
_CHANGES: Final = "it changes while it is looked at; left alone until it is quiet"
_REASONS: Final = {
    "changed": "it was written to",
    "occupied": "the name is taken",
    "gone": "it is gone",
    "not_empty": "it holds something that is not synced, or that is new",
}


_Change = (
    protocol.InstallFile
    | protocol.ApplyMkdir
    | protocol.ApplySymlink
    | protocol.ApplyMove
    | protocol.ApplyRemove
    | protocol.ApplySetMeta
)


class _TrashPlace(TypedDict, total=False):
    trash_parent: int
    trash_name: bytes


class PreparedFile:
    """A nameless file on the mount: `Staged` of a blockfs root."""

    def __init__(self, handle: int, tag: LocalTag, hold: EpochHold, owner: BlockfsRoot) -> None:
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


def find_mount(path: bytes) -> Mount | None:
    """The blocksync mount whose mount point is exactly `path`; None for anything else, also folders inside a mount."""
    mount = blocksync_mount_of(path)
    if mount is None or mount.mountpoint != os.path.realpath(path) or mount.root != b"/":
        return None
    return mount


class BlockfsRoot:
    """See `LocalRoot`."""

    def __init__(self, path: bytes, volume_uuid: str) -> None:
        """Connect to the mount and make sure that it serves the volume that was linked.

        Raises:
            RootIdentityError: Not mounted, or another volume.
        """
        self.path = path
        self.bytes_read = 0
        what = f"the mount point {os.fsdecode(path)}"
        mount = find_mount(path)
        if mount is None:
            raise RootIdentityError(what, f"volume {volume_uuid}", "no mounted volume")
        try:
            self._control = ControlClient(mount.source)
        except NotMountedError as error:
            raise RootIdentityError(what, f"volume {volume_uuid}", str(error)) from error
        try:
            self.block_size = _verified(self._control, what, volume_uuid).block_size
            self._blocks = BlockDirectory.open(os.fsdecode(os.path.join(mount.source, b"blocks")))
            self._root = os.open(path, DIRECTORY_FLAGS)
        except BaseException:
            self._control.close()
            raise
        self._talking = threading.Lock()  # one connection, one request at a time
        self._workers = trio.CapacityLimiter(8)
        self._folders: dict[bytes, int] = {}
        self._unsynced_bytes = 0
        self._closed = False

    # --- observing

    async def observe(self, base: BaseIndex, checkpoint: bytes | None) -> Observation:
        """Journal since the checkpoint over the base, or everything."""
        cursor = msgspec.json.decode(checkpoint, type=CursorMsg) if checkpoint is not None else None
        return await self._run(self._observe, base, cursor)

    def _observe(self, base: BaseIndex, cursor: CursorMsg | None) -> Observation:
        self._make_folders()
        # The kernel holds pages and times that the mount has not seen, the mount holds what it has not committed, and
        # the journal speaks of commits only: so in this order.
        syncfs(self.path)
        self._ask(self._control.flush)
        full, rows, gone, reached = self._ask(self._control.changes, cursor)
        try:
            nodes = overlaid({} if full else from_base(base), rows, gone)
            paths = paths_by_inode(nodes, self._roots())
        except UnresolvedError:
            if full:
                raise AssertionError("a full listing has an inode whose directory it does not have") from None
            return self._observe(base, None)
        return self._observation(nodes, paths, base, reached)

    def _observation(
        self, nodes: dict[int, VolumeNode], paths: dict[int, list[RelPath]], base: BaseIndex, reached: CursorMsg
    ) -> Observation:
        known = {
            (row.local.ino, row.local.version): row.node.content
            for row in base.rows.values()
            if row.local is not None and row.node.content is not None
        }
        stats: list[FileStat] = []
        problems: list[Problem] = []
        unnamed: list[tuple[NodeRow, list[RelPath]]] = []
        for ino, node in nodes.items():
            seen = [path for path in paths.get(ino, ()) if not is_private(path) or path.startswith(PARK_FOLDER + b"/")]
            if not seen:
                continue
            if node.row is None:
                assert node.stat is not None
                stats += [replace(node.stat, path=path) for path in seen]
            elif node.row.kind == "file" and (ino, node.row.content_version) not in known:
                unnamed.append((node.row, seen))
            else:
                content = known.get((ino, node.row.content_version))
                _report(node.row, seen, content, stats, problems)
        complete = self._name_contents(unnamed, stats, problems)
        mark = msgspec.json.encode(reached) if complete else None
        return Observation(stats=stats, unknown=[], problems=problems, checkpoint=mark)

    def _name_contents(
        self, files: list[tuple[NodeRow, list[RelPath]]], stats: list[FileStat], problems: list[Problem]
    ) -> bool:
        """Ask for the object hashes of changed files; False if one must be looked at again in the next cycle."""
        complete = True
        wanted: list[tuple[NodeRow, list[RelPath]]] = []
        for row, paths in files:
            reason = None
            if block_count(row.size_bytes, self.block_size) > MAX_BLOCKS:
                reason = f"it has more than {MAX_BLOCKS} blocks of {self.block_size} bytes: too large to be synced"
            elif row.writers:
                complete = False
                problems += [Problem(path=path, reason=_OPEN, partly=False) for path in paths]
            else:
                wanted.append((row, paths))
                continue
            if reason is not None:
                problems += [Problem(path=path, reason=reason) for path in paths]
            _report(row, paths, None, stats, problems)
        for at in range(0, len(wanted), _HASHES_AT_ONCE):
            batch = wanted[at : at + _HASHES_AT_ONCE]
            hashes = self._ask(self._control.hashes, [(row.ino, row.content_version) for row, _ in batch])
            for (row, paths), found in zip(batch, hashes, strict=True):
                content = None
                if found is None:
                    complete = False
                    problems += [Problem(path=path, reason=_CHANGES) for path in paths]
                else:
                    content = Content(size_bytes=row.size_bytes, object_hash=ObjectHash(found))
                _report(row, paths, content, stats, problems)
        return complete

    def _make_folders(self) -> None:
        """Make the private folder, through the kernel like any user, and learn its inodes."""
        for folder in _FOLDERS:
            with parent_directory(self._root, RelPath(folder)) as (directory, name):
                with suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=directory)
                descriptor = os.open(name, DIRECTORY_FLAGS, dir_fd=directory)
                self._folders[folder] = os.fstat(descriptor).st_ino
                os.close(descriptor)

    def _roots(self) -> dict[int, RelPath]:
        return {ROOT_INO: RelPath(b""), **{ino: RelPath(folder) for folder, ino in self._folders.items()}}

    # --- reading for a push

    async def block_list(self, stat: FileStat) -> BlockList:
        """From the mount, at the observed content version."""
        assert stat.tag.version is not None
        return await self._run(self._block_list, stat.path, stat.tag)

    def _block_list(self, path: RelPath, tag: LocalTag) -> BlockList:
        assert tag.version is not None
        blocks = self._ask(self._control.block_list, tag.ino, tag.version, self.block_size)
        if blocks is None:
            raise LocalChangedError(path, _REASONS["changed"])
        return blocks

    async def read_block(self, stat: FileStat, blocks: BlockList, index: int) -> bytes:
        """From the volume's block directory, verified."""
        if blocks[index] == ZERO_BLOCK:
            return b""
        return await self._run(self._read_block, stat.path, blocks[index])

    def _read_block(self, path: RelPath, wanted: BlockId) -> bytes:
        try:
            data = self._blocks.get(wanted, verify=True)
        except MissingBlockError:
            # Contents that changed since the observation lose their blocks to a collection.
            raise LocalChangedError(path, _REASONS["changed"]) from None
        self.bytes_read += len(data)
        return data

    async def verify_unchanged(self, stat: FileStat) -> None:
        """Nothing to do: blocks never change, so what is sent is the observed version, or nothing."""

    # --- staging

    async def stage(self, wanted: Wanted) -> Staged:
        """Put what the volume lacks into its block directory, then describe the file to the mount."""
        hold = await self._run(self._blocks.hold)
        try:
            missing = await self._run(self._missing, wanted.blocks, hold)

            async def deliver(index: int, block: BlockId, data: bytes) -> None:  # noqa: ARG001 - its id names it
                await self._run(self._store, block, data, hold)

            try:
                if missing:
                    await wanted.fetch(missing, deliver)
            finally:
                # Also after a failure: what was received must not be fetched again. Durable before a tree refers to it.
                await self._run(self._blocks.sync)
            return await self._run(self._prepare, wanted, hold)
        except BaseException:
            hold.release()
            raise

    def _missing(self, blocks: BlockList, hold: EpochHold) -> list[int]:
        lacking = set(self._blocks.missing(blocks, hold))
        first: list[int] = []
        for index, block in enumerate(blocks):
            if block in lacking:
                lacking.discard(block)
                first.append(index)
        return first

    def _store(self, block: BlockId, data: bytes, hold: EpochHold) -> None:
        self._blocks.put(data, hold, block_id=block)
        self._unsynced_bytes += len(data)
        if self._unsynced_bytes > _SYNC_BYTES:
            self._unsynced_bytes = 0
            self._blocks.sync()

    def _prepare(self, wanted: Wanted, hold: EpochHold) -> PreparedFile:
        meta, blocks = wanted.meta, wanted.blocks
        mtime_ns = time.time_ns() if meta.mtime_ns is None else meta.mtime_ns
        base, old = self._base_for(wanted)
        handle = self._ask(
            self._control.prepare_file,
            size_bytes=blocks.size_bytes,
            mode=_DEFAULT_MODE if meta.mode is None else meta.mode,
            uid=os.geteuid(),
            gid=os.getegid(),
            mtime_ns=mtime_ns,
            base=base,
        )
        if handle is None:
            raise LocalChangedError(wanted.path, _REASONS["changed"])
        for first, ids in changed_runs(blocks, old):
            if self._ask(self._control.set_blocks, handle, first, ids):
                raise LocalChangedError(wanted.path, "blocks vanished from the volume while the file was assembled")
        tag = LocalTag(device=0, ino=0, btime_ns=0, size_bytes=blocks.size_bytes, mtime_ns=mtime_ns, ctime_ns=0)
        return PreparedFile(handle, tag, hold, self)

    def _base_for(self, wanted: Wanted) -> tuple[tuple[int, int] | None, BlockList]:
        """A file whose block list the new one starts with, so that a small change costs a small message."""
        for origin in wanted.origins:
            if origin.tag.version is None:
                continue
            blocks = self._ask(self._control.block_list, origin.tag.ino, origin.tag.version, self.block_size)
            if blocks is not None:
                return (origin.tag.ino, origin.tag.version), blocks
        return None, BlockList(block_size=self.block_size, size_bytes=0, ids=b"")

    async def abandon(self, handle: int) -> None:
        """Drop a prepared file."""
        await self._run(self._ask, self._control.abandon_file, handle)

    # --- changing

    async def create(self, path: RelPath, staged: Staged) -> Applied:
        """Install under a free name."""
        return await self._run(self._install, path, staged, None)

    async def replace(self, path: RelPath, staged: Staged, expect: LocalTag) -> Applied:
        """Exchange; the displaced file goes to the trash."""
        return await self._run(self._install, path, staged, expect)

    def _install(self, path: RelPath, staged: Staged, expect: LocalTag | None) -> Applied:
        assert isinstance(staged, PreparedFile)
        with parent_directory(self._root, path) as (directory, name):
            trash = _TrashPlace() if expect is None else self._trash_place(name)
            change = protocol.InstallFile(
                handle=staged.handle, parent=os.fstat(directory).st_ino, name=name, expect=_expect(expect), **trash
            )
            done = self._apply(change, path)
        staged.installed = True
        return Applied(tag=_own_tag(done, staged.tag.size_bytes, staged.tag.mtime_ns))

    async def make_directory(self, path: RelPath, meta: Meta) -> Applied:
        """Make it under a free name."""
        return await self._run(self._make_directory, path, meta)

    def _make_directory(self, path: RelPath, meta: Meta) -> Applied:
        with parent_directory(self._root, path) as (directory, name):
            change = protocol.ApplyMkdir(
                parent=os.fstat(directory).st_ino,
                name=name,
                mode=_DEFAULT_DIRECTORY_MODE if meta.mode is None else meta.mode,
                uid=os.geteuid(),
                gid=os.getegid(),
            )
            return Applied(tag=_own_tag(self._apply(change, path), 0, 0))

    async def make_symlink(self, path: RelPath, target: bytes, expect: LocalTag | None) -> Applied:
        """Make it; an old one goes to the trash first.

        A crash in between looks like a deletion, which loses against the other side's change: the link is made again.
        """
        return await self._run(self._make_symlink, path, target, expect)

    def _make_symlink(self, path: RelPath, target: bytes, expect: LocalTag | None) -> Applied:
        if expect is not None:
            self._remove(path, Kind.SYMLINK, expect)
        with parent_directory(self._root, path) as (directory, name):
            change = protocol.ApplySymlink(
                parent=os.fstat(directory).st_ino, name=name, target=target, uid=os.geteuid(), gid=os.getegid()
            )
            return Applied(tag=_own_tag(self._apply(change, path), len(target), 0))

    async def move(self, source: RelPath, target: RelPath, expect: LocalTag) -> Applied:
        """Rename to a free name if it still is that inode."""
        return await self._run(self._move, source, target, expect)

    def _move(self, source: RelPath, target: RelPath, expect: LocalTag) -> Applied:
        with parent_directory(self._root, source) as (old, name), parent_directory(self._root, target) as (new, wanted):
            change = protocol.ApplyMove(
                parent=os.fstat(old).st_ino,
                name=name,
                new_parent=os.fstat(new).st_ino,
                new_name=wanted,
                expect=Expect(ino=expect.ino),
            )
            self._apply(change, source)
        return Applied(tag=expect)

    async def trash(self, path: RelPath, kind: Kind, expect: LocalTag) -> None:
        """Move into the trash; a directory is removed if it is empty."""
        await self._run(self._remove, path, kind, expect)

    def _remove(self, path: RelPath, kind: Kind, expect: LocalTag) -> None:
        with parent_directory(self._root, path) as (directory, name):
            trash = _TrashPlace() if kind is Kind.DIRECTORY else self._trash_place(name)
            condition = Expect(ino=expect.ino) if kind is not Kind.FILE else _expect(expect)
            change = protocol.ApplyRemove(parent=os.fstat(directory).st_ino, name=name, expect=condition, **trash)
            self._apply(change, path)

    async def set_meta(self, path: RelPath, meta: Meta, expect: LocalTag) -> Applied:
        """Set mode and mtime of that inode."""
        return await self._run(self._set_meta, path, meta, expect)

    def _set_meta(self, path: RelPath, meta: Meta, expect: LocalTag) -> Applied:
        change = protocol.ApplySetMeta(expect=_expect(expect), mode=meta.mode, mtime_ns=meta.mtime_ns)
        done = self._apply(change, path)
        mtime_ns = expect.mtime_ns if meta.mtime_ns is None else meta.mtime_ns
        return Applied(tag=_own_tag(done, expect.size_bytes, mtime_ns))

    # --- durability

    async def barrier(self) -> None:
        """Nothing to do: every conditional change is durable when the mount says that it is made."""

    async def finish(self) -> list[RelPath]:
        """Nothing to do: a file that is open for writing was not displaced."""
        return []

    async def close(self) -> None:
        """Drop the connection, and with it files that were not installed."""
        if not self._closed:
            self._closed = True
            self._control.close()
            self._blocks.close()
            os.close(self._root)

    # --- parts

    def _trash_place(self, name: bytes) -> _TrashPlace:
        seconds, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
        prefix = b"%d-%08x-" % (seconds, nanoseconds)
        return {"trash_parent": self._folders[_FOLDERS[1]], "trash_name": prefix + name[: 255 - len(prefix)]}

    def _apply(self, change: _Change, path: RelPath) -> protocol.Applied:
        done = self._ask(self._control.apply, change)
        if isinstance(done, protocol.Refused):
            if done.reason == "busy":
                raise BusyError(path, _OPEN)
            raise LocalChangedError(path, _REASONS.get(done.reason, done.reason))
        return done

    def _ask(self, method: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self._talking:
            return method(*args, **kwargs)

    async def _run(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        def work() -> T:
            try:
                return function(*args, **kwargs)
            except BlocksFullError as error:
                raise NoSpaceError(str(error)) from error

        return await trio.to_thread.run_sync(work, limiter=self._workers)


def _verified(control: ControlClient, what: str, volume_uuid: str) -> protocol.StatusReply:
    """Make sure that the mount serves the volume that was linked."""
    status = control.status()
    if status.uuid != volume_uuid:
        raise RootIdentityError(what, f"volume {volume_uuid}", f"volume {status.uuid}")
    return status


def changed_runs(blocks: BlockList, old: BlockList) -> Iterator[tuple[int, bytes]]:
    """Runs of ids to set in a file that starts with `old`, resized: (first index, concatenated ids)."""
    changed = blocks.changed_from(old.splice(blocks.size_bytes, {}))
    first, ids = 0, bytearray()
    for index in sorted(changed):
        if ids and (index != first + len(ids) // ID_SIZE or len(ids) >= protocol.MAX_PAGE_IDS * ID_SIZE):
            yield first, bytes(ids)
            ids.clear()
        if not ids:
            first = index
        ids += changed[index]
    if ids:
        yield first, bytes(ids)


def _report(
    row: NodeRow, paths: list[RelPath], content: Content | None, stats: list[FileStat], problems: list[Problem]
) -> None:
    """Every name of an inode as an observation."""
    for path in paths:
        stat = stat_of(row, path)
        if stat is None:
            problems.append(Problem(path=path, reason=f"a {row.kind} is not synced", partly=False))
        else:
            stats.append(replace(stat, content=content))


def _expect(tag: LocalTag | None) -> Expect:
    return Expect(ino=None) if tag is None else Expect(ino=tag.ino, content_version=tag.version)


def _own_tag(done: protocol.Applied, size_bytes: int, mtime_ns: int) -> LocalTag:
    """Evidence of what we made ourselves, without asking again."""
    return LocalTag(
        device=0,
        ino=done.ino,
        btime_ns=0,
        size_bytes=size_bytes,
        mtime_ns=mtime_ns,
        ctime_ns=0,
        version=done.content_version,
    )
