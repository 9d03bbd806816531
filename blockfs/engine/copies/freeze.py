"""Fixing one instant of a subtree: a committed state that has all its contents as they were at that moment.

Order: seal the subtree until little is left → close the gate for writes → seal the rest: what is staged, then the hot
files (`blockfs.engine.hot.together`) → in one hold of the engine's lock find that nothing is left and freeze the change
set → commit it, and take a view of just that commit → open the gate.

Names, attributes and sizes change under the engine's lock only, so the freeze is the instant for all of them. Readers
never wait; writers wait for the last seal and the commit. The kernel's writers to hot files don't; their fsyncs do.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from contextlib import contextmanager
from typing import Final

from blockfs.engine.content.filestate import FileState
from blockfs.engine.content.filetable import FileTable
from blockfs.engine.context import Stores
from blockfs.engine.durable.committer import Committer
from blockfs.engine.durable.failing import check_sound
from blockfs.engine.durable.sealer import Sealer
from blockfs.engine.hot.together import Filled, Together
from blockfs.engine.names.inodes import Inodes
from blockfs.engine.names.rename import is_below
from blockfs.engine.portions import Stop, never, pause_of
from blockfs.errors import BlockfsError
from blockfs.tree.committed import CommittedView
from blockfs.tree.waiting import held

_LITTLE_BYTES: Final = 4 << 20  # what the gate may wait for: sealed in some 30 ms
_ROUNDS: Final = 4  # against writers that stage faster than we seal


class Freeze:
    """Fixes instants of one mount."""

    def __init__(
        self,
        stores: Stores,
        table: FileTable,
        sealer: Sealer,
        together: Together,
        committer: Committer,
        inodes: Inodes,
    ) -> None:
        self._stores = stores
        self._table = table
        self._sealer = sealer
        self._together = together
        self._committer = committer
        self._inodes = inodes

    @contextmanager
    def of(self, source: int, stop: Stop = never) -> Iterator[CommittedView]:
        """A view in which `source` and all below it are as they were at one instant, everything sealed.

        `Tree.copying` is held inside: leaves of the view may be put into the tree again.

        Raises:
            StoppedError: `stop` said so.
            FlushFailedError: Something that was written to a file of the subtree is lost.
            NoSpaceError: The host is full.
            BlockfsError: A file of the subtree can't be sealed, or the host failed.
        """
        for turn in range(_ROUNDS):
            with self._stores.lock:
                self._check_sound(source)
                self._table.look()
                unsealed = self._unsealed(source)
            # What is new in a hot file nobody counts: each gets one seal before writers have to wait for the next.
            is_first = not turn and any(state.hot is not None for state in unsealed)
            if not is_first and sum(state.staged_bytes for state in unsealed) <= _LITTLE_BYTES:
                break
            self._sealer.seal_existing([state.ino for state in unsealed], stop)
        filled = self._together.fill(self._hot(source))
        with held(self._stores.tree.copying, pause_of(stop)), self._view_of(source, filled) as view:
            yield view

    @contextmanager
    def _view_of(self, source: int, filled: Filled) -> Iterator[CommittedView]:
        lock, tree = self._stores.lock, self._stores.tree
        views: list[CommittedView] = []
        failures: list[BlockfsError] = []
        is_wanted = True
        together: frozenset[int] = frozenset()

        def look() -> None:
            """The commit is durable, and no later one has begun. If it failed, its callbacks run after a later one."""
            if is_wanted and not views:
                try:
                    views.append(tree.open_view())
                except BlockfsError as error:  # ours to tell: whoever made the commit has no part in it
                    failures.append(error)

        def is_ready() -> bool:
            """A file may have been moved in, or cut, or may have failed, since the rest was sealed."""
            self._check_sound(source)
            if self._unsealed(source, together):
                return False
            tree.on_durable(look)
            return True

        try:
            with self._table.gate.closed():
                while not views:
                    with lock:
                        staged = [state.ino for state in self._unsealed(source) if state.hot is None]
                    self._sealer.seal_existing(staged)
                    with self._together.sealed(self._hot(source), filled) as together:
                        self._committer.commit_if(is_ready)
                    if failures:
                        raise failures[0]
            yield views[0]
        finally:
            with lock:
                is_wanted = False
            for view in views:
                view.close()

    def _check_sound(self, source: int) -> None:
        """Refuse a subtree with a file of which something was lost. Under the lock."""
        for state in self._table.all():
            if state.failures is not None and self._is_in(state.ino, source):
                check_sound(self._stores, state)

    def _unsealed(self, source: int, together: Container[int] = ()) -> list[FileState]:
        """Files of the subtree that the tree does not tell everything of. Under the lock.

        Args:
            source: Top of the subtree.
            together: Hot files of whose leaves one instant counts, whatever is written to them since.
        """
        return [
            state
            for state in self._table.all()
            if not (state.is_sealed or _is_told(state, together)) and self._is_in(state.ino, source)
        ]

    def _hot(self, source: int) -> list[FileState]:
        """Files of the subtree that have hot files."""
        with self._stores.lock:
            states = [state for state in self._table.all() if state.hot is not None]
            return [state for state in states if self._is_in(state.ino, source)]

    def _is_in(self, ino: int, source: int) -> bool:
        if ino == source:
            return True
        return any(is_below(self._inodes, parent, source) for parent, _ in self._stores.tree.places(ino))


def _is_told(state: FileState, together: Container[int]) -> bool:
    """Whether the leaves, and nothing later, are told of a hot file whose instant counts."""
    return state.hot is not None and state.ino in together and not state.hot.is_behind
