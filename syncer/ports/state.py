"""What a root keeps from one cycle to the next."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Literal, Protocol, TypeAlias

from syncer.core.base import BaseIndex
from syncer.core.conflict import Written
from syncer.core.model import Content, LocalTag, Nid, Position
from syncer.core.planner.identify import Fresh
from syncer.core.planner.outcome import BaseChange, Booking
from syncer.core.planner.overwrites import Overwrite
from syncer.core.planner.safety import ContainerIdentity
from syncer.core.rows import BaseRows, Origin

Memory: TypeAlias = Literal["checkpoint", "directory-digests", "twins", "trash-clock"]
"""What a local root keeps for its next look: where a volume's journal goes on, what a folder's directories were, which
large files have a twin, what the times of cycles were."""


class State(Protocol):
    """A root's state. Blocking, from any thread; what writes is durable when it returns, all of it or nothing."""

    def base(self) -> BaseIndex:
        """All base rows."""
        ...

    def rows(self) -> AbstractContextManager[BaseRows]:
        """The base rows one by one."""
        ...

    def fresh(self) -> Fresh:
        """A source of numbers that were never used."""
        ...

    def record(self, changes: Sequence[BaseChange], settled: Collection[int] = ()) -> None:
        """Write base changes, and take lists of orders out whose outcome they are."""
        ...

    def orders(self) -> Mapping[int, Sequence[Booking]]:
        """Orders whose outcome is not known, in lists that were sent together, in the order of their numbers."""
        ...

    def book_orders(self, booked: Mapping[int, Sequence[Booking]]) -> None:
        """Take orders in."""
        ...

    def overwrites(self) -> Sequence[Overwrite]:
        """Writes that are booked because they may replace what nobody here has seen, in the order of their numbers."""
        ...

    def book_overwrites(self, new: Sequence[Overwrite], settled: Sequence[int]) -> None:
        """Take writes in, and others, by their numbers, out."""
        ...

    def writers(self) -> Mapping[Nid, Written]:
        """Of which devices versions are that kept their names beside conflict copies."""
        ...

    def note_writers(self, found: Mapping[Nid, Written]) -> None:
        """Add to them; those of nodes that have no row any more are dropped."""
        ...

    def container(self) -> ContainerIdentity | None:
        """The container as last seen; None before the first cycle."""
        ...

    def set_container(self, found: ContainerIdentity) -> None:
        """Remember it."""
        ...

    def cursor(self) -> Position | None:
        """Where the server's changes were last known completely."""
        ...

    def set_cursor(self, cursor: Position | None) -> None:
        """Remember it."""
        ...

    def rules(self) -> bytes | None:
        """The ignore rules at the last look at everything (`IgnoreRules.dump`)."""
        ...

    def set_rules(self, raw: bytes) -> None:
        """Remember them."""
        ...

    def memory(self, key: Memory) -> bytes | None:
        """The local root's own, as it was kept. Read when needed: digests of a million directories are 24 MB."""
        ...

    def keep(self, key: Memory, raw: bytes) -> None:
        """Remember it. Everything observed before a checkpoint is in the base rows."""
        ...

    def holders(self, contents: Collection[Content]) -> Mapping[Content, Sequence[Origin]]:
        """Local files with these contents, by what the base says; a few of each."""
        ...

    def content(self, tag: LocalTag) -> Content | None:
        """What a large file that is not in the base yet contains; None if that is not known for sure.

        So a cycle that was killed hashes such files once.
        """
        ...

    def contents_found(self, found: Sequence[tuple[LocalTag, Content]], clock_ns: int) -> None:
        """Keep hashing results; `clock_ns` is the filesystem's time before the files were looked at."""
        ...

    def contents_only(self, tags: Iterable[LocalTag]) -> None:
        """Forget those of all other files."""
        ...
