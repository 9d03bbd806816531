"""Watch an ordinary directory by watchdog: where there is no inotify, or for who asks for it.

Its handler gets only what says that a change is over (closed, moved, deleted, a directory made): with all events a
burst of 60,000 new files overflowed the queue and 7,732 of them were lost without a word.
It tells a move out of the tree 500 ms late, and nothing at all of an overflow: so this source is rescanned more often.
"""

from __future__ import annotations

import logging
import os
from typing import Final

from watchdog.events import (
    DirCreatedEvent,
    DirDeletedEvent,
    DirModifiedEvent,
    DirMovedEvent,
    FileClosedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileModifiedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver

from syncer.core.model import RelPath
from syncer.core.paths import PRIVATE
from syncer.watch.dirt import Dirt
from syncer.watch.source import Mailbox, SourceLostError

_SETTLED: Final[list[type[FileSystemEvent]]] = [
    FileClosedEvent,
    FileMovedEvent,
    FileDeletedEvent,
    DirCreatedEvent,
    DirMovedEvent,
    DirDeletedEvent,
]
_ALL: Final[list[type[FileSystemEvent]]] = [*_SETTLED, FileCreatedEvent, FileModifiedEvent, DirModifiedEvent]


class PortableSource:
    """See `DirtySource`."""

    kind = "watchdog"
    problem: str | None = "watchdog does not tell of lost events: everything is looked at every minute"

    def __init__(self, path: bytes, *, tells_closing: bool = True) -> None:
        """Take the root.

        Args:
            path: Absolute path.
            tells_closing: The platform reports closed files (Linux); elsewhere every modification has to do.
        """
        self._path = path
        self._events = _SETTLED if tells_closing else _ALL
        self._mailbox = Mailbox()
        self._observer: BaseObserver | None = None

    def arm(self) -> None:
        """See DirtySource.arm."""
        self._mailbox.open()
        # In some races (a directory renamed while it is added) it logs tracebacks: the rescan finds what it missed.
        logging.getLogger("watchdog").setLevel(logging.CRITICAL)
        observer = Observer()
        try:
            observer.schedule(_Handler(self._path, self._mailbox), os.fsdecode(self._path), recursive=True,
                              event_filter=self._events)  # fmt: skip
            observer.start()
        except OSError as error:
            raise SourceLostError(f"{os.fsdecode(self._path)} can't be watched: {error.strerror}") from error
        self._observer = observer

    async def wait(self) -> None:
        """See DirtySource.wait."""
        await self._mailbox.wait()

    def take(self) -> Dirt:
        """See DirtySource.take."""
        return self._mailbox.take()

    def close(self) -> None:
        """See DirtySource.close."""
        if self._observer is not None:
            self._observer.stop()
            self._observer.join()
            self._observer = None


class _Handler(FileSystemEventHandler):
    """Called in the observer's thread."""

    def __init__(self, root: bytes, mailbox: Mailbox) -> None:
        self._root = root
        self._mailbox = mailbox

    def on_any_event(self, event: FileSystemEvent) -> None:
        """Both ends of a move are dirty, and a directory that is told of is itself."""
        found: set[RelPath] = set()
        for raw in (event.src_path, event.dest_path):
            if not raw:
                continue
            path = os.fsencode(raw)
            if path == self._root and isinstance(event, DirDeletedEvent):
                self._mailbox.lose(f"{os.fsdecode(self._root)} was unmounted, moved or deleted")
                return
            found |= {relative for relative in (self._relative(path), self._relative(os.path.dirname(path)))
                      if relative is not None}  # fmt: skip
        self._mailbox.put(found)

    def _relative(self, path: bytes) -> RelPath | None:
        if path == self._root:
            return RelPath(b"")
        if not path.startswith(self._root + b"/"):
            return None
        below = path[len(self._root) + 1 :]
        return None if below.split(b"/", 1)[0] == PRIVATE else RelPath(below)
