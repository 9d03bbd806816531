"""Collection without being asked: nobody should need a cron job."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Final

from blockfs.blocks.maintenance.gc import CollectionStopped, is_due, unreferenced_bytes
from blockfs.engine.filesystem import Filesystem
from blockfs.engine.space import policy
from blockfs.errors import BlockfsError
from blockfs.runtime.logs import Log
from blockfs.runtime.space import host_space
from blockfs.service import maintenance
from blockfs.service.counters import Counters

LOOK_S: Final = 10.0  # between two looks whether a collection is due …
LOOK_SHARE: Final = 100  # … or this many times as long as a look takes: it reads a row for each leaf
LOW_SPACE_PAUSE_S: Final = 900.0  # a nearly full host, where little garbage goes, too, is not searched more often

log = Log()


class Collector:
    """A thread that collects when much was appended, or when the host is nearly full."""

    def __init__(self, filesystem: Filesystem, ending: threading.Event, counters: Counters) -> None:
        """Start it.

        Args:
            filesystem: Of the mount.
            ending: Set when the mount ends: a collection under way lets go.
            counters: Where collections are counted.
        """
        self._counters = counters
        self._filesystem = filesystem
        self._ending = ending
        self._last_s = -LOW_SPACE_PAUSE_S
        self._look_took_s = 0.0
        self._failure_took_s = 0.0  # a collection that failed is due again, but not more than half of the time
        self._kept_bytes = 0  # in no leaf, but kept by the last collection: pins, and what is being sealed
        self._thread = threading.Thread(target=self._owned, name="blocksync-gc", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait for it; `ending` is set."""
        self._thread.join()

    def _owned(self) -> None:
        # A bug ends the mount, not the thread alone: nobody would notice, and the disk fills up.
        with contextlib.suppress(BaseException), self._filesystem.fatal.owning("the thread that collects"):
            self._run()

    def _run(self) -> None:
        while not self._ending.wait(max(LOOK_S, self._look_took_s * LOOK_SHARE, self._failure_took_s)):
            try:
                self.look()
            except CollectionStopped:
                return
            except (BlockfsError, OSError) as error:
                log.warning("gc.failed", reason=str(error))

    def look(self) -> None:
        """Collect if it is due.

        Raises:
            CollectionStopped: The mount is ending.
            BlockfsError: The host failed, or the index is damaged.
        """
        filesystem = self._filesystem
        started_s = time.monotonic()
        unreferenced_bytes = self._unreferenced_bytes()
        self._kept_bytes = min(self._kept_bytes, unreferenced_bytes)
        is_wanted = is_due(filesystem.blocks, unreferenced_bytes - self._kept_bytes) or self._space_is_low()
        self._look_took_s = time.monotonic() - started_s
        if not is_wanted:
            return
        started_s = time.monotonic()
        try:
            done = maintenance.gc(
                filesystem.blocks,
                filesystem.tree,
                filesystem.ballast,
                commit=filesystem.commit,
                stop=self._ending.is_set,
            )
        except (BlockfsError, OSError):
            self._failure_took_s = time.monotonic() - started_s
            raise
        self._failure_took_s = 0.0
        self._counters.collected(done)
        self._last_s = time.monotonic()
        self._kept_bytes = self._unreferenced_bytes()
        log.info(
            "gc.done",
            blocks_removed=done.blocks_removed,
            bytes_freed=done.bytes_freed,
            seconds=round(self._last_s - started_s, 3),
        )

    def _unreferenced_bytes(self) -> int:
        """Bytes of the blocks that no leaf can name: there are more blocks than ids in all leaves."""
        with self._filesystem.tree.committed() as view:
            references = view.referenced_blocks()
        return unreferenced_bytes(self._filesystem.blocks, references)

    def _space_is_low(self) -> bool:
        if time.monotonic() - self._last_s < LOW_SPACE_PAUSE_S:
            return False
        return policy.is_low(host_space(self._filesystem.volume.path))
