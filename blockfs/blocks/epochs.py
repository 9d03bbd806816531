"""Epochs: how a collector knows that nobody relies on a block which no root names yet.

A writer holds the current epoch (a shared flock on `epochs/N`, which the kernel drops if the process dies) from its put
until the commit that refers to the block is durable. A collector begins a new epoch and waits until nobody holds an
older one; from then on every block put before is named by a root or a pin, or is garbage.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable
from typing import Final, Self

from blockfs.blocks.index import Index
from blockfs.errors import LockedError, NotFoundError
from blockfs.runtime.atomic import space_errors


class EpochHold:
    """A writer's promise to refer to what it puts, or to let go. Release it from any thread, any number of times."""

    __slots__ = ("_epochs", "epoch", "released")

    def __init__(self, epochs: Epochs, epoch: int) -> None:
        self._epochs = epochs
        self.epoch: Final = epoch
        self.released = False

    def release(self) -> None:
        """Let go: after the commit that refers to the blocks is durable, or when there will be none."""
        self._epochs.release(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class _Held:
    """One epoch that this object holds, for all its holds together."""

    __slots__ = ("count", "fd")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.count = 1


class Epochs:
    """The holds of one open block directory."""

    def __init__(self, folder: str, index: Index) -> None:
        self._folder = folder
        self._index = index
        self._lock = threading.Lock()
        self._held: dict[int, _Held] = {}
        self._closed = False

    def hold(self) -> EpochHold:
        """Hold the current epoch.

        Raises:
            NoSpaceError: The epoch's file could not be created.
        """
        while True:
            epoch = self._index.epoch()
            with self._lock:
                assert not self._closed
                held = self._held.get(epoch)
                if held is not None:
                    held.count += 1  # the flock is there: a collector that advanced meanwhile waits for it
                    return EpochHold(self, epoch)
                fd = self._lock_file(epoch)
                if fd is not None:
                    self._held[epoch] = _Held(fd)
                    return EpochHold(self, epoch)

    def _lock_file(self, epoch: int) -> int | None:
        """Take the shared flock, or None if the epoch is over: the collector may have looked before we had it."""
        path = self._path(epoch)
        with space_errors(path):
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        fcntl.flock(fd, fcntl.LOCK_SH)
        # Lock first, look again after: if the epoch is still the current one and the file still has its name, every
        # later collector finds the flock.
        if self._index.epoch() == epoch and os.fstat(fd).st_nlink:
            return fd
        os.close(fd)
        return None

    def release(self, hold: EpochHold) -> None:
        """Drop one hold; the last one of an epoch drops the flock."""
        with self._lock:
            if hold.released:
                return
            hold.released = True
            held = self._held.get(hold.epoch)
            if held is None:
                return  # closed meanwhile
            held.count -= 1
            if not held.count:
                del self._held[hold.epoch]
                os.close(held.fd)

    def close(self) -> None:
        """Drop all flocks."""
        with self._lock:
            self._closed = True
            while self._held:
                os.close(self._held.popitem()[1].fd)

    def drain(self, before: int, pause: Callable[[], None]) -> None:
        """Wait until nobody, in any process, holds an epoch older than `before`, and remove their files.

        Args:
            before: The current epoch: nobody can begin to hold an older one.
            pause: Called between looks; raises to give up.
        """
        for epoch in sorted(int(name) for name in os.listdir(self._folder) if name.isascii() and name.isdigit()):
            if epoch < before:
                self._drain_one(self._path(epoch), pause)

    def _drain_one(self, path: str, pause: Callable[[], None]) -> None:
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            while not try_exclusive(fd):
                pause()
            os.unlink(path)  # under the lock: who opened it before finds a file without a name, and starts again
        finally:
            os.close(fd)

    def _path(self, epoch: int) -> str:
        return os.path.join(self._folder, str(epoch))


def try_exclusive(fd: int) -> bool:
    """Take the exclusive flock if nobody has it."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def share_lock(path: str) -> int:
    """Take the flock that says "in use"; the caller closes the descriptor."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise NotFoundError(
            f"{path}: no such file; create an empty one if this is a copy of a block directory"
        ) from None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise LockedError(os.path.dirname(path), None) from None
    return fd
