"""The block directory: blocks by id, stored once, shared by several processes.

Durability order: payload appended → fdatasync(segment) → sidecar record → fdatasync(sidecar) → index commit → (the
caller's commit that refers to the block). A crash at any point leaves payload that nobody refers to, never a row that
points to nothing.
"""

from __future__ import annotations

import hashlib
import os
import uuid as uuids
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from itertools import islice
from typing import Final, Self

import lmdb
import msgspec

from blockfs.blocks.codec import Compression, encode
from blockfs.blocks.disk import Disk
from blockfs.blocks.epochs import EpochHold, Epochs, share_lock
from blockfs.blocks.ids import ZERO_BLOCK, BlockId
from blockfs.blocks.index import BATCH_ROWS, Index, Reading, Row
from blockfs.blocks.layout import DEFAULT_MAP_SIZE_BYTES, Format, Layout, check_block_size
from blockfs.blocks.pins import Pins
from blockfs.blocks.segment import SEGMENT_LIMIT_BYTES, ZSTD
from blockfs.blocks.segments.adoption import Adopter, Found, Recognised
from blockfs.blocks.segments.appender import Appender
from blockfs.blocks.segments.reader import Located, Run, SegmentReader
from blockfs.blocks.segments.reclaim import Reclaimer
from blockfs.blocks.segments.writer import SegmentSource
from blockfs.errors import (
    CorruptBlockError,
    MissingBlockError,
    UsageError,
    WouldBlock,
)
from blockfs.runtime.atomic import space_errors, sync_directory, write_atomically

Part = tuple[BlockId, int, int]
"""A block, the first byte in it, and bytes: what `BlockDirectory.read` is asked for."""


_LOOKUPS: Final = 4096  # ids looked up in one read transaction


class BlockStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of a block directory; pending blocks don't count.

    Attributes:
        blocks: Stored blocks.
        unique_bytes: Sum of their canonical lengths.
        stored_bytes: Bytes allocated on the host for segments, sidecars and index.
    """

    blocks: int
    unique_bytes: int
    stored_bytes: int


class BlockDirectory:
    """One open block directory. Thread-safe. Any number of processes, and of objects in one process, on one path.

    Every method raises NoSpaceError when the host is full, CorruptionError when the index is damaged, and OSError when
    the host fails in another way.
    """

    def __init__(
        self, path: str, *, read_only: bool = False, disk: Disk | None = None, segment_limit_bytes: int
    ) -> None:
        """Use `open` or `create`."""
        self.layout: Final = Layout(path)
        self.format: Final = self.layout.read_format()
        self.path: Final = path
        self.block_size: Final = self.format.block_size
        self.uuid: Final = str(self.format.uuid)
        self.disk: Final = disk or Disk()
        self.read_only: Final = read_only
        self._zeros = bytes(self.block_size)
        self._lock_fd = share_lock(self.layout.lock)
        try:
            self.index: Final = Index(self.layout.index, self.format, self.disk)
        except BaseException:
            os.close(self._lock_fd)
            raise
        self.epochs: Final = Epochs(self.layout.epochs, self.index)
        self.pins: Final = Pins(self.index)
        self.reader: Final = SegmentReader(self.layout, self.format.uuid)
        source = SegmentSource(self.layout, self.format.uuid, self.index, self.disk)
        self._appender = Appender(self.layout, source, self.index, self.disk, segment_limit_bytes)
        self._adopter = Adopter(self.layout, source, self.index, self.disk)
        self._pending = self._appender.pending
        self._closed = False

    # --- life

    @classmethod
    def create(
        cls,
        path: str,
        *,
        block_size: int,
        compression: Compression = Compression.NONE,
        map_size_bytes: int = DEFAULT_MAP_SIZE_BYTES,
        disk: Disk | None = None,
    ) -> BlockDirectory:
        """Make an empty block directory and open it.

        Order: folders and index → fsync of the folders → blocks.toml, atomically. What a crash leaves has no
        blocks.toml, doesn't open, and is made anew by the next create.

        Args:
            path: Folder; made if it is missing. Its parent must exist.
            block_size: Bytes of a full block, a power of two from 4 KiB to 4 MiB.
            compression: Of the blocks, for whoever puts them.
            map_size_bytes: Upper limit of the index file: address space, not disk.
            disk: For crash tests.

        Raises:
            UsageError: There is a block directory already, segments without one, or the block size is not acceptable.
        """
        check_block_size(block_size)
        path = os.path.abspath(path)
        layout = Layout(path)
        if os.path.exists(layout.format_file):
            raise UsageError(f"{path} is a block directory already")
        if os.path.isdir(layout.segments) and os.listdir(layout.segments):
            raise UsageError(f"{path} has segments but no blocks.toml: restore that file, don't create over them")
        with space_errors(path):
            for folder in (path, layout.index, layout.segments, layout.epochs):
                os.makedirs(folder, mode=0o700, exist_ok=True)
            for name in os.listdir(layout.index):  # of a create that did not get to its end
                os.unlink(os.path.join(layout.index, name))
            for file in (layout.lock, layout.gc_lock):
                os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
            created = Format(
                uuid=uuids.uuid4(), block_size=block_size, map_size_bytes=map_size_bytes, compression=compression
            )
            Index.create(layout.index, created, disk or Disk()).close()
            for folder in (layout.index, path, os.path.dirname(path)):
                sync_directory(folder)
            write_atomically(layout.format_file, created.encode())
        return cls.open(path, disk=disk)

    @classmethod
    def open(
        cls,
        path: str,
        *,
        read_only: bool = False,
        disk: Disk | None = None,
        segment_limit_bytes: int = SEGMENT_LIMIT_BYTES,
    ) -> BlockDirectory:
        """Open a block directory.

        Args:
            path: Its folder.
            read_only: Refuse put, pin and unpin; a scrub only looks.
            disk: For crash tests.
            segment_limit_bytes: For tests: a segment of this size is full.

        Raises:
            NotFoundError: No block directory here.
            CorruptionError: blocks.toml or the index is damaged.
            FormatTooNewError: Made by a newer version.
            LockedError: Its index is being rebuilt.
        """
        return cls(os.path.abspath(path), read_only=read_only, disk=disk, segment_limit_bytes=segment_limit_bytes)

    def close(self) -> None:
        """Close. What was put and not synced is forgotten; holds end."""
        if self._closed:
            return
        self._closed = True
        self._appender.close()
        self.epochs.close()
        self.reader.forget()
        self.index.close()
        os.close(self._lock_fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- writing

    def hold(self) -> EpochHold:
        """Begin to rely on blocks: from before the first put until the commit that refers to them is durable."""
        return self.epochs.hold()

    def put(self, data: bytes, hold: EpochHold, *, block_id: BlockId | None = None) -> BlockId:
        """Store a block, if it isn't stored yet.

        Durable and visible to others after `sync`, to `get` of this object at once. While the collection that began the
        hold's epoch still runs, a stored block that nobody has put since is appended again: its row may vanish any
        moment. Whoever commits second lets its copy go. A stored block whose payload is damaged is quarantined, and
        replaced.

        Args:
            data: 0 to block_size bytes; trailing NUL bytes don't count.
            hold: Keeps collectors away until the caller's own commit.
            block_id: If given, what the data must hash to.

        Returns:
            The block's id, ZERO_BLOCK for all-NUL data: a hole, stored nowhere.

        Raises:
            CorruptBlockError: The data are not the block that `block_id` names.
            UsageError: More than a block, or the directory is open for reading only.
            NoSpaceError: Nothing was stored; blocks put before are as they were.
        """
        assert not hold.released
        self._check_writable()
        found, canonical = self._named(data)
        if block_id is not None and found != block_id:
            raise CorruptBlockError(block_id, f"the data have the id {found.hex()}")
        if found != ZERO_BLOCK and not self._is_safe(found, canonical, hold) and not self._appender.join(found, hold):
            self._appender.add({found: encode(canonical, self.format.compression)}, hold)
        return found

    def put_all(self, contents: Iterable[bytes], hold: EpochHold) -> list[BlockId]:
        """As `put` of each, with one look at the index and one write: for small blocks a quarter of the time.

        Args:
            contents: 0 to block_size bytes each; together what may be in memory twice.
            hold: As for `put`.

        Raises:
            UsageError: As `put`; nothing was stored.
            NoSpaceError: None of the new ones was stored.
        """
        assert not hold.released
        self._check_writable()
        named = [self._named(data) for data in contents]
        distinct = dict(named)
        distinct.pop(ZERO_BLOCK, None)
        with self.index.reading() as txn:
            stored = {found for found in distinct if self.index.row(txn, found) is not None}
        self._appender.add(
            {
                found: encode(canonical, self.format.compression)
                for found, canonical in distinct.items()
                if found not in stored or not self._is_safe(found, canonical, hold)
            },
            hold,
        )
        return [found for found, _ in named]

    def recognise(self, contents: Iterable[bytes], hold: EpochHold) -> list[Recognised]:
        """Name blocks, and say which of them need not be stored: as `put` of each, but nothing is stored.

        Args:
            contents: 0 to block_size bytes each.
            hold: As for `put`; what is stored stays while it lasts. What another put has not yet made durable is by the
                next `sync`.

        Raises:
            UsageError: More than a block.
        """
        assert not hold.released
        named = [self._named(data) for data in contents]
        with self.index.reading() as txn:
            stored = {found for found, _ in named if self.index.row(txn, found) is not None}

        def is_stored(found: BlockId, canonical: bytes) -> bool:
            is_safe = found == ZERO_BLOCK or (found in stored and self._is_safe(found, canonical, hold))
            return is_safe or self._appender.join(found, hold)

        return [Recognised(found, len(canonical), is_stored(found, canonical)) for found, canonical in named]

    def adopt(self, path: str, found: Iterable[Found], hold: EpochHold) -> int | None:
        """Store blocks that lie in a file by making a segment of it. Durable when this returns.

        Args, returns and raises as `Adopter.adopt`; the hold as for `put`. The caller unlinks the file when nobody
        reads it there any more, and then lets go what of it is no block's with `settle`.
        """
        assert not hold.released
        self._check_writable()
        return self._adopter.adopt(path, found, hold.epoch)

    def settle(self, number: int) -> None:
        """Give back what an adopted file has beside its blocks. A collection does it, too: this is sooner."""
        Reclaimer(self.layout, self.index, self.disk).settle_adopted(number)

    def share(self, blocks: Sequence[tuple[BlockId, int]], source: int, start: int, hold: EpochHold) -> bool:
        """Store blocks that aren't stored, as `put` does, by sharing pages of a file; see `Appender.share`.

        Returns:
            False if the host can't: `put` each.
        """
        assert not hold.released
        self._check_writable()
        return self._appender.share(blocks, source, start, hold)

    def _named(self, data: bytes) -> tuple[BlockId, bytes]:
        """A block's id and its canonical bytes."""
        size = len(data)
        if size > self.block_size:
            raise UsageError(f"a block of {size} bytes, but the block size is {self.block_size}")
        if data == (self._zeros if size == self.block_size else self._zeros[:size]):  # 5 times as fast as rstrip
            return ZERO_BLOCK, b""
        canonical = bytes(data).rstrip(b"\0")
        return BlockId(hashlib.sha256(canonical).digest()), canonical

    def _is_safe(self, block_id: BlockId, canonical: bytes, hold: EpochHold) -> bool:
        """Whether the block is stored, soundly, and its row stays while the hold lasts.

        The stored bytes are read and compared: whoever puts a block lets go of the only copy that is known to be right.
        """
        with self.index.reading() as txn:
            row = self.index.row(txn, block_id)
            if row is None or row.quarantined:
                return False
            if row.epoch < hold.epoch and not self.index.is_swept(txn, hold.epoch):
                return False
            with suppress(CorruptBlockError):
                if self.reader.read(block_id, row, 0, row.length) == canonical:
                    return True
        self.index.set_quarantined(block_id, row, quarantined=True)  # so that the copy that is put now replaces it
        return False

    def sync(self) -> None:
        """Make durable, and visible to all processes, every block whose put returned before this call.

        Concurrent callers share one group.

        Raises:
            NoSpaceError: Nothing is lost; repeat when there is space.
            CorruptBlockError: The host lost an unsynced block; put it again.
        """
        if self._appender.sync():
            # Copies of blocks that another process stored first; later if a reader is older.
            Reclaimer(self.layout, self.index, self.disk).punch()

    def release_segments(self) -> None:
        """Let a collector look at what this object appends to; the next payload goes where nobody is then."""
        self._appender.release_segments()

    def _check_writable(self) -> None:
        if self.read_only:
            raise UsageError(f"{self.path} is open for reading only")

    # --- reading

    def get(self, block_id: BlockId, *, verify: bool = False) -> bytes:
        """Read a canonical block; b"" for ZERO_BLOCK.

        Args:
            block_id: The block.
            verify: Hash what was read.

        Raises:
            MissingBlockError: Not stored.
            CorruptBlockError: Quarantined, unreadable, or (with `verify`) not the block.
        """
        if block_id == ZERO_BLOCK:
            return b""
        data = self._read(block_id, 0, None)
        if verify and hashlib.sha256(data).digest() != block_id:
            raise CorruptBlockError(block_id, "the stored bytes have another hash")
        return data

    def read(self, block_id: BlockId, start: int, length: int, *, may_block: bool = True) -> bytes:
        """Read `length` bytes of a block from `start` on, NUL bytes behind its canonical end.

        Args:
            block_id: The block; ZERO_BLOCK reads as NUL bytes.
            start: First byte within the block.
            length: Bytes; the caller cuts at block borders.
            may_block: False: only from the page cache. (A cold page of the index may still be waited for.)

        Raises:
            WouldBlock: `may_block` is False, and it is not in the page cache, or something is wrong with it.
            MissingBlockError: Not stored.
            CorruptBlockError: Quarantined or unreadable. Content is not verified.
        """
        if block_id == ZERO_BLOCK:
            return bytes(length)
        if not may_block:
            return self._read_cached([(block_id, start, length)])
        data = self._read(block_id, start, length)
        return data if len(data) == length else data.ljust(length, b"\0")

    def read_all(self, parts: Sequence[Part], *, may_block: bool = True) -> bytes:
        """Read parts of several blocks, one after the other: as `read` does each, one pread for what lies together.

        Raises:
            WouldBlock, MissingBlockError, CorruptBlockError: As `read`.
        """
        if not may_block:
            return self._read_cached(parts)
        try:
            # One transaction from the lookups to the preads, as in `_read`.
            with self.index.begin() as txn:
                runs = self._runs(txn, parts)
                if runs is not None:
                    with suppress(CorruptBlockError):  # of which block is found out one by one
                        return b"".join([self.reader.read_run(run) for run in runs])
        except lmdb.Error as error:
            raise self.index.error(error) from error
        return b"".join([self.read(*part) for part in parts])

    def read_into(self, parts: Sequence[Part], view: memoryview) -> None:
        """As `read_all`, from the page cache alone, into a buffer.

        Args:
            parts: Of blocks, not of ZERO_BLOCK.
            view: Takes them all, and nothing else.

        Raises:
            WouldBlock: They are not all there. Also where more is wrong: who can wait finds out.
            CorruptBlockError: One of them can't be decompressed.
        """
        pending, index, reader = self._pending, self.index, self.reader
        begin = end = segment = -1  # of the run: raw payloads that lie together
        done = at = 0  # in the buffer: up to the run, and with it
        try:
            # One transaction from the lookups to the preads, as in `_read`.
            with index.begin() as txn:
                for block_id, start, length in parts:
                    waiting = pending.get(block_id)
                    row = waiting.row if waiting is not None else index.row(txn, block_id)
                    if row is None or row.quarantined:
                        raise WouldBlock
                    there = min(length, max(0, row.length - start))
                    is_plain = row.codec != ZSTD and there == length
                    offset = row.offset + start
                    if at > done and not (is_plain and offset == end and row.segment == segment):
                        reader.fill(segment, begin, view[done:at])
                        done = at
                    if is_plain:
                        if at == done:
                            begin, segment = offset, row.segment
                        end = offset + length
                        at += length
                        continue
                    if there:
                        reader.read_into(block_id, row, start, view[at : at + there])
                    view[at + there : at + length] = bytes(length - there)
                    done = at = at + length
                if at > done:
                    reader.fill(segment, begin, view[done:at])
        except lmdb.Error as error:
            raise index.error(error) from error

    def _read_cached(self, parts: Sequence[Part]) -> bytes:
        """As `read_into`; ZERO_BLOCK is none of the index."""
        if any(part[0] == ZERO_BLOCK for part in parts):
            return b"".join([self.read(*part, may_block=False) for part in parts])
        buffer = bytearray(sum(length for _, _, length in parts))
        self.read_into(parts, memoryview(buffer))
        return bytes(buffer)

    def _runs(self, txn: Reading, parts: Sequence[Part]) -> list[Run] | None:
        """Where parts lie, those that lie together as one; None: that is not all there is to it."""
        runs: list[Run] = []
        first: bytes = b""
        segment = begin = end = -1
        for block_id, start, length in parts:
            pending = self._pending.get(block_id)
            row = pending.row if pending is not None else self.index.row(txn, block_id)
            if row is None or row.quarantined or row.codec == ZSTD or start + length > row.length:
                return None
            offset = row.offset + start
            if offset != end or row.segment != segment:
                if first:
                    runs.append(Run(first, segment, begin, end - begin))
                first, segment, begin = block_id, row.segment, offset
            end = offset + length
        runs.append(Run(first, segment, begin, end - begin))
        return runs

    def _read(self, block_id: bytes, start: int, length: int | None) -> bytes:
        """The part of a canonical block that exists.

        The transaction begins before the lookup and ends after the pread: a collector waits for it before it punches.
        """
        try:
            for _ in range(2):  # twice: the block may move from `pending` to an index that is newer than our snapshot
                with self.index.begin() as txn:
                    pending = self._pending.get(block_id)
                    row = pending.row if pending is not None else self.index.row(txn, block_id)
                    if row is None:
                        continue
                    if row.quarantined:
                        raise CorruptBlockError(block_id, "it is quarantined since a scrub")
                    rest = row.length - start
                    wanted = rest if length is None or length > rest else length
                    if wanted <= 0:
                        return b""
                    return self.reader.read(block_id, row, start, wanted)
        except lmdb.Error as error:
            raise self.index.error(error) from error
        raise MissingBlockError(block_id)

    def _rows(self, ids: list[BlockId]) -> list[Row | None]:
        """Rows of blocks. `pending` first, then a snapshot: what has left the one is in the other."""
        pending = [self._pending.get(block_id) for block_id in ids]
        with self.index.reading() as txn:
            return [
                entry.row if entry is not None else self.index.row(txn, block_id)
                for block_id, entry in zip(ids, pending, strict=True)
            ]

    def places(self, ids: Sequence[BlockId]) -> AbstractContextManager[list[Located | None]]:
        """Where durable blocks lie, see `SegmentReader.places`."""
        return self.reader.places(self.index, ids)

    def missing(self, ids: Iterable[BlockId], hold: EpochHold | None = None) -> list[BlockId]:
        """Which of these blocks are not stored: distinct, in order. Holes never are missing, quarantined blocks are.

        Args:
            ids: Block ids.
            hold: If given, the blocks that are there stay there while it lasts, as if they had been put. Without it
                they are only safe if something else names them, e.g. a pin that was made before this call.
        """
        distinct = iter(dict.fromkeys(ids))
        result: list[BlockId] = []
        while batch := list(islice(distinct, BATCH_ROWS if hold else _LOOKUPS)):
            result += self._missing(batch) if hold is None else self._claim(batch, hold)
        return result

    def _missing(self, ids: list[BlockId]) -> list[BlockId]:
        return [
            block_id
            for block_id, row in zip(ids, self._rows(ids), strict=True)
            if block_id != ZERO_BLOCK and (row is None or row.quarantined)
        ]

    def _claim(self, ids: list[BlockId], hold: EpochHold) -> list[BlockId]:
        """As `_missing`; raises the epochs of rows that a running collection might delete."""
        assert not hold.released
        with self.index.reading() as txn:
            swept = self.index.is_swept(txn, hold.epoch)
        rest = [block_id for block_id in ids if block_id != ZERO_BLOCK and not self._appender.join(block_id, hold)]
        if swept or not rest:
            return self._missing(rest)
        with self.index.writing() as txn:
            return [block_id for block_id in rest if not self.index.raise_epoch(txn, block_id, hold.epoch)]

    # --- pins

    def pin(self, owner: str, ids: Iterable[BlockId]) -> None:
        """Keep blocks, durably, until `unpin`. Blocks need not be stored yet: pin first, then ask what is missing.

        Args:
            owner: UUID of who needs them.
            ids: Block ids; pinning twice is pinning once.
        """
        self._check_writable()
        self.pins.add(owner, ids)

    def unpin(self, owner: str, ids: Iterable[BlockId] | None = None) -> None:
        """Drop an owner's pins on these blocks, or all of them."""
        self._check_writable()
        self.pins.remove(owner, ids)

    def pinned(self, owner: str) -> Iterator[BlockId]:
        """An owner's pinned ids, ascending."""
        return self.pins.of(owner)

    # --- figures

    def statistics(self) -> BlockStatistics:
        """Count; costs one look at each segment."""
        with self.index.reading() as txn:
            rows = [row for _, row in self.index.segments(txn)]
        stored_bytes = 0
        for folder in (self.layout.segments, self.layout.index):
            with os.scandir(folder) as entries:
                for entry in entries:
                    try:
                        stored_bytes += entry.stat(follow_symlinks=False).st_blocks * 512
                    except FileNotFoundError:
                        continue  # a collector was faster
        return BlockStatistics(
            blocks=sum(row.rows for row in rows),
            unique_bytes=sum(row.length_bytes for row in rows),
            stored_bytes=stored_bytes,
        )

    def stored_lengths(self, ids: Iterable[BlockId]) -> Iterator[int]:
        """Canonical length of each block in bytes, in order; 0 for holes and for blocks that are not stored."""
        source = iter(ids)
        while batch := list(islice(source, _LOOKUPS)):
            yield from (0 if row is None else row.length for row in self._rows(batch))

    def ids(self) -> Iterator[BlockId]:
        """All stored ids, ascending, without pending ones. Not one snapshot."""
        for rows in self.index.scan():
            yield from (block_id for block_id, _ in rows)
