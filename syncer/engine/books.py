"""What the engine keeps in a root's StateDB beside the base rows: container, checkpoint, last cycle, problems."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from syncer.core.base import BaseIndex
from syncer.core.ledger import BaseChange
from syncer.core.model import Content, LocalTag, Nid, RelPath
from syncer.core.safety import ContainerIdentity
from syncer.engine.report import Report
from syncer.state.schema import KnownContent, Problem
from syncer.state.statedb import StateDB

_CONTAINER: Final = "container"
_CHECKPOINT: Final = "checkpoint"
_LAST_CYCLE: Final = "last-cycle"


class LastCycle(msgspec.Struct, frozen=True, kw_only=True):
    """How the last cycle went, for `status`. Kept as JSON.

    Attributes:
        ended_ns: When, since the epoch.
        exit_code: What it ended with.
        error: Message of what broke it off; None if it went through.
        counts: Its figures, by the keys of the summary.
    """

    ended_ns: int
    exit_code: int
    error: str | None
    counts: dict[str, int | float]


class Books:
    """`record.State` on a StateDB, and what `status` reads."""

    def __init__(self, database: StateDB) -> None:
        self._database = database

    def load_base(self) -> BaseIndex:
        """All base rows."""
        return self._database.load_base()

    def allocator(self) -> Callable[[], Nid]:
        """Numbers that were never used."""
        return self._database.allocator()

    def record(self, changes: Sequence[BaseChange]) -> None:
        """Base changes, durably."""
        self._database.record(changes)

    def container(self) -> ContainerIdentity | None:
        """The container as last seen."""
        raw = self._database.meta_get(_CONTAINER)
        return None if raw is None else msgspec.json.decode(raw, type=ContainerIdentity)

    def set_container(self, found: ContainerIdentity) -> None:
        """Remember the container."""
        self._database.meta_set({_CONTAINER: msgspec.json.encode(found)})

    def checkpoint(self) -> bytes | None:
        """Where the local observation may start."""
        return self._database.meta_get(_CHECKPOINT)

    def set_checkpoint(self, checkpoint: bytes) -> None:
        """Remember it."""
        self._database.meta_set({_CHECKPOINT: checkpoint})

    def known(self, tag: LocalTag) -> Content | None:
        """What a large local file that is not in the base yet was found to contain (`local.root.ContentMemory`)."""
        return self._database.known_content(tag)

    def remember(self, found: Sequence[tuple[LocalTag, Content]], clock_ns: int) -> None:
        """Keep hashing results."""
        rows = [KnownContent(tag=tag, content=content, observed_ns=clock_ns) for tag, content in found]
        self._database.record((), contents=rows)

    def keep_only(self, tags: Iterable[LocalTag]) -> None:
        """Forget the results for all other files."""
        self._database.keep_contents(tags)

    def forget_sides(self) -> None:
        """For `link --relink`: the next cycle merges both sides anew and deletes nothing."""
        self._database.clear()
        self._database.meta_set({_CONTAINER: None, _CHECKPOINT: None, _LAST_CYCLE: None})

    def last_cycle(self) -> LastCycle | None:
        """How the last cycle went."""
        raw = self._database.meta_get(_LAST_CYCLE)
        return None if raw is None else msgspec.json.decode(raw, type=LastCycle)

    def keep_result(self, report: Report, exit_code: int, error: str | None) -> None:
        """Keep what `status` shows."""
        now_ns = time.time_ns()
        last = LastCycle(ended_ns=now_ns, exit_code=exit_code, error=error, counts=report.counts())
        self._database.meta_set({_LAST_CYCLE: msgspec.json.encode(last)})
        rows = [("failure", failure.path, failure.reason) for failure in report.failures]
        rows += [("note", path, text) for path, text in report.notes]
        self._database.set_problems(
            Problem(path=RelPath(path), kind=kind, text=text, since_ns=now_ns) for kind, path, text in rows
        )
