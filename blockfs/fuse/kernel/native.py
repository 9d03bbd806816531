"""Which files the kernel reads and writes itself (FUSE passthrough), and which through us: one way per inode at a time.

From an inode's first open to the RELEASE of its last handle all handles go one way, with one backing id: the kernel
fails any other open with EIO. RELEASE comes when the last handle is closed, also while mappings live: they hold the
backing file, and go on reading and writing it. So the file is given back when nobody has it open any more but its owner
(`blockfs.runtime.linux.is_open_elsewhere`); nothing tells of that, so `sweep` looks.

msync(2), and writes to a handle with O_SYNC or O_DSYNC, sync the backing file and tell nobody. So who may do that has
the file when it would be found again after a crash (`HotFiles.make_durable`), and not before.

Source: fs/fuse/iomode.c, fs/fuse/passthrough.c and fs/fuse/backing.c in Linux 6.18.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Protocol

import msgspec

from blockfs.errors import BlockfsError, WouldBlock
from blockfs.fuse.kernel import wire
from blockfs.fuse.kernel.encode import CACHE_S
from blockfs.fuse.kernel.preparing import HotFiles, Preparing
from blockfs.runtime.linux import is_open_elsewhere
from blockfs.runtime.logs import Log

WORTH_IT_BYTES: Final = 4 << 20
"""A smaller file with content goes through us: to make it ready takes a commit, longer than to read or change it."""

WAITED_FOR_BYTES: Final = 64 << 20
"""A smaller file is soon made ready, wherever its blocks lie: an open waits for it, whatever the disk does."""

READER_WAITS_S: Final = 0.01
"""For a larger one. Who only reads has mostly closed it before it would be worth it."""

WRITER_WAITS_S: Final = 3.0
"""A guest's disk stays open for days: what it waits for once, it has back soon. But no program expects minutes."""

NAMED_EVERY_S: Final = 0.1
"""A new file for reading and writing is native at most so often: it takes a commit, and most of them are short."""

log = Log()


class Registry(Protocol):
    """What the kernel knows by numbers: see `Channel`."""

    def register(self, descriptor: int) -> int:
        """Number a file; OSError: refused."""

    def unregister(self, backing_id: int) -> None:
        """Forget a number; OSError: the kernel has unmounted."""


class _Open(msgspec.Struct):
    """An inode that is open, or mapped.

    Attributes:
        handles: How many.
        descriptor: Of its file; None: it goes through us.
        backing_id: Of that, while there are handles.
        is_decided: Which of the two is certain, and not being found out or undone.
    """

    handles: int = 0
    descriptor: int | None = None
    backing_id: int | None = None
    is_decided: bool = False


def _anybodys(_doing: str) -> AbstractContextManager[None]:
    """No owner."""
    return nullcontext()


