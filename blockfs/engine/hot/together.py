"""Sealing several hot files as they are at one instant, though the kernel's writers can't be held.

Order: take the status of each → write all back → a copy of each, one after the other → look again. If somebody wrote
to at most one of them meanwhile, all copies are of one instant: the moment of that one's. Else those that were written
to are copied again, some times.

If that never comes to be, each copy is of an instant of its own, and there remains what a power cut would leave, too: a
write that is missing was not followed by an fsync that has returned, as fsyncs wait at the gate until the instant is
fixed. So what somebody wrote because an fsync had returned is missing as well.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final, TypeAlias

from blockfs.engine.content.filestate import FileState
from blockfs.engine.content.hostfile import translated
from blockfs.engine.context import Stores
from blockfs.engine.hot.folder import Descriptor
from blockfs.engine.hot.seal import HotJob, HotSealer
from blockfs.errors import BlockfsError, CorruptBlockError
from blockfs.runtime.logs import Log

log = Log()

_TURNS: Final = 6
_REST_S: Final = 0.02  # between two turns: somebody who writes to two files rests between them, or gets no further
_TRIES: Final = 3  # puts of a block that the host lost before its sync

Filled: TypeAlias = Mapping[int, Descriptor]
"""Of files with many extents what makes their copies short (`HotSealer.fill`), by inode."""


class Together:
    """Seals hot files of one mount as they are at one instant. Thread-safe."""

    def __init__(self, stores: Stores, sealer: HotSealer) -> None:
        self._stores = stores
        self._sealer = sealer

    def fill(self, states: Sequence[FileState]) -> Filled:
        """Prepare what would take long while the gate is closed. Failures cost time later, nothing else."""
        found: dict[int, Descriptor] = {}
        for state in states:
            try:
                filled = self._sealer.fill(state)
            except (BlockfsError, OSError):
                continue
            if filled is not None:
                found[state.ino] = filled
        return found

    @contextmanager
    def sealed(self, states: Sequence[FileState], filled: Filled) -> Iterator[frozenset[int]]:
        """Put hot files into the change set as they are at one instant, and keep their leaves so in the block.

        Args:
            states: Of the files; those that have none any more are left out.
            filled: From `fill`.

        Yields:
            The inodes of those that are in the change set so, or were so before.

        Raises:
            NoSpaceError: The host is full.
            BlockfsError: The host failed, or one of them can't be sealed.
        """
        with ExitStack() as held:
            for state in sorted(states, key=lambda one: one.ino):  # one order for everybody: no deadlock
                held.enter_context(state.sealing)
            hot = [state for state in states if state.hot is not None and not state.discarded]
            jobs = self._seal_stubbornly(hot, filled)
            yield frozenset(state.ino for state in hot)
            for job in jobs:
                self._sealer.share_stored(job)

    def _seal_stubbornly(self, states: list[FileState], filled: Filled) -> list[HotJob]:
        for attempt in range(_TRIES):
            try:
                return self._seal(states, filled)
            except CorruptBlockError:
                # The host lost blocks between put and sync. The hot files have them.
                if attempt == _TRIES - 1:
                    raise
        raise AssertionError

    def _seal(self, states: list[FileState], filled: Filled) -> list[HotJob]:
        jobs: dict[int, HotJob] = {}
        try:
            self._copy_all(states, jobs, filled)
            for job in jobs.values():
                self._sealer.store(job)
            if jobs:
                self._sync_blocks()
            for job in jobs.values():
                while not self._sealer.splice(job, None):
                    self._sealer.store(job)
                    self._sync_blocks()
        finally:
            for job in jobs.values():
                job.abandon()
        return list(jobs.values())

    def _sync_blocks(self) -> None:
        self._stores.config.checkpoint("blocks.sync")
        with translated("block directory"):
            self._stores.blocks.sync()

    def _copy_all(self, states: list[FileState], jobs: dict[int, HotJob], filled: Filled) -> None:
        """Begin a job, with a copy, for each that the leaves don't tell; what is written after that is not in it."""
        seen: dict[int, os.stat_result | None] = {}
        due = states
        for turn in range(_TURNS):
            if turn:
                time.sleep(_REST_S)
            taken: list[HotJob] = []
            for state in due:
                with self._stores.lock:
                    seen[state.ino] = state.look()
                job = jobs.get(state.ino) or self._sealer.begin(state, None, may_mix=False)
                if job is not None:
                    jobs[state.ino] = job
                    taken.append(job)
            for job in taken:
                self._sealer.begin_anew(job)
                job.needs_copy = True
            for job in taken:
                self._sealer.take_whole(job, None if turn else filled.get(job.state.ino))
            due = [state for state in states if self._is_written(state, seen[state.ino])]
            if len(due) <= 1:
                return
        log.info("snapshot.files_written_meanwhile", files=len(due))

    def _is_written(self, state: FileState, seen: os.stat_result | None) -> bool:
        """Whether somebody may have written to a file since it had a status."""
        with self._stores.lock:
            hot = state.hot
            return hot is not None and seen is not None and hot.has_changed_since(seen)
