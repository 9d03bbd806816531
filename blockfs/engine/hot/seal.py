"""Sealing a hot file: its changed blocks become blocks of segments by sharing, and nothing is written twice.

Order, per file: take its status → write it back, twice (the first takes as long as there is much, the second holds
writers shortly) → a copy of one instant, by sharing → ask where the copy is not what the leaves say → hash those blocks
from the hot file's page cache, then ask where it still lies where the copy does: all else is hashed from the copy, and
everything if bytes may have gone and come back meanwhile (`_moves`) → the copy's pages into segments → fdatasync of the
segments and index commit → leaves, size and `sealed` in one change set → commit. The hot file is the content before and
after, so a crash at any point finds it whole, and seals again.

What is stored already is not taken over: the host compares the bytes, under the kernel's locks, and has the file share
the stored ones only if they are equal at that moment. So does the hot file, where there is a copy, and NUL bytes share
a hole.

A small new file that nobody has open needs no copy: its bytes are put, and if it was opened meanwhile it is done again
with one. No other file does without: somebody may come to write to it between hashing and sharing.

A copy of one instant holds writers for as long as the host takes to share all extents. Where nobody asked for the
instant only changed blocks are shared, piece by piece. If somebody wrote meanwhile, the leaves are a mixture of moments
then: the file stays `behind`, and nobody takes them for its content. Who asks for the instant of a file with many
extents gets it in the same way, if nobody wrote meanwhile, and by a copy of one instant else (`capture`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Final

from msgspec.structs import replace

from blockfs.blocks.epochs import EpochHold
from blockfs.blocks.extents import block_count
from blockfs.blocks.ids import ZERO_BLOCK, BlockId
from blockfs.blocks.segment import align
from blockfs.blocks.segments.reader import SegmentFile
from blockfs.engine.content.filestate import FileState
from blockfs.engine.content.hostfile import HostIoError, translated
from blockfs.engine.content.leaves import set_blocks
from blockfs.engine.context import Stores
from blockfs.engine.durable.failing import hot_failure_of
from blockfs.engine.hot.addresses import PAGE, Run, Stored, dirty_blocks, moved, runs
from blockfs.engine.hot.capture import PIECE_BYTES, Captures
from blockfs.engine.hot.compare import changed_blocks
from blockfs.engine.hot.folder import Descriptor, HotFolder
from blockfs.engine.hot.hotfile import HotFile, with_status
from blockfs.engine.hot.naming import Named, named
from blockfs.runtime.fiemap import UNKNOWN, OddMapError
from blockfs.runtime.reflink import extents, share_equal

_SMALL_BYTES: Final = 1 << 20  # below, asking for extents costs more than reading it all
_REST_S: Final = 0.02
_RESTS: Final = 4  # until a status is not young any more
_BATCH: Final = 256  # blocks looked up in one transaction
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
        cuts: Likewise, before its content was compared with the leaves.
        needs_copy: Somebody has it open, or had meanwhile.
        copy: What is sealed then, which changes no more; None: not taken yet.
        copied: First and end of each run of blocks that it has; None: it has all.
        size_bytes: Of the content that is sealed.
        is_small: It is new and short: its bytes are put, as nobody needs the hot file much longer.
        ids: Block number → id of what may have changed.
        unshared: Blocks of these that the hot file does not share wholly with a segment, or with a hole; and of
            each the bytes that are not NUL, in whole pages.
        hold: Keeps the blocks.
        may_mix: Nobody needs the content of one instant.
        is_mixed: It is that of several.
        is_spliced: Its result is in a change set, which owns the hold now.
    """

    __slots__ = (
        "copied",
        "copy",
        "cuts",
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
        """Note what it begins with; a copy is void. Under the lock."""
        self.copy: Descriptor | None = None
        self.copied: list[tuple[int, int]] | None = None
        self.ids: dict[int, BlockId] = {}
        self.unshared: dict[int, int] = {}
        self.is_small = False
        self.is_mixed = False
        status = self.state.look()
        assert status is not None
        self.status = status
        self.stamp = self.state.stamp
        self.opened = self.hot.opened
        self.cuts = self.hot.cuts
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
        self._captures = Captures(stores, folder)
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
                    raise hot_failure_of(self._stores, state.ino)
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
        with self._stores.lock:
            job.cuts = job.hot.cuts
        job.is_small = job.copy is None and not job.needs_copy and self._is_small_and_new(job)
        if not job.is_small and job.copy is None:
            self._take(job)
        source = job.hot.file if job.copy is None else job.copy
        job.size_bytes = os.fstat(source.fd).st_size
        if job.is_small:
            changed = [(0, block_count(job.size_bytes, self._stores.block_size))] if job.size_bytes else []
        elif job.copied is not None:
            changed = job.copied
        else:
            changed = changed_blocks(self._stores, job.state.ino, source.fd, job.size_bytes)
        self._put(job, source, [number for first, end in changed for number in range(first, end)])

    def _is_small_and_new(self, job: HotJob) -> bool:
        if os.fstat(job.hot.file.fd).st_size > _SMALL_BYTES:
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

    # --- what changes no more ---

    def _take(self, job: HotJob) -> None:
        """Have a copy of what is to be sealed. Somebody may come to write to a file that nobody has open, too."""
        if not job.needs_copy:
            self._write_back(job)
            job.copy = self._folder.capture(job.hot.file)  # None on a host that can't, to which a volume was copied
            return
        self.settle(job)
        if job.may_mix or self._captures.is_scattered(job.hot.file):
            if job.may_mix or not self._is_being_written(job):
                self._take_changed(job)
            if job.copy is not None and (job.may_mix or not job.is_mixed):
                return
            filled = self._captures.fill(job.hot.file)
            self.begin_anew(job)
            self.take_whole(job, filled)
        else:
            self.take_whole(job)

    def _is_being_written(self, job: HotJob) -> bool:
        """Whether somebody writes to a file just now, so that copying it piece by piece would be in vain."""
        for _ in range(_RESTS):
            if not job.hot.has_changed_since(job.status):
                return False
            if job.hot.differs_from(job.status):
                return True
            time.sleep(_REST_S)  # it was written a moment ago: perhaps that was the last time
        return True

    def begin_anew(self, job: HotJob) -> None:
        """Let a job begin now, with the file written back.

        Raises:
            NoSpaceError: The host is full.
            HostIoError: The host failed.
        """
        with self._stores.lock:
            if not job.state.discarded:
                job.begin()
        self.settle(job)

    def settle(self, job: HotJob) -> None:
        """Write a file back, twice: the second one is short, so that what comes next holds writers shortly.

        Raises:
            NoSpaceError: The host is full.
            HostIoError: The host failed.
        """
        self._write_back(job)
        self._write_back(job)

    def fill(self, state: FileState) -> Descriptor | None:
        """See `Captures.fill`: ahead of time, where others wait for `take_whole`."""
        with self._stores.lock:
            hot = state.hot
        return None if hot is None or hot.failed else self._captures.fill(hot.file)

    def take_whole(self, job: HotJob, filled: Descriptor | None = None) -> None:
        """Let a job, whose file is written back, have the content of this instant.

        Raises:
            NoSpaceError: The host is full.
            HostIoError: The host failed.
        """
        job.copied = None
        job.copy = self._captures.whole(job.hot.file, filled)

    def _take_changed(self, job: HotJob) -> None:
        found = self._captures.changed(job.state.ino, job.hot.file, os.fstat(job.hot.file.fd).st_size)
        if found is not None:
            job.copy, job.copied = found
            # All was written back after that status: each store since has changed it.
            job.is_mixed = job.hot.has_changed_since(job.status)

    def _put(self, job: HotJob, source: Descriptor, numbers: list[int]) -> None:
        moves = self._moves(job.hot)
        found = self._named(job, job.hot.file, numbers)
        if source is not job.hot.file:
            changed = self._changed_since(job, source)
            if moves is None or moves != self._moves(job.hot):
                changed.update(numbers)  # what lies where it lay may have been elsewhere when it was hashed
            found |= self._named(job, source, [one for one in numbers if one in changed])
        job.ids = {number: found[number].block_id for number in numbers}
        job.unshared = {}  # of an attempt before this one, whose blocks need not have changed any more
        absent = set(self._stores.blocks.missing(job.ids.values(), job.hold))
        done: set[int] = set()
        proven = source if job.needs_copy else job.hot.file  # what shares the stored blocks is clean then
        if not job.is_small:
            there = [one for one in numbers if job.ids[one] not in absent]
            done = self._share_equal(job, proven, there, is_proof=True)
            new = {job.ids[one]: one for one in reversed(numbers) if job.ids[one] in absent}
            for run in self._new_runs(job, {one: found[one] for one in sorted(new.values())}):
                if self._share_new(job, source, run):
                    done.update(number for number, _ in run)
        stored_ids = {ZERO_BLOCK, *(job.ids[number] for number in done)}
        for number in numbers:
            if job.ids[number] not in stored_ids:
                job.ids[number] = self._put_block(job, source, number, found[number])
                stored_ids.add(job.ids[number])
            is_hot_files = proven is job.hot.file or job.ids[number] in absent
            stored = align(found[number].length)
            if number not in done or not is_hot_files or stored < self._stores.block_size:
                job.unshared[number] = stored

    def _moves(self, hot: HotFile) -> int | None:
        """How often bytes of a hot file came to lie where they may have lain before; None: some do so just now.

        The kernel's writes don't: a copy shares the pages, so that each write goes elsewhere.
        """
        with self._stores.lock:
            return None if hot.moving else hot.moves

    def _named(self, job: HotJob, file: Descriptor, numbers: list[int]) -> dict[int, Named]:
        return named(file.fd, numbers, job.size_bytes, self._stores.block_size, self._stores.priority.give_way)

    def _new_runs(self, job: HotJob, new: dict[int, Named]) -> Iterator[list[tuple[int, Named]]]:
        """Blocks that segments may take over, as runs that lie together, in pages that are wholly the file's."""
        block_size = self._stores.block_size
        most = max(1, PIECE_BYTES // block_size)
        run: list[tuple[int, Named]] = []
        for number, one in new.items():
            if job.copy is None or number * block_size + align(one.length) > job.size_bytes:
                continue
            if run and not (len(run) < most and number == run[-1][0] + 1 and align(run[-1][1].length) == block_size):
                yield run
                run = []
            run.append((number, one))
        if run:
            yield run

    def _share_new(self, job: HotJob, source: Descriptor, run: list[tuple[int, Named]]) -> bool:
        """Store blocks that lie together by sharing their pages; returns whether the host could."""
        self._stores.priority.give_way()
        self._stores.config.checkpoint("blocks.put")
        with translated("block directory"):
            return self._stores.blocks.share(
                [(one.block_id, one.length) for _, one in run], source.fd, run[0][0] * self._stores.block_size, job.hold
            )

    def _put_block(self, job: HotJob, source: Descriptor, number: int, one: Named) -> BlockId:
        self._stores.priority.give_way()
        self._stores.config.checkpoint("blocks.put")
        with translated("block directory"):
            data = os.pread(source.fd, one.length, number * self._stores.block_size)
            # What is no copy may have been opened and written since it was hashed: no block must have another one's id.
            known = None if source is job.hot.file else one.block_id
            return self._stores.blocks.put(data, job.hold, block_id=known)

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
        """Put the result into the current change set. Returns False if it must be stored and synced anew."""
        stores, state, hot = self._stores, job.state, job.hot
        with state.publishing, stores.lock:  # else a flush under way would tell an older size after this
            if state.discarded or state.hot is not hot:
                job.hold.release()
                job.is_spliced = True
                return True
            if not job.needs_copy and (hot.is_in_use or hot.opened != job.opened):
                job.needs_copy = True
                if job.copy is None:
                    job.begin()
                    return False
            if job.cuts != hot.cuts:
                # What the leaves told already was not stored again. Some of it is gone from them: the file was shorter
                # meanwhile, and a flush has told it.
                if job.copied is not None:
                    job.begin()  # its copy lacks that, too
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
        block_size = self._stores.block_size
        if job.is_small:
            return
        self._share_equal(job, job.hot.file, list(job.unshared), is_proof=False)
        for number, stored in job.unshared.items():
            start = number * block_size
            end = min(start + block_size, job.size_bytes // PAGE * PAGE)
            self._make_hole(job.hot, start + stored, end - start - stored)

    def _share_equal(self, job: HotJob, file: Descriptor, numbers: list[int], *, is_proof: bool) -> set[int]:
        """Let a file share stored blocks where it has their bytes. Failures cost space, nothing else.

        Args:
            job: Whose ids they have.
            file: The hot file, or the copy.
            numbers: Of the blocks, ascending.
            is_proof: The caller wants to know whether the stored bytes are the file's: they are compared in any case.

        Returns:
            The blocks whose stored pages are all the file's now.
        """
        stores, block_size = self._stores, self._stores.block_size
        found: set[int] = set()
        most = min(_BATCH, max(1, _SHARED_BYTES // block_size))
        for at in range(0, len(numbers), most):
            stores.priority.give_way()
            batch = [number for number in numbers[at : at + most] if job.ids[number] != ZERO_BLOCK]
            with stores.blocks.places([job.ids[number] for number in batch]) as places:
                stored: list[Stored] = []
                files: dict[int, SegmentFile] = {}
                for number, place in zip(batch, places, strict=True):
                    length = min(block_size, (job.size_bytes - number * block_size) // PAGE * PAGE)
                    if place is None or place.quarantined or length <= 0:
                        continue
                    stored.append(Stored(number, place.segment, place.offset, min(length, place.length)))
                    files[place.segment] = place.file
                    if align(place.length) <= length:
                        found.add(number)
                for run in runs(stored, block_size):
                    if _share(files[run.segment].fd, run, file.fd, is_proof=is_proof):
                        continue
                    for number, segment, offset, length in stored:  # one that differs must not cost the others
                        if run.start <= number * block_size < run.start + run.length:
                            alone = Run(segment, offset, number * block_size, align(length))
                            if alone == run or not _share(files[segment].fd, alone, file.fd, is_proof=is_proof):
                                found.discard(number)
        return found

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
        for at in range(start, start + length, _SHARED_BYTES):
            _share(self._hole.fd, Run(0, 0, at, min(_SHARED_BYTES, start + length - at)), hot.file.fd)


def _share(source: int, run: Run, target: int, *, is_proof: bool = False) -> bool:
    """Share a run; returns whether they share it now. Where it did already nothing is compared, but for a proof."""
    try:
        if not is_proof:
            theirs = list(moved(extents(source, run.offset + run.length, sync=False, start=run.offset), run))
            whole = Run(0, run.start, run.start, run.length)
            ours = list(moved(extents(target, run.start + run.length, sync=False, start=run.start), whole))
            if ours == theirs and all(place != UNKNOWN for _, place, _ in ours):
                return True
        return share_equal(source, run.offset, run.length, target, run.start)
    except (OddMapError, OSError):
        return False
