"""Copying a range from a file to a file, part by part: copy_file_range(2).

Whole blocks are shared, not copied: the destination's leaves name what the source's name, in one change set. For that
both files are sealed first, as for a clone, until the range has nothing staged; a short range is not worth it. What is
left is copied by bytes: to the first border of a block, from the last one on, and all of it where borders don't fit.
"""

from __future__ import annotations

import errno
import time
from contextlib import suppress
from typing import Final, NamedTuple

from blockfs.blocks.extents import block_count
from blockfs.blocks.hashing import LEAF_IDS
from blockfs.engine.content.bounds import MAX_SIZE
from blockfs.engine.content.files import Files
from blockfs.engine.content.filestate import FileState
from blockfs.engine.content.filetable import FileTable, HasHotFileError
from blockfs.engine.content.leaves import copy_blocks
from blockfs.engine.content.pagemap import PAGE
from blockfs.engine.context import Stores
from blockfs.engine.durable.failing import check_readable
from blockfs.engine.durable.sealer import Sealer
from blockfs.engine.names.newnames import LEAF_BYTES, NewNames
from blockfs.errors import FsError

_BYTES: Final = 1 << 20  # copied at once: it holds the engine's lock
_BLOCKS: Final = 128 * LEAF_IDS  # shared at once, likewise: 2 GiB of blocks of 64 KiB in a few milliseconds
_WORTH_SEALING: Final = 4 << 20  # a seal waits for a disk
_TRIES: Final = 3  # against writers that stage faster than we seal
_NEW_LEAF_BYTES: Final = 13 << 10  # a leaf that is like no other: 8 KiB of ids occupy 12.4 KB


class Part(NamedTuple):
    """What one call does of a range.

    Attributes:
        length: Bytes from its beginning on; 0: there is nothing to copy.
        is_shared: Whole blocks on both sides. Else they are copied by bytes.
    """

    length: int
    is_shared: bool


