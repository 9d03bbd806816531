"""What a mount has done since it began: counted where it happens, read by `blocksync stats`."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict

from blockfs.control.protocol import GcReply
from blockfs.service.activity import Activity


class Counters:
    """Counts of one mount.

    Attributes:
        requests: Answered requests of the kernel by kind. This and the next two are changed by one owner only
            (`blockfs.fuse.answering`).
        request_seconds: From request to answer, added up, by kind.
        errors: Requests that were answered with an error, by errno.
        open_files: Handles of regular files that are open now; changed under the engine's lock only.
        gc_runs: Collections that came to their end.
        gc_removed_blocks: What they removed.
        gc_freed_bytes: What the host got back.
        activity: Wakes who waits for changes.
    """

    def __init__(self) -> None:
        self.activity = Activity()
        self.requests: Counter[str] = Counter()
        self.request_seconds: defaultdict[str, float] = defaultdict(float)
        self.errors: Counter[int] = Counter()
        self.open_files = 0
        self.gc_runs = 0
        self.gc_removed_blocks = 0
        self.gc_freed_bytes = 0
        self._began_s = time.monotonic()
        self._collecting = threading.Lock()

    @property
    def uptime_s(self) -> float:
        """Seconds since the mount began."""
        return time.monotonic() - self._began_s

    def collected(self, done: GcReply) -> None:
        """Count a collection. From any thread."""
        with self._collecting:
            self.gc_runs += 1
            self.gc_removed_blocks += done.blocks_removed
            self.gc_freed_bytes += done.bytes_freed
