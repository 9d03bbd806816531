"""What the engine keeps in a root's StateDB beside the base rows: container, checkpoint, last cycle, problems."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import count
from typing import Final

import msgspec
from msgspec.structs import replace

from syncer.core.base import BaseIndex
from syncer.core.conflict import Written
from syncer.core.model import BaseRow, Content, LocalTag, Nid, Position, RelPath
from syncer.core.parts import NO_PARTS, Parts
from syncer.core.planner.identify import Fresh
from syncer.core.planner.outcome import BaseChange, Booking
from syncer.core.planner.overwrites import Overwrite
from syncer.core.planner.safety import ContainerIdentity
from syncer.core.rows import Origin
from syncer.core.subtrees import Retagged
from syncer.engine.report import Report
from syncer.ports.state import Memory
from syncer.state.rows import RowReader
from syncer.state.schema import KnownContent, Problem, decode_container, encode_container
from syncer.state.statedb import StateDB

_CONTAINER: Final = "container"
_CHECKPOINT: Final = "checkpoint"
_LAST_CYCLE: Final = "last-cycle"
_LAST_SHARED: Final = "last-shared"
_CURSOR: Final = "remote-cursor"
_DIGESTS: Final = "directory-digests"
_TWINS: Final = "twins"
_RULES: Final = "ignore-rules"
_XATTRS: Final = "xattrs"
_SPECIAL: Final = "special-modes"
_NOTED: Final = 1 << 18  # rows kept in mind, 60 bytes each: with more a look at all of them takes no longer
_FIRST_FRESH: Final = 1 << 62  # StateDBs do not get that far
_HOLDERS: Final = 4  # of one content: one of them will still be what it was


SHARED: Final = ("blocks_from_peers", "blocks_to_peers", "blocks_from_roots", "blocks_from_own")
"""Keys of the counts of blocks that did not come from the server."""


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


class RootState:
    """`State` on a StateDB, and what `status` reads."""

    def __init__(self, database: StateDB, parts: Parts = NO_PARTS) -> None:
        """Keep books in `database`.

        Args:
            database: The root's.
            parts: What of metadata the root takes part in.
        """
        self._database = database
        self._noted: set[Nid] | None = None
        self._taken = {_XATTRS: parts.xattrs, _SPECIAL: parts.special_modes}

    def take_part(self) -> None:
        """Before a cycle: book in what this root takes part, of extended attributes and special bits of modes.

        While it does not, its rows hold what the server has, and nothing here was set. That must not look like a
        removal once it does: then no row knows of any attribute, both sides are united, and everything is looked at.
        """
        anew = self._anew
        if anew:
            rows = self._database.load_base().rows.values()
            self._database.record([_without(row, anew) for row in rows])
            self._database.meta_set({_CHECKPOINT: None, _CURSOR: None, _DIGESTS: None, **dict.fromkeys(anew, b"1")})
        for key, taken in self._taken.items():
            if not taken and self._database.meta_get(key) is not None:
                self._database.meta_set({key: None})

    @property
    def _anew(self) -> frozenset[str]:
        """What the root takes part in from the next cycle on."""
        taken = (key for key, taken in self._taken.items() if taken)
        return frozenset(key for key in taken if self._database.meta_get(key) is None)

    def base(self) -> BaseIndex:
        """All base rows."""
        base, anew = self._database.load_base(), self._anew
        return BaseIndex(_without(row, anew) for row in base.rows.values()) if anew else base

    def fresh(self) -> Callable[[], Nid]:
        """Numbers that were never used."""
        return self._database.allocator()

    def record(self, changes: Sequence[BaseChange], settled: Collection[int] = ()) -> None:
        """Base changes, durably; the bookings whose outcome they are go."""
        self._database.record(changes, settled=settled)
        if self._noted is not None:
            self._noted.update(change.nid for change in changes if not isinstance(change, Retagged))
            if len(self._noted) > _NOTED:
                self._noted = None

    def note_changes(self) -> None:
        """From here on keep in mind which rows are recorded."""
        self._noted = set()

    def noted(self) -> set[Nid] | None:
        """The rows recorded since, but for those of which only the server's version changed; None: too many."""
        return self._noted

    def orders(self) -> Mapping[int, Sequence[Booking]]:
        """Orders of which the outcome is not known."""
        return self._database.orders()

    def book_orders(self, booked: Mapping[int, Sequence[Booking]]) -> None:
        """Take orders into that list, durably."""
        self._database.book_orders(booked)

    def overwrites(self) -> list[Overwrite]:
        """Writes that may have replaced what nobody here has seen."""
        return self._database.overwrites()

    def book_overwrites(self, new: Sequence[Overwrite], settled: Sequence[int]) -> None:
        """Take writes into that list, and others out."""
        self._database.book_overwrites(new, settled)

    def writers(self) -> dict[Nid, Written]:
        """Of which devices versions are that kept their names beside conflict copies."""
        return self._database.writers()

    def note_writers(self, found: Mapping[Nid, Written]) -> None:
        """Add to them."""
        self._database.note_writers(found)

    def container(self) -> ContainerIdentity | None:
        """The container as last seen."""
        return self._database.meta_read(_CONTAINER, decode_container)

    def set_container(self, found: ContainerIdentity) -> None:
        """Remember the container."""
        self._database.meta_set({_CONTAINER: encode_container(found)})

    # --- cycles that look at a part (engine/partial/partial_look.py)

    def rows(self) -> AbstractContextManager[RowReader]:
        """The base rows one by one."""
        return self._database.rows()

    def cursor(self) -> Position | None:
        """Where the server's changes were last known completely."""
        raw = None if self._anew else self._database.meta_get(_CURSOR)
        return None if raw is None else Position(raw=raw)

    def set_cursor(self, cursor: Position | None) -> None:
        """Remember it."""
        self._database.meta_set({_CURSOR: None if cursor is None else cursor.raw})

    def rules(self) -> bytes | None:
        """The ignore rules at the last look at everything (`IgnoreRules.dump`)."""
        return self._database.meta_get(_RULES)

    def set_rules(self, raw: bytes) -> None:
        """Remember them."""
        if raw != self._database.meta_get(_RULES):
            self._database.meta_set({_RULES: raw})

    def memory(self, key: Memory) -> bytes | None:
        """What the local root keeps for its own next look."""
        return None if self._anew and key == "checkpoint" else self._database.meta_get(key)

    def keep(self, key: Memory, raw: bytes) -> None:
        """Remember it."""
        self._database.meta_set({key: raw})

    def holders(self, contents: Collection[Content]) -> dict[Content, list[Origin]]:
        """Local files with these contents, by what the base says; a few of each."""
        found: dict[Content, list[Origin]] = {}
        with self._database.rows() as rows:
            for content, row in rows.holding(contents):
                origins = found.setdefault(content, [])
                if len(origins) < _HOLDERS and row.local is not None and (path := rows.path(row)) is not None:
                    origins.append(Origin(path=path, tag=row.local, content=content))
        return found

    def content(self, tag: LocalTag) -> Content | None:
        """What a large local file that is not in the base yet was found to contain."""
        return self._database.known_content(tag)

    def contents_found(self, found: Sequence[tuple[LocalTag, Content]], clock_ns: int) -> None:
        """Keep hashing results."""
        rows = [KnownContent(tag=tag, content=content, observed_ns=clock_ns) for tag, content in found]
        self._database.record((), contents=rows)

    def contents_only(self, tags: Iterable[LocalTag]) -> None:
        """Forget the results for all other files."""
        self._database.keep_contents(tags)

    def forget_sides(self) -> None:
        """For `link --relink`: the next cycle merges both sides anew and deletes nothing."""
        self._database.clear()
        self._database.meta_set(
            dict.fromkeys((_CONTAINER, _CHECKPOINT, _LAST_CYCLE, _CURSOR, _DIGESTS, _TWINS, _RULES, _XATTRS, _SPECIAL))
        )

    def last_cycle(self) -> LastCycle | None:
        """How the last cycle went."""
        return self._database.meta_read(_LAST_CYCLE, _decode_cycle)

    def last_shared(self) -> LastCycle | None:
        """The last one in which blocks came from others than the server, or went to peers: those after it are empty."""
        return self._database.meta_read(_LAST_SHARED, _decode_cycle)

    def problems(self) -> list[Problem]:
        """What the last cycle could not sync, or found remarkable."""
        return self._database.problems()

    def keep_result(self, report: Report, exit_code: int, error: str | None) -> None:
        """Keep what `status` shows."""
        now_ns = time.time_ns()
        last = LastCycle(ended_ns=now_ns, exit_code=exit_code, error=error, counts=report.counts())
        kept = {_LAST_CYCLE: msgspec.json.encode(last)}
        if any(last.counts.get(key) for key in SHARED):
            kept[_LAST_SHARED] = kept[_LAST_CYCLE]
        self._database.meta_set(kept)
        rows = [("failure", failure.path, failure.reason) for failure in report.failures]
        rows += [("note", path, text) for path, text in report.notes]
        self._database.set_problems(
            Problem(path=RelPath(path), kind=kind, text=text, since_ns=now_ns) for kind, path, text in rows
        )


