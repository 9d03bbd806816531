"""Ring R2's watched roots: cycles that look at a part of the tree, told by a watcher that may lose events.

A watcher tells of the names that changed. It may tell one twice, or later than others, or never; then the survey that
comes now and then finds what it did not tell. All this is in memory, over the same ground truth as the rest of R2.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from syncer.core.base import BaseIndex
from syncer.core.ignore import IgnoreRules
from syncer.core.model import Content, FileStat, Kind, Nid, RelPath
from syncer.core.partial.affected import UnboundedError, is_unchanged
from syncer.core.paths import PARK_FOLDER, ancestors, join, split
from syncer.core.rows import BaseRows
from syncer.errors import LocalChangedError
from syncer.ports.local import PartLook
from syncer.ports.localvalues import Hints, Observation
from syncer.watch.dirt import CLEAN, EVERYTHING, Dirt
from tests.simulation.disk import Hook, MemoryRoot
from tests.simulation.world import DIRECTORY, Entry, Replica


class MemoryPart:
    """See `PartLook`. Looks at directories in memory, one by one: between two of them anything may happen."""

    def __init__(self, root: WatchedRoot, rows: BaseRows, between: Callable[[], None]) -> None:
        self.rules = IgnoreRules()
        self.holding: set[RelPath] = set()
        self.folds = False
        self.root = root
        self.rows = rows
        self.between = between

    def where(self) -> tuple[Collection[RelPath], Collection[RelPath]]:
        hints = self.root.hints
        if hints.directories is not None:
            return hints.directories, hints.entries
        self.between()
        entries = self.root.replica.entries
        folders = [RelPath(path) for path, entry in entries.items() if entry.kind is DIRECTORY]
        if any(path.startswith(PARK_FOLDER + b"/") for path in entries):
            raise UnboundedError
        return [RelPath(b""), *sorted(folders)], ()

    def is_directory(self, path: RelPath) -> bool:
        self.between()
        return self.root.replica.is_directory(path)

    def is_free(self, path: RelPath) -> bool:
        self.between()
        return path not in self.root.replica.entries

    def is_as_known(self, path: RelPath, nid: Nid) -> bool:
        rows = self.rows
        pending = [(path, nid)]
        while pending:
            at, number = pending.pop()
            try:
                entries = {split(stat.path)[1]: stat for stat in self.listing(at)}
            except UnboundedError:
                return False
            children = {row.node.name: row for row in rows.children(number)}
            if len(children) != len(rows.children(number)) or children.keys() != entries.keys():
                return False
            if not all(is_unchanged(children[name], stat) for name, stat in entries.items()):
                return False
            folders = [name for name, stat in entries.items() if stat.kind is Kind.DIRECTORY]
            pending += [(join(at, name), children[name].nid) for name in folders]
        return True

    def listing(self, path: RelPath) -> list[FileStat]:
        self.between()
        if not self.root.replica.is_directory(path) or self._is_unreadable(path):
            raise UnboundedError(path)
        return self._seen(lambda each: split(each)[0] == path)

    def entries(self, path: RelPath, names: Iterable[bytes]) -> list[FileStat] | None:
        self.between()
        if not self.root.replica.is_directory(path):
            raise LocalChangedError(path, "it is gone")
        if self._is_unreadable(path):
            raise UnboundedError(path)
        wanted = set(names)
        return self._seen(lambda each: split(each)[0] == path and split(each)[1] in wanted)

    def _is_unreadable(self, path: RelPath) -> bool:
        return any(each in self.root.unknown for each in (path, *ancestors(path)))

    def _seen(self, wanted: Callable[[RelPath], bool]) -> list[FileStat]:
        found = [stat for stat in self.root.everything() if wanted(stat.path)]
        for stat in found:
            if stat.path in self.root.unknown:
                raise UnboundedError(stat.path)
        return [stat if stat.kind is not Kind.FILE else replace(stat, content=None) for stat in found]


class WatchedRoot(MemoryRoot):
    """A `MemoryRoot` of which parts can be looked at."""

    def __init__(self, replica: Replica, before: Hook, between: Callable[[], None]) -> None:
        super().__init__(replica, before)
        self.between = between
        self.hints = Hints()

    async def attend(self, hints: Hints) -> bool:
        await self.before("begin")
        self.hints = hints
        return True

    def part(self, rows: BaseRows, rules: IgnoreRules) -> MemoryPart:
        return MemoryPart(self, rows, self.between)

    async def concluded(self, looked: Collection[RelPath] | None, gone: Collection[Content], *, undone: bool) -> None:
        await self.before("begin")

    async def complete(self, look: PartLook, stats: list[FileStat], base: BaseIndex) -> Observation:
        """Hash what the base does not know by its evidence; a file may be another one by now."""
        await self.before("observe_part")
        known = {row.local: row.node.content for row in base.rows.values() if row.local is not None}
        found: list[FileStat] = []
        for stat in stats:
            content = stat.content or known.get(stat.tag)
            if stat.kind is Kind.FILE and content is None and self.tag_now(stat.path) == stat.tag:
                content = self.content_now(stat.path)
            found.append(replace(stat, content=content))
        return Observation(stats=found, unknown=[], problems=[], clock_ns=self.CLOCK_NS)


@dataclass
class Watcher:
    """Tells what changed since it was asked last, unless it loses it, and tells some of it twice or late.

    Attributes:
        unreliable: It has told something late, or never. The kernel does neither: it tells events in order, both halves
            of a rename one after the other, and says so when it has lost some.
    """

    root: MemoryRoot
    rng: random.Random
    log: list[str]
    before: dict[bytes, Entry] = field(default_factory=dict)
    seen: set[bytes] = field(default_factory=set)
    late: Dirt = CLEAN
    pending: Dirt = CLEAN
    unreliable: bool = False

    def take(self, faults: float) -> Dirt:
        """What is told now, with what an earlier cycle could not do."""
        told, self.late = self.pending | self.late, CLEAN
        if faults and self.rng.random() < faults:
            self.log.append("the watcher overflows")
            self.forget()
            return EVERYTHING
        for path in sorted(self.seen):
            dirt = self._dirt(path)
            roll = self.rng.random() if faults else 1.0
            if roll < faults:
                self.unreliable = True
                self.log.append(f"the watcher loses {path!r}")
                continue
            if roll < 2 * faults:
                self.late |= dirt
                self.unreliable = True
                self.log.append(f"the watcher tells {path!r} late")
                continue
            if roll < 3 * faults:
                self.late |= dirt
                self.log.append(f"the watcher tells {path!r} twice")
            told |= dirt
        self.seen = set()
        self.pending = CLEAN
        return told

    def see(self, now: dict[bytes, Entry]) -> None:
        """Something changed: what is changed back before anybody asks is told, too."""
        self.seen |= self._changed(now)
        self.before = now

    def again(self, dirt: Dirt) -> None:
        """A cycle that looked there was not done."""
        self.pending |= dirt

    def forget(self) -> None:
        """Everything is looked at."""
        self.before, self.seen, self.late, self.pending = self.root.snapshot(), set(), CLEAN, CLEAN

    def _changed(self, now: Mapping[bytes, Entry]) -> set[bytes]:
        """What the kernel tells of: not of what a directory brought along when it was moved, or took with it."""
        changed = {path for path in now.keys() | self.before.keys() if now.get(path) != self.before.get(path)}
        return {path for path in changed if not self._other(path.rpartition(b"/")[0], now)}

    def _other(self, folder: bytes, now: Mapping[bytes, Entry]) -> bool:
        if not folder:
            return False
        one, two = self.before.get(folder), now.get(folder)
        return one is None or two is None or one.identity != two.identity

    def _dirt(self, path: bytes) -> Dirt:
        """Some kinds of events name the entry, some only the directory."""
        if path.startswith(PARK_FOLDER):
            return CLEAN
        if self.rng.random() < 0.5:
            return Dirt(entries=frozenset({RelPath(path)}))
        return Dirt(directories=frozenset({split(RelPath(path))[0]}))


def hints_of(dirt: Dirt) -> Hints:
    """As the daemon does it."""
    directories = None if dirt.everything else dirt.directories
    return Hints(directories=directories, entries=dirt.entries)
