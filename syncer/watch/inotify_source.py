"""Watch an ordinary directory by inotify: a thread that does nothing but empty the queue.

The queue of a burst overflows if its reader is slow, so the reader only notes which entries are dirty. New and moved
directories get their watches here at once, and are dirty then: what was made in them before the watch is found by
looking. Lost events (overflow) are told by the kernel, and mean that everything is dirty.
"""

from __future__ import annotations

import errno
import os
import select
import threading
from typing import Final

from blockfs.runtime.failures import said
from blockfs.runtime.units import counted
from syncer.core.model import RelPath
from syncer.core.paths import PRIVATE, join
from syncer.errors import LocalChangedError
from syncer.local.safe_open import DIRECTORY_FLAGS, open_directory
from syncer.watch import inotify
from syncer.watch.dirt import Dirt
from syncer.watch.inotify import Event, Inotify, WatchTree
from syncer.watch.source import Mailbox, SourceLostError

_ROOT_EVENTS: Final = inotify.DIRECTORY_EVENTS | inotify.IN_DELETE_SELF | inotify.IN_MOVE_SELF
_ROOT_GONE: Final = inotify.IN_DELETE_SELF | inotify.IN_MOVE_SELF | inotify.IN_UNMOUNT | inotify.IN_IGNORED
_ARRIVED: Final = inotify.IN_CREATE | inotify.IN_MOVED_TO
_LEFT: Final = inotify.IN_MOVED_FROM | inotify.IN_DELETE