class Unwritten:
    """A `State` that is read and never written: for who only looks.

    What would be a bug of a cycle that does nothing fails; hashing results are let go.
    """

    def __init__(self, state: RootState) -> None:
        """Look at this one."""
        self.base = state.base
        self.rows = state.rows
        self.container = state.container
        self.cursor = state.cursor
        self.rules = state.rules
        self.memory = state.memory
        self.holders = state.holders
        self.content = state.content
        self.orders = state.orders  # a look takes what came true for the base, too

    def fresh(self) -> Fresh:
        """Numbers of what is new, for this look only."""
        numbers = count(_FIRST_FRESH)
        return lambda: Nid(next(numbers))

    def overwrites(self) -> Sequence[Overwrite]:
        """None: who only looks does not look after them."""
        return ()

    def writers(self) -> Mapping[Nid, Written]:
        """None: only what is done is noted."""
        return {}

    def contents_found(self, found: Sequence[tuple[LocalTag, Content]], clock_ns: int) -> None:
        """Let go."""

    def contents_only(self, tags: Iterable[LocalTag]) -> None:
        """Nothing is forgotten."""

    def _refuse(self, *_: object) -> None:
        raise AssertionError("who only looks writes nothing")

    record = book_orders = book_overwrites = note_writers = set_container = set_cursor = set_rules = keep = _refuse


def _decode_cycle(raw: bytes) -> LastCycle:
    return msgspec.json.decode(raw, type=LastCycle)


def _without(row: BaseRow, parts: Container[str]) -> BaseRow:
    """A row that knows nothing of some parts of the metadata."""
    meta = row.node.meta
    if _XATTRS in parts:
        meta = replace(meta, xattrs=None)
    if _SPECIAL in parts:
        meta = replace(meta, special=None)
    return row if meta == row.node.meta else replace(row, node=replace(row.node, meta=meta))