class NativeFiles:
    """The inodes that are open on a native mount. Thread-safe.

    Args:
        hot: Has their files.
        registry: Makes the kernel know them.
        size: Of a regular file, in bytes.
        forget_pages: Has the kernel drop what it keeps of an inode, attributes included. Called in threads only.
        is_used: Whether anybody has a file open by another descriptor than this one, or mapped.
        owning: See `Preparing`.
        waits_s: How long who reads, and who writes, waits for a large file.

    Attributes:
        clock: Monotonic, in seconds.
        tell: Called, in any thread, when a file without handles is still used: `sweep` soon, and from time to time.
    """

    def __init__(
        self,
        hot: HotFiles,
        registry: Registry,
        size: Callable[[int], int],
        forget_pages: Callable[[int], None],
        is_used: Callable[[int], bool] = is_open_elsewhere,
        owning: Callable[[str], AbstractContextManager[None]] = _anybodys,
        waits_s: tuple[float, float] = (READER_WAITS_S, WRITER_WAITS_S),
    ) -> None:
        self._hot = hot
        self._registry = registry
        self._size = size
        self._forget_pages = forget_pages
        self._is_used = is_used
        self._changed = threading.Condition()
        self._open: dict[int, _Open] = {}
        self._inos: dict[int, int] = {}
        self._mapped: set[int] = set()
        self._late: set[int] = set()  # went through us before they were ready, or while they were hot already
        self._waits_s = waits_s
        self.clock: Callable[[], float] = time.monotonic
        self._named_at_s = -NAMED_EVERY_S
        self._preparing = Preparing(hot, owning)
        self._was_refused = False
        self.tell: Callable[[], None] = _nobody

    def opening(self, ino: int, flags: int, *, is_new: bool = False, may_block: bool = False) -> None:
        """Decide which way the handles of an inode go, and count one more. `opened` follows, or `closing`.

        Args:
            ino: A regular file.
            flags: Of open(2).
            is_new: The kernel does not know it yet, so it keeps nothing of it.
            may_block: Wait until its file is made, and for other requests: in a thread, without the engine's lock.

        Raises:
            WouldBlock: That must be waited for, and `may_block` is false. Nothing is counted then; so for all errors.
        """
        with self._changed:
            while (now := self._open.get(ino)) is not None and not now.is_decided:
                if not may_block:
                    raise WouldBlock("somebody opens it")
                self._changed.wait()
            is_joining = now is not None and bool(now.handles)
            if now is None:
                now = self._open[ino] = _Open()
            if is_joining:
                now.handles += 1
            else:
                now.is_decided = False
                self._mapped.discard(ino)
        if is_joining:
            self._join(now, ino, flags, may_block=may_block)
            return
        try:
            if now.descriptor is not None:  # it is still mapped
                self._promise(ino, flags, may_block=may_block)
                now.backing_id = self._registry.register(now.descriptor)
            elif self._is_worth_it(ino, flags, is_new=is_new, may_block=may_block):
                self._make(now, ino, flags, is_new=is_new, may_block=may_block)
        except BaseException:
            self._end(ino, now)
            raise
        with self._changed:
            now.handles, now.is_decided = 1, True
            self._changed.notify_all()

    def _join(self, now: _Open, ino: int, flags: int, *, may_block: bool) -> None:
        """One handle more, which is counted."""
        if now.descriptor is None:
            return
        try:
            self._promise(ino, flags, may_block=may_block)
        except BaseException:
            self.closing(ino)
            raise

    def _promise(self, ino: int, flags: int, *, may_block: bool) -> None:
        """See that what a handle with these flags may sync, and tell nobody of, is found again after a crash."""
        if not syncs_unseen(flags) or self._hot.is_durable(ino):
            return
        if not may_block:
            raise WouldBlock("the file must be made durable")
        self._hot.make_durable(ino)

    def creates_in_thread(self, flags: int) -> bool:
        """Whether a new file with these flags is to be made where it can be waited for."""
        return syncs_unseen(flags) and self.clock() - self._named_at_s >= NAMED_EVERY_S

    def _is_worth_it(self, ino: int, flags: int, *, is_new: bool, may_block: bool) -> bool:
        if self._hot.is_hot(ino):
            return True
        size = self._size(ino)
        if size or flags & os.O_ACCMODE == os.O_RDONLY:
            return size >= WORTH_IT_BYTES
        return not (is_new and syncs_unseen(flags)) or (may_block and self.creates_in_thread(flags))

    def _make(self, now: _Open, ino: int, flags: int, *, is_new: bool, may_block: bool) -> None:
        """Have an inode's file, and register it, if that can be in time. Without our lock: it may take seconds."""
        # While a file is hot it does not go through us, and its attributes are not kept: the kernel has nothing of it.
        is_clear = is_new or (self._hot.is_hot(ino) and not self._was_refused and ino not in self._late)
        if not (is_clear or may_block):
            raise WouldBlock("what the kernel keeps of the file must go")
        try:
            descriptor = self._file(ino, flags) if may_block else self._hot.open(ino)
        except WouldBlock:
            if not is_new:
                raise
            return  # who asks again finds the file that was made, and is told that there is one
        if descriptor is None:
            return
        if not self._is_promised(ino, flags, is_new=is_new, may_block=may_block):
            return
        try:
            now.backing_id = self._registry.register(descriptor)
        except OSError as error:
            # Through us it is slower, and as good. Once is enough to be told of it.
            if not self._was_refused:
                log.warning("native.refused", ino=ino, reason=str(error))
            self._was_refused = True
            self._hot.release(ino)
            return
        now.descriptor = descriptor
        if not is_clear:
            # Attributes that the kernel was told count for a day, and pages that it has are shown again when the inode
            # goes through us the next time. From now on both change behind us, and nothing becomes new of either.
            self._forget_pages(ino)
            self._late.discard(ino)

    def _is_promised(self, ino: int, flags: int, *, is_new: bool, may_block: bool) -> bool:
        """See to what a handle may sync (`_promise`); False: that can't be, and the file has been given back."""
        if is_new and syncs_unseen(flags):
            self._named_at_s = self.clock()
        try:
            self._promise(ino, flags, may_block=may_block)
        except BaseException as error:
            self._hot.release(ino)
            if not (is_new and isinstance(error, BlockfsError)):
                raise
            # A program that is refused a file which is there then would be told EEXIST next. Through us it has it.
            log.warning("native.not_durable", ino=ino, reason=str(error))
            self._late.add(ino)
            return False
        return True

    def _file(self, ino: int, flags: int) -> int | None:
        """An inode's file, which must be made; None: it can't be had, or not in time."""
        if self._size(ino) < WAITED_FOR_BYTES:
            return self._hot.open(ino, may_block=True)
        reader_waits_s, writer_waits_s = self._waits_s
        if not self._preparing.ready(ino, reader_waits_s if flags & os.O_ACCMODE == os.O_RDONLY else writer_waits_s):
            self._late.add(ino)
            return None
        try:
            return self._hot.open(ino)
        except WouldBlock:  # it can't be had
            return None

    def opened(self, ino: int, fh: int) -> tuple[int, int]:
        """What was counted is this handle; returns what its open is answered: FOPEN flags and backing id."""
        with self._changed:
            self._inos[fh] = ino
            backing_id = self._open[ino].backing_id
        return (wire.FOPEN_KEEP_CACHE, 0) if backing_id is None else (wire.FOPEN_PASSTHROUGH, backing_id)

    def closed(self, fh: int) -> None:
        """RELEASE of a handle."""
        with self._changed:
            ino = self._inos.pop(fh, None)
        if ino is not None:
            self.closing(ino)

    def closing(self, ino: int) -> None:
        """One handle less, or one that did not become one. After the last one the next open decides anew."""
        with self._changed:
            now = self._open[ino]
            now.handles -= 1
            if now.handles:
                return
            now.is_decided = False
        try:
            if now.backing_id is not None:
                self._registry.unregister(now.backing_id)
        except OSError as error:  # the kernel has unmounted, and forgotten all of them
            log.debug("native.not_unregistered", ino=ino, reason=str(error))
        finally:
            now.backing_id = None
            self._end(ino, now)
        if ino in self._late and not self._hot.is_hot(ino):
            self._preparing.ready(ino, 0)  # for the next one: now nobody changes it

    def end(self) -> None:
        """No open comes any more. Idempotent."""
        self._preparing.end()

    def sweep(self) -> bool:
        """Give back files whose last mapping has gone; whether there are more. Never waits."""
        with self._changed:
            for ino in list(self._mapped):
                now = self._open[ino]
                assert now.descriptor is not None
                if not self._is_used(now.descriptor):
                    self._end(ino, now)
            return bool(self._mapped)

    def _end(self, ino: int, now: _Open) -> None:
        """An inode without handles: forget it, unless its file is used."""
        with self._changed:
            if now.descriptor is not None and self._is_used(now.descriptor):
                # Also right after a close: then it is the kernel itself, for a moment.
                now.is_decided = True
                self._mapped.add(ino)
                self.tell()
            else:
                if now.descriptor is not None:
                    self._hot.release(ino)
                self._mapped.discard(ino)
                del self._open[ino]
            self._changed.notify_all()

    def passes_through(self, ino: int) -> bool:
        """Whether it is open, and the kernel reads and writes it itself."""
        with self._changed:
            now = self._open.get(ino)
            return now is not None and now.backing_id is not None

    def valid_s(self, ino: int) -> int:
        """How long the kernel may trust an inode's attributes: not at all while it, or a mapping, changes them."""
        return 0 if self._hot.is_hot(ino) else CACHE_S


def syncs_unseen(flags: int) -> bool:
    """Whether a native handle with these flags of open(2) may sync and tell nobody: by a mapping, or at each write."""
    return flags & os.O_ACCMODE == os.O_RDWR or bool(flags & os.O_DSYNC)  # of which O_SYNC has the bit


def _nobody() -> None:
    """Nobody sweeps."""