class RangeCopier:
    """Copies ranges between files of one mount. Thread-safe; waits for disks."""

    def __init__(self, stores: Stores, table: FileTable, sealer: Sealer, files: Files, new_names: NewNames) -> None:
        self._stores = stores
        self._table = table
        self._sealer = sealer
        self._files = files
        self._new_names = new_names

    def copy(self, source: int, offset: int, destination: int, to: int, length: int, *, by_pages: bool = False) -> int:
        """Copy the beginning of a range. A crash leaves what was there or what is copied, page by page.

        Args:
            source: A regular file.
            offset: First byte there.
            destination: A regular file, perhaps the same: then the ranges must not overlap.
            to: First byte there; it grows as needed.
            length: Bytes, of which those past the end of the source don't count.
            by_pages: Change whole pages of the destination only, the last one up to its end.

        Returns:
            Bytes that were copied: at least 1, if there are any.

        Raises:
            FsError: EINVAL: no such ranges, or they overlap; EFBIG beyond 2**63-1; ENOENT; EISDIR, EINVAL: what is
                no regular file; EROFS: the destination is in a snapshot; EOPNOTSUPP: the first page is not whole.
            FlushFailedError: Something that was written to the range is lost.
            NoSpaceError: The host is nearly full.
            BlockfsError: A block of the range, or below staged data of one of the files, is missing or corrupt.
        """
        if min(offset, to, length) < 0:
            raise FsError(errno.EINVAL, f"{length} bytes at {offset} of inode {source} to {to}")
        if to >= MAX_SIZE and length:
            raise FsError(errno.EFBIG, f"inode {destination}: a copy to {to}")
        if by_pages and to % PAGE:
            raise FsError(errno.EOPNOTSUPP, f"inode {destination}: a copy to {to}, within a page")
        length = min(length, MAX_SIZE - to)
        while not (self._files.is_hot(source) or self._files.is_hot(destination)):
            with suppress(HasHotFileError):
                return self._copy_cold(source, offset, destination, to, length, by_pages=by_pages)
        return self._copy_hot(source, offset, destination, to, length, by_pages=by_pages)

    def _copy_cold(self, source: int, offset: int, destination: int, to: int, length: int, *, by_pages: bool) -> int:
        """Copy where no file has a hot file: what they hold is sealed, and shared, or copied."""
        for _ in range(_TRIES):
            with self._stores.lock:
                self._table.writable_row(destination)
                sizes = self._size(source), self._size(destination)
                found = first_part(offset, to, length, sizes, self._stores.block_size)
                if source == destination and abs(offset - to) < min(length, max(0, sizes[0] - offset)):
                    raise FsError(errno.EINVAL, f"inode {source}: from {offset} to {to}, and these overlap")
                if not found.is_shared:
                    break
                if self._is_being_sealed(destination):
                    break
                unsealed = self._unsealed(source, offset, destination, found.length)
                if not unsealed:
                    self._share(source, offset, destination, to, found.length)
                    return found.length
                if found.length < _WORTH_SEALING:
                    break
            self._sealer.seal(unsealed)
        return self._copy_bytes(source, offset, destination, to, found.length, by_pages=by_pages)

    def _copy_hot(self, source: int, offset: int, destination: int, to: int, length: int, *, by_pages: bool) -> int:
        """Copy where at least one of the files has a hot file: what it holds is shared by the host, or copied."""
        with self._stores.lock:
            self._table.writable_row(destination)
            row, state = self._table.row(source), self._table.peek(source)
            size = (row if state is None else state.live(row)).size_bytes
        if source == destination and abs(offset - to) < min(length, max(0, size - offset)):
            raise FsError(errno.EINVAL, f"inode {source}: from {offset} to {to}, and these overlap")
        shared = self._files.share(source, offset, destination, to, length)
        if shared:
            return shared
        return self._copy_bytes(source, offset, destination, to, length, by_pages=by_pages)

    def _copy_bytes(self, source: int, offset: int, destination: int, to: int, length: int, *, by_pages: bool) -> int:
        data = self._files.read(source, offset, min(length, _BYTES), may_block=True)
        if by_pages and len(data) % PAGE:
            with self._stores.lock:
                has_more = to + len(data) < self._size(destination)
            if has_more:
                data = data[: len(data) // PAGE * PAGE]
                if not data:
                    raise FsError(errno.EOPNOTSUPP, f"inode {destination}: a copy to {to}, of less than a page")
        return self._files.write(destination, to, data, may_block=True) if data else 0

    def _size(self, ino: int) -> int:
        state = self._table.peek(ino)
        return self._table.row(ino).size_bytes if state is None else state.size_bytes

    def _is_being_sealed(self, ino: int) -> bool:
        """Whether a seal that has begun may set leaves of a file, though all that was staged is void since.

        It takes what was written meanwhile for staged: leaves that were shared would be lost below its own.
        """
        state = self._table.peek(ino)
        return state is not None and state.is_sealed and bool(state.low_waters)

    def _unsealed(self, source: int, offset: int, destination: int, length: int) -> set[int]:
        """The files of which the leaves don't tell what is needed. Under the lock."""
        read, written = self._table.peek(source), self._table.peek(destination)
        check_readable(self._stores, read, offset, length)
        found = set()
        if read is not None and _is_staged(read, offset, length):
            found.add(source)
        # All of it: its size must not wait for other data to be flushed, when its leaves reach that far.
        is_sound = written is None or written.failures is None or written.failures.row is None
        if written is not None and not (written.is_sealed and is_sound):
            found.add(destination)
        return found

    def _share(self, source: int, offset: int, destination: int, to: int, length: int) -> None:
        """Refer to the blocks of a range once more, all in one change set. Under the lock."""
        tree, block_size = self._stores.tree, self._stores.block_size
        first, there, count = offset // block_size, to // block_size, block_count(length, block_size)
        leaves = min(count // LEAF_IDS + 2, tree.allocated_blocks(source))
        fits = (first - there) % LEAF_IDS == 0
        self._new_names.ask(leaves * LEAF_BYTES + (2 if fits else leaves) * _NEW_LEAF_BYTES)
        row = self._table.writable_row(destination)
        state = self._table.get_cold(destination)
        copy_blocks(tree, source, first, destination, there, count)
        state.touch(row, self._stores.clock.now_ns(), time.monotonic())
        state.size_bytes = max(state.size_bytes, to + length)
        tree.put_inode(state.live(row), content_changed=True)
        state.published(state.stamp)
        self._table.settle(state)


def first_part(offset: int, to: int, length: int, sizes: tuple[int, int], block_size: int) -> Part:
    """What to do first of a copy. Pure.

    Args:
        offset: First byte in the source.
        to: First byte in the destination.
        length: Bytes that are asked for.
        sizes: Of source and destination.
        block_size: Bytes of a block.
    """
    length = min(length, sizes[0] - offset)
    if length <= 0:
        return Part(0, False)
    if (offset - to) % block_size:
        return Part(length, False)
    head = -offset % block_size
    if head:
        return Part(min(head, length), False)
    # Behind the end of the source its last block is NUL; behind that of the copy, nothing must be lost.
    ends_both = offset + length == sizes[0] and to + length >= sizes[1]
    shared = length if ends_both else length // block_size * block_size
    return Part(min(shared, _BLOCKS * block_size), True) if shared else Part(length, False)


def _is_staged(state: FileState, offset: int, length: int) -> bool:
    first = offset // PAGE
    pages = -(-(offset + length) // PAGE) - first
    return any(generation.pages.overlaps(first, pages) for generation in state.generations)
