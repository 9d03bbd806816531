"""Assemble a file in the temp folder: what is known by its place is copied, all else is asked for by its id.

By their places, in this order: what a killed run left of the same temp file; the old version and files of equal
content, also those that this cycle replaced. What they have is shared with them where the filesystem can that, else
copied. Every block is hashed before it counts, and when nobody else can change it any more. The rest lies on the
cycle's board, where this root's own files are asked first (sources.py).
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Sequence
from typing import Final

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.extents import block_length
from blockfs.blocks.hashing import block_id
from blockfs.blocks.ids import ZERO_BLOCK, BlockId
from blockfs.runtime.atomic import WRITE_BYTES
from blockfs.runtime.reflink import clone_file, clone_range
from syncer.core.model import Content, LocalTag, Meta, RelPath
from syncer.core.rows import Origin
from syncer.errors import UnholdableError
from syncer.local.folder.filehash import hash_file, read_exactly
from syncer.local.folder.sources import Sources
from syncer.local.folder.xattrs import write as write_xattrs
from syncer.local.safe_open import FILE_FLAGS, tag_of
from syncer.local.syscalls import status
from syncer.ports.localvalues import StageOrder

_RUN_BYTES: Final = 4 << 20  # copied at once
_TEMP: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
DEFAULT_MODE: Final = 0o644  # for files whose remote object carries no mode


class Assembly:
    """One temp file on its way. Blocking methods are for worker threads, one at a time, but for `held`."""

    def __init__(self, sources: Sources, tmp: int, name: bytes, order: StageOrder) -> None:
        """Open or make the temp file `name`; what a killed run left in it is used."""
        self._sources = sources
        self._order = order
        self._tmp = tmp
        self.name = name
        self._positions: dict[BlockId, list[int]] = {}
        self._left = bytearray(b"\1" * len(order.blocks))  # 1: not in the file yet
        self._file = _open_temp(tmp, name)
        self._preset = os.fstat(self._file).st_size > 0  # the file may hold bytes where it should have NULs
        self._shares = True  # until the filesystem refused
        self._closing = threading.Lock()  # nobody reads meanwhile
        self._readable = _opened_again(tmp, name)
        sources.begin(order.content, order.blocks, self)

    def close(self) -> None:
        """Write no more. It stays, and can be read. Idempotent."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def end(self, installed: Origin | None = None) -> None:
        """It is read from here no more. Idempotent.

        Args:
            installed: Where it is now, if it was installed.
        """
        self.close()
        self._sources.end(self._order.content, self, installed)
        with self._closing:
            if self._readable >= 0:
                os.close(self._readable)
                self._readable = -1

    def has(self, index: int) -> bool:
        """See Arriving."""
        return self._readable >= 0 and not self._left[index]

    def held(self, index: int) -> bytes | None:
        """See Arriving."""
        blocks = self._order.blocks
        with self._closing, contextlib.suppress(OSError):
            if self.has(index):
                length = block_length(index, blocks.size_bytes, blocks.block_size)
                return read_exactly(self._readable, index * blocks.block_size, length)
        return None

    def discard(self) -> None:
        """Close and delete the temp file, if it still has that name."""
        if self._file >= 0 and self._sources.received is not None:
            self._sources.received.forget(self._file)
        self.end()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.name, dir_fd=self._tmp)

    def gather(self) -> list[int]:
        """Put in place what this root has.

        Returns:
            Indexes whose blocks must be fetched, one per distinct id.
        """
        blocks = self._order.blocks
        counters, elsewhere = self._sources.counters, False
        if not self._preset:
            self._preset = self._share_all()
            elsewhere = self._preset and not self._is_before(self._order.origins[0])
        os.ftruncate(self._file, blocks.size_bytes)
        if self._preset:
            found = self._compare_preset()
            counters.own_blocks += found if elsewhere else 0
        else:
            for first, behind in blocks.holes():
                self._left[first:behind] = bytes(behind - first)
        for origin in self._order.origins:
            if 1 not in self._left:
                return []
            found = self._take_aligned(origin)
            counters.own_blocks += 0 if self._is_before(origin) else found
        for origin in self._sources.displaced(self._order.content) if 1 in self._left else ():
            counters.own_blocks += self._take_aligned(origin)
        self._positions = {}
        for index in self._places_left():
            self._positions.setdefault(blocks[index], []).append(index)
        return [places[0] for places in self._positions.values()]

    def receive(self, got: Sequence[tuple[BlockId, bytes]]) -> None:
        """Write what was fetched; from now on other devices may have it from here."""
        self.place(got)
        if self._sources.received is not None and self._readable >= 0:
            size = self._order.blocks.block_size
            spots = [(wanted, self._positions[wanted][0] * size, len(data)) for wanted, data in got]
            self._sources.received.placed(self._readable, spots)

    def place(self, got: Sequence[tuple[BlockId, bytes]]) -> None:
        """Write verified blocks, each at every index that wants it: neighbours in one go."""
        pieces = sorted((index, data) for wanted, data in got for index in self._positions[wanted])
        run: list[bytes] = []
        start = end = 0
        for index, data in pieces:
            at, content = self._fitted(index, data)
            if run and (at != end or end + len(content) - start > WRITE_BYTES):
                _write_all(self._file, run, start)
                run = []
            if not run:
                start = at
            run.append(content)
            end = at + len(content)
        if run:
            _write_all(self._file, run, start)
        for index, _ in pieces:
            self._left[index] = 0

    def complete(self, meta: Meta) -> tuple[LocalTag, str | None]:
        """Set attributes, mode and times and make the file durable.

        Returns:
            Its evidence; why its attributes could not be set.
        """
        assert 1 not in self._left
        lacking = set_attributes(self._file, self._order.path, meta)
        # Content, size and times must be on disk before any name says that this is the file.
        os.fsync(self._file)
        if self._sources.twins is not None:
            self._sources.twins.adopt(self._file, self._order.path, self._order.content)
        return tag_of(status(b"", self._file)), lacking

    def _is_before(self, origin: Origin) -> bool:
        """Whether it is the version before of this very file."""
        return origin.path == self._order.path

    def _share_all(self) -> bool:
        """Share all of an old version whose block list is lost: then what it has is hashed once, where it is then."""
        for origin in self._order.origins[:1]:
            if self._sources.lists.load(origin.content) is None:
                descriptor = self._sources.open(origin)
                if descriptor is not None:
                    try:
                        return clone_file(descriptor, self._file)
                    finally:
                        os.close(descriptor)
        return False

    def _compare_preset(self) -> int:
        """Look what the file has. Returns how many blocks are right, holes not counted."""
        blocks, found = self._order.blocks, 0
        present, read = hash_file(self._file, blocks.size_bytes, blocks.block_size)
        self._sources.counters.bytes_read += read
        for index, (have, want) in enumerate(zip(present, blocks, strict=True)):
            if have == want:
                self._left[index] = 0
                found += want != ZERO_BLOCK
            elif want == ZERO_BLOCK:
                self._write(index, b"")
        return found

    def _places_left(self) -> Iterator[int]:
        """The indexes of blocks that are not in the file yet, ascending."""
        at = -1
        while (at := self._left.find(1, at + 1)) >= 0:
            yield at

    def _take_aligned(self, origin: Origin) -> int:
        """Take the blocks that a file has at the same index. Returns how many."""
        descriptor = self._sources.open(origin)
        if descriptor is None:
            return 0
        blocks, before = self._order.blocks, self._left.count(1)
        try:
            theirs = self._sources.lists.load(origin.content)
            if theirs is None:
                theirs, read = hash_file(descriptor, origin.content.size_bytes, blocks.block_size)
                self._sources.counters.bytes_read += read
            for first, count in self._equal_runs(theirs):
                self._take_run(descriptor, first, count)
        finally:
            os.close(descriptor)
        return before - self._left.count(1)

    def _equal_runs(self, theirs: BlockList) -> Iterator[tuple[int, int]]:
        """Runs of indexes that are still left and where both lists agree, each at most _RUN_BYTES long."""
        blocks = self._order.blocks
        longest = max(1, _RUN_BYTES // blocks.block_size)
        first = count = 0
        for index in self._places_left():
            if index >= len(theirs):
                break
            if blocks[index] != theirs[index]:
                continue
            if count and (index != first + count or count == longest):
                yield first, count
                count = 0
            first, count = (first, count + 1) if count else (index, 1)
        if count:
            yield first, count

    def _take_run(self, descriptor: int, first: int, count: int) -> None:
        """Share or copy blocks, and hash them: who reads what is shared already can't be overtaken by a writer."""
        blocks = self._order.blocks
        start = first * blocks.block_size
        length = min((first + count) * blocks.block_size, blocks.size_bytes) - start
        is_shared = self._shares = self._shares and clone_range(descriptor, self._file, start, length)
        data = read_exactly(self._file if is_shared else descriptor, start, length)
        self._sources.counters.bytes_read += len(data)
        for index in range(first, first + count):
            piece = data[index * blocks.block_size - start : (index + 1) * blocks.block_size - start]
            if block_id(piece) != blocks[index]:
                self._preset |= is_shared  # there is something else in its place now
            elif is_shared:
                self._left[index] = 0
            else:
                self._write(index, piece)

    def _write(self, index: int, data: bytes) -> None:
        at, content = self._fitted(index, data)
        _write_all(self._file, [content], at)
        self._left[index] = 0

    def _fitted(self, index: int, data: bytes) -> tuple[int, bytes]:
        """Where a block goes, and what of it is to be written there."""
        blocks = self._order.blocks
        length = block_length(index, blocks.size_bytes, blocks.block_size)
        # A fresh file has NULs beyond the canonical block already. A block may be longer than its place only by NULs.
        return index * blocks.block_size, data.ljust(length, b"\0")[:length] if self._preset else data[:length]


def _write_all(descriptor: int, parts: Sequence[bytes], at: int) -> None:
    """Write parts one behind the other: at most `WRITE_BYTES` together, or a single one of any length."""
    left = [memoryview(part) for part in parts if part]
    while left:
        written = os.pwritev(descriptor, left if len(left) > 1 else [left[0][:WRITE_BYTES]], at)
        at += written
        while left and written >= len(left[0]):
            written -= len(left.pop(0))
        if left:
            left[0] = left[0][written:]


def set_attributes(descriptor: int, path: RelPath, meta: Meta) -> str | None:
    """Give a temp file its attributes, mode and times.

    Returns:
        Why its extended attributes could not be set; None: they are.
    """
    lacking = None
    if meta.xattrs is not None:
        try:
            write_xattrs(descriptor, path, meta.xattrs)
        except UnholdableError as error:
            lacking = error.reason
    mode = meta.full_mode
    os.fchmod(descriptor, DEFAULT_MODE if mode is None else mode)
    if meta.mtime_ns is not None:
        os.utime(descriptor, ns=(meta.mtime_ns, meta.mtime_ns))
    return lacking


def _opened_again(tmp: int, name: bytes) -> int:
    """A descriptor for reading alone: while one for writing is open, nobody can execute the file. -1: not allowed."""
    try:
        return os.open(name, FILE_FLAGS, dir_fd=tmp)
    except OSError:
        return -1


def _open_temp(tmp: int, name: bytes) -> int:
    """Open or make a temp file. A killed run may have set its mode already, which may forbid us to write to it."""
    try:
        return os.open(name, _TEMP, 0o600, dir_fd=tmp)
    except PermissionError:
        if not _allow_writing(tmp, name):
            # Mode 0o000, or another user's: what is in it is lost, what is to be in it is not.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=tmp)
        return os.open(name, _TEMP, 0o600, dir_fd=tmp)


def _allow_writing(tmp: int, name: bytes) -> bool:
    """Give a file of ours, which we may read, its first mode: such a one is complete, so nothing need be fetched."""
    try:
        descriptor = os.open(name, FILE_FLAGS, dir_fd=tmp)
    except OSError:
        return False
    try:
        os.fchmod(descriptor, 0o600)
    except PermissionError:
        return False
    finally:
        os.close(descriptor)
    return True


def temp_name(path: RelPath, content: Content, attempt: int) -> bytes:
    """Name of a temp file: the same for the same content going to the same place, so that a new run resumes."""
    place = block_id(path)[:4].hex()
    again = f".{attempt}" if attempt else ""
    return f"{content.object_hash.hex()}.{content.size_bytes:x}.{place}{again}".encode()
