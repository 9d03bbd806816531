"""`BlockfsRoot`: a mounted volume as one side of a sync. Scans nothing and hashes nothing.

The mount tells what changed (journal), names contents (object hashes), and makes each change conditionally and durably.
Blocks are read from and written to the volume's block directory beside it; a hold keeps the collector off until the
file that refers to them is installed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final, ParamSpec, TypeVar

import msgspec
import trio

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.ids import ZERO_BLOCK, BlockId
from blockfs.control import protocol
from blockfs.control.client import ControlClient, NotMountedError
from blockfs.errors import BlockfsError, MissingBlockError
from blockfs.errors import NoSpaceError as BlocksFullError
from syncer.blocks.near import OwnBlocks
from syncer.core.base import BaseIndex
from syncer.core.ignore import IgnoreRules
from syncer.core.model import Content, FileStat, Kind, LocalTag, Meta, RelPath
from syncer.core.parts import Parts
from syncer.core.rows import BaseRows
from syncer.errors import LocalChangedError, NoSpaceError, RootIdentityError
from syncer.local.blocklists import BlockLists
from syncer.local.folder.held import Spill
from syncer.local.root import (
    OWN,
    Applied,
    FetchAll,
    Holders,
    Observation,
    Patterns,
    Staged,
    Wanted,
    content_of,
    no_patterns,
)
from syncer.local.safe_open import DIRECTORY_FLAGS
from syncer.local.verbs.retention import KEEP_S
from syncer.local.verbs.trashcan import TrashCan
from syncer.local.volume.changes import REASONS, VolumeChanges
from syncer.local.volume.mount import find_mount, verified
from syncer.local.volume.observer import Connection, VolumeObserver
from syncer.local.volume.part import Journal, VolumePart, knows
from syncer.local.volume.reader import VolumeReader
from syncer.local.volume.reblock import Pair, Regrid
from syncer.local.volume.staging import PreparedFile, VolumeStaging
from syncer.local.volume.tree import volume_tag
from syncer.ports.blocks import BlockSource
from syncer.ports.local import Piece
from syncer.ports.state import State

P = ParamSpec("P")
T = TypeVar("T")

SNAPSHOT: Final = b".blocksync-reconcile"
"""Name of the snapshot that a cycle pushes from. It lasts as long as the cycle; the next one removes what was left."""

_KEPT_BLOCKS: Final = 256
"""Block lists of shorter files (16 MiB in blocks of 64 KiB) are not kept: their hashmap has 18 KB at most."""

_REMEMBERED_BYTES: Final = 16 << 20  # naming this for a server with other blocks takes long enough to remember it
_WORKERS: Final = 8  # concurrent requests and reads


class RemoteBlocks(msgspec.Struct, frozen=True, kw_only=True):
    """How the server cuts files.

    Attributes:
        block_size: Bytes of its blocks.
        lists: Folder for block lists, if the volume's blocks are of another size.
        state: Knows contents of files that are not in the base yet; None: nobody does.
    """

    block_size: int
    lists: str
    state: State | None = None


class BlockfsRoot:
    """See `LocalRoot`."""

    def __init__(
        self,
        path: bytes,
        volume_uuid: str,
        *,
        lists: str | None = None,
        from_snapshot: bool = False,
        keep_trash_s: float = KEEP_S,
        patterns: Patterns = no_patterns,
        remote: RemoteBlocks | None = None,
    ) -> None:
        """Connect to the mount and make sure that it serves the volume that was linked.

        Args:
            path: The mount point.
            volume_uuid: The volume's.
            lists: Folder for block lists of contents that both sides had; None: none are kept.
            from_snapshot: Observe and push everything as of one instant, also files that are open for writing.
            keep_trash_s: For how long displaced and deleted versions are kept.
            patterns: What is ignored, beside `.blocksyncignore` files.
            remote: How the server cuts files; None: as the volume does.

        Raises:
            RootIdentityError: Not mounted, or another volume.
        """
        self.path = path
        self._bytes_read = 0
        self._keep_trash_s = keep_trash_s
        what = f"the mount point {os.fsdecode(path)}"
        mount = find_mount(path)
        if mount is None:
            raise RootIdentityError(what, f"volume {volume_uuid}", "no mounted volume")
        try:
            self._control = ControlClient(mount.source)
        except NotMountedError as error:
            raise RootIdentityError(what, f"volume {volume_uuid}", str(error)) from error
        try:
            self._block_size = verified(self._control, what, volume_uuid).block_size
            self._blocks = BlockDirectory.open(os.fsdecode(os.path.join(mount.source, b"blocks")))
            self._root = os.open(path, DIRECTORY_FLAGS)
        except BaseException:
            self._control.close()
            raise
        self._lists = None if lists is None else BlockLists(lists, self._block_size)
        self._connection = Connection(self._control)
        self._patterns = patterns
        self._journal: Journal | None = None
        self._part: VolumePart | None = None
        self._regrid: Regrid | None = None
        if remote is not None and remote.block_size != self._block_size:
            self._regrid = Regrid(self._blocks, remote.lists, self._block_size, remote.block_size)
        self._state = None if remote is None else remote.state
        self.block_size = self._block_size if remote is None else remote.block_size
        name = self._name if self._regrid is not None else None
        self._observer = VolumeObserver(
            path,
            self._root,
            self._connection,
            self._block_size,
            SNAPSHOT if from_snapshot else None,
            patterns,
            name,
        )
        self._changes = VolumeChanges(self._root, self._connection)
        self._workers = trio.CapacityLimiter(_WORKERS)
        parts = self._root, self._blocks, self._connection, self._observer, self._changes
        self._staging = VolumeStaging(*parts, self._regrid, self._run)
        self._closed = False

    def take_part(self, parts: Parts) -> None:
        """Sync this, too; else attributes are neither looked at nor set, and special bits never set."""
        self._observer.parts = parts

    # --- observing

    async def observe(self, base: BaseIndex, checkpoint: bytes | None, spill: Spill | None = None) -> Observation:  # noqa: ARG002 - it reads no content
        """Journal since the checkpoint over the base, or everything."""
        if self._regrid is not None:
            seen = await self._run(self._observer.observe, base, checkpoint)
            contents = {row.node.content for row in base.rows.values()} | {stat.content for stat in seen.stats}
            await self._run(self._regrid.keep_only, [content for content in contents if content is not None])
            files = [stat.tag for stat in seen.stats if stat.tag.size_bytes >= _REMEMBERED_BYTES]
            if self._state is not None:
                await self._run(self._state.contents_only, files)
            return seen
        if self._lists is not None:
            least = _KEPT_BLOCKS * (self.block_size - 1)
            known = (row.node.content for row in base.rows.values())
            agreed = [content for content in known if content is not None and content.size_bytes >= least]
            await self._run(self._lists.keep_only, agreed)
        return await self._run(self._observer.observe, base, checkpoint)

    # --- observing a part (engine/partial/partial_look.py)

    async def attend(self, state: State) -> bool:
        """Read the journal since the last checkpoint; False if only a full listing tells."""

        def ask() -> Journal | None:
            with state.rows() as rows:
                return self._observer.journal(state.memory("checkpoint"), lambda row: knows(rows, row))

        self._journal = await self._run(ask)
        return self._journal is not None

    def surveyor(self, rules: IgnoreRules, rows: BaseRows) -> VolumePart:
        """Answers from journal and base; valid as long as the rows are."""
        assert self._journal is not None
        self._part = VolumePart(rows, self._journal, rules, self._observer.parts)
        return self._part

    def settled(
        self, rules: IgnoreRules, rows: BaseRows, paths: Iterable[RelPath] | None, clock_ns: int
    ) -> dict[int, bytes | None]:
        """No digests: the journal names what changed."""
        del rules, rows, paths, clock_ns
        return {}

    def patterns(self) -> Sequence[bytes]:
        """The root's own ignore patterns. Blocking."""
        return self._patterns()

    async def begin(self) -> int:
        """No clock: content versions count every change."""
        return 0

    async def kept_contents(self) -> set[Content]:
        """None: the volume's block directory finds blocks by their ids."""
        return set()

    async def observe_part(self, stats: list[FileStat], base: BaseIndex, clock_ns: int) -> Observation:  # noqa: ARG002 - see `begin`
        """Complete what was looked at by its contents."""
        assert self._part is not None
        return await self._run(self._observer.observe_part, self._part, stats, base)

    async def supersede(self, contents: Sequence[Content]) -> None:
        """Forget the block lists of contents that both sides had and have no more."""
        if self._regrid is not None:
            await self._run(self._regrid.drop, contents)
        elif self._lists is not None:
            await self._run(self._lists.drop, contents)

    @property
    def bytes_read(self) -> int:
        """Content bytes read from the block directory."""
        return self._bytes_read + self._staging.own.bytes_read

    def _name(self, row: protocol.NodeRow, before: Content | None) -> Content | None:
        """What the server calls a file's content."""
        assert self._regrid is not None
        tag = volume_tag(row)
        if self._state is not None and (known := self._state.content(tag)) is not None:
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
        if self._state is not None and row.size_bytes >= _REMEMBERED_BYTES:
            self._state.contents_found([(tag, content)], 0)
        return content

    # --- reading for a push

    async def block_list(self, stat: FileStat) -> BlockList:
        """From the mount, at the observed content version."""
        return await self._run(self._list_in_share, stat)

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

    async def known_list(self, content: Content, stat: FileStat | None = None) -> BlockList | None:
        """From the cache; else from the mount, if a file still has it."""
        if self._regrid is not None:
            pair = await self._run(self._regrid.pair, content)
            return None if pair is None else pair.far
        found = None if self._lists is None else await self._run(self._lists.load, content)
        if found is None and stat is not None and stat.content == content:
            with suppress(LocalChangedError):
                return await self.block_list(stat)
        return found

    def list_of(self, content: Content, tag: LocalTag | None) -> BlockList | None:
        """See `SharedLists`: from the cache, else from the mount."""
        if self._regrid is not None:
            pair = self._regrid.pair(content)
            return None if pair is None else pair.far
        found = None if self._lists is None else self._lists.load(content)
        if found is None and tag is not None and tag.version is not None:
            found = self._ask(self._control.block_list, tag.ino, tag.version, self._block_size)
            return found if found is not None and content_of(found) == content else None
        return found

    async def remember_list(self, content: Content, blocks: BlockList) -> None:
        """Into the cache, if it is a long one."""
        if self._regrid is None and self._lists is not None and len(blocks) >= _KEPT_BLOCKS:
            with suppress(OSError):  # a cache
                await self._run(self._lists.save, content, blocks)

    async def read_block(self, stat: FileStat, blocks: BlockList, index: int) -> bytes:
        """From the volume's block directory; `upload_file` hashes it once more and refuses a damaged one."""
        if blocks[index] == ZERO_BLOCK:
            return b""
        if self._regrid is not None:
            return await self._run(self._read_far, stat, index)
        return await self._run(self._read_block, stat.path, blocks[index])

    async def read_small(self, stats: Sequence[FileStat]) -> list[bytes | LocalChangedError | OSError]:
        """All in one thread: a call costs as much as reading several."""

        def read(stat: FileStat) -> bytes | LocalChangedError | OSError:
            assert stat.content is not None
            wanted = BlockId(stat.content.object_hash)  # of one block, and of none: that is ZERO_BLOCK
            try:
                if wanted == ZERO_BLOCK:
                    return b""
                return self._read_block(stat.path, wanted) if self._regrid is None else self._read_far(stat, 0)
            except (LocalChangedError, OSError) as error:
                return error

        return await self._run(lambda: [read(stat) for stat in stats])

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
        self._bytes_read += len(data)
        return data

    async def verify_unchanged(self, stat: FileStat) -> None:
        """Nothing to do: blocks never change, so what is sent is the observed version, or nothing."""

    def reader(self) -> VolumeReader:
        """Reads from the volume's block directory."""
        return VolumeReader(self._run, self._read_piece)

    def _read_piece(self, piece: Piece) -> bytes:
        if self._regrid is not None:
            return self._read_far(piece.stat, piece.index)
        return self._read_block(piece.stat.path, piece.id)

    async def block_lists(self, stats: Sequence[FileStat]) -> list[BlockList | Exception]:
        """From the mount, at the observed content versions."""

        def work() -> list[BlockList | Exception]:
            found: list[BlockList | Exception] = []
            for stat in stats:
                try:
                    found.append(self._list_in_share(stat))
                except OWN as error:
                    found.append(error)
            return found

        return await self._run(work)

    def _list_in_share(self, stat: FileStat) -> BlockList:
        return self._pair(stat).far if self._regrid is not None else self._block_list(stat.path, stat.tag)

    # --- staging

    def own_blocks(self, holders: Holders) -> BlockSource:  # noqa: ARG002 - blocks are known by their ids
        """From the block directory, put together if the server's blocks are others."""
        return OwnBlocks(self._staging.own)

    async def stage(self, wanted: Wanted) -> Staged:
        """Put what the volume lacks into its block directory, then describe the file to the mount."""
        return await self._staging.stage(wanted)

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

    async def create_all(self, wanted: Sequence[Wanted], fetch: FetchAll) -> list[Applied | Exception]:
        """Store all that the volume lacks with one sync, then prepare and install each file."""
        return await self._staging.create_all(wanted, fetch)

    async def create(self, path: RelPath, staged: Staged) -> Applied:
        """Install under a free name."""
        assert isinstance(staged, PreparedFile)
        return await self._run(self._staging.install, path, staged, None)

    async def replace(self, path: RelPath, staged: Staged, expect: LocalTag) -> Applied:
        """Exchange; the displaced file goes to the trash."""
        assert isinstance(staged, PreparedFile)
        return await self._run(self._staging.install, path, staged, expect)

    async def make_directory(self, path: RelPath, meta: Meta) -> Applied:
        """Make it under a free name."""
        return await self._run(self._changes.make_directory, path, self._observer.parts.own(meta))

    async def make_symlink(self, path: RelPath, target: bytes, expect: LocalTag | None) -> Applied:
        """Make it; an old one goes to the trash first.

        A crash in between looks like a deletion, which loses against the other side's change: the link is made again.
        """
        return await self._run(self._changes.make_symlink, path, target, expect)

    async def move(self, source: RelPath, target: RelPath, expect: LocalTag) -> Applied:
        """Rename to a free name if it still is that inode."""
        return await self._run(self._changes.move, source, target, expect)

    async def trash(self, path: RelPath, kind: Kind, expect: LocalTag) -> None:
        """Move into the trash; a directory is removed if it is empty."""
        await self._run(self._changes.remove, path, kind, expect)

    async def set_meta(self, path: RelPath, meta: Meta, expect: LocalTag, seen: Meta | None = None) -> Applied:
        """Set mode and mtime of that inode."""
        return await self._run(self._changes.set_meta, path, self._observer.parts.own(meta), expect, seen)

    # --- durability

    async def barrier(self) -> None:
        """One commit for all changes since the last one: a commit of its own would cost each small file a sync."""
        await self._run(self._changes.commit)

    async def finish(self) -> list[RelPath]:
        """Empty the trash of what is past its retention; no displaced file has a writer, so none is looked at again."""
        await self._run(self._empty_trash)
        return []

    def _empty_trash(self) -> None:
        with TrashCan(self.path) as can:
            can.expire(self._keep_trash_s)

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
