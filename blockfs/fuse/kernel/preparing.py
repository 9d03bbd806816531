"""Hot files as a front-end sees them, and making large ones ready while those that can't wait go through us."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, suppress
from typing import Final, Protocol

from blockfs.engine.portions import Stop, never
from blockfs.errors import BlockfsError

_PREPARED_AT_ONCE: Final = 4


class HotFiles(Protocol):
    """Owns the files of the host that the kernel reads and writes. Thread-safe."""

    def open(self, ino: int, *, may_block: bool = False, stop: Stop = never) -> int | None:
        """One more user of an inode's file: its descriptor, open for both ways, until `release`; it stays the owner's.

        The owner has it open by this descriptor only, and its copies.

        Returns:
            None: this one can't be had, and is not used; or `stop` said that nobody wants it any more.

        Raises:
            WouldBlock: It must be made first, and `may_block` is false.
        """

    def release(self, ino: int) -> None:
        """One user less: nobody reads or writes it any more on his behalf. Never waits."""

    def is_hot(self, ino: int) -> bool:
        """Whether that file is what the inode's content is now. Never waits."""

    def is_durable(self, ino: int) -> bool:
        """Whether it would be that after a crash, too, or is none. Never waits."""

    def make_durable(self, ino: int) -> None:
        """See to that. Waits for disks; BlockfsError: it is not."""


class Preparing:
    """Makes files ready in threads of its own, for opens that don't wait to the end. Thread-safe.

    Args:
        hot: Has the files.
        owning: Around what a thread does: an error that nobody expected has an owner.
    """

    def __init__(self, hot: HotFiles, owning: Callable[[str], AbstractContextManager[None]]) -> None:
        self._hot = hot
        self._owning = owning
        self._threads = ThreadPoolExecutor(_PREPARED_AT_ONCE, thread_name_prefix="blocksync-hot")
        self._lock = threading.Lock()
        self._under_way: dict[int, Future[None]] = {}
        self._is_ending = threading.Event()

    def ready(self, ino: int, waits_s: float) -> bool:
        """Whether a file is ready, or can't be, within some seconds. If not, it is made ready all the same."""
        with self._lock:
            preparing = self._under_way.get(ino)
            if preparing is None:
                preparing = self._under_way[ino] = self._threads.submit(self._prepare, ino)
        return bool(wait([preparing], waits_s).done)

    def _prepare(self, ino: int) -> None:
        try:
            with suppress(BlockfsError), self._owning("making a file ready"):
                if self._hot.open(ino, may_block=True, stop=self._is_ending.is_set) is not None:
                    self._hot.release(ino)
        finally:
            with self._lock:
                del self._under_way[ino]

    def end(self) -> None:
        """The mount ends: stop what is under way, and wait for that. Idempotent."""
        self._is_ending.set()
        self._threads.shutdown(cancel_futures=True)
