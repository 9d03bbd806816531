"""Sealing a hot file: its changed blocks become blocks of segments by sharing, and nothing is written twice.

Order, per file: take its status → write it back, twice (the first takes as long as there is much, the second holds
writers shortly) → a copy of one instant, by sharing → ask where the copy is not what the leaves say → hash those blocks
from the hot file's page cache, then ask where it still lies where the copy does: all else is hashed from the copy →
the copy's pages into segments → fdatasync of the segments and index commit → leaves, size and `sealed` in one change
set → commit. The hot file is the content before and after, so a crash at any point finds it whole, and seals again.

What is stored already is not taken over: its bytes are compared, and the hot file comes to share them, under the
kernel's locks and only if they are equal at that moment. So do NUL bytes with a hole.

A file that nobody has open needs no copy: if it was opened meanwhile, it is done again with one.

A copy of one instant holds writers for as long as the host takes to share all extents: 20 to 50 µs each. Where nobody
asked for the instant only changed blocks are shared, piece by piece. If somebody wrote meanwhile, the leaves are a
mixture of moments then: the file stays `behind`, and nobody takes them for its content.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from typing import Final

from msgspec.structs import replace

from blockfs.blocks.epochs import EpochHold
from blockfs.blocks.extents import block_count
from blockfs.blocks.ids import ZERO_BLOCK, BlockId
from blockfs.engine.content.filestate import FileState
from blockfs.engine.content.hostfile import HostIoError, translated
from blockfs.engine.content.leaves import set_blocks
from blockfs.engine.context import Stores
from blockfs.engine.hot.addresses import PAGE, Run, dirty_blocks, moved
from blockfs.engine.hot.compare import changed_blocks
from blockfs.engine.hot.folder import Descriptor, HotFolder
from blockfs.engine.hot.hotfile import HotFile, with_status
from blockfs.runtime.fiemap import UNKNOWN, OddMapError
from blockfs.runtime.reflink import clone_range, extents, share_equal

_READ_BYTES: Final = 1 << 20
_SMALL_BYTES: Final = 1 << 20  # below, asking for extents costs more than reading it all
_BATCH: Final = 256  # blocks looked up in one transaction
_PIECE_BYTES: Final = 4 << 20  # shared at once: 3 ms on XFS, in which nobody writes to the file
_SHARED_BYTES: Final = 16 << 20  # at once, at most: what all kernels do

Spliced = Callable[[FileState, int], None]
"""See `blockfs.engine.durable.sealer`."""


class HotJob:
    """The sealing of one hot file: made under the lock, worked on without it, ended under it.

    Attributes:
        state: Of the file.
        hot: The hot file.
        stamp: Of the state when it began.
        status: Of the hot file before it was written back.
        opened: Of the hot file when it began.
        needs_copy: Somebody has it open, or had meanwhile.
        size_bytes: Of the content that is sealed.
        is_small: It is new and short: its bytes are put, as nobody needs the hot file much longer.
        ids: Block number → id of what may have changed.
        unshared: Blocks of these that the hot file does not share wholly with a segment, or with a hole.
        hold: Keeps the blocks.
        may_mix: Nobody needs the content of one instant.
        is_mixed: It is that of several.
        is_spliced: Its result is in a change set, which owns the hold now.
    """

    __slots__ = (
        "hold",
        "hot",
        "ids",
        "is_mixed",
        "is_small",
        "is_spliced",
        "may_mix",
        "needs_copy",
        "opened",
        "size_bytes",
        "stamp",
        "state",
        "status",
        "unshared",
    )

    def __init__(self, state: FileState, hot: HotFile, hold: EpochHold) -> None:
        self.state = state
        self.hot = hot
        self.hold = hold
        self.needs_copy = hot.is_in_use
        self.may_mix = False
        self.is_spliced = False
        self.begin()

    def begin(self) -> None:
        """Note what it begins with. Under the lock."""
        self.ids: dict[int, BlockId] = {}
        self.unshared: list[int] = []
        self.is_small = False
        self.is_mixed = False
        status = self.state.look()
        assert status is not None
        self.status = status
        self.stamp = self.state.stamp
        self.opened = self.hot.opened
        self.size_bytes = self.status.st_size

    def abandon(self) -> None:
        """Leave it as it is. One that is spliced has nothing left to be abandoned."""
        if not self.is_spliced:
            self.hold.release()


class HotSealer:
    """Seals hot files of one mount. Thread-safe; a file's `sealing` is held by the caller."""

    def __init__(self, stores: Stores, folder: HotFolder) -> None:
        self._stores = stores
        self._folder = folder
        self._hole: Descriptor | None = None

    def begin(self, state: FileState, spliced: Spliced | None, *, may_mix: bool) -> HotJob | None:
        """Begin to seal a file; None: there is nothing to seal.

        Args:
            state: Of the file.
            spliced: See there.
            may_mix: Nobody needs the content of one instant.

        Raises:
            HostIoError: The host failed to write back some of it: it can't be sealed any more.
        """
        hold = self._stores.blocks.hold()
        job: HotJob | None = None
        try:
            with self._stores.lock:
                hot = state.hot
                if hot is None or state.discarded:
                    return None
                if hot.failed:
                    raise HostIoError(f"inode {state.ino}: the host failed to write some of it")
                if state.is_sealed:
                    row = self._stores.tree.inode(state.ino)
                    if spliced is not None and row is not None:
                        spliced(state, row.size_bytes)
                    return None
                job = HotJob(state, hot, hold)
                job.may_mix = may_mix and hot.is_named and spliced is None
                return job
        finally:
            if job is None:
                hold.release()

    # --- storing ---

    def store(self, job: HotJob) -> None:
        """Put what may have changed into segments; `sync` of the block directory comes next.

        Raises:
            NoSpaceError: The host is full.
            HostIoError: The host failed.
            CorruptBlockError: A put failed.
        """
        if job.needs_copy and job.may_mix:
            pieces = self._copy_pieces(job)
            if pieces is not None:
                self._put(job, *pieces)
                return
        copy = self._copy(job) if job.needs_copy else None
        source = job.hot.file if copy is None else copy
        job.size_bytes = os.fstat(source.fd).st_size
        job.is_small = copy is None and self._is_small_and_new(job)
        if job.is_small:
            changed = [(0, block_count(job.size_bytes, self._stores.block_size))] if job.size_bytes else []
        else:
            if copy is None:
                self._write_back(job)
            changed = changed_blocks(self._stores, job.state.ino, source.fd, job.size_bytes)
        self._put(job, source, [number for first, end in changed for number in range(first, end)])

    def _is_small_and_new(self, job: HotJob) -> bool:
        if job.size_bytes > _SMALL_BYTES:
            return False
        with self._stores.lock:
            return not self._stores.tree.allocated_blocks(job.state.ino)

    def _write_back(self, job: HotJob) -> None:
        try:
            self._folder.sync(job.hot.file)
        except HostIoError:
            with self._stores.lock:
                job.hot.failed = True
            raise

    def _copy(self, job: HotJob) -> Descriptor:
        self._write_back(job)
        self._write_back(job)
        copy = self._folder.capture(job.hot.file)
        if copy is None:
            raise HostIoError(f"inode {job.state.ino}: the host can't share its hot file")
        return copy

    def _copy_pieces(self, job: HotJob) -> tuple[Descriptor, list[int]] | None:
        """A file that shares what may have changed, and these blocks; None: it was cut off meanwhile."""
        self._write_back(job)
        self._write_back(job)
        fd, block_size = job.hot.file.fd, self._stores.block_size
        job.size_bytes = os.fstat(fd).st_size
        changed = changed_blocks(self._stores, job.state.ino, fd, job.size_bytes)
        copy = self._folder.nameless()
        most = max(1, _PIECE_BYTES // block_size)
        with translated("hot"):
            os.ftruncate(copy.fd, job.size_bytes)
            for first, end in changed:
                for at in range(first, end, most):
                    self._stores.priority.give_way()
                    start = at * block_size
                    length = min(min(at + most, end) * block_size, job.size_bytes) - start
                    whole = length // PAGE * PAGE
                    if whole and not clone_range(fd, copy.fd, start, whole):
                        return None
                    if whole < length:
                        os.pwrite(copy.fd, os.pread(fd, length - whole, start + whole), start + whole)
        # All was written back after that status: each store since has changed it.
        job.is_mixed = job.hot.has_changed_since(job.status)
        return copy, [number for first, end in changed for number in range(first, end)]

    def _put(self, job: HotJob, source: Descriptor, numbers: list[int]) -> None:
        lengths: dict[int, int] = {}
        for number, data in self._read(job, job.hot.file, numbers):
            self._note(job, lengths, number, data)
        if source is not job.hot.file:
            changed = self._changed_since(job, source)
            for number, data in self._read(job, source, [one for one in numbers if one in changed]):
                self._note(job, lengths, number, data)
        absent = set(self._stores.blocks.missing(job.ids.values()))
        most = self._stores.block_size - PAGE
        for number in numbers:
            self._stores.priority.give_way()
            is_shared = False
            if job.ids[number] != ZERO_BLOCK:
                is_shared = self._put_block(job, source, number, lengths[number], is_absent=job.ids[number] in absent)
            if not is_shared or lengths[number] <= most:
                job.unshared.append(number)

    def _note(self, job: HotJob, lengths: dict[int, int], number: int, data: bytes) -> None:
        canonical = data.rstrip(b"\0")
        job.ids[number] = block_id_of(canonical)
        lengths[number] = len(canonical)

    def _put_block(self, job: HotJob, source: Descriptor, number: int, length: int, *, is_absent: bool) -> bool:
        """Store a block; returns whether by sharing its pages."""
        blocks, start = self._stores.blocks, number * self._stores.block_size
        self._stores.config.checkpoint("blocks.put")
        with translated("block directory"):
            may_share = is_absent and not job.is_small and start + -(-length // PAGE) * PAGE <= job.size_bytes
            if may_share and blocks.share(job.ids[number], source.fd, start, length, job.hold):
                return True
            blocks.put(os.pread(source.fd, length, start), job.hold, block_id=job.ids[number])
            return False

    def _read(self, job: HotJob, file: Descriptor, numbers: list[int]) -> Iterator[tuple[int, bytes]]:
        """Blocks of a file, cut at the size that is sealed; many at a time where they lie together."""
        block_size = self._stores.block_size
        most = max(1, _READ_BYTES // block_size)
        at = 0
        while at < len(numbers):
            count = 1
            while count < most and at + count < len(numbers) and numbers[at + count] == numbers[at] + count:
                count += 1
            start = numbers[at] * block_size
            length = min(count * block_size, job.size_bytes - start)
            with translated("hot"):
                data = os.pread(file.fd, length, start)
            for one in range(count):
                yield numbers[at] + one, data[one * block_size : (one + 1) * block_size]
            at += count

    def _changed_since(self, job: HotJob, copy: Descriptor) -> set[int]:
        """Blocks of which the hot file's bytes may be other than the copy's: written since, or cut off."""
        size, block_size = job.size_bytes, self._stores.block_size
        try:
            now, then = extents(job.hot.file.fd, size), extents(copy.fd, size)
            found = dirty_blocks(list(now), list(then), size, block_size)
        except (OddMapError, OSError):
            found = [(0, block_count(size, block_size))]
        return {number for first, end in found for number in range(first, end)}

    # --- telling ---

    def splice(self, job: HotJob, spliced: Spliced | None) -> bool:
        """Put the result into the current change set. Returns False if it must be stored anew, with a copy."""
        stores, state, hot = self._stores, job.state, job.hot
        with state.publishing, stores.lock:  # else a flush under way would tell an older size after this
            if state.discarded or state.hot is not hot:
                job.hold.release()
                job.is_spliced = True
                return True
            if not job.needs_copy and (hot.is_in_use or hot.opened != job.opened):
                job.needs_copy = True
                job.begin()
                return False
            tree, row = stores.tree, stores.tree.inode(state.ino)
            assert row is not None
            set_blocks(tree, state.ino, job.ids)
            tree.truncate_leaves(state.ino, block_count(job.size_bytes, stores.block_size))
            tree.keep(job.hold)
            job.is_spliced = True
            is_news = job.stamp > state.published_stamp or job.is_mixed
            told = replace(with_status(row, job.status), size_bytes=job.size_bytes)
            if is_news or told != row:
                tree.put_inode(told, content_changed=is_news or job.size_bytes != row.size_bytes)
            state.published(job.stamp)
            hot.sealed_at_s = time.monotonic()
            hot.sealed_opened = -1 if job.needs_copy else hot.opened
            hot.is_behind = job.is_mixed
            if job.is_mixed:
                hot.seen = None
            else:
                hot.captures += 1
                hot.see(job.status, is_old=not job.needs_copy)
            if hot.is_named:
                tree.put_hot(hot.row())
            if spliced is not None:
                spliced(state, job.size_bytes)
            return True

    def close(self) -> None:
        """Let go of the host."""
        self._hole = None

    # --- sharing afterwards ---

    def share_stored(self, job: HotJob) -> None:
        """Let the hot file share what was stored already, and have holes for NUL bytes: both are clean then.

        It does so only where it still has these very bytes. Failures cost space, nothing else.
        """
        stores, block_size = self._stores, self._stores.block_size
        if job.is_small:
            return
        for at in range(0, len(job.unshared), _BATCH):
            batch = job.unshared[at : at + _BATCH]
            with stores.blocks.places([job.ids[number] for number in batch]) as places:
                for number, place in zip(batch, places, strict=True):
                    start = number * block_size
                    length = min(block_size, (job.size_bytes - start) // PAGE * PAGE)
                    if job.ids[number] == ZERO_BLOCK:
                        self._make_hole(job.hot, start, length)
                    elif place is not None and not place.quarantined:
                        stored = min(length, -(-place.length // PAGE) * PAGE)
                        _share(place.file.fd, place.offset, stored, job.hot, start)
                        self._make_hole(job.hot, start + stored, length - stored)

    def _make_hole(self, hot: HotFile, start: int, length: int) -> None:
        if length <= 0:
            return
        try:
            if self._hole is None:
                flags = os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC
                self._hole = Descriptor(os.open(self._folder.path, flags, 0o600))
                os.ftruncate(self._hole.fd, _SHARED_BYTES)
        except OSError:
            return
        _share(self._hole.fd, 0, length, hot, start)


def block_id_of(data: bytes) -> BlockId:
    """The id of a block; what follows in it is NUL."""
    canonical = data.rstrip(b"\0")
    return BlockId(hashlib.sha256(canonical).digest()) if canonical else ZERO_BLOCK


def _share(source: int, start: int, length: int, hot: HotFile, to: int) -> None:
    """Share a range, unless it does already."""
    if length <= 0:
        return
    try:
        theirs = list(moved(extents(source, start + length, sync=False, start=start), Run(0, start, to, length)))
        ours = list(moved(extents(hot.file.fd, to + length, sync=False, start=to), Run(0, to, to, length)))
        if ours != theirs or any(place == UNKNOWN for _, place, _ in ours):
            share_equal(source, start, length, hot.file.fd, to)
    except (OddMapError, OSError):
        return
