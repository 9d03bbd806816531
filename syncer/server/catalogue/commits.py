"""Group commit: one thread writes the catalogue, and requests that come together share one durable transaction.

A commit costs an fdatasync, milliseconds on a disk; while it runs, more requests queue up and form the next group.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future
from typing import Any, Final, TypeVar

import msgspec

from blockfs.errors import BlockfsError
from syncer.server.catalogue.catalogue import Catalogue, Change
from syncer.server.errors import Refusal

Result = TypeVar("Result")

_GROUP: Final = 256  # requests in one transaction: bounds how long the first of them waits for the others


class StoreClosedError(BlockfsError):
    """The store is shutting down: nothing was done."""


class _Job(msgspec.Struct, frozen=True):
    """One request's part of a transaction, and who waits for it."""

    act: Callable[[Change], Any]
    future: Future[Any]


def _nothing(_containers: Collection[int]) -> None:
    """Nobody wants to know."""


class Commits:
    """The catalogue's only writer."""

    def __init__(
        self,
        catalogue: Catalogue,
        clock_us: Callable[[], int],
        on_commit: Callable[[Collection[int]], None] = _nothing,
    ) -> None:
        """Start the writer.

        Args:
            catalogue: What it writes.
            clock_us: Microseconds since the epoch.
            on_commit: Called in its thread after each commit, with the ids of the containers that changed. Must not
                wait, and not fail.
        """
        self._catalogue = catalogue
        self._on_commit = on_commit
        self._clock_us = clock_us
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._stamping_us: int | None = None
        self._closing = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="catalogue-writer", daemon=True)
        self._thread.start()

    def run(self, act: Callable[[Change], Result]) -> Result:
        """Do something in a write transaction; returns when that is durable.

        Args:
            act: Decides and writes. It may raise a Refusal, but only before its first write: the transaction is shared.
                May be called in any thread, and is not called again.

        Raises:
            Refusal: What `act` raised. Nothing of it was done.
            BlockfsError: The transaction failed; nothing was done, of the other requests in it neither.
            StoreClosedError: Shutting down.
        """
        future: Future[Result] = Future()
        with self._closing:
            if self._closed:
                raise StoreClosedError("the server is shutting down; nothing was done")
            self._jobs.put(_Job(act, future))
        return future.result()

    def floor_us(self) -> int:
        """A time that no change gets which a snapshot taken from now on doesn't show, except later ones.

        Read it before the snapshot. While a group is being committed, its changes have a time already and are not
        visible yet.
        """
        now_us = self._clock_us()
        stamping_us = self._stamping_us  # read after the clock: a group that began later has a later time
        return now_us if stamping_us is None else min(now_us, stamping_us)

    def close(self) -> None:
        """Do what is queued, then stop."""
        with self._closing:
            if not self._closed:
                self._closed = True
                self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        while True:
            group: list[_Job] = []
            job = self._jobs.get()
            while job is not None:
                group.append(job)
                if len(group) == _GROUP:
                    break
                try:
                    job = self._jobs.get_nowait()
                except queue.Empty:
                    break
            if group:
                self._commit(group)
            if job is None:
                return

    def _commit(self, group: list[_Job]) -> None:
        """One transaction for all; every future gets its answer, after the commit."""
        outcomes: list[Callable[[], None]] = []
        touched: Collection[int] = frozenset()
        self._stamping_us = self._clock_us()
        try:
            with self._catalogue.changing(self._stamping_us) as change:
                outcomes = [_outcome(job, change) for job in group]
            touched = change.touched
        except BaseException as error:  # noqa: BLE001 - whoever waits must hear of it, whatever it is; run() raises it
            outcomes = [_failure(job, error) for job in group]
        finally:
            self._stamping_us = None
        if touched:
            self._on_commit(touched)
        for tell in outcomes:
            tell()


def _outcome(job: _Job, change: Change) -> Callable[[], None]:
    """Run one job. A refusal is its own affair, anything else undoes the group."""
    before = change.writes
    try:
        result = job.act(change)
    except Refusal as refusal:
        assert change.writes == before, "a request that wrote can't refuse any more"
        return _failure(job, refusal)
    return lambda: job.future.set_result(result)


def _failure(job: _Job, error: BaseException) -> Callable[[], None]:
    return lambda: job.future.set_exception(error)
