"""Which files are sealed when nobody asks for it, and who has to wait for that.

Quiet files go, and when more than half of the limit is staged all others, the quietest first. Above the limit writers
wait here until enough is sealed.
"""

from __future__ import annotations

import threading
import time
from typing import Final

from blockfs.engine.content.filestate import FileState
from blockfs.engine.content.filetable import FileTable
from blockfs.engine.context import Stores
from blockfs.engine.durable.sealer import Sealer, groups
from blockfs.engine.space.policy import is_low
from blockfs.errors import BlockfsError, NoSpaceError
from blockfs.runtime.space import host_space

_SMALL_BYTES: Final = 1 << 20
_AT_LEAST_EVERY_S: Final = 300.0  # a hot file that is never quiet: sharing costs little, whatever is written to it
_AT_LEAST_WHEN_LOW_S: Final = 10.0  # … on a nearly full host: it makes room, and nothing holds its writers
_RETRY_S: Final = 30.0  # until a file whose sealing failed is tried again without being asked for


class SealQueue:
    """The files of one mount that wait to be sealed. Thread-safe.

    Attributes:
        wanted: Set when there is something to seal before it is quiet: wakes the background threads.
    """

    def __init__(self, stores: Stores, table: FileTable, sealer: Sealer) -> None:
        self.wanted = threading.Event()
        self._stores = stores
        self._table = table
        self._sealer = sealer
        self._choosing = threading.Lock()
        self._claimed: set[int] = set()
        self._failure: BlockfsError | None = None

    def seal_due(self) -> bool:
        """Seal one group of files that are quiet, or, when more than half of the limit is staged, the quietest ones.

        Returns:
            Whether there was one.

        Raises:
            BlockfsError: See `Sealer.seal`. The failed files are left alone for a while.
        """
        with self._choosing:
            chosen = self._choose()
            self._claimed.update(state.ino for state in chosen)
        if not chosen:
            return False
        failures: list[BlockfsError] = []
        try:
            failures = self._sealer.seal_group(chosen, may_mix=True)
        except NoSpaceError as error:
            failures = [error]  # it needs no other file, but room: tried again as soon as the thread has rested
        except BlockfsError as error:
            failures = [error]
            with self._stores.lock:
                for state in chosen:
                    state.seal_failed_at_s = time.monotonic()
        finally:
            with self._choosing:
                self._claimed.difference_update(state.ino for state in chosen)
        self._failure = failures[0] if failures else None
        if failures:
            raise failures[0]
        return True

    def _choose(self) -> list[FileState]:
        """The next group for the background. One file that fails must not keep the others from being sealed."""
        with self._stores.lock:
            self._table.look()
            now_s = time.monotonic()
            hot_s = self._hot_every_s()
            presses = self._table.staged_bytes > self._table.staged_limit_bytes // 2
            due = [
                state
                for state in self._table.all()
                if ((presses and state.hot is None) or self._is_quiet(state, now_s, hot_s))
                and _has_hope(state, now_s)
                and state.ino not in self._claimed
            ]
        due.sort(key=lambda state: state.written_at_s)
        return next(groups(due), [])

    def _hot_every_s(self) -> float:
        """How often hot files are sealed that are never quiet."""
        if any(state.hot is not None for state in self._table.all()) and is_low(host_space(self._stores.staging.path)):
            return _AT_LEAST_WHEN_LOW_S
        return _AT_LEAST_EVERY_S

    def _is_quiet(self, state: FileState, now_s: float, hot_s: float) -> bool:
        """Whether a file will hardly be written again soon.

        New small files that were closed are sealed before the flusher comes to them: a group sync is cheaper than an
        fdatasync for each. Not so files with sealed content: somebody appends to them now and then.
        """
        config = self._stores.config
        quiet_s = now_s - state.written_at_s
        if state.hot is not None:
            is_long_ago = now_s - state.hot.sealed_at_s >= hot_s
            return is_long_ago or quiet_s >= (config.quiet_s if state.hot.opens else config.publish_s / 2)
        return quiet_s >= config.quiet_s or (
            quiet_s >= config.publish_s / 2
            and not state.writers
            and state.staged_bytes <= _SMALL_BYTES
            and not self._stores.tree.allocated_blocks(state.ino)
        )

    def make_room(self, ino: int, length: int) -> None:
        """Wait until `length` more bytes of a file may be staged.

        Raises:
            AbandonedError: Sealing can't go on because of a bug.
            NoSpaceError: Sealing can't go on because the host is full.
            BlockfsError: Sealing can't go on for another reason.
        """
        while not self._table.has_room(ino, length):
            if self._stores.config.background:
                self.wanted.set()
                with self._table.drained:
                    if not self._table.has_room(ino, length):
                        self._table.drained.wait(timeout=0.5)
                self._check_hope(ino, length)
            else:
                self._sealer.seal_all()

    def _check_hope(self, ino: int, length: int) -> None:
        """Give up waiting if the mount is abandoned, the host is full, or nothing is left that can be sealed."""
        self._stores.fatal.check()
        failure = self._failure
        if failure is None or self._table.has_room(ino, length):
            return
        now_s = time.monotonic()
        with self._stores.lock:
            hopeful = any(_has_hope(one, now_s) for one in self._table.all())
        if isinstance(failure, NoSpaceError) or not hopeful:
            raise failure


def _has_hope(state: FileState, now_s: float) -> bool:
    """Whether there is something to seal of a file, and that has not failed a moment ago."""
    has_some = bool(state.generations) or (state.hot is not None and not state.is_sealed)
    return has_some and now_s - state.seal_failed_at_s >= _RETRY_S
