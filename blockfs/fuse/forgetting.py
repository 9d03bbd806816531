"""Having the kernel forget pages that the host failed to write: it would show them as long as it likes.

In a thread of its own. Before the kernel forgets, it writes what a program has changed in them since through the mount,
and that may wait for the very threads that met the failure: they wait here for a moment only.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final

from blockfs.runtime.logs import Log

log = Log()

_PATIENCE_S: Final = 1.0  # it takes milliseconds; who reads after a failed fsync should get the error already
_END_S: Final = 10.0  # the kernel may wait for an answer that nobody gives any more


class Forgetter:
    """Calls `forget` for inodes until it is ended. Thread-safe.

    Args:
        forget: Has the kernel drop the pages of an inode.
    """

    def __init__(self, forget: Callable[[int], None]) -> None:
        self._forget = forget
        self._wanted: SimpleQueue[tuple[int, threading.Event] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._ended = False

    def __call__(self, ino: int) -> None:
        """Forget the pages of an inode. Without the engine's lock."""
        done = threading.Event()
        with self._lock:
            if self._ended:
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="blocksync-forget", daemon=True)
                self._thread.start()
            self._wanted.put((ino, done))
        done.wait(_PATIENCE_S)

    def end(self) -> None:
        """Forget nothing any more; waits for the call under way."""
        with self._lock:
            self._ended = True
            thread = self._thread
        if thread is not None:
            self._wanted.put(None)
            thread.join(_END_S)

    def _run(self) -> None:
        while (wanted := self._wanted.get()) is not None:
            ino, done = wanted
            try:
                if not self._ended:
                    self._forget(ino)
            except OSError as error:
                log.warning("pages.not_forgotten", inode=ino, reason=str(error))
            finally:
                done.set()
