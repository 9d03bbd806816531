"""`DirtySource`: what tells that a local root may have changed, and the mailbox its threads deliver to.

A source only hints where to look. It may name too much, and it must say "everything" whenever it may have missed
something; absence and content are always decided by looking.
"""

from __future__ import annotations

import threading
from typing import Protocol

import trio

from blockfs.exitcodes import ExitCode
from syncer.core.model import RelPath
from syncer.core.paths import split
from syncer.errors import SyncerError
from syncer.watch.dirt import CLEAN, EVERYTHING, MAX_ENTRIES, Dirt


class SourceLostError(SyncerError):
    """The root can't be watched any more: unmounted, renamed, deleted, or the mount has ended."""

    exit_code = ExitCode.ROOT_IDENTITY


class DirtySource(Protocol):
    """Watches one local root from `arm` to `close`.

    Attributes:
        kind: For `status`: "inotify", "watchdog", "journal".
        problem: Why it doesn't see all there is; None: it does.
    """

    kind: str

    @property
    def problem(self) -> str | None:
        """See above."""
        ...

    def arm(self) -> None:
        """Begin to watch; blocking. Whatever changes after it returned is reported.

        Raises:
            SourceLostError: There is no root.
            OSError: It can't be watched.
        """
        ...

    async def wait(self) -> None:
        """Return when there is something to take.

        Raises:
            SourceLostError: There won't be any more.
        """
        ...

    def take(self) -> Dirt:
        """What came since the last call."""
        ...

    def close(self) -> None:
        """Stop. Idempotent."""
        ...


class Mailbox:
    """Dirt on its way from a source's thread to the root's task."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._directories: set[RelPath] = set()
        self._entries: set[RelPath] = set()
        self._everything = False
        self._lost: str | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._event = trio.Event()
        self._is_signalled = False

    def open(self, token: trio.lowlevel.TrioToken | None = None) -> None:
        """Remember whose event loop is to be woken. From its thread, or from one that it started."""
        self._token = token or trio.from_thread.run_sync(trio.lowlevel.current_trio_token)

    def put(self, directories: set[RelPath], entries: set[RelPath] | None = None) -> None:
        """Deliver. From any thread."""
        if directories or entries:
            with self._lock:
                self._directories |= directories
                self._entries |= entries or set()
                if len(self._entries) > MAX_ENTRIES:
                    self._directories |= {split(path)[0] for path in self._entries}
                    self._entries = set()
                self._signal()

    def put_everything(self) -> None:
        """Something was missed. From any thread."""
        with self._lock:
            self._everything = True
            self._signal()

    def lose(self, reason: str) -> None:
        """There won't be any more. From any thread."""
        with self._lock:
            self._lost = reason
            self._signal()

    def _signal(self) -> None:
        if self._token is not None and not self._is_signalled:
            self._is_signalled = True
            try:
                self._token.run_sync_soon(self._wake, idempotent=True)
            except trio.RunFinishedError:
                self._token = None  # the loop is gone: nobody will ask

    def _wake(self) -> None:
        self._event.set()

    async def wait(self) -> None:
        """Return when there is something.

        Raises:
            SourceLostError: The source is gone.
        """
        while True:
            with self._lock:
                if self._lost is not None:
                    raise SourceLostError(self._lost)
                if self._directories or self._entries or self._everything:
                    return
                self._event = trio.Event()
                self._is_signalled = False
            await self._event.wait()

    def take(self) -> Dirt:
        """Everything delivered so far."""
        with self._lock:
            directories, self._directories = self._directories, set()
            entries, self._entries = self._entries, set()
            everything, self._everything = self._everything, False
        if everything:
            return EVERYTHING
        return CLEAN | Dirt(directories=frozenset(directories), entries=frozenset(entries))