class InotifySource:
    """See `DirtySource`."""

    kind = "inotify"

    def __init__(self, path: bytes) -> None:
        self._path = path
        self._mailbox = Mailbox()
        self._tree = WatchTree()
        self._unwatched = 0
        self._inotify: Inotify | None = None
        self._identity = (0, 0)
        self._detached: set[int] = set()
        self._thread: threading.Thread | None = None
        self._stop: tuple[int, int] | None = None

    @property
    def problem(self) -> str | None:
        """The kernel's limit of watches is reached."""
        if not self._unwatched:
            return None
        places = counted(self._unwatched, "directory is", "directories are")
        return (
            f"{places} not watched: the limit of watches is reached; raise it with "
            "`sysctl fs.inotify.max_user_watches`. Until then changes there are found by a look every minute"
        )

    def arm(self) -> None:
        """See DirtySource.arm."""
        self.prepare()
        self.begin()

    def prepare(self) -> None:
        """The first half of `arm`: from now on the kernel queues what happens."""
        self._mailbox.open()
        self._inotify = Inotify()
        try:
            # Not kept open: a descriptor in it would keep the root from being unmounted.
            root = os.open(self._path, DIRECTORY_FLAGS)
            try:
                self._identity = _identity(root)
                self._tree.put_root(self._inotify.add(root, _ROOT_EVENTS))
            finally:
                os.close(root)
        except OSError as error:
            raise SourceLostError(f"{os.fsdecode(self._path)} can't be watched: {error.strerror}") from error
        self._walk(self._tree.root, RelPath(b""))

    def begin(self) -> None:
        """The second half: read the queue."""
        self._stop = os.pipe2(os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name="inotify", daemon=True)
        self._thread.start()

    async def wait(self) -> None:
        """See DirtySource.wait."""
        await self._mailbox.wait()

    def take(self) -> Dirt:
        """See DirtySource.take."""
        return self._mailbox.take()

    def close(self) -> None:
        """See DirtySource.close."""
        if self._thread is not None and self._stop is not None:
            os.write(self._stop[1], b"x")
            self._thread.join()
            self._thread = None
            for descriptor in self._stop:
                os.close(descriptor)
        if self._inotify is not None:
            self._inotify.close()
            self._inotify = None

    # --- the reader's thread

    def _run(self) -> None:
        assert self._inotify is not None
        assert self._stop is not None
        poll = select.poll()
        poll.register(self._inotify.descriptor, select.POLLIN)
        poll.register(self._stop[0], select.POLLIN)
        try:
            while not any(descriptor == self._stop[0] for descriptor, _ in poll.poll()):
                self._drain()
        except SourceLostError as error:
            self._mailbox.lose(str(error))
        except OSError as error:
            self._mailbox.lose(f"watching {os.fsdecode(self._path)} failed: {said(error)}")

    def _drain(self) -> None:
        """One read of the queue."""
        assert self._inotify is not None
        dirty: set[int] = set()
        named: set[tuple[int, bytes]] = set()
        detached, self._detached = self._detached, set()
        for event in self._inotify.read():
            if event.mask & inotify.IN_Q_OVERFLOW:
                self._rewalk()  # first: a rescan must not look at a directory before it is watched
                self._mailbox.put_everything()
            elif event.wd == self._tree.root and event.mask & _ROOT_GONE:
                raise SourceLostError(f"{os.fsdecode(self._path)} was unmounted, moved or deleted")
            elif event.mask & inotify.IN_IGNORED:
                self._tree.forget(event.wd)
            elif event.wd != self._tree.root or event.name != PRIVATE:
                if event.name:
                    named.add((event.wd, event.name))
                else:
                    dirty.add(event.wd)
                if event.mask & inotify.IN_ISDIR:
                    self._directory_event(event, dirty)
        self._mailbox.put(*self._paths(dirty, named))
        self._drop(detached)

    def _paths(self, dirty: set[int], named: set[tuple[int, bytes]]) -> tuple[set[RelPath], set[RelPath]]:
        """Directories and entries by their paths, without what is nowhere in the root any more."""
        places = {wd: self._tree.path(wd) for wd in dirty | {wd for wd, _ in named}}
        directories = {path for wd in dirty if (path := places[wd]) is not None}
        entries = {join(path, name) for wd, name in named if wd not in dirty and (path := places[wd]) is not None}
        return directories, entries

    def _drop(self, detached: set[int]) -> None:
        """Stop watching what left the root: whatever arrives elsewhere in it is told in the same read, or the next."""
        assert self._inotify is not None
        for top in detached:
            if self._tree.path(top) is None:
                for wd in (top, *self._tree.below(top)):
                    self._inotify.remove(wd)

    def _directory_event(self, event: Event, dirty: set[int]) -> None:
        if event.mask & _LEFT:
            left = self._tree.detach(event.wd, event.name)
            if left is not None:
                self._detached.add(left)
        elif event.mask & _ARRIVED:
            above = self._tree.path(event.wd)
            if above is not None:
                dirty |= self._enter(event.wd, event.name, join(above, event.name))
                # What was told of it at its last place may have been taken for a place that it came back from.
                moved = self._tree.child(event.wd, event.name)
                if moved is not None:
                    dirty |= {moved, *self._tree.below(moved)}

    # --- watches

    def _rewalk(self) -> None:
        """Directories may have come and gone untold: start the map anew."""
        assert self._inotify is not None
        self._unwatched = 0
        fresh = WatchTree()
        fresh.put_root(self._tree.root)
        known, self._tree = self._tree, fresh
        self._walk(fresh.root, RelPath(b""))
        for wd in known.below(known.root):
            if wd not in fresh:
                self._inotify.remove(wd)

    def _enter(self, parent: int, name: bytes, path: RelPath) -> set[int]:
        """Watch a directory that arrived, and everything below. Returns new watches: what is in them was not told."""
        return self._walk(parent, path, name)

    def _walk(self, parent: int, path: RelPath, name: bytes | None = None) -> set[int]:
        """Watch a directory (without `name`: the root, which is watched) and all below; returns the new watches."""
        new: set[int] = set()
        pending = [(parent, name, path)]
        while pending:
            above, own, here = pending.pop()
            visited = self._visit(here)
            if visited is None:
                continue
            wd, names = visited
            if own is not None:
                if wd not in self._tree:
                    new.add(wd)
                self._tree.put(wd, above, own)
            pending += [(wd, below, join(here, below)) for below in names]
        return new

    def _visit(self, path: RelPath) -> tuple[int, list[bytes]] | None:
        """Watch one directory, then list the directories in it.

        Returns:
            None: it is gone again, not ours to read, on another filesystem, or one watch too many. A scan tells which.
        """
        assert self._inotify is not None
        try:
            root = os.open(self._path, DIRECTORY_FLAGS)
        except OSError:
            return None
        try:
            if _identity(root) != self._identity:
                return None
            descriptor = open_directory(root, path)
        except (OSError, LocalChangedError):
            return None
        finally:
            os.close(root)
        try:
            if _identity(descriptor)[0] != self._identity[0]:
                return None
            wd = self._inotify.add(descriptor, inotify.DIRECTORY_EVENTS if path else _ROOT_EVENTS)
            with os.scandir(descriptor) as entries:
                names = [os.fsencode(entry.name) for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError as error:
            if error.errno == errno.ENOSPC:
                self._unwatched += 1
            return None
        finally:
            os.close(descriptor)
        return wd, [name for name in names if path or name != PRIVATE]


def _identity(directory: int) -> tuple[int, int]:
    found = os.fstat(directory)
    return found.st_dev, found.st_ino
