"""Sealing: turning staged data into blocks.

Order, per file: close its newest generation (lock) → compose and put each touched block (no lock) → fdatasync of the
segments and index commit → leaves, size and the removal of the generations' rows in one change set (lock) → commit →
unlink the staging files. A crash before the commit finds the generations; after it, the blocks. What is written
meanwhile goes to a new generation and lies over the sealed blocks. Where much of a staging file is new, it is not
copied: the file becomes a segment (`in_place`).

Many small files share one group sync. Which file is sealed when nobody asks: `seal_queue`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import Final

from blockfs.blocks.epochs import EpochHold
from blockfs.blocks.extents import block_count
from blockfs.blocks.ids import BlockId
from blockfs.engine.content.filestate import FileState, LowWater
from blockfs.engine.content.filetable import FileTable
from blockfs.engine.content.generation import StagedGeneration
from blockfs.engine.content.hostfile import HostIoError, translated
from blockfs.engine.content.leaves import set_blocks
from blockfs.engine.content.pagemap import PageMap, staged_blocks
from blockfs.engine.content.reader import ContentReader
from blockfs.engine.context import Stores
from blockfs.engine.durable.committer import Committer
from blockfs.engine.durable.failing import FlushFailedError, note_failure, write_down
from blockfs.engine.durable.flush import publish_size
from blockfs.engine.durable.in_place import InPlace
from blockfs.engine.hot.seal import HotJob, HotSealer
from blockfs.engine.portions import Stop, never, pause_of
from blockfs.errors import BlockfsError, CorruptBlockError, MissingBlockError, NoSpaceError

_READ_BYTES: Final = 1 << 20  # per read of adjacent blocks: the page cache's best size, and bounded memory
_GROUP_BYTES: Final = 64 << 20
_GROUP_FILES: Final = 256
_TRIES: Final = 3  # puts of a block that the host lost before its sync

Spliced = Callable[[FileState, int], None]
"""Called under the engine's lock when a file's leaves are exactly its content at the time its sealing began, less what
was cut or became a hole since, with the size of that content."""


class _Job:
    """The sealing of one file: made under the lock, worked on without it, ended under it.

    Attributes:
        frozen: Its generations when it began; all closed.
        ids: Block index → id, of what was composed so far.
        cut_at: Size that the block with the end of the file was composed for.
        is_spliced: Its result is in a change set, which owns the hold now.
    """

    __slots__ = ("cut_at", "frozen", "hold", "ids", "is_spliced", "low_water", "size_bytes", "stamp", "state")

    def __init__(self, state: FileState, hold: EpochHold) -> None:
        state.close_generation()
        self.state = state
        self.hold = hold
        self.frozen: list[StagedGeneration] = list(state.generations)
        self.size_bytes = state.size_bytes
        self.cut_at = state.size_bytes
        self.stamp = state.stamp
        self.low_water: LowWater = state.watch()
        self.ids: dict[int, BlockId] = {}
        self.is_spliced = False


class Sealer:
    """Seals files of one mount. Thread-safe; every public method waits for disks."""

    def __init__(self, stores: Stores, table: FileTable, reader: ContentReader, committer: Committer) -> None:
        self.sealed_files = 0  # under the engine's lock
        self._stores = stores
        self._table = table
        self._reader = reader
        self._committer = committer
        self.hot: HotSealer | None = None
        """Seals files that have a hot file."""

    def close(self) -> None:
        """Let go of the host: the mount has ended."""
        if self.hot is not None:
            self.hot.close()

    def seal(self, inos: Iterable[int], spliced: Spliced | None = None) -> None:
        """Seal files; what is written after the call may stay staged.

        Args:
            inos: Regular files; those that have nothing staged cost nothing.
            spliced: Called for each file, also for those with nothing staged.

        Raises:
            NoSpaceError: The host is full; everything stays staged.
            BlockfsError: A block below staged data is missing or corrupt; that file stays staged, the others are done.
        """
        with self._stores.lock:
            states = [self._table.get(ino) for ino in sorted(inos)]
        self._seal_states(states, spliced)

    def seal_all(self, stop: Stop = never, *, may_mix: bool = False) -> None:
        """Seal every file.

        Args:
            stop: Asked between groups of files.
            may_mix: See `seal_group`.

        Raises:
            StoppedError: `stop` said so; the others stay staged.
            NoSpaceError: See `seal`.
            BlockfsError: See `seal`.
        """
        with self._stores.lock:
            self._table.look()
            inos = [state.ino for state in self._table.all() if not state.is_sealed]
        self.seal_existing(inos, stop, may_mix=may_mix)

    def seal_existing(self, inos: Iterable[int], stop: Stop = never, *, may_mix: bool = False) -> None:
        """Seal those of the files that still exist and have something to seal.

        Args:
            inos: Files.
            stop: Asked between groups of them.
            may_mix: See `seal_group`.

        Raises:
            StoppedError: `stop` said so; the others stay staged.
            NoSpaceError: See `seal`.
            BlockfsError: See `seal`.
        """
        self._seal_states(self._existing(inos), None, stop, may_mix=may_mix)

    def _seal_states(
        self, states: list[FileState], spliced: Spliced | None, stop: Stop = never, *, may_mix: bool = False
    ) -> None:
        failures: list[BlockfsError] = []
        pause = pause_of(stop)
        for group in groups(states):
            pause()
            failures += self.seal_group(group, spliced, may_mix=may_mix)
        if failures:
            raise failures[0]

    def _existing(self, inos: Iterable[int]) -> list[FileState]:
        with self._stores.lock:
            return [state for ino in sorted(inos) if (state := self._table.peek(ino)) is not None]

    # --- the work ---

    def seal_group(
        self, states: list[FileState], spliced: Spliced | None = None, *, may_mix: bool = False
    ) -> list[BlockfsError]:
        """Seal files with one sync; returns the failures of single files.

        Args:
            states: The files.
            spliced: See there.
            may_mix: Of a hot file nobody needs the content of one instant: it may stay unsealed.

        Raises:
            NoSpaceError: See `seal`.
            BlockfsError: The host failed, for all of them.
        """
        try:
            failures = self._seal_group_stubbornly(states, spliced, may_mix=may_mix)
        except NoSpaceError:
            # What was removed a moment ago gives its room back when that is committed.
            self._committer.give_back()
            failures = self._seal_group_stubbornly(states, spliced, may_mix=may_mix)
        for failure in failures:
            if isinstance(failure, FlushFailedError):
                write_down(self._stores, self._table, self._committer, failure.ino)
        return failures

    def _seal_group_stubbornly(
        self, states: list[FileState], spliced: Spliced | None, *, may_mix: bool
    ) -> list[BlockfsError]:
        for attempt in range(_TRIES):
            try:
                return self._seal_group_once(states, spliced, may_mix=may_mix)
            except CorruptBlockError:
                # The host lost blocks between put and sync. They are still staged: put them again.
                if attempt == _TRIES - 1:
                    raise
        raise AssertionError

    def _seal_group_once(
        self, states: list[FileState], spliced: Spliced | None, *, may_mix: bool
    ) -> list[BlockfsError]:
        failures: list[BlockfsError] = []
        jobs: list[_Job] = []
        outdated: list[int] = []
        with ExitStack() as held:
            for state in sorted(states, key=lambda one: one.ino):  # one order for everybody: no deadlock
                held.enter_context(state.sealing)
            hot = [state for state in states if state.hot is not None]
            failures += self._seal_hot(hot, spliced, may_mix=may_mix)
            try:
                for state in states:
                    job = self._begin(state, spliced, outdated, hot)
                    if job is not None:
                        jobs.append(job)
                for job in list(jobs):
                    if failure := self._try_store(job):
                        failures.append(failure)
                        jobs.remove(job)
                        self._abandon(job)
                if jobs:
                    self._sync_blocks()
                while jobs:
                    self._splice(jobs[0], spliced)
                    jobs.pop(0)
            finally:
                for job in jobs:
                    self._abandon(job)
        if outdated and spliced is not None:
            self.seal(outdated, spliced)  # else: all that was written before the call is sealed
        return failures

    def _begin(
        self, state: FileState, spliced: Spliced | None, outdated: list[int], hot: list[FileState]
    ) -> _Job | None:
        hold = self._stores.blocks.hold()
        with self._stores.lock:
            if state.discarded:
                hold.release()
                return None
            if state.hot is not None:
                hold.release()
                if state not in hot:
                    outdated.append(state.ino)  # it has got one since
                return None
            if self._table.peek(state.ino) is not state:
                # Somebody else sealed it since it was chosen, and it was forgotten. Its size is not the file's any
                # more, which may have been cut, or removed.
                hold.release()
                outdated.append(state.ino)
                return None
            if state.generations:
                return _Job(state, hold)
            hold.release()
            # No data are left that the size would have to wait for: they were cut away.
            size_bytes = state.size_bytes
            publish_size(self._stores, self._table.row(state.ino), state, state.stamp, size_bytes, state.mark())
            if spliced is not None:
                spliced(state, size_bytes)
            self._table.settle(state)
            return None

    def _seal_hot(self, states: list[FileState], spliced: Spliced | None, *, may_mix: bool) -> list[BlockfsError]:
        """Seal files that have hot files, with one sync: with `sealing` held nobody gives them up.

        Returns:
            The failures of single files.
        """
        sealer = self.hot
        failures: list[BlockfsError] = []
        jobs: list[HotJob] = []
        try:
            for state in states if sealer is not None else []:
                failure = self._store_hot(state, spliced, jobs, may_mix=may_mix)
                if failure is not None:
                    failures.append(failure)
            if sealer is None or not jobs:
                return failures
            self._sync_blocks()
            for job in jobs:
                while not sealer.splice(job, spliced):
                    sealer.store(job)
                    self._sync_blocks()
                self.sealed_files += 1
        finally:
            for job in jobs:
                job.abandon()
        for job in jobs:
            sealer.share_stored(job)
        return failures

    def _store_hot(
        self, state: FileState, spliced: Spliced | None, jobs: list[HotJob], *, may_mix: bool
    ) -> BlockfsError | None:
        """Store the blocks of one hot file; returns what concerns this file alone."""
        assert self.hot is not None
        job: HotJob | None = None
        try:
            job = self.hot.begin(state, spliced, may_mix=may_mix)
            if job is not None:
                jobs.append(job)
                self.hot.store(job)
        except (HostIoError, MissingBlockError, CorruptBlockError) as error:
            if job is not None:
                jobs.remove(job)
                job.abandon()
            with self._stores.lock:
                state.seal_failed_at_s = time.monotonic()
            return error
        return None

    def _abandon(self, job: _Job) -> None:
        """Leave everything staged. One that is spliced has nothing left to be abandoned."""
        if job.is_spliced:
            return
        job.hold.release()
        with self._stores.lock:
            job.state.unwatch(job.low_water)

    def _sync_blocks(self) -> None:
        self._stores.priority.give_way()
        self._stores.config.checkpoint("blocks.sync")
        with translated("block directory"):
            self._stores.blocks.sync()

    def _try_store(self, job: _Job) -> BlockfsError | None:
        """Store the blocks of a job; returns what concerns this file alone."""
        try:
            with self._stores.lock:
                in_place = InPlace(self._stores, job.state, job.frozen)
            try:
                self._store(job, in_place)
                self._check_written(job)
                self._store_in_place(job, in_place)
            finally:
                in_place.release()
        except FlushFailedError as error:
            return error  # noted: the rest is sealed by the next attempt
        except (MissingBlockError, CorruptBlockError) as error:
            with self._stores.lock:
                job.state.seal_failed_at_s = time.monotonic()
            return error
        return None

    def _store(self, job: _Job, in_place: InPlace) -> None:
        """Compose all blocks of a job, and put those that are not found in place."""
        block_size = self._stores.block_size
        with self._stores.lock:
            indices = staged_blocks(generation.pages for generation in job.frozen)
        for first, count in _runs(indices, max(1, _READ_BYTES // block_size)):
            self._store_run(job, first, count, job.low_water.size_bytes, in_place)

    def _store_in_place(self, job: _Job, in_place: InPlace) -> None:
        """Make segments of the files with many new blocks, and put the new blocks of the others.

        Raises:
            FlushFailedError: The host failed to write one; that is noted.
        """
        for file in in_place.worth_it():
            if self._is_durable(job.state, in_place.places[file]):
                in_place.adopt(file, job.hold)
        in_place.copy(job.hold)

    def _is_durable(self, state: FileState, place: tuple[StagedGeneration, int]) -> bool:
        """Flush a staging file that is pinned; False if an earlier flush has failed, and what lay there may be gone.

        Raises:
            FlushFailedError: The host failed to write it; that is noted.
        """
        generation, range_index = place
        file = generation.files[range_index]
        with state.publishing:
            if file.failed:
                return False
            try:
                self._stores.staging.sync(file, self._stores.priority.give_way)
            except BlockfsError as error:
                self._note_unwritten(state, place, error)
                return False
            with self._stores.lock:
                generation.unsynced.pop(range_index, None)
        return True

    def _note_unwritten(self, state: FileState, place: tuple[StagedGeneration, int], error: BlockfsError) -> None:
        """A flush of a staging file has failed; `publishing` is held.

        Raises:
            FlushFailedError: Pages are lost by it.
            BlockfsError: The error: nothing was tried, so nothing is lost.
        """
        if not place[0].files[place[1]].failed:
            raise error
        nothing_else = PageMap(self._stores.block_size)
        with self._stores.lock:
            failure = note_failure(self._stores, self._table, state, place, nothing_else, error.errno)
        if failure is not None:
            raise failure

    def _check_written(self, job: _Job) -> None:
        """The kernel may have failed to write what nobody has flushed yet, and dropped it: what was read is void then.

        Asked after the last read, so that a failure before any of them is seen. No flush is under way meanwhile: the
        kernel tells a descriptor once.

        Raises:
            FlushFailedError: It has; that is noted.
        """
        state = job.state
        failure: FlushFailedError | None = None
        with state.publishing:
            with self._stores.lock:
                unsynced = [(one, index) for one in state.generations if one in job.frozen for index in one.unsynced]
                for generation, index in unsynced:
                    self._stores.staging.acquire(generation.files[index])
            for place in unsynced:
                failure = self._check_place(state, place) or failure
        if failure is not None:
            raise failure

    def _check_place(self, state: FileState, place: tuple[StagedGeneration, int]) -> FlushFailedError | None:
        """Ask for one staging file, which is pinned, and let it go."""
        file = place[0].files[place[1]]
        try:
            self._stores.staging.check(file)
        except BlockfsError as error:
            nothing_else = PageMap(self._stores.block_size)
            with self._stores.lock:
                return note_failure(self._stores, self._table, state, place, nothing_else, error.errno)
        finally:
            self._stores.staging.release(file)
        return None

    def _store_run(self, job: _Job, first: int, count: int, limit: int, in_place: InPlace | None = None) -> None:
        """Compose and put adjacent blocks, as far as they lie below byte `limit`. Those of one file are only noted."""
        blocks, block_size = self._stores.blocks, self._stores.block_size
        start = first * block_size
        end = min(start + count * block_size, job.size_bytes, limit)
        with self._stores.lock:
            if start >= end or job.state.discarded:
                return
            segments = self._reader.resolve(job.state.ino, job.frozen, start, end - start)
        data = self._reader.gather(segments)
        parts = [data[at : at + block_size] for at in range(0, len(data), block_size)]
        in_place_ids: dict[int, BlockId] = {}
        if in_place is not None:
            self._stores.priority.give_way()
            with translated("block directory"):
                in_place_ids = in_place.note(segments, start, parts, job.hold)
        if len(in_place_ids) < len(parts):
            self._stores.config.checkpoint("blocks.put")
        with translated("block directory"):
            for number, part in enumerate(parts):
                block_id = in_place_ids.get(number)
                if block_id is None:
                    self._stores.priority.give_way()
                    block_id = blocks.put(part, job.hold)
                job.ids[first + number] = block_id

    def _splice(self, job: _Job, spliced: Spliced | None) -> None:
        """Put a job's result into the current change set."""
        while True:
            self._stores.priority.give_way()
            with self._stores.lock:
                if job.state.discarded:
                    job.hold.release()
                    return
                index, within = divmod(job.low_water.size_bytes, self._stores.block_size)
                limit = job.low_water.size_bytes
                if not within or index not in job.ids or limit >= job.cut_at:
                    self._replace(job, limit, spliced)
                    return
            # The file was cut inside a block that was composed with the tail: compose it again, without.
            self._store_run(job, index, 1, limit)
            self._sync_blocks()
            job.cut_at = limit

    def _replace(self, job: _Job, limit: int, spliced: Spliced | None) -> None:
        """Leaves, size and generations of one file, all in one change set."""
        stores, state = self._stores, job.state
        end, void = block_count(limit, stores.block_size), job.low_water.void
        # A block that became a hole meanwhile is one: zeros, or what was written since, lie over what was composed.
        valid = {index: block_id for index, block_id in job.ids.items() if index < end and index not in void}
        set_blocks(stores.tree, state.ino, valid)
        stores.tree.keep(job.hold)
        job.is_spliced = True
        publish_size(stores, self._table.row(state.ino), state, job.stamp, job.size_bytes, job.low_water)
        state.unwatch(job.low_water)
        self._table.drop_generations(state, [one for one in state.generations if one in job.frozen])
        self.sealed_files += 1
        if spliced is not None:
            spliced(state, min(job.size_bytes, limit))
        self._table.settle(state)


def groups(states: Iterable[FileState]) -> Iterator[list[FileState]]:
    """Files that share one sync: enough to pay for it, not so many that a group takes long."""
    group: list[FileState] = []
    staged_bytes = 0
    for state in states:
        group.append(state)
        staged_bytes += state.staged_bytes
        if staged_bytes >= _GROUP_BYTES or len(group) >= _GROUP_FILES:
            yield group
            group, staged_bytes = [], 0
    if group:
        yield group


def _runs(indices: list[int], most: int) -> Iterator[tuple[int, int]]:
    """Runs of adjacent numbers as (first, count), of at most `most` each."""
    at = 0
    while at < len(indices):
        count = 1
        while count < most and at + count < len(indices) and indices[at + count] == indices[at] + count:
            count += 1
        yield indices[at], count
        at += count
