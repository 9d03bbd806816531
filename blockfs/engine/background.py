"""The threads of a mount: one that commits, one that publishes, those that seal, one that removes unfinished snapshots.

They only decide when; what is done is the same as on demand. A failure is logged and tried again: it has lost nothing,
and whoever calls fsync meets it as an error. A bug ends the mount (`blockfs.engine.fatal`), never a thread alone:
without one of them a mount would go on, and commit or seal nothing.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Final

from blockfs.engine.context import Stores
from blockfs.engine.copies.snapshots import Snapshots
from blockfs.engine.durable.committer import Committer
from blockfs.engine.durable.flush import Flusher
from blockfs.engine.durable.seal_queue import SealQueue
from blockfs.engine.space.ballast import Ballast
from blockfs.errors import AbandonedError, BlockfsError, NoSpaceError
from blockfs.runtime.logs import Log

log = Log()

_SEAL_LOOK_S: Final = 1.0  # how often a sealing thread looks for files that have become quiet
_FAILED_PAUSE_S: Final = 2.0  # a full host is not asked more often than this


class Background:
    """Runs until `stop`."""

    def __init__(
        self,
        stores: Stores,
        committer: Committer,
        flusher: Flusher,
        seal_queue: SealQueue,
        snapshots: Snapshots,
        ballast: Ballast,
        tidy: Callable[[], None],
    ) -> None:
        self._config = config = stores.config
        self._fatal = stores.fatal
        self._committer = committer
        self._flusher = flusher
        self._seal_queue = seal_queue
        self._snapshots = snapshots
        self._ballast = ballast
        self._tidy = tidy
        self._stopping = threading.Event()
        self._threads = [
            self._thread("blocksync-commit", self._commit),
            self._thread("blocksync-publish", self._publish),
            self._thread("blocksync-remove", self._remove),
            *(self._thread(f"blocksync-seal-{number}", self._seal) for number in range(config.seal_workers)),
        ]
        self._fatal.listen(self._give_up)

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End the threads and wait for what they are doing. Idempotent."""
        self._stopping.set()
        self._seal_queue.wanted.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def _thread(self, name: str, run: Callable[[], None]) -> threading.Thread:
        def owned() -> None:
            # What ends a thread is in the log, once, by its owner.
            with contextlib.suppress(BaseException), self._fatal.owning(name):
                run()

        return threading.Thread(target=owned, name=name, daemon=True)

    def _give_up(self) -> None:
        """The mount is abandoned: nothing that these threads could do would count any more."""
        self._stopping.set()
        self._seal_queue.wanted.set()

    def _commit(self) -> None:
        while not self._stopping.wait(self._config.commit_s):
            self._try("commit", self._committer.commit)

    def _publish(self) -> None:
        while not self._stopping.wait(self._config.publish_s / 4):
            self._try("publish", lambda: self._flusher.publish_older(self._config.publish_s))
            self._try("ballast", self._take_ballast_back)
            self._try("tidy", self._tidy)

    def _take_ballast_back(self) -> None:
        with contextlib.suppress(NoSpaceError):  # not yet: nothing to tell
            self._ballast.take_back()

    def _remove(self) -> None:
        """Go on with what the last mount left. A failure leaves it to the next one."""
        stop = self._stopping.is_set
        self._try("remove snapshots", lambda: self._snapshots.remove_unfinished(stop=stop))

    def _seal(self) -> None:
        sealed = False
        while not self._stopping.is_set():
            if not sealed:
                self._seal_queue.wanted.wait(_SEAL_LOOK_S)
                self._seal_queue.wanted.clear()
            sealed = False
            if not self._stopping.is_set():
                sealed = self._try("seal", self._seal_queue.seal_due)

    def _try(self, what: str, work: Callable[[], bool | None]) -> bool:
        """Do some work; a failure is logged, and the thread rests a little."""
        try:
            return bool(work())
        except AbandonedError:
            return False  # told by who struck; the thread ends
        except (BlockfsError, OSError) as error:
            log.warning("engine.failed", doing=what, reason=str(error))
            self._stopping.wait(_FAILED_PAUSE_S)
            return False
