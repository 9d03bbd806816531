"""Grouped commits of metadata: whoever needs one makes it, and takes along what the others have changed.

Order within a commit: freeze the change set (lock) → one fully synced LMDB transaction (no lock) → retire it (lock)
→ unlink staging files that it made superfluous, and punch what of adopted ones is no block, but not while an fsync
waits. The blocks that a set refers to were durable before they came into it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from blockfs.engine.context import Stores
from blockfs.engine.space.ballast import Ballast
from blockfs.errors import BlockfsError
from blockfs.runtime.linux import syncfs
from blockfs.runtime.space import host_space

_COUNTED_S: Final = 0.5  # at most, until the host has counted what was removed
_BEGUN_S: Final = 0.05  # if it has not begun to by then it had nothing to count
_LOOK_S: Final = 0.005


class Committer:
    """Commits the tree of one mount. Thread-safe.

    Attributes:
        written: Commits that wrote something.
        sweep_hot: Removes hot files that have gone from the tree, and says whether there were any.
    """

    def __init__(self, stores: Stores, ballast: Ballast) -> None:
        self.written = 0
        self.sweep_hot: Callable[[], bool] = lambda: False
        self._stores = stores
        self._ballast = ballast
        self._one_at_a_time = threading.Lock()
        self._begun = 0  # commits begun, under the engine's lock
        self._done = 0  # the newest begun commit that succeeded
        self._durable_sequence = stores.tree.last_sequence

    def commit(self) -> None:
        """Make everything durable that was changed before this call, and give the host the room of what went with it.

        Without the engine's lock.

        Raises:
            NoSpaceError: The host is full. Nothing is lost: the changes go with the next commit.
            TreeIoError: The host failed; likewise.
            AbandonedError: A bug stopped a change half-way: this mount commits nothing any more.
        """
        self._commit()
        # Only now: the generations that these files belong to have left the durable tree. Other commits need not wait.
        for number in self._stores.staging.sweep():
            with suppress(BlockfsError, OSError):  # a collection does it, too
                self._stores.blocks.settle(number)

    def give_back(self) -> None:
        """Make everything durable, and wait until the host counts the room of what went with it as free.

        btrfs lowers the use of a quota only with its own next transaction, which may be half a minute away. XFS takes
        what was removed apart behind: 3 ms later for a file in one piece, half a second in 25,000.

        Raises:
            NoSpaceError: See `commit`.
            TreeIoError: See `commit`.
        """
        self.commit()
        folder = self._stores.staging.path
        before = host_space(folder)
        swept = self.sweep_hot()
        if before.is_quota:
            with suppress(OSError):  # what it can't write now is told by whoever syncs it
                syncfs(folder)
        elif swept:
            _wait_until_counted(folder, before.available_bytes)

    def _commit(self) -> None:
        with self._stores.lock:
            begun_before = self._begun
        with self._one_at_a_time:
            # A commit that began after our call has taken our changes along; one that had begun already may not.
            if self._done <= begun_before:
                self._run()

    def commit_if(self, is_ready: Callable[[], bool]) -> None:
        """Make everything durable that was changed so far, if that is the state somebody waits for.

        Args:
            is_ready: Asked under the engine's lock, in the hold that freezes the change set.

        Raises:
            NoSpaceError: See `commit`.
            TreeIoError: See `commit`.
        """
        with self._one_at_a_time:
            self._run(is_ready)

    def commit_up_to(self, sequence: int) -> None:
        """Make the row of this version durable, if it isn't, and nothing else: somebody waits for it.

        Raises:
            NoSpaceError: See `commit`.
            TreeIoError: See `commit`.
        """
        if not self.is_durable(sequence):
            self._commit()

    def is_durable(self, sequence: int) -> bool:
        """Whether the rows of versions up to this one are durable."""
        return sequence <= self._durable_sequence

    def _run(self, is_ready: Callable[[], bool] = lambda: True) -> None:
        tree, lock, fatal = self._stores.tree, self._stores.lock, self._stores.fatal
        checkpoint = self._stores.config.checkpoint
        with lock:
            fatal.check()  # in the hold that freezes: a half change that others have left is never taken along
            if not is_ready():
                return
            self._begun += 1
            begun = self._begun
            sequence = tree.last_sequence
            change_set = tree.freeze()
        if change_set is not None:
            checkpoint("tree.write")
            try:
                self._ballast.spend(partial(tree.write, change_set))
            except BaseException:
                with lock:
                    tree.thaw(change_set)
                raise
            self.written += 1
            with lock:
                tree.retire(change_set)
        self._done = begun
        self._durable_sequence = sequence


def _wait_until_counted(folder: bytes, before: int) -> None:
    """Wait, shortly, until the room of a host has grown beyond `before` bytes, and grows no more."""
    begun, seen = time.monotonic(), before
    while (waited := time.monotonic() - begun) < _COUNTED_S:
        time.sleep(_LOOK_S)
        available = host_space(folder).available_bytes
        if available <= seen and (seen > before or waited > _BEGUN_S):
            return
        seen = available
