"""A root's state in memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from msgspec.structs import replace

from syncer.core.base import BaseIndex
from syncer.core.conflict import Written
from syncer.core.model import BaseRow, Content, LocalTag, Nid, Position
from syncer.core.planner.identify import Fresh
from syncer.core.planner.outcome import BaseChange, Booking, Forgotten
from syncer.core.planner.overwrites import Overwrite
from syncer.core.planner.safety import ContainerIdentity
from syncer.core.rows import Origin
from syncer.core.subtrees import Retagged, version_of
from syncer.ports.state import Memory
from tests.kit.rows import MemoryRows


def _no_fault(name: str) -> None:
    """Nothing fails."""


@dataclass
class MemoryState:
    """`State` in a dict. What was recorded is durable: it survives a "crash".

    Attributes:
        fault: Called before something is written; may raise.
        records: Groups of rows written.
    """

    fault: Callable[[str], None] = _no_fault
    rows_now: dict[Nid, BaseRow] = field(default_factory=dict)
    last: int = 0
    identity: ContainerIdentity | None = None
    booked: dict[int, Overwrite] = field(default_factory=dict)
    records: int = 0
    ordered: dict[int, Sequence[Booking]] = field(default_factory=dict)
    written: dict[Nid, Written] = field(default_factory=dict)
    kept_cursor: Position | None = None
    kept_rules: bytes | None = None
    kept: dict[Memory, bytes] = field(default_factory=dict)

    def base(self) -> BaseIndex:
        return BaseIndex(self.rows_now.values())

    @contextmanager
    def rows(self) -> Iterator[MemoryRows]:
        yield MemoryRows(self.rows_now)

    def fresh(self) -> Fresh:
        def fresh() -> Nid:
            self.last += 1
            return Nid(self.last)

        return fresh

    def record(self, changes: Sequence[BaseChange], settled: Collection[int] = ()) -> None:
        self.fault("record")
        self.records += 1
        for change in changes:
            if isinstance(change, Forgotten):
                self.rows_now.pop(change.nid, None)
            elif isinstance(change, Retagged):
                self._retag(change)
            else:
                self.rows_now[change.nid] = change
        for number in settled:
            self.ordered.pop(number, None)

    def orders(self) -> Mapping[int, Sequence[Booking]]:
        return dict(self.ordered)

    def book_orders(self, booked: Mapping[int, Sequence[Booking]]) -> None:
        self.fault("book_orders")
        self.ordered.update(booked)

    def _retag(self, change: Retagged) -> None:
        members = MemoryRows(self.rows_now).subtree(change.nid).nids
        assert len(members) == change.count
        for rank, nid in list(enumerate(members))[1:]:
            row = self.rows_now[nid]
            assert row.remote is not None
            tag = replace(row.remote, version=version_of(change.first, rank))
            self.rows_now[nid] = replace(row, remote=tag)

    def writers(self) -> Mapping[Nid, Written]:
        return self.written

    def note_writers(self, found: Mapping[Nid, Written]) -> None:
        self.written.update(found)

    def overwrites(self) -> list[Overwrite]:
        return list(self.booked.values())

    def book_overwrites(self, new: Sequence[Overwrite], settled: Sequence[int]) -> None:
        self.booked.update({write.number: write for write in new})
        for number in settled:
            self.booked.pop(number, None)

    def container(self) -> ContainerIdentity | None:
        return self.identity

    def set_container(self, found: ContainerIdentity) -> None:
        self.identity = found

    def cursor(self) -> Position | None:
        return self.kept_cursor

    def set_cursor(self, cursor: Position | None) -> None:
        self.fault("set_cursor")
        self.kept_cursor = cursor

    def rules(self) -> bytes | None:
        return self.kept_rules

    def set_rules(self, raw: bytes) -> None:
        self.kept_rules = raw

    def memory(self, key: Memory) -> bytes | None:
        return self.kept.get(key)

    def keep(self, key: Memory, raw: bytes) -> None:
        self.kept[key] = raw

    def holders(self, contents: Collection[Content]) -> dict[Content, list[Origin]]:
        index = BaseIndex(self.rows_now.values())
        found: dict[Content, list[Origin]] = {}
        for nid, row in index.rows.items():
            content = row.node.content
            if content is not None and content in contents and row.local is not None and nid in index.paths:
                origin = Origin(path=index.paths[nid], tag=row.local, content=content)
                found.setdefault(content, []).append(origin)
        return found

    def content(self, tag: LocalTag) -> Content | None:
        """Nothing is hashed that is not in the base."""

    def contents_found(self, found: Sequence[tuple[LocalTag, Content]], clock_ns: int) -> None:
        """It is hashed again."""

    def contents_only(self, tags: Iterable[LocalTag]) -> None:
        """Nothing is kept."""
