"""Reading blocks of a root for other devices, beside whatever cycle runs: from its files, or its block directory.

Nothing is open while nobody asks: an open file would keep a disk from being unmounted. Who serves calls `rest` when it
was quiet for some seconds.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Generic, Protocol, TypeVar

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.extents import block_length
from blockfs.blocks.hashing import block_id, canonical
from blockfs.blocks.ids import BlockId
from blockfs.errors import BlockfsError
from syncer.core.model import Content, LocalTag, RelPath
from syncer.errors import RootIdentityError, SyncerError
from syncer.local.folder.filehash import read_exactly
from syncer.local.folder.identity import Folder, open_folder
from syncer.local.safe_open import open_file
from syncer.local.volume.reblock import Regrid

T = TypeVar("T")


class SharedReader(Protocol):
    """Where the blocks are that a share's index names. Blocking; any thread."""

    def read(self, block: BlockId, path: RelPath, content: Content, index: int) -> bytes | None:
        """A block, canonical; None: it is not there (any more).

        Args:
            block: Its id.
            path: A file that had it when the base's row was written.
            content: What the file had.
            index: Of the block in it, in the share's grid.
        """
        ...

    def rest(self) -> None:
        """Let go of everything until it is asked again."""
        ...


class SharedLists(Protocol):
    """A local root that tells block lists of its files without reading content. Blocking; any thread."""

    def list_of(self, content: Content, tag: LocalTag | None) -> BlockList | None:
        """The block list, in the share's grid, of a content that a file with this evidence has; None: not known."""
        ...


class _Kept(Generic[T]):
    """Something that is opened when it is needed, and closed when nobody uses it."""

    def __init__(self, opened: Callable[[], T], close: Callable[[T], None]) -> None:
        self._open, self._close = opened, close
        self._lock = threading.Lock()
        self._kept: T | None = None
        self._users = 0

    @contextmanager
    def use(self) -> Iterator[T]:
        with self._lock:
            if self._kept is None:
                self._kept = self._open()
            kept = self._kept
            self._users += 1
        try:
            yield kept
        finally:
            with self._lock:
                self._users -= 1

    def rest(self) -> None:
        with self._lock:
            kept = self._kept
            if kept is not None and not self._users:
                self._kept = None
                self._close(kept)


class FolderBlocks:
    """An ordinary folder's: read from its files, and compared with the id: a file may have changed since."""

    def __init__(self, path: bytes, identity: Folder, block_size: int) -> None:
        self._block_size = block_size
        self._root = _Kept(lambda: open_folder(path, identity), os.close)

    def read(self, block: BlockId, path: RelPath, content: Content, index: int) -> bytes | None:
        """See SharedReader."""
        size = self._block_size
        with suppress(SyncerError, OSError), self._root.use() as root:
            descriptor = open_file(root, path)
            try:
                length = block_length(index, content.size_bytes, size)
                data = canonical(read_exactly(descriptor, index * size, length))
            finally:
                os.close(descriptor)
            return data if block_id(data) == block else None
        return None

    def rest(self) -> None:
        """See SharedReader."""
        self._root.rest()


class VolumeBlocks:
    """A mounted volume's: from its block directory, which knows them by their ids."""

    def __init__(self, path: bytes, volume_uuid: str, block_size: int, lists: str) -> None:
        """Keep what is needed to open it.

        Args:
            path: The mount point.
            volume_uuid: The volume's.
            block_size: Of the share; if the volume's is another one, blocks are put together.
            lists: Folder of the block lists for that.
        """
        self._path = path
        self._volume_uuid = volume_uuid
        self._block_size = block_size
        self._lists = lists
        self._opened = _Kept(self._open, lambda opened: opened[0].close())

    def _open(self) -> tuple[BlockDirectory, Regrid | None]:
        """The volume's blocks, and what puts those of the share together where they are others."""
        from syncer.local.volume.mount import check_mount, find_mount  # noqa: PLC0415 - where there is a volume

        check_mount(self._path, self._volume_uuid)
        mount = find_mount(self._path)
        if mount is None:
            what = f"the mount point {os.fsdecode(self._path)}"
            raise RootIdentityError(what, f"volume {self._volume_uuid}", "no mounted volume")
        blocks = BlockDirectory.open(os.fsdecode(os.path.join(mount.source, b"blocks")), read_only=True)
        same = blocks.block_size == self._block_size
        return blocks, None if same else Regrid(blocks, self._lists, blocks.block_size, self._block_size)

    def read(self, block: BlockId, path: RelPath, content: Content, index: int) -> bytes | None:  # noqa: ARG002 - see the class
        """See SharedReader."""
        with suppress(SyncerError, BlockfsError, OSError), self._opened.use() as (blocks, regrid):
            if regrid is None:
                return blocks.get(block)
            pair = regrid.pair(content)
            data = None if pair is None else canonical(regrid.far_block(pair, index))
            return data if data is not None and block_id(data) == block else None
        return None

    def rest(self) -> None:
        """See SharedReader."""
        self._opened.rest()
